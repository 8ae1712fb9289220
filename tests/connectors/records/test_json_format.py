from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.json import layouts
from penstock.connectors.records import JsonFormat, json_format
from penstock.engine.errors import ConfigurationError, RecordError
from tests.connectors.records.values import (
    assert_bad_among_good,
    assert_each_as_alone,
    decode_rows,
    refuse_slow_path,
    values,
    written_and_read,
)
from tests.draws import drawn
from tests.large import LARGE

FORM = JsonFormat(
    {
        "i": "int32",
        "f": "float64",
        "s": "string",
        "b": "bool",
        "t": "timestamp[ms, tz=UTC]",
        "d": "date32",
        "m": "decimal128(10, 2)",
        "l": "list<int64>",
        "o": "struct<x: int64, y: string>",
        "r": "binary",
    }
)
UTC = datetime.timezone.utc
NOTHING = dict.fromkeys(FORM.schema.names)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**31), 2**31 - 1),
            "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "s": st.none() | TEXT,
            "b": st.none() | st.booleans(),
            "t": st.none()
            | st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
            "d": st.none() | st.dates(),
            "m": st.none() | st.decimals(-10000, 10000, places=2, allow_nan=False),
            "l": st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
            "o": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 9), "y": st.none() | TEXT}),
            "r": st.none() | st.binary(max_size=4),
        }
    ),
    max_size=6,
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**33), 2**33) | st.floats() | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2))
OBJECTS = st.dictionaries(st.sampled_from([*FORM.schema.names, "new"]), VALUES, max_size=4).map(json.dumps)
MARKS = ["{", "}", "[", "]", ":", ",", '"', "\n", "\0", "\\", "é"]
WORDS = ["null", "true", '{"i":1}', '"i":2', '"i"', "1", "-1", "1.5", "2147483648", '"a"', "NaN", "Inf", "-Infinity"]
PIECES = st.lists(st.sampled_from(MARKS + WORDS), max_size=7)
RECORDS = st.lists(
    st.none()
    | OBJECTS.map(str.encode)
    | PIECES.map("".join).map(str.encode)
    | st.tuples(OBJECTS.map(str.encode), st.integers(0, 60)).map(lambda cut: cut[0][: cut[1]])
    | PIECES.map(lambda parts: f"{{{' '.join(parts)}}}".encode())
    | st.binary(max_size=4),
    max_size=8,
)


@settings(max_examples=drawn(60))
@given(ROWS)
def test_what_is_written_is_read(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, FORM.schema)
    assert written_and_read(FORM, batch) == batch


NESTED = JsonFormat(
    {
        "r": "list<binary>",
        "d": "list<date32>",
        "o": "struct<at: timestamp[us, tz=Europe/Paris], raw: binary, times: list<time64[us]>>",
    }
)


@pytest.mark.parametrize("records_before_layouts", [0, layouts.WORTHWHILE_RECORDS])
def test_what_is_written_within_columns_is_read(records_before_layouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "WORTHWHILE_RECORDS", records_before_layouts)
    rows = [
        {"r": [b"\0", None, b""], "d": [], "o": None},
        {"r": None, "d": [datetime.date(2024, 2, 29), None], "o": {"at": None, "raw": b"AA==", "times": None}},
        {
            "r": [],
            "d": None,
            "o": {
                "at": datetime.datetime(1900, 1, 1, tzinfo=UTC),
                "raw": None,
                "times": [datetime.time(1, 2, 3, 4), None],
            },
        },
    ]
    batch = pa.RecordBatch.from_pylist(rows, NESTED.schema)
    for part in (batch, batch.slice(1), batch.slice(1, 1), batch.slice(3)):
        assert written_and_read(NESTED, part) == part


def test_times_within_a_column_are_exact_or_refused() -> None:
    form = JsonFormat({"at": "list<timestamp[ns]>"})
    batch = pa.RecordBatch.from_arrays([pa.array([[1000], [1001]], form.schema.types[0])], schema=form.schema)
    assert written_and_read(form, batch) == batch
    far = pa.array([{"at": [0]}, {"at": [2**50]}], pa.struct([("at", pa.list_(pa.timestamp("s")))]))
    with pytest.raises(RecordError, match=r"column 'o', row 1: .* beyond the year 29000"):
        JsonFormat(pa.schema([("o", far.type)])).encode(pa.RecordBatch.from_arrays([far], ["o"]))


