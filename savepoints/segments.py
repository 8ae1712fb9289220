"""Arrow tables and batches as bytes, and bytes as files that are checked when they are read.

Checkpoint writers and readers call it. What `read_file` gives is what `write_file` was given: length and digest are
compared before anything looks into the bytes. No pickle: files are Arrow IPC, which pandas, DuckDB and Spark read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from penstock.engine.checkpointing.handles import FileHandle, SegmentHandle
from penstock.engine.columns import beside
from penstock.engine.elements import Batch, Partials, Slices
from penstock.engine.errors import CheckpointCorruptError
from penstock.savepoints.arrow_sizes import bytes_of_stream, rows_and_bytes
from penstock.savepoints.content import ALIGNED, LARGE, Data, Pieces, algorithm_of, digest_of, joined, length_of, whole
from penstock.savepoints.paths import check_path, join_url
from penstock.savepoints.storage import BlobStore

_COPIED_BYTES: Final = 16 * 1024
"""To copy a table of so many bytes takes less time than to keep track of its pieces, a dozen a column."""
_PADDED_BYTES: Final = 1 << 20
"""In files of tables of so many bytes the first large column begins at a page: if it does so in memory, too, as columns
of captures do, it is written from there, and not copied before."""
_PADDING: Final = b"penstock.padding"
_FREE_BYTES: Final = 16 * 1024 * 1024
_MOST_TIMES: Final = 100
"""How much more memory than bytes a file may take. Ours are not compressed; those that others have made may be."""
_ALIGNMENT: Final = 8
"""Bytes; the longest value that a kernel reads at once, and what files and streams of Arrow keep within themselves."""
_BESIDE: Final = b"penstock.beside"
_TIMESTAMPS: Final = "timestamps"
_KINDS: Final = "kinds"
_PARTIALS: Final = b"penstock.partials"
_COUNTS: Final = re.compile(r"(?P<counts>__partial rows)(?:\((?P<length>\d+) ms from (?P<offset>\d+)\))?")

Compression: TypeAlias = Literal["lz4", "zstd"]
Group: TypeAlias = tuple[pa.Schema, list[pa.RecordBatch]]


def write_file(store: BlobStore, path: str, data: Data, digest: str | None = None) -> FileHandle:
    """Write a file and return its handle.

    Args:
        store: of the folder.
        path: relative to it, from `paths`; of a name that nothing else is written under.
        data: its content.
        digest: of the content, where it is known; else it is computed.

    Raises:
        CheckpointError: it cannot be written.
    """
    handle = FileHandle(path, length_of(data), digest if digest is not None else digest_of(data))
    store.put(path, data)
    return handle


def read_file(store: BlobStore, file: FileHandle) -> pa.Buffer:
    """The content of a file, exactly as it was written.

    Raises:
        CheckpointCorruptError: it is missing, or has another length or digest. Names the URL of the file.
    """
    data = store.get(check_path(file.path, store.url))
    where = join_url(store.url, file.path)
    if data.size != file.length:
        raise CheckpointCorruptError(
            f"{where} has {data.size} bytes instead of {file.length}: it was cut off or overwritten; restore the file "
            "from a backup, or start from another checkpoint or savepoint"
        )
    found = digest_of(data, algorithm_of(file.digest))
    if found != file.digest:
        raise CheckpointCorruptError(
            f"{where} is not as it was written: its digest is {found} instead of {file.digest}; restore the file from "
            "a backup, or start from another checkpoint or savepoint"
        )
    return data


def encode_table(table: pa.Table, compression: Compression | None = None) -> Data:
    """A table as an Arrow IPC file: without compression, most of a large one is the memory of the table itself.

    Args:
        table: the rows.
        compression: of the columns. None takes a tenth of the time of LZ4, which makes files of mixed columns smaller
            by 40 %: what takes time from a running job is better not compressed, what crosses a network may be.
    """
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    if table.nbytes <= _COPIED_BYTES:
        copied = pa.BufferOutputStream()
        _write_table(copied, table, options)
        return copied.getvalue()
    if compression is None and table.nbytes >= _PADDED_BYTES and table.column(0).num_chunks == 1:
        table = _padded(table, options)
    return Pieces(tuple(_parts(table, options)))


def _padded(table: pa.Table, options: pa.ipc.IpcWriteOptions) -> pa.Table:
    """The table with metadata of such a length that the first large column of its file begins at a page."""

    def padded(length: int) -> pa.Table:
        return table.replace_schema_metadata({**(table.schema.metadata or {}), _PADDING: b" " * length})

    head = itertools.takewhile(lambda part: len(part) < LARGE, _parts(padded(0), options))
    return padded(-sum(map(len, head)) % ALIGNED)


def _parts(table: pa.Table, options: pa.ipc.IpcWriteOptions) -> list[bytes | pa.Buffer]:
    parts = _Parts()
    with pa.PythonFile(parts, "w") as sink:
        _write_table(sink, table, options)
    return parts.written


def _write_table(sink: pa.NativeFile, table: pa.Table, options: pa.ipc.IpcWriteOptions) -> None:
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)


class _Parts:
    """A file that keeps what is written to it, by reference, in one part where the memory is one; Arrow closes it."""

    def __init__(self) -> None:
        self.written: list[bytes | pa.Buffer] = []
        self.closed = False

    def write(self, part: bytes | pa.Buffer) -> None:
        last = self.written[-1] if self.written else b""
        if isinstance(last, pa.Buffer) and isinstance(part, pa.Buffer) and last.address + last.size == part.address:
            self.written[-1] = pa.foreign_buffer(last.address, last.size + part.size, base=(last, part))
        else:
            self.written.append(part)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.closed = True


def decode_table(data: Data, file: FileHandle, where: str) -> pa.Table:
    """The table in the bytes of an Arrow IPC file.

    Args:
        data: from `read_file`.
        file: which.
        where: URL of the folder that its path is relative to.

    Raises:
        CheckpointCorruptError: it is no such file.
    """
    content = _aligned(data)
    try:
        rows, size = rows_and_bytes(content)
        _check_size(rows, size, content.size)
        with pa.ipc.open_file(content) as reader:
            rows = reader.read_all()
            return rows.replace_schema_metadata(
                {k: v for k, v in (rows.schema.metadata or {}).items() if k != _PADDING}
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _no_arrow(file, where, error) from error


def read_segment(store: BlobStore, segment: SegmentHandle) -> pa.Table:
    """The rows of a segment, from its file or files.

    Raises:
        CheckpointCorruptError: one of them is missing, or not as it was written. Names its URL.
    """
    rows = decode_segment(read_file(store, segment.file), segment, store.url)
    if segment.keys is None:
        return rows
    apart = replace(segment, file=segment.keys)
    return beside(decode_segment(read_file(store, apart.file), apart, store.url), rows)


def decode_segment(data: Data, segment: SegmentHandle, where: str) -> pa.Table:
    """The rows of a segment, as far as they are in its file; arguments and errors as `decode_table`."""
    table = decode_table(data, segment.file, where)
    if table.num_rows != segment.rows:
        raise CheckpointCorruptError(
            f"{join_url(where, segment.file.path)} has {table.num_rows} rows, and its manifest says {segment.rows}: "
            "one of them was changed; restore them from a backup, or start from another checkpoint or savepoint"
        )
    return table


def _check_size(rows: int, size: int, length: int) -> None:
    """Refuse a file before memory is taken for what it would become.

    Raises:
        ValueError: it would become far larger than any that was written, or has more rows than could be in it.
    """
    if size > _FREE_BYTES + _MOST_TIMES * length:
        raise ValueError(f"with {length} bytes, it would take {size} of memory")
    if not 0 <= rows <= 8 * size + 1:
        raise ValueError(f"it says that it has {rows} rows, and holds {size} bytes of them")


def encode_batches(batches: Sequence[Batch]) -> pa.Buffer:
    """Batches in their order, each with its timestamps and row kinds, as Arrow IPC streams one behind the other.

    Batches that follow each other with equal columns share a stream, so there is one in all but rare cases.
    """
    sink = pa.BufferOutputStream()
    for schema, group in _groups(batches):
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in group:
                writer.write_batch(batch)
    return sink.getvalue()


def decode_batches(data: Data, file: FileHandle, where: str) -> list[Batch]:
    """The batches that `encode_batches` was given; arguments and errors as `decode_table`."""
    content = _aligned(data)
    source = pa.BufferReader(content)
    batches: list[Batch] = []
    try:
        _check_size(0, bytes_of_stream(content), content.size)
        while source.tell() < source.size():
            with pa.ipc.open_stream(source) as reader:
                batches.extend(_split(batch) for batch in reader)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _no_arrow(file, where, error) from error
    return batches


def _aligned(data: Data) -> pa.Buffer:
    """The content at an address that Arrow's kernels take: what a server answered may begin anywhere in memory."""
    content = pa.py_buffer(whole(data))
    return content if content.address % _ALIGNMENT == 0 else pa.py_buffer(joined(data))


