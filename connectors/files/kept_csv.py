"""Reads a CSV file and tells its bad rows apart: they are kept beside the good ones, or the first is an error.

The file source calls it. While all rows fit, the usual reader reads them. From the first that
does not, all fields are read as bytes, and become values a batch at a time, where bad rows are told apart.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from penstock.connectors.files.csv_form import CsvForm
from penstock.connectors.files.csv_reader import LOCATED, TO_UTF8, convert_options, csv_chunks, read_names, shortened
from penstock.connectors.files.escapes import unescaped, unescaped_column
from penstock.connectors.files.misfits import Misfits
from penstock.connectors.files.readers import LARGEST_RECORD_BYTES, Chunks, Columns
from penstock.connectors.records.batches import decode_whole, error_text, held_decimals
from penstock.connectors.records.kept import ERROR_COLUMN, with_kept
from penstock.connectors.times import parsed
from penstock.engine.elements import table_to_record_batch
from penstock.engine.errors import BadRowError, RecordError

_AT_ONCE: Final = 10_000


def kept_csv_chunks(path: str, columns: Columns, form: CsvForm, row: int = 0) -> Chunks:
    """A row for each row of the file from number `row` (from 0) on, good or bad, a block at a time.

    Raises:
        RecordError: the file cannot be read, or its header does not fit.
    """
    given = row
    try:
        for batch in csv_chunks(path, columns, form, row):
            given += batch.num_rows
            yield _batch(batch, {}, batch.num_rows, columns)
        return
    except RecordError as error:
        if LOCATED.fullmatch(str(error.__cause__)) is None:
            raise
    yield from _from(given, _Rows(path, columns, form).chunks())


def strict_csv_chunks(path: str, columns: Columns, form: CsvForm, row: int = 0) -> Chunks:
    """The rows of the file from number `row` (from 0) on, a block at a time.

    Raises:
        BadRowError: a row does not fit; names the first.
        RecordError: the file cannot be read, or its header does not fit.
    """
    try:
        yield from csv_chunks(path, columns, form, row)
    except RecordError as error:
        if LOCATED.fullmatch(str(error.__cause__)) is None:
            raise
        for batch in _Rows(path, columns, form).chunks():
            for reason in batch.column(ERROR_COLUMN).drop_null().to_pylist():
                raise BadRowError(f"{reason}; {_remedy(reason, columns)}") from error
        raise


def _remedy(reason: str, columns: Columns) -> str:
    if "invalid UTF8" in reason:
        return f"{TO_UTF8}{columns.wording.foreign_text}"
    return columns.remedy if ": column " in reason else "correct the row"


def _from(row: int, batches: Iterator[pa.RecordBatch]) -> Chunks:
    """The rows from number `row` on."""
    for batch in batches:
        rest = batch.slice(min(row, batch.num_rows))
        row -= batch.num_rows - rest.num_rows
        if rest.num_rows:
            yield rest


class _Rows:
    """The rows of a file, which are fields of bytes first."""

    def __init__(self, path: str, columns: Columns, form: CsvForm) -> None:
        self._path = path
        self._columns = columns
        self._form = form
        self._next = form.first_row
        self._misfits = Misfits()
        self._width = 0

    def chunks(self) -> Chunks:
        """All of them, a block at a time."""
        header = read_names(self._path, self._form, self._columns.schema) or []
        # Of a name that occurs twice, which nobody reads, Arrow could not tell the columns apart.
        names = header if len(set(header)) == len(header) else self._columns.schema.names
        as_bytes = Columns(pa.schema([(name, pa.large_binary()) for name in names]), declared=True)
        none = pa.RecordBatch.from_pylist([], as_bytes.schema)
        for fields in csv_chunks(self._path, as_bytes, self._form, on_misfit=self._note):
            # Of blocks without a row that fits Arrow tells nothing.
            while self._misfits.run(self._next, _AT_ONCE) == _AT_ONCE:
                yield self._rows(none, self._next + _AT_ONCE)
            plain = pa.RecordBatch.from_arrays(list(map(unescaped_column, fields.columns)), schema=fields.schema)
            yield self._rows(plain, self._misfits.behind(self._next, fields.num_rows))
        while count := self._misfits.run(self._next, _AT_ONCE):
            yield self._rows(none, self._next + count)
        assert not self._misfits, "Arrow numbers rows without a gap"

    def _note(self, row: pv.InvalidRow) -> str:
        """Note a row with more or fewer fields than there are columns."""
        self._width = row.expected_columns
        self._misfits.note(row.number, row.actual_columns, unescaped(row.text))
        return "skip"

    def _placed(self, number: int, reason: str) -> str:
        return f"{self._form.placed(self._path, number)}: {reason}"

    def _rows(self, fields: pa.RecordBatch, end: int) -> pa.RecordBatch:
        """The rows before number `end`: `fields`, and those that were noted among them."""
        first, self._next = self._next, end
        records = _records(fields.select(self._columns.schema.names))
        decoded = decode_whole(records, self._columns.schema, self._parse, _not_sure, self._reason)
        bad: dict[int, tuple[str, bytes]] = {}
        columns = f"{'header' if self._form.header else 'schema'} {self._width}"
        for misfit in self._misfits.take(end):
            reason = f"it has {misfit.fields} fields, and the {columns}"
            bad[misfit.number - first] = (self._placed(misfit.number, reason), misfit.raw)
        places = [place for place in range(end - first) if place not in bad]
        for one in decoded.bad:
            place = places[one.index]
            bad[place] = (self._placed(first + place, one.reason), _line(fields, one.index, self._form))
        return _batch(decoded.rows, bad, end - first, self._columns)

    def _parse(self, records: pa.LargeBinaryArray) -> pa.RecordBatch:
        """The values of records, as the usual reader takes them."""
        lines = b"".join(records.to_pylist())

        def read(types: pa.Schema) -> pa.Table:
            return pv.read_csv(
                pa.BufferReader(lines),
                read_options=pv.ReadOptions(
                    use_threads=False, column_names=types.names, block_size=LARGEST_RECORD_BYTES
                ),
                parse_options=pv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                convert_options=convert_options(types, CsvForm()),
            )

        schema = self._columns.schema
        return held_decimals(parsed(read, schema) if self._columns.declared else table_to_record_batch(read(schema)))

    def _reason(self, record: bytes, error: Exception) -> str:
        located = LOCATED.fullmatch(error_text(error))
        if located is None or located["column"] is None:
            return error_text(error)
        return f"column {self._columns.schema.names[int(located['column'])]!r}: {shortened(located['reason'])}"


def _batch(good: pa.RecordBatch, bad: Mapping[int, tuple[str, bytes]], count: int, columns: Columns) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(with_kept(good, bad, count), schema=columns.kept_schema)


def _records(fields: pa.RecordBatch) -> pa.LargeBinaryArray:
    """Each row as a line of CSV: what is null stands bare, everything else in quotes."""
    # Not among the module's constants: Arrow loads pandas with the first scalar, before any program could prevent it.
    quote, empty, comma, line_end = (pa.scalar(text, pa.large_binary()) for text in (b'"', b"", b",", b"\n"))
    quoted = [
        pc.coalesce(pc.binary_join_element_wise(quote, pc.replace_substring(column, '"', '""'), quote, empty), empty)
        for column in fields.columns
    ]
    return pc.binary_join_element_wise(pc.binary_join_element_wise(*quoted, comma), line_end, empty)


def _line(fields: pa.RecordBatch, index: int, form: CsvForm) -> bytes:
    """A row as CSV with no more quotes than it needs."""
    text = io.StringIO()
    values = [column[index].as_py() or b"" for column in fields.columns]
    csv.writer(text, lineterminator="", **form.dialect).writerow(
        [value.decode("utf-8", "surrogateescape") for value in values]
    )
    return text.getvalue().encode("utf-8", "surrogateescape")


def _not_sure(record: bytes) -> None:
    return None
