"""How the rows of the file sink become bytes: an encoder for each format, and which column types each can store.

The sink makes one encoder for each file that it writes, and asks `check_types` before. What is written reads back as
the same rows, within what the format can express.
"""

from __future__ import annotations

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from penstock.connectors.files.avro_files import AvroFile, avro_refusal, check_compression
from penstock.connectors.files.csv_form import CsvForm
from penstock.connectors.files.formats import FileFormat, suffix_of_compression
from penstock.connectors.json.types import is_writable, json_lines
from penstock.connectors.times import has_zone, refuse_far_times, timestamp_text
from penstock.engine.errors import ColumnTypeError, ConfigurationError

_ROW_GROUP_ROWS: Final = 1_048_576
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024


_IN_NUMBERS: Final = " +-.:"
_NONE: Final = "none"
_COMPRESSIONS: Final = {
    FileFormat.PARQUET: ("zstd", "snappy", "gzip", "lz4", "brotli", _NONE),
    FileFormat.CSV: (_NONE, "gzip", "bz2", "zstd"),
    FileFormat.JSON: (_NONE, "gzip", "bz2", "zstd"),
    FileFormat.AVRO: ("deflate", "bz2", "zstd", "snappy", _NONE),
}
"""By format, the default first."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How rows become files.

    Args:
        format: the format.
        compression: one that the format has; `Encoding.of` checks it.
        form: of CSV.
    """

    format: FileFormat
    compression: str
    form: CsvForm

    @classmethod
    def of(cls, file_format: FileFormat, compression: str | None, form: CsvForm | None = None) -> Encoding:
        """The encoding with that compression and form, or with the format's usual ones.

        Raises:
            ConfigurationError: the format has no such compression, or no such form.
        """
        form = CsvForm() if form is None else form
        if file_format is not FileFormat.CSV and form != CsvForm():
            raise ConfigurationError(
                f"file sink: delimiter and header are of CSV; leave them out, as {file_format.value} has none"
            )
        known = _COMPRESSIONS[file_format]
        if compression is not None and compression not in known:
            raise ConfigurationError(
                f"file sink: {file_format.value} has no compression {compression!r}; choose "
                f"{', '.join(map(repr, known))}"
            )
        if form.delimiter.isalnum() or form.delimiter in _IN_NUMBERS:
            raise ConfigurationError(
                f"file sink: {form.delimiter!r} may stand in numbers and times, which have no quotes; choose another "
                "delimiter, such as ';'"
            )
        return cls(file_format, compression or known[0], form)

    def check_installed(self) -> None:
        """Raise a ConfigurationError where a library that the encoding needs is not here."""
        if self.format is FileFormat.AVRO:
            check_compression(self.compression)

    @property
    def suffix(self) -> str:
        """The end of the names of such files, which tells how to read them."""
        is_text = self.format in (FileFormat.CSV, FileFormat.JSON)
        return f".{self.format.value}{suffix_of_compression(self.compression) if is_text else ''}"


class Encoder(ABC):
    """Writes rows to one file."""

    @property
    def held_bytes(self) -> int:
        """How many bytes of rows are kept in memory; 0 where rows are written as they come."""
        return 0

    def flush(self) -> None:  # noqa: B027 - most encoders hold nothing
        """Write what is kept in memory."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Write the rows, or keep them to be written with others.

        Raises:
            pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError: the format cannot hold a value.
        """

    @abstractmethod
    def close(self) -> None:
        """Write what is left and the file's end."""

    def abandon(self) -> None:  # noqa: B027 - most encoders hold nothing
        """Let go of the file, which is about to be removed."""


class _ParquetEncoder(Encoder):
    """Gathers rows, because each write makes a row group and small ones are slow to read."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, encoding: Encoding) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression=encoding.compression)
        self._schema = schema
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def write(self, rows: pa.RecordBatch) -> None:
        if rows.get_total_buffer_size() > 2 * rows.nbytes:
            # A slice keeps all of what it was cut from: some rows of each batch would keep all batches in memory.
            rows = pa.concat_batches([rows, rows.slice(0, 0)])
        self._gathered.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _ROW_GROUP_ROWS or self._bytes >= _ROW_GROUP_BYTES:
            self.flush()

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        # A writer that is left open tries to write its footer when it is collected, to a closed file.
        with contextlib.suppress(Exception):
            self._writer.close()
        self._writer.is_open = False

    def flush(self) -> None:
        if self._gathered:
            self._writer.write_table(pa.Table.from_batches(self._gathered, self._schema))
        self._gathered, self._rows, self._bytes = [], 0, 0


class _KeptOpen(io.RawIOBase):
    """A file that stays open behind its compression."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return self._file.write(cast(bytes, data))


