"""Batches: parts of them, and several of them put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import (
    Batch,
    Partials,
    Slices,
    concat_batches,
    concat_record_batches,
    table_to_record_batch,
)
from penstock.engine.errors import RecordError
from tests.engine.helpers import numbers


def full(values: list[int]) -> Batch:
    """A batch whose timestamps are its values plus 100 and whose kinds are its values."""
    return Batch(
        pa.record_batch({"n": pa.array(values, pa.int64())}),
        pa.array([n + 100 for n in values], pa.int64()),
        pa.array(values, pa.int8()),
    )


def contents(batch: Batch) -> list[tuple[int, int, int]]:
    assert batch.timestamps is not None
    assert batch.kinds is not None
    columns = batch.data.column("n").to_pylist(), batch.timestamps.to_pylist(), batch.kinds.to_pylist()
    return list(zip(*columns, strict=True))


SMALL = st.lists(st.integers(0, 100), max_size=12)


@given(SMALL, st.integers(0, 12), st.none() | st.integers(0, 12))
def test_a_slice_takes_timestamps_and_kinds_along(values: list[int], offset: int, length: int | None) -> None:
    offset = min(offset, len(values))
    end = len(values) if length is None else offset + length
    assert contents(full(values).slice(offset, length)) == contents(full(values))[offset:end]


def test_taken_and_filtered_rows_take_timestamps_and_kinds_along() -> None:
    batch = full([1, 2, 3])
    assert contents(batch.take(pa.array([2, 0, 2]))) == [(3, 103, 3), (1, 101, 1), (3, 103, 3)]
    assert contents(batch.filter(pa.array([True, None, False]))) == [(1, 101, 1)]


def test_other_columns_keep_timestamps_and_kinds() -> None:
    batch = full([1, 2])
    changed = batch.with_data(pa.record_batch({"m": [7, 8]}))
    assert changed.data.to_pydict() == {"m": [7, 8]}
    assert (changed.timestamps, changed.kinds) == (batch.timestamps, batch.kinds)


def test_partial_aggregates_stay_marked_whatever_part_of_them_is_taken() -> None:
    mark = Partials("n", Slices(10, 13))
    batch = Batch(full([1, 2]).data, partials=mark)
    parts = [
        batch.slice(1),
        batch.take(pa.array([0])),
        batch.filter(pa.array([True, False])),
        batch.with_data(batch.data),
    ]
    assert {part.partials for part in (*parts, concat_batches(parts))} == {Partials("n", Slices(10, 3))}


def test_bytes_are_those_of_the_rows_with_their_timestamps_and_kinds() -> None:
    assert numbers(range(10)).nbytes == 80
    assert full(list(range(10))).nbytes == 170
    assert full(list(range(10))).slice(2, 3).nbytes == 51


@given(st.lists(SMALL, min_size=1, max_size=5))
def test_batches_put_together_have_all_rows_in_order(parts: list[list[int]]) -> None:
    batches = [full(part) for part in parts]
    assert contents(concat_batches(batches)) == [row for batch in batches for row in contents(batch)]


def test_a_single_batch_is_not_copied() -> None:
    batch = numbers([1])
    assert concat_batches([batch]) is batch


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.list_(pa.int8()), pa.timestamp("ms", "UTC")])
def test_a_column_of_nulls_takes_the_type_that_others_give_it(kind: pa.DataType) -> None:
    typed, untyped = pa.record_batch({"x": pa.nulls(1, kind)}), pa.record_batch({"x": pa.nulls(2)})
    for parts in ([typed, untyped], [untyped, typed], [untyped, typed, untyped]):
        joined = concat_record_batches(parts)
        assert joined.schema.field("x").type == kind
        assert joined.num_rows == sum(part.num_rows for part in parts)


def test_dictionaries_of_several_batches_are_put_together() -> None:
    parts = [pa.record_batch({"x": pa.array(values).dictionary_encode()}) for values in (["a", "b"], ["c", "a"])]
    assert concat_record_batches(parts).column("x").to_pylist() == ["a", "b", "c", "a"]


def test_columns_of_different_types_do_not_fit() -> None:
    parts = [pa.record_batch({"x": [1]}), pa.record_batch({"x": ["a"]})]
    with pytest.raises(RecordError, match=r"column 'x' is int64 in some batches and string in others; .*returns="):
        concat_record_batches(parts)


@pytest.mark.parametrize("others", [{"y": [1]}, {"b": [1], "a": [1]}, {"a": [1]}, {"a": [1], "b": [1], "c": [1]}])
def test_columns_of_different_names_or_order_do_not_fit(others: dict[str, list[int]]) -> None:
    parts = [pa.record_batch({"a": [1], "b": [1]}), pa.record_batch(others)]
    for pair in (parts, parts[::-1]):
        with pytest.raises(RecordError, match=r"some have the columns .*, others .*select"):
            concat_record_batches(pair)


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, lambda item: pa.struct([("f", item)])])
def test_nulls_inside_of_a_column_take_the_type_that_others_give_them(make: Callable[[Any], pa.DataType]) -> None:
    typed, untyped = (
        pa.record_batch({"x": pa.nulls(1, make(pa.int64()))}),
        pa.record_batch({"x": pa.nulls(2, make(pa.null()))}),
    )
    for parts in ([typed, untyped], [untyped, typed]):
        joined = concat_record_batches(parts)
        assert (joined.schema.field("x").type, joined.num_rows) == (make(pa.int64()), 3)
    other = pa.record_batch({"x": pa.nulls(1, make(pa.string()))})
    with pytest.raises(RecordError, match="column 'x' is "):
        concat_record_batches([typed, other])


def test_a_column_may_have_nulls_where_one_batch_may() -> None:
    strict = pa.RecordBatch.from_arrays([pa.array([1])], schema=pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    parts = [strict, pa.record_batch({"x": pa.array([None], pa.int64())})]
    for pair in (parts, parts[::-1]):
        assert concat_record_batches(pair).schema.field("x").nullable


def test_batches_with_and_without_timestamps_do_not_fit() -> None:
    with pytest.raises(pa.ArrowInvalid, match="some of the batches carry timestamps"):
        concat_batches([full([1]), numbers([1])])


def test_a_table_of_several_chunks_becomes_one_batch() -> None:
    table = pa.concat_tables([pa.table({"x": [1], "d": pa.array(["a"]).dictionary_encode()})] * 2)
    batch = table_to_record_batch(table)
    assert batch.to_pydict() == {"x": [1, 1], "d": ["a", "a"]}
    assert table_to_record_batch(pa.table({"x": pa.chunked_array([], pa.int64())})).num_rows == 0


def test_lists_of_nulls_survive_being_joined_to_a_column_of_nulls() -> None:
    lists = pa.record_batch({"v": pa.array([[None, None]], pa.list_(pa.null()))})
    joined = concat_record_batches([pa.record_batch({"v": pa.nulls(2)}), lists])
    joined.validate(full=True)
    assert joined.column("v").to_pylist() == [None, None, [None, None]]


def test_rows_without_kinds_are_inserts_beside_others() -> None:
    rows = pa.record_batch({"n": [1, 2]})
    joined = concat_batches([Batch(rows), Batch(rows, kinds=pa.array([1, 2], pa.int8())), Batch(rows)])
    assert joined.kinds is not None
    assert joined.kinds.to_pylist() == [0, 0, 1, 2, 0, 0]
