"""Rows come out of a parcel as they went in: values, nulls, types, metadata, timestamps and row kinds."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.spark.parcels import CALL, FIRST_TURN, Arrival, Parcel, Phase, called, pack, to_arrow, unpack
from penstock.engine.elements import Batch, Partials, Slices

_DAY = datetime.date(2024, 2, 29)
_TIME = datetime.datetime(2024, 2, 29, 12, 30, 15, 999999)
VALUES = {
    pa.null(): None,
    pa.bool_(): True,
    pa.int8(): -128,
    pa.uint8(): 255,
    pa.uint16(): 65_535,
    pa.uint32(): 2**32 - 1,
    pa.uint64(): 2**64 - 1,
    pa.int64(): -(2**63),
    pa.float32(): 0.5,
    pa.float64(): -0.0,
    pa.string(): "ä\0",
    pa.large_string(): "large",
    pa.string_view(): "viewed",
    pa.binary(): b"\0\xff",
    pa.binary(3): b"abc",
    pa.large_binary(): b"",
    pa.date32(): _DAY,
    pa.date64(): _DAY,
    pa.time32("ms"): datetime.time(1, 2, 3, 4000),
    pa.time64("ns"): datetime.time(1, 2, 3, 4),
    pa.timestamp("s"): _TIME.replace(microsecond=0),
    pa.timestamp("us"): _TIME,
    pa.timestamp("ns", "Europe/Berlin"): _TIME.replace(tzinfo=datetime.timezone.utc),
    pa.duration("ms"): datetime.timedelta(days=-3),
    pa.decimal128(38, 10): decimal.Decimal("-1.5"),
    pa.decimal256(70, 2): decimal.Decimal("12345678901234567890.25"),
    pa.list_(pa.uint16()): [1, None, 65_535],
    pa.large_list(pa.string()): ["a", None],
    pa.list_(pa.int8(), 2): [1, 2],
    pa.struct([("a", pa.null()), ("b", pa.list_(pa.date32()))]): {"a": None, "b": [_DAY]},
    pa.map_(pa.string(), pa.int32()): [("k", 1), ("l", None)],
    pa.dictionary(pa.int8(), pa.string()): "word",
    pa.month_day_nano_interval(): pa.scalar((1, 2, 3), pa.month_day_nano_interval()).as_py(),
}


@given(
    st.lists(st.tuples(st.text(max_size=3), st.sampled_from(list(VALUES))), max_size=5, unique_by=lambda pair: pair[0]),
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
)
def test_rows_of_any_type_come_out_as_they_went_in(
    columns: list[tuple[str, pa.DataType]], present: list[bool], timed: bool, changes: bool, cut: int
) -> None:
    fields = [pa.field(name, kind, metadata={"unit": "m"}) for name, kind in columns]
    arrays = [pa.array([VALUES[kind] if there else None for there in present], kind) for _, kind in columns]
    schema = pa.schema(fields, {"made by": "hand"} if cut else None)
    data = pa.RecordBatch.from_arrays(arrays, schema=schema) if columns else pa.record_batch({})
    rows = data.num_rows
    sent = Batch(
        data,
        pa.array(range(rows), pa.int64()) if timed else None,
        pa.array([0] * rows, pa.int8()) if changes else None,
    ).slice(min(cut, rows))
    came = unpack(pack(sent))
    came.data.validate(full=True)
    assert came.data.equals(sent.data)
    assert came.data.schema.equals(sent.data.schema, check_metadata=True)
    assert (came.timestamps, came.kinds) == (sent.timestamps, sent.kinds)


@pytest.mark.parametrize("name", ["__time", "__kinds", "rows"])
def test_columns_may_be_called_as_those_beside_them(name: str) -> None:
    sent = Batch(pa.record_batch({name: [1, 2]}))
    assert unpack(pack(sent)) == sent


@pytest.mark.parametrize("mark", [Partials("n"), Partials("n", Slices(10, 3))])
def test_partial_aggregates_stay_marked(mark: Partials) -> None:
    sent = Batch(pa.record_batch({"n": [1, 2]}), partials=mark)
    assert unpack(pack(sent)) == sent


def test_a_slice_leaves_its_parent_behind() -> None:
    whole = pa.record_batch({"n": range(100_000)})
    assert len(pack(Batch(whole.slice(5, 10)))) < 2_000


def test_a_partition_begins_with_its_subtask() -> None:
    sent = Batch(pa.record_batch({"n": [1, 2]}))
    parcels = [Parcel(CALL, 0, Phase.CALL, FIRST_TURN, 7, 0, b""), Parcel(3, 0, Phase.ROWS, 40, 1, 0, pack(sent))]
    subtask, rows = called(to_arrow(parcels))
    assert subtask == 7
    assert list(rows) == [Arrival(3, Phase.ROWS, 40, 1, 0, sent)]
