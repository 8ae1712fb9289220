"""What a program may change about the type of a state, and what it is told where it may not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import RestoreError
from penstock.engine.state.schema_evolution import evolve

_DAY = dt.datetime(2024, 2, 29, 12)


def _column(values: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    """In two chunks, the second a slice behind a value that does not belong to it."""
    half = len(values) // 2
    return pa.chunked_array([pa.array(values[:half], kind), pa.array(values[:1] + values[half:], kind)[1:]], kind)


def test_fields_are_added_dropped_and_moved() -> None:
    saved = pa.struct({"a": pa.int32(), "gone": pa.string(), "b": pa.string()})
    declared = pa.struct({"b": pa.string(), "new": pa.float64(), "a": pa.int64(), "note": pa.string()})
    values = [{"a": 1, "gone": "x", "b": "one"}, None, {"a": None, "gone": "y", "b": None}, {"a": 4, "b": "four"}]
    evolved = evolve(_column(values, saved), declared, {"note": "-", "a": 7})
    assert evolved.type == declared
    assert evolved.to_pylist() == [
        {"b": "one", "new": None, "a": 1, "note": "-"},
        None,
        {"b": None, "new": None, "a": None, "note": "-"},
        {"b": "four", "new": None, "a": 4, "note": "-"},
    ]


def test_structs_change_in_any_depth() -> None:
    inner, wider = pa.struct({"n": pa.int32()}), pa.struct({"n": pa.int64(), "m": pa.string()})
    saved = pa.struct({"one": inner, "list": pa.list_(inner), "map": pa.map_(pa.string(), inner)})
    declared = pa.struct({"one": wider, "list": pa.large_list(wider), "map": pa.map_(pa.large_string(), wider)})
    values = [
        {"one": {"n": 1}, "list": [{"n": 2}, None], "map": [("k", {"n": 3})]},
        {"one": None, "list": None, "map": None},
        {"one": {"n": 4}, "list": [], "map": []},
        {"one": {"n": 5}, "list": [{"n": 6}], "map": [("k", {"n": 7}), ("l", None)]},
    ]
    evolved = evolve(_column(values, saved), declared, {"one": {"m": "here"}})
    evolved.validate(full=True)
    assert evolved.to_pylist() == [
        {"one": {"n": 1, "m": "here"}, "list": [{"n": 2, "m": None}, None], "map": [("k", {"n": 3, "m": None})]},
        {"one": None, "list": None, "map": None},
        {"one": {"n": 4, "m": "here"}, "list": [], "map": []},
        {
            "one": {"n": 5, "m": "here"},
            "list": [{"n": 6, "m": None}],
            "map": [("k", {"n": 7, "m": None}), ("l", None)],
        },
    ]


@pytest.mark.parametrize(
    ("saved", "declared", "values"),
    [
        (pa.int32(), pa.int64(), [1, None, -(2**31)]),
        (pa.uint32(), pa.int64(), [1, None, 2**32 - 1]),
        (pa.uint8(), pa.uint16(), [0, None, 255]),
        (pa.int64(), pa.float64(), [0, None, 2**53]),
        (pa.int16(), pa.float32(), [0, None, -(2**15)]),
        (pa.int64(), pa.decimal128(22, 2), [0, None, 2**63 - 1]),
        (pa.float32(), pa.float64(), [0.5, None, -1.25]),
        (pa.decimal128(5, 2), pa.decimal256(50, 4), [Decimal("1.25"), None, Decimal("-999.99")]),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC"), [_DAY.replace(tzinfo=dt.timezone.utc), None]),
        (pa.duration("ms"), pa.duration("us"), [dt.timedelta(seconds=1), None]),
        (pa.time32("s"), pa.time64("us"), [dt.time(1, 2, 3), None]),
        (pa.string(), pa.large_string(), ["a", None, "b"]),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), [[1, None], None, [], [2]]),
        (pa.large_list(pa.int32()), pa.large_list(pa.int64()), [[1, None], None, [], [2]]),
        (pa.list_(pa.int32(), 2), pa.list_(pa.int64(), 2), [[1, None], None, [3, 4]]),
        (pa.null(), pa.struct({"a": pa.int64()}), [None, None]),
    ],
)
def test_wider_types_take_every_value(saved: pa.DataType, declared: pa.DataType, values: list[Any]) -> None:
    evolved = evolve(_column(values, saved), declared)
    evolved.validate(full=True)
    assert evolved.type == declared
    assert evolved.to_pylist() == values


@pytest.mark.parametrize(
    ("saved", "declared"),
    [
        (pa.int64(), pa.int32()),
        (pa.int32(), pa.uint64()),
        (pa.uint64(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.binary(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.large_string(), pa.string()),
        (pa.int64(), pa.decimal128(19, 2)),
        (pa.decimal128(5, 2), pa.decimal128(6, 4)),
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.timestamp("ms"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.large_list(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int64(), 2), pa.list_(pa.int64(), 3)),
        (pa.struct({"a": pa.int64()}), pa.int64()),
    ],
)
def test_other_types_are_refused_with_both_named(saved: pa.DataType, declared: pa.DataType) -> None:
    with pytest.raises(RestoreError) as caught:
        evolve(pa.chunked_array([], saved), declared)
    assert f"{saved} cannot become {declared}" in str(caught.value)


@pytest.mark.parametrize(
    ("around", "field"),
    [
        (lambda kind: pa.struct({"a": pa.struct({"b": pa.list_(kind)})}), "a.b[]"),
        (pa.list_, "[]"),
        (lambda kind: pa.map_(pa.string(), kind), "value"),
    ],
)
def test_the_field_that_does_not_fit_is_named(around: Callable[[pa.DataType], pa.DataType], field: str) -> None:
    with pytest.raises(RestoreError) as caught:
        evolve(pa.chunked_array([], around(pa.string())), around(pa.int64()))
    assert f"field {field!r} is string, which cannot become int64" in str(caught.value)


def test_a_new_field_that_may_not_be_null_needs_a_default() -> None:
    saved = pa.chunked_array([[{"a": 1}]])
    declared = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    with pytest.raises(RestoreError, match="field 'b' is new and may not be null"):
        evolve(saved, declared)
    assert evolve(saved, declared, {"b": 2}).to_pylist() == [{"a": 1, "b": 2}]


def test_an_integer_that_no_float_equals_is_refused() -> None:
    with pytest.raises(RestoreError, match="9007199254740993"):
        evolve(pa.chunked_array([[2**53 + 1]]), pa.float64())


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)), max_size=8), st.integers(0, 8))
def test_lists_keep_their_values_however_they_are_sliced(values: list[list[int | None] | None], begin: int) -> None:
    saved = pa.array(values, pa.list_(pa.int32()))[begin:]
    evolved = evolve(pa.chunked_array([saved]), pa.list_(pa.int64()))
    evolved.validate(full=True)
    assert evolved.to_pylist() == values[begin:]
