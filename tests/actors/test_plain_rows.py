"""Few rows travel as Arrow's own messages, and come out as they were."""

from __future__ import annotations

import datetime
import decimal
import pickle
from typing import Any

import pyarrow as pa
import pytest

from penstock.actors.plain_rows import RowPacker, unpacked_rows
from penstock.engine.elements import Barrier, Batch, Element, Partials, Slices, Watermark, concat_batches
from penstock.engine.few_rows import FewRows, FewRowsWriter, joined

COLUMNS: dict[str, pa.Array] = {
    "int": pa.array([1, None, 3]),
    "text": pa.array(["a", None, "äöü"]),
    "bytes": pa.array([b"", b"x", None]),
    "bool": pa.array([True, False, None]),
    "time": pa.array([datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)] * 3, pa.timestamp("us", "UTC")),
    "decimal": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]),
    "none": pa.nulls(3),
}


def through_a_link(element: Element) -> Any:
    """What a receiver has of it."""
    return unpacked_rows(pickle.loads(pickle.dumps(RowPacker()(element))))


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("partials", [None, Partials("a, b"), Partials("n", Slices(10, 3))])
def test_rows_of_plain_columns_come_out_as_they_were(begin: int, partials: Partials | None) -> None:
    schema = pa.schema([pa.field(name, array.type) for name, array in COLUMNS.items()], {"of": "the user"})
    data = pa.RecordBatch.from_arrays(list(COLUMNS.values()), schema=schema)
    whole = Batch(data, pa.array([5, 6, 7]), pa.array([0, 3, 1], pa.int8()), partials)
    batch = whole.slice(begin)
    came = through_a_link(batch)
    assert came == batch
    assert came.data.schema.equals(schema, check_metadata=True)
    assert isinstance(RowPacker()(batch), tuple)


def test_rows_without_timestamps_have_none_and_no_rows_are_none() -> None:
    data = pa.record_batch({"n": [1, 2]})
    assert through_a_link(Batch(data)) == Batch(data)
    none = Batch(data, pa.array([1, 2])).slice(0, 0)
    assert through_a_link(none) == none


def test_few_rows_stay_bytes_on_their_way_so_that_those_of_several_channels_are_joined_as_such() -> None:
    batch = Batch(pa.record_batch({"n": [1, 2], "none": pa.nulls(2)}), pa.array([5, 6]), None, Partials("none"))
    rows = FewRowsWriter()(batch, [0, 1])
    assert rows is not None
    came = [through_a_link(rows), through_a_link(rows.slice(1))]
    assert all(isinstance(one, FewRows) for one in (*came, joined(came)))
    assert joined(came).columns() == concat_batches([batch, batch.slice(1)])


def test_what_arrow_does_not_send_alone_is_left_as_it_is() -> None:
    dictionaries = Batch(pa.record_batch({"n": pa.array(["a", "a"]).dictionary_encode()}))
    lists = Batch(pa.record_batch({"n": pa.array([[1], []])}))
    for element in (dictionaries, lists, Watermark(5, True), Barrier(2)):
        assert RowPacker()(element) is element
        assert through_a_link(element) == element


def test_watermarks_and_batches_of_other_columns_follow_on_one_channel() -> None:
    pack = RowPacker()
    numbers, texts = pa.record_batch({"n": [1]}), pa.record_batch({"n": ["a"]})
    noted = numbers.replace_schema_metadata({"of": "the user"})
    sent = [Batch(numbers), Watermark(5), Batch(noted), Batch(texts), Batch(texts), Watermark(-6, True), Batch(numbers)]
    came = [unpacked_rows(pickle.loads(pickle.dumps(pack(element)))) for element in sent]
    assert came == sent
    assert [one.between_rows for one in came if isinstance(one, Watermark)] == [False, True]
    for one, other in zip(came, sent, strict=True):
        if isinstance(one, Batch) and isinstance(other, Batch):
            assert one.data.schema.equals(other.data.schema, check_metadata=True)
