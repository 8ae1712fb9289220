"""Fields that cannot be read, as null: what `csv.ignore-parse-errors` and `json.ignore-parse-errors` mean in Flink.

`options.py` wraps the formats of tables in it. What stays bad then is no row at all, and is left to the connector.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.records.csv_format import CsvFormat
from penstock.connectors.records.csv_parts import field_values, in_parts
from penstock.connectors.records.format import BadRecord, Decoded, RecordFormat
from penstock.table_connectors.formats.json_values import json_object, json_values, single_value

_ERRORS = (pa.ArrowException, ValueError, TypeError, ArithmeticError)


class Mend(Protocol):
    """Reads a record whose format refuses it; picklable."""

    def row(self, record: bytes) -> pa.RecordBatch | None:
        """Its row, with null for what cannot be read; None: it is none."""


class ReadingFormat(RecordFormat):
    """Another format, whose records are read otherwise.

    Args:
        format: reads what is as it should be, and writes.
    """

    def __init__(self, format: RecordFormat) -> None:  # noqa: A002 - the word users look for
        self._format = format

    @property
    def schema(self) -> pa.Schema:
        return self._format.schema

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        return self._format.encode(rows)

    def describe(self) -> str:
        return self._format.describe()


class MendedFormat(ReadingFormat):
    """A format that gives a row for each record of which a part can be read.

    Args:
        format: reads what is as it should be, and writes.
        mend: reads the other records.
    """

    def __init__(self, format: RecordFormat, mend: Mend) -> None:  # noqa: A002 - the word users look for
        super().__init__(format)
        self._mend = mend

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        found = self._format.decode(values)
        if not found.bad:
            return found
        bad = {one.index: values[one.index].as_py() or b"" for one in found.bad}
        mended = mended_rows(self._mend, bad)
        rows = in_their_places(found.rows, bad, mended, len(values))
        return Decoded(rows, [one for one in found.bad if one.index not in mended])


class CommentedFormat(ReadingFormat):
    """A format of texts among which are comments, which begin with #.

    Args:
        format: reads the others.
    """

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        comments = pc.starts_with(values, "#").fill_null(False)
        others = pc.indices_nonzero(pc.invert(comments)).to_pylist()
        found = self._format.decode(values.filter(pc.invert(comments)))
        bad = [BadRecord(place, "a comment") for place in pc.indices_nonzero(comments).to_pylist()]
        bad += [BadRecord(others[one.index], one.reason) for one in found.bad]
        return Decoded(found.rows, sorted(bad, key=lambda one: one.index))


def mended_rows(mend: Mend, bad: Mapping[int, bytes]) -> dict[int, pa.RecordBatch]:
    """The rows of records by their places, of those of which a part can be read."""
    rows = ((place, mend.row(record)) for place, record in bad.items())
    return {place: row for place, row in rows if row is not None}


def in_their_places(
    good: pa.RecordBatch, bad: Collection[int], mended: Mapping[int, pa.RecordBatch], count: int
) -> pa.RecordBatch:
    """All rows in the order of their records.

    Args:
        good: a row for each good record.
        bad: the places of the others.
        mended: rows of some of these, in their order.
        count: how many records there are.
    """
    goods, others = iter(range(good.num_rows)), iter(range(good.num_rows, count))
    places = [place for place in range(count) if place in mended or place not in bad]
    order = [next(others) if place in mended else next(goods) for place in places]
    return pa.concat_batches([good, *mended.values()]).take(pa.array(order, pa.int64()))


@dataclass(frozen=True, slots=True)
class JsonMend:
    """Reads objects field by field.

    Args:
        schema: the columns.
    """

    schema: pa.Schema

    def row(self, record: bytes) -> pa.RecordBatch | None:
        fields = json_object(record)
        return None if fields is None else json_values(fields, self.schema)


@dataclass(frozen=True, slots=True)
class CsvMarks:
    """What stands between the fields of CSV, and in them; as for `CsvFormat`."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null: str = ""
    between: str = ";"

    def format(self, schema: pa.Schema) -> CsvFormat:
        """The format of some columns."""
        return CsvFormat(schema, self.delimiter, self.quote, escape=self.escape, null=self.null, between=self.between)


@dataclass(frozen=True, slots=True)
class CsvMend:
    """Reads rows field by field; fields that are missing at the end are null.

    Args:
        schema: the columns.
        marks: of the format.
    """

    schema: pa.Schema
    marks: CsvMarks

    def row(self, record: bytes) -> pa.RecordBatch | None:
        if not record.strip():
            return None
        texts = pa.schema([(name, pa.string()) for name in self.schema.names])
        try:
            padded = self._padded(record)
        except csv.Error:
            return None
        found = self.marks.format(texts).decode(pa.array([padded], pa.large_binary()))
        return None if found.bad else text_values(found.rows, self.schema, self.marks.between, self.marks.null)

    def _padded(self, record: bytes) -> bytes:
        marks, line = self.marks, record.rstrip(b"\r\n")
        reader = csv.reader(
            [line.decode("utf-8", "replace")],
            delimiter=marks.delimiter,
            quotechar=marks.quote,
            quoting=csv.QUOTE_NONE if marks.quote is None else csv.QUOTE_MINIMAL,
            escapechar=marks.escape,
        )
        missing = len(self.schema) - len(next(reader))
        return line + f"{marks.delimiter}{marks.null}".encode() * missing


def text_values(texts: pa.RecordBatch, schema: pa.Schema, between: str, null: str) -> pa.RecordBatch:
    """Fields of CSV as the values of columns; what cannot be read is null.

    Args:
        texts: the fields, by the names of the columns.
        schema: the columns.
        between: the text between the parts of lists and structs.
        null: the text of a part that is null.
    """
    columns = [_values(texts.column(field.name), field.type, between, null) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _values(text: pa.Array, kind: pa.DataType, between: str, null: str) -> pa.Array:
    return _halved(
        text,
        kind,
        lambda some: in_parts(some, kind, between, _part, null),
        lambda one: _parts_of(one, kind, between, null),
    )


def _part(text: pa.Array, kind: pa.DataType) -> pa.Array:
    return _halved(text, kind, lambda some: field_values(some, kind), lambda one: pa.array([_single(one, kind)], kind))


def _single(text: str, kind: pa.DataType) -> Any:
    try:
        return single_value(text, kind)
    except _ERRORS:
        return None


def _parts_of(text: str, kind: pa.DataType, between: str, null: str) -> pa.Array:
    """A struct with other parts than its fields: those that are missing are null, more are left out."""
    given = [part if part != null else None for part in text.split(between)[: kind.num_fields]] if text else []
    parts = [*given, *[None] * (kind.num_fields - len(given))]
    columns = [_part(pa.array([part], pa.string()), field.type) for part, field in zip(parts, kind, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _halved(
    text: pa.Array, kind: pa.DataType, convert: Callable[[pa.Array], pa.Array], one: Callable[[str], pa.Array]
) -> pa.Array:
    """All texts at once; where that fails, those in halves that can be read, and each other by itself."""
    try:
        return convert(text)
    except _ERRORS:
        if len(text) <= 1:
            return one(text[0].as_py())
    half = len(text) // 2
    return pa.concat_arrays(
        [_halved(text.slice(0, half), kind, convert, one), _halved(text.slice(half), kind, convert, one)]
    )