def _compressed(file: BinaryIO, encoding: Encoding) -> BinaryIO | pa.CompressedOutputStream:
    if encoding.compression == _NONE:
        return file
    return pa.CompressedOutputStream(pa.PythonFile(_KeptOpen(file), mode="w"), encoding.compression)


def _end_compression(file: BinaryIO | pa.CompressedOutputStream) -> None:
    if isinstance(file, pa.CompressedOutputStream):
        file.close()


class _CsvEncoder(Encoder):
    def __init__(self, file: BinaryIO, schema: pa.Schema, encoding: Encoding) -> None:
        self._file = _compressed(file, encoding)
        # Arrow takes a microsecond to write a timestamp with a zone; as text made by us it takes a tenth of that.
        self._written = pa.schema(
            [(field.name, pa.string() if has_zone(field.type) else field.type) for field in schema]
        )
        options = pc.WriteOptions(include_header=encoding.form.header, delimiter=encoding.form.delimiter)
        self._writer = pc.CSVWriter(self._file, self._written, write_options=options)

    def write(self, rows: pa.RecordBatch) -> None:
        refuse_far_times(rows)
        columns = [timestamp_text(column) if has_zone(column.type) else column for column in rows.columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._written))

    def close(self) -> None:
        self._writer.close()
        _end_compression(self._file)

    def abandon(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class _JsonEncoder(Encoder):
    def __init__(self, file: BinaryIO, schema: pa.Schema, encoding: Encoding) -> None:
        self._file = _compressed(file, encoding)

    def write(self, rows: pa.RecordBatch) -> None:
        refuse_far_times(rows)
        self._file.write(json_lines(rows).encode("utf-8"))

    def close(self) -> None:
        _end_compression(self._file)

    def abandon(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class _AvroEncoder(Encoder):
    def __init__(self, file: BinaryIO, schema: pa.Schema, encoding: Encoding) -> None:
        self._file = AvroFile(file, schema, encoding.compression)

    def write(self, rows: pa.RecordBatch) -> None:
        self._file.write(rows)

    def close(self) -> None:
        self._file.flush()


ENCODERS: Final[dict[FileFormat, Callable[[BinaryIO, pa.Schema, Encoding], Encoder]]] = {
    FileFormat.PARQUET: _ParquetEncoder,
    FileFormat.CSV: _CsvEncoder,
    FileFormat.JSON: _JsonEncoder,
    FileFormat.AVRO: _AvroEncoder,
}
"""By format: makes the encoder for an open file, its columns, and the encoding, which is of that format."""


def check_types(schema: pa.Schema, file_format: FileFormat) -> None:
    """Refuse columns that files of the format cannot hold.

    Raises:
        ColumnTypeError: names the column and its type.
    """
    for field in schema:
        reason = _refusal(field, file_format)
        if reason is not None:
            raise ColumnTypeError(
                f"file sink: {file_format.value} cannot store column {field.name!r} of type "
                f"{field.type}{reason}; convert or drop the column, or choose another format"
            )


def _refusal(field: pa.Field, file_format: FileFormat) -> str | None:
    """Why the format cannot store the column (may be empty), or None if it can."""
    if file_format is FileFormat.JSON:
        return None if is_writable(field.type) else ""
    if file_format is FileFormat.AVRO:
        return avro_refusal(field)
    if file_format is FileFormat.CSV and (pa.types.is_nested(field.type) or "binary" in str(field.type)):
        return ""
    try:
        row = pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], names=[field.name])
        encoder = ENCODERS[file_format](pa.BufferOutputStream(), row.schema, Encoding.of(file_format, None))
        encoder.write(row)
        encoder.close()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return f" ({error})"
    return None
