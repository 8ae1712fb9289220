"""Value states as columns: fast for batches, and no larger than the keys that hold something."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.state.backend import BackendContext
from penstock.engine.state.columnar import ColumnarBackend
from penstock.engine.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tests.engine.state.saved import snapshot_of

VALUES = [
    ("int64", -(2**63), 5),
    ("uint64", 2**64 - 1, 5),
    ("bool", False, True),
    ("float64", -math.inf, 0.5),
    ("string", "", "a"),
    ("binary", b"", b"a"),
    ("date32", date(2026, 1, 1), date(1900, 1, 1)),
    ("timestamp[ns, UTC]", datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(1999, 1, 1, tzinfo=timezone.utc)),
    (pa.decimal128(38, 2), Decimal("1.25"), Decimal("0.00")),
    ("list<int64>", [], [1, 2]),
    (pa.struct([("x", pa.int64())]), {"x": None}, {"x": 1}),
]


def make(kind: pa.DataType | None = None) -> ColumnarBackend:
    backend = ColumnarBackend(BackendContext("operator 'tested', subtask 0", ("k",), 128, ManualClock()))
    backend.bind_keys(pa.schema([("k", kind or pa.int64())]))
    return backend


def keys(*values: Any, kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, kind or pa.int64())})


@pytest.mark.parametrize(("kind", "one", "default"), VALUES, ids=lambda value: str(value)[:20])
def test_values_of_every_type_by_batch_and_by_key(kind: Any, one: Any, default: Any) -> None:
    backend = make()
    plain = backend.value_state(ValueStateDescriptor("plain", kind))
    defaulted = backend.value_state(ValueStateDescriptor("defaulted", kind, default=default))
    backend.set_current_keys(keys(1, 2, 3))
    for state, missing in ((plain, None), (defaulted, default)):
        assert state.values().to_pylist() == [missing] * 3
        state.update_values([None, one, None])
        assert state.values().to_pylist() == [missing, one, missing]
        backend.set_current_key(2)
        assert state.value() == one
        backend.set_current_key(3)
        assert state.value() == missing
        state.update(one)
        backend.set_current_keys(keys(3, 9))
        assert state.values().to_pylist() == [one, missing]
        backend.set_current_keys(keys(1, 2, 3))


def test_reading_gives_no_key_a_slot() -> None:
    backend = make()
    value = backend.value_state(ValueStateDescriptor("v", "int64", default=0))
    for number in range(100):
        backend.set_current_keys(keys(number))
        value.values()
        value.update_values([None])
        backend.set_current_key(number)
        value.value()
    assert backend._places.index.end == 0


def test_keys_that_hold_nothing_give_their_slots_back() -> None:
    backend = make(pa.string())
    first = backend.value_state(ValueStateDescriptor("first", "int64"))
    second = backend.value_state(ValueStateDescriptor("second", "string"))
    for round_ in range(50):
        names = [f"{round_}-{row}" for row in range(10)]
        backend.set_current_keys(keys(*names, kind=pa.string()))
        first.update_values(range(10))
        second.update_values(["a"] * 10)
        first.update_values(pa.nulls(10))
        assert second.values().to_pylist() == ["a"] * 10, "one state still holds them"
        for name in names[:5]:
            backend.set_current_key(name)
            second.clear()
        second.update_values(pa.nulls(10))
    assert backend._places.index.end <= 10
    assert list(backend.entries("first")) == list(backend.entries("second")) == []


def test_a_slot_that_is_used_again_shows_nothing_of_the_key_before() -> None:
    backend = make()
    first = backend.value_state(ValueStateDescriptor("first", "int64"))
    second = backend.value_state(ValueStateDescriptor("second", "int64"))
    backend.set_current_key(1)
    first.update(1)
    second.update(1)
    first.clear()
    second.clear()
    backend.set_current_key(2)
    first.update(2)
    assert second.value() is None
    backend.set_current_key(1)
    assert first.value() is None


def test_a_batch_and_a_key_of_it_see_each_others_writes() -> None:
    backend = make()
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    backend.set_current_keys(keys(1, 2))
    backend.set_current_key(2)
    assert (value.value(), value.values().to_pylist()) == (None, [None, None])
    value.update(5)
    assert value.values().to_pylist() == [None, 5]
    value.update_values([1, None])
    assert value.value() is None
    value.update_values([1, 2])
    assert value.value() == 2
    value.clear()
    assert value.values().to_pylist() == [1, None]


def test_null_keys_are_keys() -> None:
    backend = make(pa.string())
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    backend.set_current_keys(keys("a", None, kind=pa.string()))
    value.update_values([1, 2])
    backend.set_current_key(None)
    assert value.value() == 2
    again = make(pa.string())
    restored = again.value_state(ValueStateDescriptor("v", "int64"))
    again.restore(snapshot_of(backend).tables)
    again.set_current_keys(keys(None, "a", kind=pa.string()))
    assert restored.values().to_pylist() == [2, 1]


def test_states_without_columns_work_beside_them() -> None:
    backend = make()
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    numbers = backend.list_state(ListStateDescriptor("l", "int64"))
    backend.set_current_key(1)
    numbers.add(7)
    value.update(1)
    backend.set_current_key(1, (0, 10))
    assert (value.value(), numbers.get()) == (None, [])
    value.update(2)
    backend.set_current_key(1)
    assert (value.value(), numbers.get()) == (1, [7])
    assert sorted(backend.entries("v"), key=str) == [(1, (0, 10)), (1, None)]


def test_one_number_at_a_time_makes_no_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = make()
    value = backend.value_state(ValueStateDescriptor("v", "int64"))
    backend.set_current_keys(keys(1, 2))
    value.update_values([1, 2])
    for name in ("get", "set"):
        monkeypatch.setattr(value.column, name, None)  # type: ignore[attr-defined]
    monkeypatch.setattr(backend._heap.tables, "key_columns", None)
    for key in (2, 1):
        backend.set_current_key(key)
        value.update(value.value() + 10)
        assert value.value() == key + 10
