"""Few rows as bytes are the batch that they were made of, however they are cut and joined."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import Batch, Partials, Slices
from penstock.engine.errors import RecordError
from penstock.engine.few_rows import FewRows, FewRowsWriter, joined

WORDS = st.integers(-(2**63), 2**63 - 1)
VALUES: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): WORDS,
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.timezone.utc)),
    pa.null(): st.none(),
}


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Few rows, mostly a part of more; each value is a word, or a null that has no type."""
    kinds = [pa.int64(), *draw(st.lists(st.sampled_from(list(VALUES)), max_size=3))]
    rows = draw(st.integers(1, 6))
    columns = [pa.array(draw(st.lists(VALUES[kind], min_size=rows, max_size=rows)), kind) for kind in kinds]
    schema = pa.schema(
        [(f"c{place}", kind) for place, kind in enumerate(kinds)], draw(st.sampled_from([None, {"a": "b"}]))
    )
    times = draw(st.none() | st.lists(WORDS, min_size=rows, max_size=rows))
    partials = draw(st.sampled_from([None, Partials("c0"), Partials("c0", Slices(10, 3))]))
    timestamps = None if times is None else pa.array(times, pa.int64())
    batch = Batch(pa.RecordBatch.from_arrays(columns, schema=schema), timestamps, None, partials)
    return batch.slice(draw(st.integers(0, rows - 1)))


def few(batch: Batch) -> FewRows:
    """The rows of the batch in their order."""
    rows = FewRowsWriter()(batch, range(batch.num_rows))
    assert rows is not None
    return rows


def same(one: Batch, other: Batch) -> bool:
    """Whether both hold the same, with the same columns."""
    alike = one.data.schema.equals(other.data.schema, check_metadata=True)
    parts = (one.data, one.timestamps, one.kinds, one.partials)
    return alike and parts == (other.data, other.timestamps, other.kinds, other.partials)


@given(batches(), st.data())
def test_rows_are_those_at_their_places_in_that_order(batch: Batch, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(batch.num_rows)))
    rows = FewRowsWriter()(batch, order)
    assert rows is not None
    assert same(rows, batch.take(pa.array(order, pa.int64())))
    assert same(rows.columns(), rows)
    assert same(pickle.loads(pickle.dumps(rows)), rows)
    assert rows.num_rows == batch.num_rows
    assert rows.nbytes == batch.nbytes


@given(batches(), st.data())
def test_what_is_cut_and_joined_is_as_before(batch: Batch, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, batch.num_rows))
    first, rest = few(batch).slice(0, place), few(batch).slice(place)
    assert same(first, batch.slice(0, place))
    assert same(rest, batch.slice(place))
    whole = joined([first, rest])
    assert isinstance(whole, FewRows)
    assert same(whole, batch)


def test_what_is_no_word_stays_a_column() -> None:
    write, words = FewRowsWriter(), Batch(pa.record_batch({"n": [1, 2]}))
    others = [
        Batch(pa.record_batch({"n": ["a", "b"]})),
        Batch(pa.record_batch({"n": pa.array([1, 2], pa.int32())})),
        Batch(pa.record_batch({"n": [[1], [2]]})),
        Batch(pa.record_batch({"n": [1, None]})),
        Batch(pa.record_batch({"n": pa.nulls(2)})),
        Batch(pa.record_batch({"n": pa.array(["a", "b"]).dictionary_encode()})),
        Batch(words.data, None, pa.array([0, 3], pa.int8())),
    ]
    for other in others:
        assert write(other, [0, 1]) is None
        rows = write(words, [0, 1])
        assert rows is not None
        assert same(rows, words)


def test_a_type_that_the_program_has_not_registered_is_no_word() -> None:
    marks = {"ARROW:extension:name": "a type", "ARROW:extension:metadata": ""}
    data = pa.RecordBatch.from_arrays([pa.array([1])], schema=pa.schema([pa.field("n", pa.int64(), metadata=marks)]))
    assert FewRowsWriter()(Batch(data), [0]) is None


PLAIN = Batch(pa.record_batch({"n": [1]}))


@pytest.mark.parametrize(
    "other",
    [
        Batch(PLAIN.data, pa.array([9])),
        Batch(PLAIN.data, partials=Partials("n")),
        Batch(PLAIN.data.replace_schema_metadata({"a": "b"})),
        Batch(pa.record_batch({"n": [1.5]})),
    ],
)
def test_a_writer_sees_when_columns_timestamps_and_marks_change(other: Batch) -> None:
    write = FewRowsWriter()
    for batch in (PLAIN, other, PLAIN):
        rows = write(batch, [0])
        assert rows is not None
        assert same(rows, batch)


def test_rows_and_columns_are_joined_as_columns() -> None:
    rows, columns = few(Batch(pa.record_batch({"n": [1]}))), Batch(pa.record_batch({"n": [None, 2]}))
    assert joined([rows, columns]).data.column("n").to_pylist() == [1, None, 2]
    assert joined([columns, rows]).data.column("n").to_pylist() == [None, 2, 1]


def test_rows_of_other_columns_are_not_joined_as_bytes() -> None:
    with pytest.raises(RecordError, match="column 'n' is int64 in some batches and double in others"):
        joined([few(PLAIN), few(Batch(pa.record_batch({"n": [1.5]})))])


def test_many_rows_joined_are_no_more_bytes_when_they_are_pickled_as_columns() -> None:
    columns = {f"c{place}": list(range(50)) for place in range(10)}
    part = few(Batch(pa.record_batch(columns), pa.array(range(50), pa.int64())))
    rows = joined([part] * 20)
    assert isinstance(rows, FewRows)
    assert len(pickle.dumps(rows, 5)) < 1.1 * len(rows.rows)
