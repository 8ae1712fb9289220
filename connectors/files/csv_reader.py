"""Reads a CSV file, block by block, with the types that the source fixed.

The file source calls it, once to infer the columns and once a file to read. Types never depend on which block or file
a row stands in: a value that does not fit is an error with its row number. An unquoted empty field is null.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.csv as pc

from penstock.connectors.files.csv_form import CsvForm
from penstock.connectors.files.escapes import EscapedStream
from penstock.connectors.files.formats import open_stream
from penstock.connectors.files.readers import (
    BLOCK_BYTES,
    LARGEST_RECORD_BYTES,
    Chunks,
    Columns,
    reading,
    widen_inferred,
)
from penstock.connectors.records.batches import held_decimals
from penstock.connectors.times import cut_time, with_texts
from penstock.engine.errors import BadRowError, ConfigurationError, FileColumnsError, RecordError
from penstock.engine.schemas import plain_schema

_BLOCK_GROWTH: Final = 8
LOCATED: Final = re.compile(
    r"(?:In CSV column #(?P<column>\d+): )?(?:CSV parse error: )?Row #(?P<row>\d+): (?P<reason>.*)", re.DOTALL
)
"""What Arrow says of a row that does not fit."""
_SHOWN_CHARACTERS: Final = 300
_NO_TIME: Final = "conversion error to timestamp"
TO_UTF8: Final = "CSV files are read as UTF-8 alone: convert it (of Latin-1: `iconv -f latin1 -t utf-8`)"
_OTHER_DELIMITERS: Final = ";\t|,"


def check_csv_types(schema: pa.Schema) -> None:
    """Whether CSV fields can become the columns of `schema`.

    Raises:
        ConfigurationError: names the column that cannot be read from CSV.
    """
    for field in schema:
        options = pc.ConvertOptions(column_types={"x": field.type})
        try:
            pc.read_csv(pa.BufferReader(b"x,y\n,\n"), convert_options=options)
        except pa.ArrowNotImplementedError as error:
            raise ConfigurationError(
                f"files: column {field.name!r}: CSV fields cannot be read as {field.type} ({error}); "
                "declare 'string' and convert it later, or use Parquet"
            ) from error


def infer_csv_schema(path: str, form: CsvForm) -> pa.Schema | None:
    """The columns of the file, which names them, with the types that its first block shows; None if it has no rows.

    Raises:
        BadRowError: a row of the first block has more or fewer fields than the header; names the first.
        RecordError: unreadable, or the first block is no CSV.
    """
    names = read_names(path, form, None)
    if names is None:
        return None
    convert = convert_options(None, form)
    block_bytes = BLOCK_BYTES
    while True:
        try:
            with reading(path), open_stream(path) as stream:
                reader = _open(stream, block_bytes, form, names, convert)
                if reader.read_next_batch().num_rows == 0:
                    return None
                schema = reader.schema
                break
        except StopIteration:
            return None
        except RecordError as error:
            if located := LOCATED.fullmatch(str(error.__cause__)):
                place = form.placed(path, int(located["row"]))
                raise BadRowError(f"{place}: {shortened(located['reason'])}; correct the row") from error
            if not _straddles(error.__cause__) or block_bytes >= LARGEST_RECORD_BYTES:
                raise
            block_bytes *= _BLOCK_GROWTH
    foreign = [field.name for field in schema if pa.types.is_binary(field.type)]
    if foreign:
        # Arrow takes a column for bytes where its texts are no UTF-8.
        raise _encoding_error(path, foreign[0], form)
    return plain_schema(widen_inferred(schema), f"files: {path}")


def _encoding_error(path: str, column: str, form: CsvForm) -> RecordError:
    """Says where the first text of the column stands that is no UTF-8; it is among the first rows."""
    as_bytes = Columns(pa.schema([(column, pa.binary())]), declared=True)
    row = form.first_row
    for chunk in csv_chunks(path, as_bytes, form):
        for value in chunk.column(0).to_pylist():
            if not _is_utf8(value or b""):
                shown = value[:_SHOWN_CHARACTERS]
                where = f"{form.placed(path, row)}, column {column!r}"
                return RecordError(f"{where}: {shown!r} is not UTF-8; {TO_UTF8}{as_bytes.wording.foreign_text}")
            row += 1
    return RecordError(f"{path}, column {column!r}: a text is not UTF-8; {TO_UTF8}{as_bytes.wording.foreign_text}")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def csv_chunks(
    path: str,
    columns: Columns,
    form: CsvForm,
    row: int = 0,
    on_misfit: Callable[[pc.InvalidRow], str] | None = None,
) -> Chunks:
    """The rows of the file from number `row` (from 0) on, a block at a time.

    Of the bad rows of a block the error may name any, as columns are converted one by one: `kept_csv` finds the first.

    Args:
        path: of the file.
        columns: to read.
        form: of the file.
        row: where to begin.
        on_misfit: called with rows that have more or fewer fields than there are columns, perhaps several times; gives
            "skip" to leave one out. Bytes that are no UTF-8 are escaped then (`escapes`). None: such a row is an error.

    Raises:
        RecordError: unreadable, a column is missing or new, or a row does not fit.
    """
    names = read_names(path, form, columns.schema)
    if names is None:
        return
    if not set(names) & set(columns.schema.names):
        raise _no_names(path, names, columns)
    columns.check(path, names)
    types = columns.schema
    given, block_bytes = row, BLOCK_BYTES
    while True:
        try:
            with reading(path), open_stream(path) as stream:
                skip = given
                for batch in _open(stream, block_bytes, form, names, convert_options(types, form), on_misfit):
                    rest = _as_columns(batch.slice(min(skip, batch.num_rows)), columns.schema, given)
                    skip -= batch.num_rows - rest.num_rows
                    given += rest.num_rows
                    if rest.num_rows:
                        yield rest
                return
        except RecordError as error:
            if columns.declared and _NO_TIME in str(error.__cause__) and types != (texts := with_texts(types)):
                # A time may have more digits than its column holds: read again from here, as texts.
                types = texts
                continue
            if not _straddles(error.__cause__) or block_bytes >= LARGEST_RECORD_BYTES:
                raise
            # A record longer than the block: Arrow cannot resume from here, so read again with larger blocks.
            block_bytes *= _BLOCK_GROWTH


def _as_columns(rows: pa.RecordBatch, schema: pa.Schema, first: int) -> pa.RecordBatch:
    """The rows, the first of that number, with timestamps for the texts that were read in their place."""
    try:
        columns = [cut_time(rows.column(field.name), field.type) for field in schema]
        return held_decimals(pa.RecordBatch.from_arrays(columns, schema=schema))
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"Row #{first}: {error}") from error


def _no_names(path: str, names: list[str], columns: Columns) -> FileColumnsError:
    """The error for a first line that names none of the columns."""
    wanted, words = columns.schema.names, columns.wording
    said = f"{path}, row 1: the first line of a CSV file names its columns, and {', '.join(map(repr, names))} has none"
    for mark in _OTHER_DELIMITERS:
        if len(names) == 1 and set(wanted) & set(names[0].split(mark)):
            given = words.delimiter.format(mark.replace("\t", "\\t"))
            return FileColumnsError(f"{said} of {', '.join(wanted)}; give what stands between its fields: {given}")
    return FileColumnsError(
        f"{said} of {', '.join(wanted)}; {words.no_header} reads files without such a line, and "
        f"{words.delimiter.format(';')} those with ; between their fields"
    )


def read_names(path: str, form: CsvForm, schema: pa.Schema | None) -> list[str] | None:
    """The names of the fields: those in the first line that is not blank, or those of `schema` where none has them.

    None: there is no such line.
    """
    with reading(path), open_stream(path) as stream:
        # Bytes that are no UTF-8 may stand behind the header: those are reported with their own row.
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
        try:
            if not form.header and schema is not None:
                return schema.names if any(line.strip("\r\n") for line in text) else None
            names = next((row for row in csv.reader(text, **form.dialect) if row), None)
            "".join(names or []).encode("utf-8")
            return names
        except (UnicodeEncodeError, csv.Error) as error:
            raise RecordError(f"{path}, row 1: the header line cannot be read: {error}") from error


def _open(
    stream: pa.NativeFile,
    block_bytes: int,
    form: CsvForm,
    names: list[str],
    convert: pc.ConvertOptions,
    on_misfit: Callable[[pc.InvalidRow], str] | None = None,
) -> pc.CSVStreamingReader:
    bytes_of = stream if on_misfit is None else EscapedStream(stream)
    return pc.open_csv(
        pa.PythonFile(_WholeLineEnds(bytes_of), mode="r"),
        read_options=pc.ReadOptions(
            use_threads=False,
            block_size=min(block_bytes, LARGEST_RECORD_BYTES),
            column_names=None if form.header else names,
        ),
        # In a file of one column an empty line is a null; elsewhere it is no row at all.
        parse_options=form.parse_options(
            newlines_in_values=True, ignore_empty_lines=len(names) > 1, invalid_row_handler=on_misfit
        ),
        convert_options=convert,
    )


class _WholeLineEnds(io.RawIOBase):
    """The bytes of `stream`, of which no read ends between a carriage return and a line feed.

    Arrow drops a line feed at the start of a block if the block before ended with a carriage return, even if both
    belong to a quoted text.
    """

    def __init__(self, stream: pa.NativeFile | EscapedStream) -> None:
        super().__init__()
        self._stream = stream
        self._held = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        read = self._stream.read(size - len(self._held)) if size >= 0 else self._stream.read()
        data: bytes = self._held + read
        self._held = b""
        if len(data) > 1 and data.endswith(b"\r"):
            data, self._held = data[:-1], b"\r"
        return data


def convert_options(schema: pa.Schema | None, form: CsvForm) -> pc.ConvertOptions:
    """How fields become values: those of `schema`, or whatever they look like."""
    return pc.ConvertOptions(
        column_types=schema,
        include_columns=schema.names if schema is not None else None,
        null_values=list(form.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _straddles(error: BaseException | None) -> bool:
    return isinstance(error, pa.ArrowInvalid) and "straddling object" in str(error)


def shortened(text: str) -> str:
    """The beginning of what Arrow says of a row, which may have all of it."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
