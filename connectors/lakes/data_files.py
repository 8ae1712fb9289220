"""Parquet files of a table: rows fitted to its columns, split by partition, and written before they are committed.

The Iceberg and Delta sinks give `DataFileWriter` a table to write to, and commit what it has prepared. Nobody sees a
file before the table refers to it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa

from penstock.connectors.files.encoders import ENCODERS, Encoder, Encoding
from penstock.connectors.files.folders import writing
from penstock.connectors.files.formats import FileFormat
from penstock.engine.connectors import Committable, ConnectorContext, TransactionalWriter
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.errors import ColumnTypeError, RecordError, missing_column

FILES: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
    ]
)
"""A data file: its path as the table has it, its bytes and rows, and its partition as JSON text."""

Partition: TypeAlias = "tuple[str | None, ...]"
"""The value of each of the table's partition fields, as text."""
_MOST_OPEN_FILES: Final = 100
_MOST_HELD_BYTES: Final = 256 * 1024 * 1024


class LakeTable(Protocol):
    """A table whose files are written. Lives in one subtask."""

    columns: pa.Schema
    """The columns of the table: not nullable where it takes no nulls."""
    stored: pa.Schema
    """Those that the files have."""
    largest_bytes: int
    """At about what size a file ends."""

    def partitions(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        """For each partition field its value in each row, as text or null; `rows` have the table's columns."""
        ...

    def create(self, name: str) -> tuple[str, BinaryIO]:
        """A new file: its path as the table has it, and where to write it.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove a file."""
        ...


def newest_by_writer(committables: Sequence[Committable]) -> dict[str, int]:
    """The newest checkpoint of each writer."""
    newest: dict[str, int] = {}
    for committable in committables:
        newest[committable.writer] = max(committable.checkpoint, newest.get(committable.writer, -1))
    return newest


def files_of(committables: Sequence[Committable]) -> list[dict[str, Any]]:
    """The rows of `FILES` of all of them."""
    return [row for committable in committables for row in committable.data.select(FILES.names).to_pylist()]


def check_columns(rows: pa.Schema, table: pa.Schema, where: str) -> None:
    """Whether a table takes rows with these columns, in any order.

    Raises:
        MissingColumnError: a column that the table must have is missing, or it has none of that name.
        ColumnTypeError: a column's values do not fit.
    """
    for field in rows:
        if field.name not in table.names:
            raise missing_column(field.name, table.names, f"{where}: the table")
        wanted = table.field(field.name).type
        if not _fits(field.type, wanted):
            raise ColumnTypeError(
                f"{where}: column {field.name!r} is {field.type}, and {wanted} in the table; cast it in the program"
            )
    for field in table:
        if not field.nullable and field.name not in rows.names:
            raise missing_column(field.name, rows.names, f"{where}: a column that the table requires")


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether all values of a type are values of another; times of another unit are checked one by one."""
    if given.equals(wanted) or pa.types.is_null(given):
        return True
    if pa.types.is_dictionary(given):
        return _fits(given.value_type, wanted)
    for is_kind in (_is_text, _is_bytes, pa.types.is_date, pa.types.is_time):
        if is_kind(given) and is_kind(wanted):
            return True
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if pa.types.is_integer(given) and pa.types.is_integer(wanted):
        wider = given.bit_width < wanted.bit_width or given.bit_width == wanted.bit_width == 64
        return bool(wider and pa.types.is_signed_integer(wanted))
    if pa.types.is_floating(given) and pa.types.is_floating(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
        return bool(given.scale == wanted.scale and given.precision <= wanted.precision)
    if _is_list(given) and _is_list(wanted):
        return _fits(given.value_type, wanted.value_type)
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        same = [field.name for field in given] == [field.name for field in wanted]
        return same and all(_fits(one.type, other.type) for one, other in zip(given, wanted, strict=True))
    return False


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def fit(rows: pa.RecordBatch, columns: pa.Schema, where: str) -> pa.RecordBatch:
    """The rows with exactly the table's columns.

    Raises:
        RecordError: a value does not fit, or is null where the table takes none.
    """
    arrays = []
    for field in columns:
        if field.name not in rows.schema.names:
            arrays.append(pa.nulls(rows.num_rows, field.type))
            continue
        try:
            array = rows.column(field.name).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise RecordError(f"{where}: column {field.name!r}: {error}; the table has {field.type}") from error
        if array.null_count and not field.nullable:
            raise RecordError(f"{where}: column {field.name!r} is null in a row, which the table does not take")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


@dataclass(slots=True, eq=False)
class _DataFile:
    """A file, and how far it is."""

    path: str
    stream: _Counted
    encoder: Encoder
    partition: Partition
    rows: int = 0

    @property
    def size(self) -> int:
        return self.stream.written + self.encoder.held_bytes


class DataFileWriter(TransactionalWriter):
    """Writes files, each with rows of one partition; a checkpoint ends them.

    Args:
        table: what they belong to.
        kind: of the sink, for messages.
        context: of the subtask.
    """

    def __init__(self, table: LakeTable, kind: str, context: ConnectorContext) -> None:
        self._table = table
        self._where = f"operator {context.operator!r}, subtask {context.subtask}: {kind}"
        self._writer = secrets.token_hex(8)
        self._subtask = context.subtask
        self._count = 0
        self._checked: pa.Schema | None = None
        self._open: dict[Partition, _DataFile] = {}  # the one that was written to last is the last
        self._finished: list[_DataFile] = []

    def write(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        if self._checked is None or not batch.data.schema.equals(self._checked):
            check_columns(batch.data.schema, self._table.columns, self._where)
            self._checked = batch.data.schema
        rows = fit(batch.data, self._table.columns, self._where)
        for partition, part in split(rows, self._table.partitions(rows)):
            self._write(partition, part.select(self._table.stored.names))

    def _write(self, partition: Partition, rows: pa.RecordBatch) -> None:
        file = self._open.pop(partition, None) or self._begin(partition)
        self._open[partition] = file
        with writing(file.path, self._where):
            file.encoder.write(pa.RecordBatch.from_arrays(rows.columns, schema=self._table.stored))
        file.rows += rows.num_rows
        if file.size >= self._table.largest_bytes:
            self._finish(partition)
        while len(self._open) > _MOST_OPEN_FILES:
            self._finish(next(iter(self._open)))
        if sum(one.encoder.held_bytes for one in self._open.values()) > _MOST_HELD_BYTES:
            max((one.encoder for one in self._open.values()), key=lambda encoder: encoder.held_bytes).flush()

    def _begin(self, partition: Partition) -> _DataFile:
        path, file = self._table.create(f"part-{self._subtask:05d}-{self._writer}-{self._count}.parquet")
        self._count += 1
        stream = _Counted(file)
        make, file_encoding = ENCODERS[FileFormat.PARQUET], Encoding.of(FileFormat.PARQUET, None)
        encoder = make(cast(BinaryIO, stream), self._table.stored, file_encoding)
        return _DataFile(path, stream, encoder, partition)

    def _finish(self, partition: Partition) -> None:
        file = self._open[partition]
        with writing(file.path, self._where):
            file.encoder.close()
            file.stream.end()
        self._finished.append(self._open.pop(partition))

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        for partition in list(self._open):
            self._finish(partition)
        if not self._finished:
            return []
        rows = [
            {"path": file.path, "size": file.stream.written, "rows": file.rows, "partition": json.dumps(file.partition)}
            for file in self._finished
        ]
        self._finished = []
        return [Committable(self._writer, checkpoint, pa.Table.from_pylist(rows, FILES))]

    def close(self) -> None:
        # What is prepared stays: a checkpoint that counts, or will, may hold it.
        for file in [*self._open.values(), *self._finished]:
            file.encoder.abandon()
            with contextlib.suppress(Exception):  # libraries raise errors of their own; nobody refers to the file
                file.stream.end()
            with contextlib.suppress(Exception):
                self._table.delete(file.path)
        self._open.clear()
        self._finished.clear()


class _Counted:
    """A file of any library as the encoder writes it; knows how many bytes went to it."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.written = 0
        self._ended = False

    def write(self, data: bytes) -> int:
        given = bytes(data)  # Arrow gives buffers, which not all libraries take
        self._file.write(given)
        self.written += len(given)
        return len(given)

    def tell(self) -> int:
        return self.written

    def flush(self) -> None:
        """What is written is seen when the file ends, not before."""

    def end(self) -> None:
        """Make the file, whole."""
        if not self._ended:
            self._ended = True
            self._file.close()


def split(rows: pa.RecordBatch, values: Sequence[pa.Array]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The rows of each partition, in their order.

    Args:
        rows: the rows.
        values: as of `LakeTable.partitions`.
    """
    if not values:
        yield (), rows
        return
    encoded = [value.dictionary_encode(null_encoding="encode") for value in values]
    places = np.zeros(rows.num_rows, np.int64)
    for one in encoded:
        places = places * len(one.dictionary) + one.indices.to_numpy()
    _, firsts, inverse = np.unique(places, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.cumsum(np.bincount(inverse, minlength=len(firsts)))
    ordered = table_to_record_batch(pa.Table.from_batches([rows]).take(pa.array(order)))
    start = 0
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        yield tuple(value[first].as_py() for value in values), ordered.slice(start, end - start)
        start = end
