from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.records import ProtobufFormat
from penstock.engine.errors import ConfigurationError, RecordError
from tests.connectors.records.values import assert_bad_among_good, decode_rows, values, written_and_read
from tests.draws import drawn
from tests.large import LARGE

UTC = datetime.timezone.utc
F = descriptor_pb2.FieldDescriptorProto


def _add(message: Any, name: str, kind: int, type_name: str = "", label: int = F.LABEL_OPTIONAL, **more: Any) -> None:
    number = len(message.field) + 1
    if type_name:
        more["type_name"] = type_name
    message.field.add(name=name, number=number, type=kind, label=label, **more)


def _descriptors() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    for library in (timestamp_pb2, duration_pb2, wrappers_pb2):
        library.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers"))
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    item = file.message_type.add(name="Item")
    _add(item, "sku", F.TYPE_STRING)
    _add(item, "n", F.TYPE_SINT32)
    order = file.message_type.add(name="Order")
    for name, kind in (("i32", F.TYPE_INT32), ("u64", F.TYPE_FIXED64), ("f", F.TYPE_FLOAT), ("ok", F.TYPE_BOOL)):
        _add(order, name, kind)
    _add(order, "raw", F.TYPE_BYTES)
    _add(order, "name", F.TYPE_STRING, proto3_optional=True, oneof_index=0)
    order.oneof_decl.add(name="_name")
    _add(order, "color", F.TYPE_ENUM, ".shop.Color")
    _add(order, "item", F.TYPE_MESSAGE, ".shop.Item")
    _add(order, "items", F.TYPE_MESSAGE, ".shop.Item", F.LABEL_REPEATED)
    _add(order, "tags", F.TYPE_STRING, label=F.LABEL_REPEATED)
    _add(order, "at", F.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    _add(order, "took", F.TYPE_MESSAGE, ".google.protobuf.Duration")
    _add(order, "maybe", F.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    _add(entry, "key", F.TYPE_STRING)
    _add(entry, "value", F.TYPE_MESSAGE, ".shop.Item")
    _add(order, "counts", F.TYPE_MESSAGE, ".shop.Order.CountsEntry", F.LABEL_REPEATED)
    loop = file.message_type.add(name="Loop")
    _add(loop, "loop", F.TYPE_MESSAGE, ".shop.Loop")
    file.message_type.add(name="Empty")
    return files.SerializeToString()


DESCRIPTORS = _descriptors()
FORM = ProtobufFormat(DESCRIPTORS, "shop.Order")
TOOK = 12 << 3 | 2
"""What is before a value of the twelfth field."""
ITEM = ProtobufFormat(DESCRIPTORS, "shop.Item")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
ITEMS = st.fixed_dictionaries({"sku": TEXT, "n": st.integers(-(2**31), 2**31 - 1)})
ROW = st.fixed_dictionaries(
    {
        "i32": st.integers(-(2**31), 2**31 - 1),
        "u64": st.integers(0, 2**64 - 1),
        "f": st.floats(width=32, allow_nan=False),
        "ok": st.booleans(),
        "raw": st.binary(max_size=4),
        "name": st.none() | TEXT,
        "color": st.sampled_from(["RED", "BLUE", "7"]),
        "item": st.none() | ITEMS,
        "items": st.lists(ITEMS, max_size=2),
        "tags": st.lists(TEXT, max_size=2),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "took": st.none() | st.timedeltas(datetime.timedelta(-(10**5)), datetime.timedelta(10**5)),
        "maybe": st.none() | st.integers(-(2**63), 2**63 - 1),
        "counts": st.dictionaries(TEXT, ITEMS, max_size=1).map(lambda counts: list(counts.items())),
    }
)


@settings(max_examples=drawn(60))
@given(st.lists(ROW, max_size=4))
def test_what_is_written_is_read(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, FORM.schema)
    assert written_and_read(FORM, batch) == batch


def test_what_is_not_set_is_null_or_zero() -> None:
    zero = {
        "i32": 0,
        "u64": 0,
        "f": 0.0,
        "ok": False,
        "raw": b"",
        "color": "RED",
        "items": [],
        "tags": [],
        "counts": [],
    }
    unset = dict.fromkeys(FORM.schema.names) | zero
    assert decode_rows(FORM, b"", None) == [unset, dict.fromkeys(FORM.schema.names)]
    nulls = pa.RecordBatch.from_pylist([{}], FORM.schema)
    assert FORM.encode(nulls).to_pylist() == [b""]


def test_nanoseconds_are_cut_off() -> None:
    for seconds, nanos, micros in ((0, -1_500, -1), (0, -1, 0), (-1, -999, -1_000_000), (0, 1_999, 1)):
        value = duration_pb2.Duration(seconds=seconds, nanos=nanos).SerializeToString()
        took = bytes([TOOK, len(value)]) + value
        assert decode_rows(FORM, took)[0]["took"] == datetime.timedelta(microseconds=micros)


def test_times_out_of_range_are_bad_records() -> None:
    bad = {}
    for seconds in (2**62, -(2**62)):
        value = duration_pb2.Duration(seconds=seconds).SerializeToString()
        bad[bytes([TOOK, len(value)]) + value] = ""
    assert_bad_among_good(FORM, b"", bad)


def test_generated_code_names_its_message() -> None:
    form = ProtobufFormat.for_message(duration_pb2.Duration)
    message = duration_pb2.Duration(seconds=2**40, nanos=5)
    assert form.schema == pa.schema([("seconds", pa.int64()), ("nanos", pa.int32())])
    assert decode_rows(form, message.SerializeToString()) == [{"seconds": 2**40, "nanos": 5}]
    assert form.describe() == "protobuf google.protobuf.Duration"


def test_bad_records_are_named_and_the_others_go_on() -> None:
    good = b"\x0a\x02ok\x10\x02"
    assert decode_rows(ITEM, good, good + b"\x98\x06\x01") == [{"sku": "ok", "n": 1}] * 2
    bad = {good[:3]: "", good + b"\xff": "", b"\x0a\x01\xff": "", b"{}": ""}
    assert_bad_among_good(ITEM, good, bad)


@LARGE
def test_a_large_record_among_small_ones(large: int) -> None:
    huge = ITEM.encode(pa.RecordBatch.from_pylist([{"sku": "x" * large, "n": 1}], ITEM.schema))[0].as_py()
    decoded = ITEM.decode(values(b"\x10\x04", huge, huge[:-1]))
    assert decoded.rows.column("n").to_pylist() == [2, 1]
    assert [bad.index for bad in decoded.bad] == [2]


def test_rows_that_cannot_be_written_are_named() -> None:
    for row, reason in (
        ({"color": "GREEN"}, "column 'color', row 1: enum shop.Color has no value 'GREEN'; it has RED, BLUE"),
        ({"tags": ["a", None]}, "column 'tags', row 1: 'tags' has a null in its list"),
        ({"counts": [("a", None)]}, "column 'counts', row 1: 'counts' has a null value"),
    ):
        with pytest.raises(RecordError, match=reason):
            FORM.encode(pa.RecordBatch.from_pylist([{}, row], FORM.schema))


def test_messages_that_are_no_columns_are_refused() -> None:
    for descriptors, name, reason in (
        (b"\xff", "shop.Order", "descriptors cannot be used"),
        (DESCRIPTORS, "shop.Nothing", "no message 'shop.Nothing'"),
        (DESCRIPTORS, "shop.Loop", "'shop.Loop' occurs within itself"),
        (DESCRIPTORS, "shop.Empty", "has no fields"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            ProtobufFormat(descriptors, name)
    with pytest.raises(ConfigurationError, match="occurs within itself"):
        ProtobufFormat.for_message(struct_pb2.Struct)
