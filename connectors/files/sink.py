"""The file sink: each subtask writes one file in a directory and shows it when its own input has ended.

Programs build a `FileSink`; the engine checks and prepares it once and opens a writer in each subtask. Files appear
whole or not at all: a job that fails may leave the files of the subtasks that had finished, and nothing of the others.
A process that is killed leaves its hidden in-progress file.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from penstock.connectors.files.formats import FileFormat, parse_format
from penstock.connectors.files.json_types import is_writable, json_lines
from penstock.connectors.files.times import has_zone, refuse_far_times, timestamp_text
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import ColumnTypeError, ConfigurationError, RecordError

_MODES: Final = ("error", "overwrite", "append")
_PART_PREFIX: Final = "part-"
_HIDDEN_SUFFIX: Final = ".inprogress"
_ROW_GROUP_ROWS: Final = 1_048_576
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSink(Sink):
    """Writes `part-<subtask>-<unique>.<format>` files into a directory; a subtask without rows writes none.

    Guarantee: each subtask publishes its file, whole, when its own input ends. A failed job may leave the files of
    the subtasks that had finished, and a killed process its hidden `.part-*.inprogress` file, which readers of the
    directory skip; `mode="overwrite"` removes both when the job runs again. Rows are written as they come: changelog
    row kinds and event timestamps are not stored.

    JSON lines hold times as ISO-8601 text (timestamps with a zone in UTC), bytes as base64, decimals as text,
    durations as numbers in the column's unit, maps as lists of pairs, and NaN and infinities as null. CSV
    quotes text, so that an empty text differs from null. Parquet is compressed by zstd.

    Args:
        path: the directory; it is created if it does not exist. Every node must see the same one.
        format: "parquet", "csv" or "json" (lines).
        mode: "error" refuses a directory that has visible files; "overwrite" removes its `part-*` and
            `.part-*.inprogress` files before the job starts and leaves others alone; "append" adds files.

    Raises:
        ConfigurationError: no such format or mode.

    Example:
        >>> FileSink("/data/delays", "parquet", mode="overwrite")
    """

    path: str | os.PathLike[str]
    format: Literal["parquet", "csv", "json"]
    mode: Literal["error", "overwrite", "append"] = "error"

    def __post_init__(self) -> None:
        parse_format(self.format, "file sink")
        if self.mode not in _MODES:
            raise ConfigurationError(f"file sink: no mode {self.mode!r}; choose {', '.join(map(repr, _MODES))}")
        object.__setattr__(self, "path", os.path.abspath(os.path.expanduser(os.fspath(self.path))))

    def check(self, schema: pa.Schema | None) -> None:
        if schema is not None:
            _check_types(schema, FileFormat(self.format))
        visible = sorted(name for name in _names_in(self._directory) if not name.startswith("."))
        if self.mode == "error" and visible:
            raise ConfigurationError(
                f"file sink: {self._directory} is not empty (it has {visible[0]!r}); choose another "
                "directory, or mode='overwrite' to remove its part-* files, or mode='append' to add to them"
            )

    def prepare(self) -> None:
        _make_directory(self._directory)
        if self.mode == "overwrite":
            _remove_parts(self._directory)

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _FileWriter(self._directory, FileFormat(self.format), context)

    def describe(self) -> str:
        return f"files({os.path.basename(self._directory)}, {self.format})"

    @property
    def _directory(self) -> str:
        return os.fspath(self.path)


class _FileWriter(SinkWriter):
    """Writes a hidden file and renames it in `finish`."""

    def __init__(self, directory: str, file_format: FileFormat, context: ConnectorContext) -> None:
        unique = uuid.uuid4().hex[:12]
        self._operator, self._subtask = context.operator, context.subtask
        self._format = file_format
        self._hidden = os.path.join(directory, f".{_PART_PREFIX}{context.subtask}.{unique}{_HIDDEN_SUFFIX}")
        self._visible = os.path.join(directory, f"{_PART_PREFIX}{context.subtask:05d}-{unique}.{file_format.value}")
        self._schema: pa.Schema | None = None
        self._file: BinaryIO | None = None
        self._encoder: _Encoder | None = None

    def write(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        encoder = self._encoder or self._start(batch.data.schema)
        if not batch.data.schema.equals(self._schema):
            raise RecordError(
                f"operator {self._operator!r}, subtask {self._subtask}: "
                f"{_difference(self._schema, batch.data.schema)}; a file has one schema: declare `returns=` "
                "on the function that makes these rows"
            )
        try:
            encoder.write(batch.data)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError) as error:
            raise RecordError(
                f"operator {self._operator!r}, subtask {self._subtask}: rows cannot be written as "
                f"{self._format.value} to {self._hidden}: {error}"
            ) from error

    def finish(self) -> None:
        if self._encoder is None or self._file is None:
            return
        self._encoder.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.rename(self._hidden, self._visible)
        self._encoder = self._file = None

    def close(self) -> None:
        if self._encoder is not None:
            self._encoder.abandon()
        if self._file is None:
            return
        with contextlib.suppress(OSError):  # a full disk, which was reported by the write before
            self._file.close()
        os.unlink(self._hidden)
        self._encoder = self._file = None

    def _start(self, schema: pa.Schema) -> _Encoder:
        _check_types(schema, self._format)
        os.makedirs(os.path.dirname(self._hidden), exist_ok=True)
        self._schema = schema
        self._file = open(self._hidden, "wb")  # noqa: SIM115 - open until finish or close
        self._encoder = _ENCODERS[self._format](self._file, schema)
        return self._encoder


class _Encoder(ABC):
    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Write what is left and the file's end."""

    def abandon(self) -> None:  # noqa: B027 - most encoders hold nothing
        """Let go of the file, which is about to be removed."""


