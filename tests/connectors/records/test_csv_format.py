from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.records import CsvFormat, csv_format
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

SCHEMA = {"i": "int32", "s": "string", "f": "float64", "t": "timestamp[ms, tz=UTC]"}
FORM = CsvFormat(SCHEMA)
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(';,"|\r\n'), max_size=6)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**31), 2**31 - 1),
            "s": st.none() | TEXT,
            "f": st.none() | st.floats(allow_nan=False),
            "t": st.none()
            | st.datetimes(
                datetime.datetime(1678, 1, 1), datetime.datetime(2261, 1, 1), timezones=st.just(datetime.timezone.utc)
            ).map(lambda t: t.replace(microsecond=0)),
        }
    ),
    max_size=6,
)
PIECES = st.lists(st.sampled_from([",", '"', "\n", "\r", "1", "a", "", "1,a,,", '"x"', "\ufeff", "\0"]), max_size=8)
RECORDS = st.lists(st.none() | PIECES.map("".join).map(str.encode) | st.binary(max_size=3), max_size=6)


@settings(max_examples=drawn(60))
@given(ROWS, st.sampled_from([(",", '"'), (";", "'"), ("|", '"'), ("\t", '"'), ("-", "^")]))
def test_what_is_written_is_read(rows: list[dict[str, Any]], marks: tuple[str, str]) -> None:
    form = CsvFormat(SCHEMA, *marks)
    batch = pa.RecordBatch.from_pylist(rows, form.schema)
    assert written_and_read(form, batch) == batch


@settings(max_examples=drawn(60))
@given(st.lists(st.none() | TEXT, max_size=5))
def test_one_column_alone_is_read_as_written(texts: list[str | None]) -> None:
    form = CsvFormat({"s": "string"})
    rows = pa.RecordBatch.from_pylist([{"s": text} for text in texts], form.schema)
    assert written_and_read(form, rows) == rows


@settings(max_examples=drawn(100))
@given(RECORDS)
def test_each_record_is_read_among_others_as_alone(records: list[bytes | None]) -> None:
    assert_each_as_alone(CsvFormat({"i": "int64", "s": "string"}), records)
    assert_each_as_alone(CsvFormat({"s": "string"}), records)


def test_bad_records_are_named_and_the_others_go_on() -> None:
    bad = {
        b"1,a": "Expected 4 columns, got 2",
        b"1,a,,,": "Expected 4 columns, got 5",
        b"": "the record is empty",
        b"x,a,,": "column 'i': CSV conversion error to int32: invalid value 'x'",
        b"2147483648,a,,": "column 'i'",
        b"1.5,a,,": "column 'i'",
        b"1,\xff,,": "no valid UTF-8 (invalid start byte at byte 3)",
        b"1,a,x,": "column 'f'",
        b"1,a,,yesterday": "column 't'",
        b'1,a,,"': "column 't'",
        b"1,a,,\n2,b,,": "more than one row",
    }
    assert_bad_among_good(FORM, b'1,"a, ""b""\nc",0.5,2024-01-01T00:00:00Z\r\n', bad)
    assert_bad_among_good(
        CsvFormat({"s": "string"}), b"a", {b'"a': "a quote is left open", b"a\nb": "more than one row"}
    )


def test_nulls_empty_texts_and_tombstones() -> None:
    nothing = dict.fromkeys(SCHEMA)
    assert decode_rows(FORM, None, b",,,", b',"",,') == [nothing, nothing, nothing | {"s": ""}]
    rows = pa.RecordBatch.from_pylist([nothing, nothing | {"s": ""}], FORM.schema)
    assert FORM.encode(rows).to_pylist() == [b",,,", b',"",,']


@LARGE
def test_a_large_record_among_small_ones(large: int) -> None:
    form = CsvFormat({"i": "int64", "s": "string"})
    decoded = form.decode(values(b"1,a", b"2," + b"x" * large, b"3"))
    assert [len(text) for text in decoded.rows.column("s").to_pylist()] == [1, large]
    assert [bad.index for bad in decoded.bad] == [2]


def test_good_batches_are_never_read_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_slow_path(monkeypatch, csv_format)
    records = [None, *[b"%d,name,1.5,\n" % i for i in range(5_000)]]
    assert FORM.decode(values(*records)).rows.num_rows == len(records)
    with pytest.raises(AssertionError, match="looked at by itself"):
        FORM.decode(values(*records, b"x,,,"))


def test_what_cannot_be_used_is_refused() -> None:
    for marks in (("", '"'), (",,", '"'), ("\n", '"'), ("é", '"'), (",", ",")):
        with pytest.raises(ConfigurationError, match=r"delimiter|quote"):
            CsvFormat(SCHEMA, *marks)
    for kind in ("binary", "list<int64>", "struct<x: int64>"):
        with pytest.raises(ConfigurationError, match="column 'x' cannot be"):
            CsvFormat({"x": kind})
    with pytest.raises(RecordError, match="column 't', row 0"):
        CsvFormat({"t": "timestamp[s]"}).encode(pa.RecordBatch.from_pydict({"t": pa.array([2**50], pa.timestamp("s"))}))


def test_a_missing_row_and_one_too_many_do_not_make_up_for_each_other() -> None:
    form = CsvFormat({"i": "int64", "s": "string"})
    decoded = form.decode(values(b'1,"a', b'b"', b"2,c\n3,d", b"4,e"))
    assert decoded.rows.to_pylist() == [{"i": 4, "s": "e"}]
    assert [bad.index for bad in decoded.bad] == [0, 1, 2]
