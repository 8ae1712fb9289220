"""The input gate: few rows of several messages are one batch, and what must not wait for more of them."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import (
    Barrier,
    Batch,
    Control,
    Element,
    IterationBarrier,
    LatencyMarker,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.few_rows import FewRows, FewRowsWriter
from penstock.engine.task.chain import GuardedEntry
from penstock.engine.task.input_gate import InputGate
from tests.engine.helpers import numbers, numbers_in, timed
from tests.engine.task.test_input_gate import put, take_all


def test_the_few_rows_that_wait_are_one_batch_and_event_time_follows_them() -> None:
    gate, released = InputGate([0, 0]), []
    gate.put(0, (numbers([1]), Watermark(5)), lambda: released.append(1))
    gate.put(1, (numbers([2]), Watermark(3)), lambda: released.append(2))
    gate.put(0, (numbers([3]), Watermark(6)), lambda: released.append(3))
    taken = take_all(gate)
    assert [numbers_in([element]) for _, element in taken[:-1]] == [[1, 2, 3]]
    assert taken[-1] == (0, Watermark(3))
    assert released == [1, 2, 3]


def test_rows_of_two_inputs_and_many_rows_are_not_put_together() -> None:
    gate = InputGate([0, 1])
    for channel, rows in ((0, [1]), (1, [2]), (0, [3]), (1, range(1000))):
        put(gate, channel, numbers(rows))
    taken = [(index, numbers_in([element])) for index, element in take_all(gate)]
    assert taken == [(0, [1, 3]), (1, [2]), (1, [*range(1000)])]


@pytest.mark.parametrize(
    "between", [Watermark(3, between_rows=True), WatermarkStatus(True), Barrier(1), IterationBarrier(7, 0, 0)]
)
def test_rows_stay_behind_what_they_may_not_pass(between: Control) -> None:
    gate = InputGate([0])
    put(gate, 0, numbers([1]), between)
    put(gate, 0, numbers([2]))
    assert [numbers_in([element]) for _, element in take_all(gate)] == [[1], [], [2]]


def test_rows_of_different_columns_are_not_put_together() -> None:
    gate = InputGate([0])
    put(gate, 0, numbers([1]))
    put(gate, 0, timed([{"n": 2, "at": 7}], {"n": pa.int64()}))
    assert [numbers_in([element]) for _, element in take_all(gate)] == [[1], [2]]


def test_rows_that_have_come_as_bytes_and_as_columns_are_one_batch_and_operators_have_columns() -> None:
    gate = InputGate([0, 0])
    for channel, rows in enumerate([as_bytes(1, 2), as_bytes(3), numbers([4]), as_bytes(5)]):
        put(gate, channel % 2, rows)
    ((index, batch),) = take_all(gate)
    assert numbers_in([batch]) == [1, 2, 3, 4, 5]
    seen: list[Element] = []
    entry = GuardedEntry(SimpleNamespace(process=lambda _, element: seen.append(element)), "operator 'next'")
    entry.process(index, as_bytes(7))
    assert type(seen[0]) is Batch
    assert numbers_in(seen) == [7]


def as_bytes(*values: int) -> FewRows:
    rows = FewRowsWriter()(numbers(values), range(len(values)))
    assert rows is not None
    return rows


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 1, 2, 40, 70]), st.booleans()), max_size=20))
def test_put_together_or_not_each_channels_rows_come_in_order_and_no_watermark_too_soon(
    arrivals: list[tuple[int, int, bool]],
) -> None:
    gate, sent = InputGate(range(3)), [list[int](), list[int](), list[int]()]
    for number, (channel, count, is_between) in enumerate(arrivals):
        rows = [1000 * number + row for row in range(count)]
        sent[channel].extend(rows)
        put(gate, channel, numbers(rows), Watermark(1000 * number, is_between))
    came: list[list[int]] = [[], [], []]
    for index, element in take_all(gate):
        came[index].extend(numbers_in([element]))
        if isinstance(element, Watermark):
            before = [[n for n in rows if n < element.timestamp] for rows in sent]
            assert [rows[: len(due)] for rows, due in zip(came, before, strict=True)] == before
    assert came == sent


def test_many_rows_barriers_and_second_messages_press_until_they_are_taken() -> None:
    gate = InputGate([0, 0])
    put(gate, 0, numbers([1]), Watermark(1))
    put(gate, 1, numbers([2]), LatencyMarker("source", 0))
    assert not gate.presses
    put(gate, 0, numbers([3]))
    assert gate.presses
    take_all(gate)
    assert not gate.presses
    put(gate, 0, numbers(range(1000)))
    assert gate.presses
    take_all(gate)
    put(gate, 0, Barrier(1))
    assert gate.presses


def test_what_was_taken_with_the_rows_before_it_presses() -> None:
    gate = InputGate([0])
    put(gate, 0, numbers([1]), Barrier(1))
    assert isinstance(gate.next(), tuple)
    assert gate.presses
    assert take_all(gate) == [(0, Barrier(1))]