class _ParquetEncoder(_Encoder):
    """Gathers rows, because each write makes a row group and small ones are slow to read."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._schema = schema
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._gathered.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _ROW_GROUP_ROWS or self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        # A writer that is left open tries to write its footer when it is collected, to a closed file.
        with contextlib.suppress(Exception):
            self._writer.close()
        self._writer.is_open = False

    def _flush(self) -> None:
        if self._gathered:
            self._writer.write_table(pa.Table.from_batches(self._gathered, self._schema))
        self._gathered, self._rows, self._bytes = [], 0, 0


class _CsvEncoder(_Encoder):
    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        # Arrow takes a microsecond to write a timestamp with a zone; as text made by us it takes a tenth of that.
        self._written = pa.schema(
            [(field.name, pa.string() if has_zone(field.type) else field.type) for field in schema]
        )
        self._writer = pc.CSVWriter(file, self._written)

    def write(self, rows: pa.RecordBatch) -> None:
        refuse_far_times(rows)
        columns = [timestamp_text(column) if has_zone(column.type) else column for column in rows.columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._written))

    def close(self) -> None:
        self._writer.close()


class _JsonEncoder(_Encoder):
    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file

    def write(self, rows: pa.RecordBatch) -> None:
        refuse_far_times(rows)
        self._file.write(json_lines(rows).encode("utf-8"))

    def close(self) -> None:
        """Every line is written already."""


_ENCODERS: Final[dict[FileFormat, Callable[[BinaryIO, pa.Schema], _Encoder]]] = {
    FileFormat.PARQUET: _ParquetEncoder,
    FileFormat.CSV: _CsvEncoder,
    FileFormat.JSON: _JsonEncoder,
}


def _check_types(schema: pa.Schema, file_format: FileFormat) -> None:
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
    if file_format is FileFormat.CSV and (pa.types.is_nested(field.type) or "binary" in str(field.type)):
        return ""
    try:
        row = pa.RecordBatch.from_arrays([pa.nulls(1, field.type)], names=[field.name])
        encoder = _ENCODERS[file_format](pa.BufferOutputStream(), row.schema)
        encoder.write(row)
        encoder.close()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return f" ({error})"
    return None


def _names_in(directory: str) -> list[str]:
    """The names in the directory, none if it does not exist and could be made."""
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(directory, error) from error


def _make_directory(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise _unusable(directory, error) from error


def _unusable(directory: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"file sink: {directory} cannot be written to ({error.strerror}); give a directory that every node can write to"
    )


def _remove_parts(directory: str) -> None:
    try:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if _is_part(name) and os.path.isfile(path):
                os.unlink(path)
    except OSError as error:
        raise _unusable(directory, error) from error


def _is_part(name: str) -> bool:
    """Whether a writer made the file, finished or not."""
    in_progress = name.startswith(f".{_PART_PREFIX}") and name.endswith(_HIDDEN_SUFFIX)
    return in_progress or name.startswith(_PART_PREFIX)


def _difference(first: pa.Schema | None, other: pa.Schema) -> str:
    """How the batch's columns differ from those of the first batch."""
    before = [] if first is None else [(field.name, str(field.type)) for field in first]
    after = [(field.name, str(field.type)) for field in other]
    changed = next(((old, new) for old, new in zip(before, after, strict=False) if old != new), None)
    if changed is None:
        return f"the first batch had {len(before)} columns and this one has {len(after)}"
    (old_name, old_type), (new_name, new_type) = changed
    return f"the first batch had column {old_name!r} of {old_type}, this one {new_name!r} of {new_type}"
