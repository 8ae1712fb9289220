"""Columns by slot give back what was stored, of any type."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.slots import SlotColumn

VALUES = [
    (pa.int64(), [1, None, -(2**63), 2**63 - 1]),
    (pa.int8(), [1, None, -128]),
    (pa.uint64(), [0, None, 2**64 - 1]),
    (pa.float64(), [0.5, None, -math.inf]),
    (pa.float32(), [0.5, None, math.inf]),
    (pa.bool_(), [True, None, False]),
    (pa.string(), ["a", None, ""]),
    (pa.binary(), [b"a", None, b""]),
    (pa.date32(), [date(2013, 1, 1), None]),
    (pa.timestamp("ms", "UTC"), [datetime(2013, 1, 1, tzinfo=timezone.utc), None]),
    (pa.duration("s"), [None]),
    (pa.decimal128(38, 2), [Decimal("1.25"), None]),
    (pa.list_(pa.int64()), [[1, None], None, [], [2, 3]]),
    (pa.list_(pa.list_(pa.int64())), [[[1]], [[2]]]),
    (pa.struct([("x", pa.int64())]), [{"x": 1}, None]),
]


@pytest.mark.parametrize(
    ("kind", "values"), VALUES, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_a_column_gives_back_what_was_stored(kind: pa.DataType, values: list[Any]) -> None:
    column, stored = SlotColumn(), pa.array(values, kind)
    column.set(np.arange(len(values)), pa.nulls(len(values)))
    column.set(np.arange(len(values)), stored)
    back = column.get(np.arange(len(values)))
    if stored.null_count < len(values):
        assert back.type == kind
    assert back.to_pylist() == values


def test_not_a_number_stays_what_it_is() -> None:
    column = SlotColumn()
    column.set(np.array([0]), pa.array([math.nan]))
    assert math.isnan(column.get(np.array([0]))[0].as_py())


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("ns"), pa.duration("ns")])
def test_times_keep_their_nanoseconds(kind: pa.DataType) -> None:
    column, stored = SlotColumn(), pa.array([1, None, 1_000_000_001], kind)
    column.set(np.arange(3), stored)
    assert column.get(np.arange(3)).equals(stored)


def test_a_slot_that_was_never_set_is_null() -> None:
    column = SlotColumn()
    assert column.get(np.array([5])).to_pylist() == [None]
    column.set(np.array([0]), pa.array([1]))
    assert column.get(np.array([0, 7])).to_pylist() == [1, None]


def test_a_slot_set_to_null_is_null_again() -> None:
    column = SlotColumn()
    column.set(np.array([0, 1]), pa.array([1, 2]))
    column.set(np.array([1]), pa.array([None], pa.int64()))
    assert column.get(np.array([0, 1])).to_pylist() == [1, None]


def test_a_slot_that_was_cleared_is_null_and_holds_nothing() -> None:
    for stored in (pa.array([1, 2]), pa.array(["a", "b"]), pa.array([0.5, 1.5])):
        column = SlotColumn(stored.type)
        column.set(np.array([0, 1]), stored)
        column.clear(np.array([0, 9]))
        assert column.has(np.array([0, 1, 9])).tolist() == [False, True, False]
        assert column.get(np.array([0, 1])).to_pylist() == [None, stored[1].as_py()]


@given(st.lists(st.dictionaries(st.integers(0, 40), st.none() | st.integers(-9, 9), min_size=1, max_size=6)))
def test_a_column_is_a_dict_of_slots(updates: list[dict[int, int | None]]) -> None:
    column, model = SlotColumn(), dict[int, int | None]()
    for update in updates:
        column.set(np.array(list(update)), pa.array(list(update.values()), pa.int64()))
        model.update(update)
    assert column.get(np.arange(41)).to_pylist() == [model.get(slot) for slot in range(41)]
    for first in range(42):
        assert column.take_first(first)().to_pylist() == [model.get(slot) for slot in range(first)]


@pytest.mark.parametrize(
    ("kind", "values"), VALUES, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_what_was_taken_stays_as_it_was(kind: pa.DataType, values: list[Any]) -> None:
    column, slots = SlotColumn(kind), np.arange(len(values))
    column.set(slots, pa.array(values, kind))
    taken, first = column.take(slots), column.take_first(len(values))
    column.clear(slots)
    column.set(slots[:1], pa.array(values[-1:], kind))
    assert taken().to_pylist() == first().to_pylist() == values


@pytest.mark.parametrize(
    ("kind", "values"), VALUES, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_one_value_is_read_and_written_as_a_batch_is(kind: pa.DataType, values: list[Any]) -> None:
    column, one_by_one = SlotColumn(kind), SlotColumn(kind)
    if not column.is_direct:
        return
    column.set(np.arange(len(values)), pa.array(values, kind))
    assert [column.read(slot) for slot in range(len(values) + 1)] == [*values, None]
    for slot, value in reversed(list(enumerate(values))):
        if value is not None:
            one_by_one.write(slot, value)
    slots = np.arange(len(values))
    assert one_by_one.get(slots).equals(column.get(slots))


@pytest.mark.parametrize(("kind", "value"), [(pa.int64(), 2**63), (pa.uint64(), -1), (pa.int64(), -(2**63) - 1)])
def test_an_integer_beyond_64_bits_is_not_written(kind: pa.DataType, value: int) -> None:
    with pytest.raises(OverflowError):
        SlotColumn(kind).write(0, value)