def _groups(batches: Iterable[Batch]) -> Iterable[Group]:
    schema: pa.Schema | None = None
    group: list[pa.RecordBatch] = []
    for batch in batches:
        joined = _join(batch)
        if schema is not None and not joined.schema.equals(schema, check_metadata=True):
            yield schema, group
            group = []
        schema = joined.schema
        group.append(joined)
    if schema is not None:
        yield schema, group


def _join(batch: Batch) -> pa.RecordBatch:
    """The columns of the batch with timestamps and kinds behind them; the schema's metadata says which there are.

    It says too whether the rows are partial aggregates.
    """
    beside = [(_TIMESTAMPS, batch.timestamps), (_KINDS, batch.kinds)]
    present = [(name, array) for name, array in beside if array is not None]
    fields = [*batch.data.schema, *(pa.field(name, array.type) for name, array in present)]
    names = ",".join(name for name, _ in present)
    metadata = {**(batch.data.schema.metadata or {}), _BESIDE: names.encode()}
    if batch.partials is not None:
        metadata[_PARTIALS] = batch.partials.text().encode()
    schema = pa.schema(fields, metadata)
    if not fields:
        # Arrow makes no batch of rows without columns from arrays, but keeps the number of rows of one it has.
        return batch.data.replace_schema_metadata(metadata)
    return pa.RecordBatch.from_arrays([*batch.data.columns, *(array for _, array in present)], schema=schema)