@settings(max_examples=drawn(100))
@given(RECORDS)
def test_each_record_is_read_among_others_as_alone(records: list[bytes | None]) -> None:
    assert_each_as_alone(FORM, records)


@settings(max_examples=drawn(60))
@given(st.lists(st.dictionaries(st.sampled_from(["i", "s", "new"]), st.integers(-9, 9) | TEXT), max_size=6))
def test_rows_are_what_python_reads(objects: list[dict[str, Any]]) -> None:
    form = JsonFormat({"i": "int32", "s": "string"})
    fits = [isinstance(one.get("i", 0), int) and isinstance(one.get("s", ""), str) for one in objects]
    decoded = form.decode(values(*[json.dumps(one).encode() for one in objects]))
    expected = [{"i": one.get("i"), "s": one.get("s")} for one, fit in zip(objects, fits, strict=True) if fit]
    assert decoded.rows.to_pylist() == expected
    assert [bad.index for bad in decoded.bad] == [index for index, fit in enumerate(fits) if not fit]


def test_bad_records_are_named_and_the_others_go_on() -> None:
    good = b'{"i": 1, "s": "a", "t": "2024-01-02T03:04:05Z", "l": [1, null], "o": {"x": 1}, "new": [{}]}'
    bad = {
        b'{"i": 1': "no valid JSON",
        b"": "the value is empty",
        b"null": "no JSON object",
        b"[1]": "no JSON object",
        b'{"i": 1}{"i": 2}': "no valid JSON (Extra data",
        b"{}null{}": "no valid JSON (Extra data",
        b'{"i": 1}\0': "no valid JSON",
        b'{"s": "\xff"}': "no valid UTF-8 (invalid start byte at byte 8)",
        b'{"s": "a\nb"}': "no valid JSON",
        b'{"s": "\\ud800"}': "surrogate",
        b'{"i": "1"}': "field 'i': a JSON string is no int32",
        b'{"i": 2147483648}': "field 'i' (int32)",
        b'{"i": 1.5}': "field 'i' (int32)",
        b'{"i": NaN}': "field 'i' (int32)",
        b'{"i": true}': "field 'i': a JSON boolean is no int32",
        b'{"i": 1, "i": 2}': "twice",
        b'{"f": 1e400}': "field 'f' (double)",
        b'{"s": 1}': "field 's': a JSON number is no string",
        b'{"b": 1}': "field 'b'",
        b'{"t": 5}': "field 't'",
        b'{"t": "yesterday"}': "field 't'",
        b'{"d": "2024-02-30"}': "field 'd' (date32[day])",
        b'{"m": 1.005}': "field 'm'",
        b'{"l": [1, "x"]}': "field 'l'",
        b'{"l": 1}': "field 'l': a JSON number is no list",
        b'{"o": {"x": "1"}}': "field 'o'",
        b'{"o": []}': "field 'o'",
        b'{"r": "?"}': "field 'r'",
    }
    assert_bad_among_good(FORM, good, bad)


def test_a_number_that_no_double_holds_is_named_by_its_field() -> None:
    bad = {
        b'{"i": 1, "s": "x", "m": 1e400}': "field 'm' (decimal128",
        b'{"s": "x", "o": {"x": 1e400}}': "field 'o' (struct<",
        b'{"s": "x", "l": [1, -1e400]}': "field 'l' (list<",
        b'{"s": "x", "z": {"x": [1e400]}}': "field 'z': Number too big",
        b'{ "s" : "x" , "f" : 1e400 }': "field 'f' (double): Number too big",
    }
    assert_bad_among_good(FORM, b'{"i": 1}', bad)


def test_forms_that_are_taken() -> None:
    assert decode_rows(FORM, None, b"{}", b' {"i":\n1}\r\n', b'{"z": {"i": "x"}}') == [
        NOTHING,
        NOTHING,
        NOTHING | {"i": 1},
        NOTHING,
    ]
    assert decode_rows(FORM, b'{"f": 1, "m": "1.5"}', b'{"f": -1e300, "m": 2}') == [
        NOTHING | {"f": 1.0, "m": decimal.Decimal("1.50")},
        NOTHING | {"f": -1e300, "m": decimal.Decimal("2.00")},
    ]
    (infinite, not_a_number) = decode_rows(FORM, b'{"f": Infinity}', b'{"f": NaN}')
    assert infinite["f"] == math.inf
    assert math.isnan(not_a_number["f"])
    (late,) = decode_rows(FORM, b'{"t": "9999-12-31T23:59:59Z", "d": "0001-01-01"}')
    assert late["t"].year == 9999
    assert late["d"] == datetime.date(1, 1, 1)


