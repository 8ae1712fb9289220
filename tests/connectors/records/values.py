"""What the tests of the record formats share."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.records import RecordFormat


def values(*records: bytes | None) -> pa.LargeBinaryArray:
    return pa.array(records, pa.large_binary())


def decode_rows(record_format: RecordFormat, *records: bytes | None) -> list[dict[str, Any]]:
    """The rows of records that are all good."""
    decoded = record_format.decode(values(*records))
    assert not decoded.bad
    assert decoded.rows.schema == record_format.schema
    rows: list[dict[str, Any]] = decoded.rows.to_pylist()
    return rows


def written_and_read(record_format: RecordFormat, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows after a way through bytes, read by a copy of the format."""
    copy = pickle.loads(pickle.dumps(record_format))
    decoded = copy.decode(record_format.encode(rows))
    assert not decoded.bad
    assert copy.schema == record_format.schema
    return decoded.rows


def assert_bad_among_good(record_format: RecordFormat, good: bytes, bad: Mapping[bytes, str]) -> None:
    """Each of the `bad` records is named with its reason, alone and among good ones, and the good ones are read."""
    (row,) = decode_rows(record_format, good)
    for record, reason in bad.items():
        (alone,) = record_format.decode(values(record)).bad
        assert (alone.index, reason in alone.reason) == (0, True), (record[:80], alone)
    mixed = [part for record in bad for part in (good, record)] + [good]
    decoded = record_format.decode(values(*mixed))
    assert decoded.rows.to_pylist() == [row] * (len(bad) + 1)
    assert [record.index for record in decoded.bad] == list(range(1, 2 * len(bad), 2))
    for found, reason in zip(decoded.bad, bad.values(), strict=True):
        assert reason in found.reason


def assert_each_as_alone(record_format: RecordFormat, records: list[bytes | None]) -> None:
    """Each record gives the same row, or the same refusal, among others as alone."""
    alone = [record_format.decode(values(record)) for record in records]
    together = record_format.decode(values(*records))
    assert [index for index, one in enumerate(alone) if one.bad] == [record.index for record in together.bad]
    assert repr(together.rows.to_pylist()) == repr([row for one in alone for row in one.rows.to_pylist()])
    assert [bad.reason for one in alone for bad in one.bad] == [bad.reason for bad in together.bad]


def refuse_slow_path(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Whatever looks at records one by one fails from here on."""

    def refused(*_: Any) -> None:
        raise AssertionError("a record was looked at by itself")

    for name in {"utf8_reason", "error_text", "refused_field"} & vars(module).keys():
        monkeypatch.setattr(module, name, refused)