def _split(joined: pa.RecordBatch) -> Batch:
    metadata = dict(joined.schema.metadata or {})
    names = [name for name in metadata.pop(_BESIDE, b"").decode().split(",") if name]
    marked = metadata.pop(_PARTIALS, None)
    own = joined.num_columns - len(names)
    beside = {name: joined.column(own + place) for place, name in enumerate(names)}
    data = joined.select(list(range(own))).replace_schema_metadata(metadata or None)
    data, partials = _by_name(data) if marked is None else (data, Partials.of_text(marked.decode()))
    return Batch(data, beside.get(_TIMESTAMPS), beside.get(_KINDS), partials)


def _by_name(data: pa.RecordBatch) -> tuple[pa.RecordBatch, Partials | None]:
    """Rows as they were stored before batches were marked: a column's name said that they are partial aggregates."""
    for place, name in enumerate(data.schema.names):
        if named := _COUNTS.fullmatch(name):
            length, offset = named["length"], named["offset"]
            mark = Partials(named["counts"], Slices(int(length), int(offset)) if length else None)
            return data.rename_columns([*data.schema.names[:place], mark.counts, *data.schema.names[place + 1 :]]), mark
    return data, None


def _no_arrow(file: FileHandle, where: str, error: Exception) -> CheckpointCorruptError:
    return CheckpointCorruptError(f"{join_url(where, file.path)} is no Arrow file that can be read: {error}")
