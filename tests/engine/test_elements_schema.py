"""What may follow in one stream: the same columns, whose types may become known later; errors in every order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.api.streams import DataStream
from penstock.engine.elements import Batch, Element, SchemaGuard, Watermark
from penstock.engine.errors import PenstockError, RecordError
from penstock.engine.task.chain import GuardedEntry
from tests.engine.helpers import local_environment, numbers


def batch(**columns: Any) -> Batch:
    return Batch(pa.record_batch(columns))


class Recorded:
    """An entry that keeps what came."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Element]] = []

    def process(self, input_index: int, element: Element) -> None:
        self.seen.append((input_index, element))


def test_a_column_of_nulls_may_come_before_and_after_its_type() -> None:
    guard = SchemaGuard("operator 'next'")
    for values in ([None], [1], [None], [2]):
        guard.check(batch(x=values))
    with pytest.raises(RecordError, match=r"operator 'next': column 'x' is int64 in .* and double .*returns="):
        guard.check(batch(x=[1.5]))


def test_a_type_is_held_through_batches_of_nulls() -> None:
    guard = SchemaGuard("operator 'next'")
    for values in ([1], [None]):
        guard.check(batch(x=values))
    with pytest.raises(RecordError, match="column 'x'"):
        guard.check(batch(x=["a"]))


@pytest.mark.parametrize("other", [{"y": [1]}, {"x": [1], "y": [1]}])
def test_columns_of_other_names_are_refused(other: dict[str, list[int]]) -> None:
    guard = SchemaGuard("operator 'next'")
    guard.check(batch(x=[1]))
    with pytest.raises(RecordError, match=r"operator 'next': .*some have the columns x, others "):
        guard.check(batch(**other))


def test_each_input_has_columns_of_its_own() -> None:
    recorded = Recorded()
    entry = GuardedEntry(recorded, "operator 'next'")
    sent: list[tuple[int, Element]] = [(0, batch(x=[1])), (1, batch(y=[1])), (0, Watermark(1)), (0, numbers([]))]
    for input_index, element in sent:
        entry.process(input_index, element)
    assert recorded.seen == sent
    with pytest.raises(RecordError, match="column"):
        entry.process(0, batch(y=[1]))


ROW = [{"n": 1}]


def united(one: Any, two: Any, **settings: Any) -> Iterator[DataStream]:
    """The union of two maps without declared columns, in both orders."""
    for first, second in itertools.permutations([one, two]):
        env = local_environment(**settings)
        yield env.from_collection(ROW).map(first).union(env.from_collection(ROW).map(second))


PAIRS = [(lambda _: {"x": 1}, lambda _: {"y": 1}), (lambda _: {"x": 1}, lambda _: {"x": 1.5})]
SETTINGS = [{"seed": seed, "buffer_timeout": timeout} for seed in range(4) for timeout in ("0ms", "50ms")]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_streams_that_do_not_fit_fail_at_the_next_operator(one: Any, two: Any, settings: dict[str, Any]) -> None:
    for stream in united(one, two, **settings):
        with pytest.raises(PenstockError, match=r"operator 'meet', subtask 0: column '[xy]'"):
            stream.filter(lambda _: True).name("meet").collect().to_arrow()


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_streams_that_do_not_fit_fail_at_the_client(one: Any, two: Any, settings: dict[str, Any]) -> None:
    for stream in united(one, two, **settings):
        with pytest.raises(RecordError, match=r"collect\(\): column"):
            stream.collect().to_arrow()


def test_subtasks_that_infer_other_types_fail_where_their_rows_meet() -> None:
    for seed in range(4):
        env = local_environment(2, seed=seed)
        rows = env.from_collection([{"n": n} for n in range(8)]).rebalance()
        # Rebalance sends the first half to one subtask: each infers one type, and neither is wrong by itself.
        mixed = rows.map(lambda row: {"x": row["n"] if row["n"] < 4 else float(row["n"])})
        with pytest.raises(RecordError, match=r"collect\(\): column 'x' is .*(int64|double).*(int64|double)"):
            list(mixed.collect())
