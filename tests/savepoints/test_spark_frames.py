"""Arrow rows with the types that Spark has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.savepoints.spark_frames import cast_batch, spark_schema

NS, SPAN = pa.timestamp("ns"), pa.duration("ns")
NUMBERS = st.integers(-(2**63), 2**63 - 1)


def as_spark_has(column: pa.Array) -> pa.Array:
    rows = pa.record_batch({"at": column})
    (converted,) = cast_batch(rows, spark_schema(rows.schema, "here")).columns
    converted.validate(full=True)
    return converted


def numbers(column: pa.Array, kind: pa.DataType) -> list[Any]:
    """The column with the type `kind`, whose times are numbers."""
    found: list[Any] = column.cast(kind).to_pylist()
    return found


@given(st.lists(NUMBERS | st.none()), st.sampled_from([NS, SPAN, pa.timestamp("ns", "Europe/Berlin")]))
def test_nanoseconds_are_rounded_down(values: list[int | None], kind: pa.DataType) -> None:
    found = as_spark_has(pa.array(values, pa.int64()).cast(kind))
    assert numbers(found, pa.int64()) == [None if value is None else value // 1000 for value in values]


@given(st.lists(st.none() | st.lists(NUMBERS | st.none(), min_size=2, max_size=2)), st.integers(0, 3))
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2)])
def test_nanoseconds_in_lists_are_too(kind: Any, values: list[list[int | None] | None], skipped: int) -> None:
    column = pa.array(values, kind(pa.int64())).cast(kind(NS)).slice(skipped)
    expected = [
        None if item is None else [None if value is None else value // 1000 for value in item] for item in values
    ]
    assert numbers(as_spark_has(column), pa.list_(pa.int64())) == expected[skipped:]


def test_nanoseconds_in_structs_maps_and_dictionaries_are_too() -> None:
    pairs = pa.array([{"a": -1, "n": 1}, None, {"a": None, "n": 2}], pa.struct({"a": NS, "n": pa.uint8()}))
    found = as_spark_has(pairs.slice(1))
    assert numbers(found, pa.struct({"a": pa.int64(), "n": pa.int16()})) == [None, {"a": None, "n": 2}]
    assert as_spark_has(pairs).field("a").cast(pa.int64()).to_pylist()[0] == -1
    named = pa.array([[("a", -1)], None, [("b", 1001), ("c", None)]], pa.map_(pa.string(), SPAN))
    found = as_spark_has(named.slice(1))
    assert numbers(found, pa.map_(pa.string(), pa.int64())) == [None, [("b", 1), ("c", None)]]
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None, 0], pa.int8()), pa.array([-1], NS))
    assert numbers(as_spark_has(coded), pa.int64()) == [-1, None, -1]