def test_limits_of_python_are_not_limits_of_records() -> None:
    form = JsonFormat({"i": "int32", "f": "float64"})
    deep = b'{"i": 1, "z": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    long = b'{"i": 1, "z": ' + b"9" * 5_000 + b"}"
    decoded = form.decode(values(deep, b"{", long, b'{"f": Inf}'))
    assert decoded.rows.to_pylist() == [{"i": 1, "f": None}, {"i": 1, "f": None}, {"i": None, "f": math.inf}]
    assert [bad.index for bad in decoded.bad] == [1]


@LARGE
def test_a_large_record_among_small_ones(large: int) -> None:
    form = JsonFormat({"s": "string"})
    text = "x" * large
    huge = form.encode(pa.RecordBatch.from_pydict({"s": [text]}))[0].as_py()
    decoded = form.decode(values(b'{"s": "a"}', huge, huge[:-1]))
    assert [len(row) for row in decoded.rows.column("s").to_pylist()] == [1, len(text)]
    assert [(bad.index, len(bad.reason) < 200) for bad in decoded.bad] == [(2, True)]


def test_good_batches_are_never_read_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_slow_path(monkeypatch, json_format)
    monkeypatch.setattr(json_format.json, "loads", None)
    calls = []
    read = json_format.read_some
    monkeypatch.setattr(json_format, "read_some", lambda *given: calls.append(given) or read(*given))
    records = [None, *[b'{"i": %d, "s": "name"}' % i for i in range(5_000)], b' {"i": 1}\n']
    assert FORM.decode(values(*records)).rows.num_rows == len(records)
    assert len(calls) == 1
    with pytest.raises(AssertionError, match="looked at by itself"):
        FORM.decode(values(*records, b"{"))


def test_rows_that_cannot_be_written_are_named() -> None:
    form = JsonFormat({"i": "int32", "t": "timestamp[s]"})
    with pytest.raises(RecordError, match="column 'i', row 1"):
        form.encode(pa.RecordBatch.from_pydict({"i": [1, 2**40], "t": pa.nulls(2)}))
    far = pa.RecordBatch.from_pydict({"i": [1, 2], "t": pa.array([0, 2**50], pa.timestamp("s"))})
    with pytest.raises(RecordError, match="column 't', row 1"):
        form.encode(far)
    assert JsonFormat({"f": "float64"}).encode(pa.RecordBatch.from_pydict({"f": [math.nan, None]})).to_pylist() == [
        b'{"f":null}',
        b'{"f":null}',
    ]


def test_types_that_json_cannot_become_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="column 'x' cannot be"):
        JsonFormat(pa.schema([("x", pa.month_day_nano_interval())]))
    with pytest.raises(ConfigurationError, match="no columns"):
        JsonFormat({})


def test_maps_are_objects() -> None:
    form = JsonFormat(pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("s", pa.string())]))
    good = [b'{"m": {"a": 1, "b": null}, "s": "x"}', None, b'{"m": null}', b'{"m": {}}']
    nothing = {"m": None, "s": None}
    rows = [{"m": [("a", 1), ("b", None)], "s": "x"}, nothing, nothing, {"m": [], "s": None}]
    assert decode_rows(form, *good) == rows
    assert_bad_among_good(form, good[0], {b'{"m": [1]}': "a JSON array is no map", b'{"m": {"a": "x"}}': "field 'm'"})
    written = form.encode(pa.RecordBatch.from_pylist(rows[:1], form.schema))
    assert written.to_pylist() == [b'{"m":{"a":1,"b":null},"s":"x"}']
    with pytest.raises(ConfigurationError, match="column 'm' cannot be map<double, int64>"):
        JsonFormat(pa.schema([("m", pa.map_(pa.float64(), pa.int64()))]))
