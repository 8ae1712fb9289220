from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.records import RawFormat
from penstock.engine.errors import ConfigurationError, RecordError
from tests.connectors.records.values import (
    assert_bad_among_good,
    assert_each_as_alone,
    decode_rows,
    values,
    written_and_read,
)
from tests.draws import drawn


@settings(max_examples=drawn(60))
@given(st.lists(st.none() | st.binary()))
def test_bytes_come_and_go_as_they_are(records: list[bytes | None]) -> None:
    form = RawFormat()
    assert decode_rows(form, *records) == [{"value": record} for record in records]
    assert form.encode(form.decode(values(*records)).rows).to_pylist() == records


@settings(max_examples=drawn(60))
@given(st.lists(st.none() | st.text()))
def test_text_comes_and_goes_as_it_is(texts: list[str | None]) -> None:
    form = RawFormat("line", "string")
    rows = pa.RecordBatch.from_pylist([{"line": text} for text in texts], form.schema)
    assert written_and_read(form, rows) == rows


@settings(max_examples=drawn(60))
@given(st.lists(st.none() | st.binary(max_size=4), max_size=12))
def test_each_text_is_refused_by_itself(records: list[bytes | None]) -> None:
    assert_each_as_alone(RawFormat(kind="string"), records)


def test_bytes_that_are_no_text_are_named() -> None:
    assert_bad_among_good(RawFormat(kind="string"), b"ok", {b"a\xff": "no valid UTF-8", b"\xed\xa0\x80": "byte 1"})


def test_what_is_neither_bytes_nor_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'value' cannot be int64"):
        RawFormat(kind="int64")
    with pytest.raises(RecordError, match="no column 'value'"):
        RawFormat().encode(pa.RecordBatch.from_pydict({"v": [b"x"]}))
    with pytest.raises(RecordError, match="column 'other' is not in the format's schema"):
        RawFormat().encode(pa.RecordBatch.from_pydict({"value": [b"x"], "other": [1]}))
    with pytest.raises(RecordError, match="column 'value', row 1"):
        RawFormat(kind="string").encode(pa.RecordBatch.from_pydict({"value": [b"x", b"\xff"]}))
