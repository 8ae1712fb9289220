from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.records import AvroFormat
from penstock.engine.errors import ConfigurationError, RecordError
from tests.connectors.records.values import assert_bad_among_good, decode_rows, values, written_and_read
from tests.draws import drawn
from tests.large import LARGE

UTC = datetime.timezone.utc


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


SCHEMA = _record(
    "Order",
    id="long",
    n=["null", "int"],
    f=["float", "null"],
    ok="boolean",
    name=["null", "string"],
    raw="bytes",
    color={"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]},
    again=["null", "Color"],
    tags={"type": "array", "items": ["null", "string"]},
    counts={"type": "map", "values": "long"},
    inner=["null", _record("Inner", x="int", at={"type": "long", "logicalType": "timestamp-micros"})],
    at=["null", {"type": "long", "logicalType": "timestamp-millis"}],
    local={"type": "long", "logicalType": "local-timestamp-nanos"},
    day={"type": "int", "logicalType": "date"},
    time={"type": "int", "logicalType": "time-millis"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    total={"type": "fixed", "name": "Total", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 4},
    hash={"type": "fixed", "name": "Hash", "size": 2},
    key={"type": "string", "logicalType": "uuid"},
)
FORM = AvroFormat(SCHEMA)
SMALL = _record("Small", i="int", s=["null", "string"])
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ROW = st.fixed_dictionaries(
    {
        "id": LONG,
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "f": st.none() | st.floats(width=32, allow_nan=False),
        "ok": st.booleans(),
        "name": st.none() | TEXT,
        "raw": st.binary(max_size=4),
        "color": st.sampled_from(["RED", "BLUE"]),
        "again": st.none() | st.just("RED"),
        "tags": st.lists(st.none() | TEXT, max_size=3),
        "counts": st.dictionaries(TEXT, LONG, max_size=2).map(lambda counts: list(counts.items())),
        "inner": st.none() | st.fixed_dictionaries({"x": st.integers(-9, 9), "at": LONG}),
        "at": st.none() | LONG,
        "local": LONG,
        "day": st.integers(-(2**31), 2**31 - 1),
        "time": st.integers(0, 86_399_999),
        "price": st.decimals(-10000, 10000, places=2, allow_nan=False),
        "total": st.decimals(-10000, 10000, places=4, allow_nan=False),
        "hash": st.binary(min_size=2, max_size=2),
        "key": TEXT,
    }
)


def _datum(schema: Any, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, row)
    return stream.getvalue()


@settings(max_examples=drawn(60))
@given(st.lists(ROW, max_size=4))
def test_what_is_written_is_read(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, FORM.schema)
    assert written_and_read(FORM, batch) == batch


def test_logical_types_are_columns_of_their_types() -> None:
    schema = _record(
        "Times",
        at={"type": "long", "logicalType": "timestamp-millis"},
        day={"type": "int", "logicalType": "date"},
        clock={"type": "long", "logicalType": "time-micros"},
        price={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    )
    form = AvroFormat(json.dumps(schema))
    row = {
        "at": datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        "day": datetime.date(1, 1, 1),
        "clock": datetime.time(1, 2, 3, 4),
        "price": decimal.Decimal("-12.50"),
    }
    datum = _datum(schema, row)
    assert form.schema.types == [
        pa.timestamp("ms", tz="UTC"),
        pa.date32(),
        pa.time64("us"),
        pa.decimal128(5, 2),
    ]
    assert decode_rows(form, datum, None) == [row, dict.fromkeys(row)]
    assert form.encode(form.decode(values(datum)).rows).to_pylist() == [datum]


def test_bad_records_are_named_and_the_others_go_on() -> None:
    good = _datum(SMALL, {"i": 7, "s": "ok"})
    bad = {
        b"": "ends within a value",
        good[:-1]: "ends within a value",
        good + b"x": "1 bytes are left over",
        _datum(_record("Small", i="long", s=["null", "string"]), {"i": 2**40, "s": None}): "too large",
        _datum(_record("Small", i="int", s=["null", "bytes"]), {"i": 1, "s": b"\xff"}): "utf-8",
        b"\x02\x08": "",
    }
    assert_bad_among_good(AvroFormat(SMALL), good, bad)
    clock = AvroFormat(_record("Clock", t={"type": "int", "logicalType": "time-millis"}))
    late = _datum(_record("Clock", t="int"), {"t": 86_400_000})
    assert_bad_among_good(clock, b"\x00", {late: "86400000"})


@LARGE
def test_a_large_record_among_small_ones(large: int) -> None:
    huge = _datum(SMALL, {"i": 1, "s": "x" * large})
    decoded = AvroFormat(SMALL).decode(values(huge, huge[:-1], _datum(SMALL, {"i": 2, "s": None})))
    assert decoded.rows.column("i").to_pylist() == [1, 2]
    assert [bad.index for bad in decoded.bad] == [1]


def test_rows_that_cannot_be_written_are_named() -> None:
    small = AvroFormat(SMALL)
    with pytest.raises(RecordError, match="column 'i', row 1: 'i' is null, which the Avro schema does not allow"):
        small.encode(pa.RecordBatch.from_pylist([{"i": 1}, {"i": None}], small.schema))
    nested = AvroFormat(_record("Outer", o=["null", _record("Flags", ok="boolean")]))
    with pytest.raises(RecordError, match=r"column 'o', row 1: 'o\.ok' is null"):
        nested.encode(pa.RecordBatch.from_pylist([{"o": None}, {"o": {"ok": None}}], nested.schema))
    color = AvroFormat(_record("Paint", c={"type": "enum", "name": "C", "symbols": ["RED"]}))
    with pytest.raises(RecordError, match="column 'c', row 1"):
        color.encode(pa.RecordBatch.from_pylist([{"c": "RED"}, {"c": "GREEN"}], color.schema))


def test_a_null_in_a_map_is_that_of_its_row() -> None:
    form = AvroFormat(_record("Tags", m={"type": "map", "values": "string"}))
    rows = pa.RecordBatch.from_pylist([{"m": [("a", "x")]}, {"m": [("a", None)]}, {"m": []}], form.schema)
    for good in (rows.slice(0, 1), rows.slice(2)):
        assert form.decode(form.encode(good)).rows.to_pylist() == good.to_pylist()
    for bad, row in ((rows, 1), (rows.slice(1), 0)):
        with pytest.raises(RecordError, match=rf"column 'm', row {row}: 'm\.value' is null"):
            form.encode(bad)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "no valid Avro schema"),
        ({"id": "int64"}, r"no valid Avro schema: .*; give that of a record, such as \{\"type\": \"record\""),
        ({"id": pa.int64()}, "no valid Avro schema: .* not JSON serializable; give that of a record"),
        ('"long"', "must be a record"),
        (_record("A", x="unknown"), "no valid Avro schema"),
        (_record("A", x=["null", "int", "string"]), r"record\.x: a union of several types"),
        (_record("A", x=["null", "A"]), "'A' occurs within itself"),
        (_record("A"), "no fields"),
    ],
)
def test_schemas_that_are_no_columns_are_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        AvroFormat(schema)
