"""Rows of a table, of records that a source has kept beside a reason why it could not read them.

Tables of files and of servers put the operator behind their source, where they leave out what cannot be read. It
handles each record by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from penstock.connectors.records.batches import error_text
from penstock.connectors.records.csv_parts import field_text, field_values, has_parts, in_parts
from penstock.connectors.records.format import Decoded, RecordFormat
from penstock.connectors.records.kept import ERROR_COLUMN, RAW_COLUMN, with_kept
from penstock.engine.changelog import APPEND_ONLY
from penstock.engine.elements import Batch
from penstock.engine.errors import BadTableRowError
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.table_connectors.formats.mending import JsonMend, in_their_places, mended_rows, text_values

BAD: Final = "$bad"
"""The column of `KeptFormat` that says why a record is no row."""


class KeptFormat(RecordFormat):
    """Another format, whose bad records are rows of nulls with the reason in `BAD`.

    Args:
        format: reads the records.
    """

    def __init__(self, format: RecordFormat) -> None:  # noqa: A002 - the word users look for
        self._format = format

    @property
    def schema(self) -> pa.Schema:
        return self._format.schema.append(pa.field(BAD, pa.string()))

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        found = self._format.decode(values)
        bad = {one.index: (one.reason, b"") for one in found.bad}
        columns = with_kept(found.rows, bad, len(values))[:-1]
        return Decoded(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        return self._format.encode(rows.select(self._format.schema.names))

    def describe(self) -> str:
        return self._format.describe()


class RowsOf(Protocol):
    """What makes rows of a table of those that its source gives."""

    def of(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns; records that cannot be read are left out."""


@dataclass(frozen=True, slots=True)
class MendedRowsSpec(OperatorSpec):
    """Creates the operator that gives what `rows` makes of each batch."""

    rows: RowsOf

    def create(self) -> Operator:
        return MendedRows(self.rows)

    def describe(self) -> str:
        return "rows that can be read"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(APPEND_ONLY,))


class MendedRows(Operator):
    """See `MendedRowsSpec`."""

    def __init__(self, rows: RowsOf) -> None:
        self._rows = rows

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows = self._rows.of(batch.data)
        if rows.num_rows:
            out.collect(Batch(rows))


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of `KeptFormat`."""

    schema: pa.Schema

    def of(self, data: pa.RecordBatch) -> pa.RecordBatch:
        return data.filter(data.column(BAD).is_null()).select(self.schema.names)


@dataclass(frozen=True, slots=True)
class JsonRows:
    """Rows of files of JSON; those that were kept are read field by field."""

    schema: pa.Schema

    def of(self, data: pa.RecordBatch) -> pa.RecordBatch:
        good = data.column(ERROR_COLUMN).is_null()
        rows = data.filter(good).select(self.schema.names)
        if rows.num_rows == data.num_rows:
            return rows
        raw = data.column(RAW_COLUMN)
        bad = {place: raw[place].as_py() for place, is_good in enumerate(good.to_pylist()) if not is_good}
        return in_their_places(rows, bad, mended_rows(JsonMend(self.schema), bad), data.num_rows)


@dataclass(frozen=True, slots=True)
class CsvRows:
    """Rows of files of CSV, whose fields are texts, of which some are to be values.

    Args:
        schema: the table's columns.
        between: the text between the parts of lists and structs.
        null: the text of a part that is null.
        strict: the name of the table where a field that cannot be read fails the job; None: it is null, and rows that
            were kept are left out.
    """

    schema: pa.Schema
    between: str
    null: str
    strict: str | None

    def of(self, data: pa.RecordBatch) -> pa.RecordBatch:
        if self.strict is None:
            return text_values(data.filter(data.column(ERROR_COLUMN).is_null()), self.schema, self.between, self.null)
        columns = [self._column(data.column(field.name), field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, text: pa.Array, field: pa.Field) -> pa.Array:
        if text.type == field.type:
            return text
        try:
            return in_parts(text, field.type, self.between, field_values, self.null)
        except (pa.ArrowException, ValueError) as error:
            raise self._bad(text, field, error) from error

    def _bad(self, text: pa.Array, field: pa.Field, error: Exception) -> BadTableRowError:
        """The error that names the first of some fields that cannot be read."""
        where = f"table {self.strict!r}: column {field.name!r}"
        for place in range(len(text)):
            try:
                in_parts(text.slice(place, 1), field.type, self.between, field_values, self.null)
            except (pa.ArrowException, ValueError) as alone:
                return BadTableRowError(f"{where}: {text[place].as_py()!r} cannot be read: {error_text(alone)}")
        return BadTableRowError(f"{where}: {error_text(error)}")


@dataclass(frozen=True, slots=True)
class CsvTexts:
    """Rows for files of CSV: what has parts is a text.

    Args:
        between: the text between the parts of lists and structs.
    """

    between: str

    def of(self, data: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            field_text(column, self.between).cast(pa.string()) if has_parts(column.type) else column
            for column in data.columns
        ]
        return pa.RecordBatch.from_arrays(columns, names=data.schema.names)
