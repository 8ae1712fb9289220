"""The file sink: each subtask writes hidden files into a directory, and shows each when its rows are final.

Programs build a `FileSink`; the engine checks and prepares it once and opens a writer in each subtask. With checkpoints
a file is shown when the checkpoint that it belongs to is complete, exactly once; without them, when the input ends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from penstock.connectors.files.buckets import BucketAssigner, BucketFunction, ColumnBuckets, assigner_of, split
from penstock.connectors.files.csv_form import CsvForm
from penstock.connectors.files.encoders import Encoding, check_types
from penstock.connectors.files.folders import Folder
from penstock.connectors.files.formats import parse_format
from penstock.connectors.files.object_store import dataset_of, is_url, normalise_url
from penstock.connectors.files.open_folder import open_folder
from penstock.connectors.files.part_files import FILES, Naming, PartFile, PartFiles, is_hidden_of, show
from penstock.connectors.files.rolling import Rolling
from penstock.engine.connectors import Committable, ConnectorContext, Dataset, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError

_MODES: Final = ("error", "overwrite", "append")


_ONCE_A_CHECKPOINT: Final = Rolling()
_MOST_OPEN_FILES: Final = 100
_FINISHED_AT_ONCE: Final = 16
_MOST_HELD_BYTES: Final = 256 * 1024 * 1024
"""What all open files of a writer may keep in memory."""
_PREFIX: Final = re.compile(r"[^./\0_][^/\0]{0,99}")
_SUFFIX: Final = re.compile(r"[^/\0]{0,50}")


@dataclass(frozen=True, slots=True)
class FileSink(TransactionalSink):
    """Writes `part-<subtask>-<unique>.<format>` files into a directory; a subtask without rows writes none.

    Guarantee: exactly once with checkpoints, read committed. A subtask writes one file for each checkpoint (and each
    bucket, or more as `roll` says), under a hidden name, and shows it when the checkpoint is complete; what a failed
    attempt wrote after the last complete checkpoint is never seen. So rows are seen late by up to the checkpoint
    interval, and short intervals make many small files: choose the interval for the size of the files. Without
    checkpoints, each subtask shows its files when its own input ends; a failed job may leave the files of the subtasks
    that had finished. Starting again from a savepoint that is not the job's last writes again what was written since.

    Hidden files are skipped by readers of the directory: `.part-*.inprogress` while they are written, and
    `.part-*.prepared` when they are whole and wait for their checkpoint. A failing attempt removes those that it was
    writing; what a killed process was writing is removed by the job's next attempt, as each subtask opens its writer:
    files of the same operator and job alone, so that nobody else's are touched. Prepared files of an attempt that
    failed before their checkpoint was complete stay hidden until the job ends, or until the run that resumes it has a
    checkpoint; those that a savepoint may hold, which the job has run on behind, stay, and so do those of a run that
    was killed and that no other resumes, as two that begin with `savepoint=` may live side by side. `mode="overwrite"`
    removes all; by hand, those that are older than the oldest savepoint and that no job is writing can go.

    In a bucket, an object is uploaded in parts while it is written, appears under its hidden name when it is whole, and
    is shown by a copy within the bucket. Rows are uploaded once. Whoever copies again finds the copy; an object of at
    most 5 GiB is copied at once and appears whole. The account must be allowed to list, read, write and delete below
    the folder. A killed process may leave parts of an upload, which no list shows: let the bucket's life cycle abort
    incomplete uploads after some days, but leave objects `.part-*.prepared` for as long as savepoints are kept.

    Rows are written as they come: changelog row kinds and event timestamps are not stored. JSON lines hold times as
    ISO-8601 text (timestamps with a zone in UTC), bytes as base64, decimals as text, durations as numbers in the
    column's unit, maps as objects, and NaN and infinities as null. CSV quotes text, so that an empty text
    differs from null. Avro (extra `avro`) makes every column a union with null.

    Args:
        path: the directory, which is created if it does not exist and which every node must see, or the URL of a folder
            in a bucket: `s3://bucket/folder`, `gs://...`, `az://...`. Credentials, region and end point come from the
            environment (`AWS_...`, `GOOGLE_...`, `AZURE_...`), on every node.
        format: "parquet", "csv", "json" (lines) or "avro".
        mode: "error" refuses a directory that has visible files; "overwrite" removes its `<prefix>-*` and
            hidden `.part-*` files before the job starts and leaves others alone; "append" adds files. A job that
            resumes from a savepoint adds files in every mode.
        partition_by: names of columns of text, integers, dates or booleans: rows go to Hive's folders
            `<column>=<value>/...`, which hold those columns in the place of the files.
        bucket: rows go to folders by time (`by_time("%Y-%m-%d/%H")`), or as a function of a record batch says, which
            gives a text for each row. In each subtask up to 100 files are open at a time; beyond that, the one that was
            written to least recently ends.
        roll: when a file ends before the checkpoint does; never by default.
        compression: "none", "gzip", "bz2" or "zstd" for CSV and JSON lines (none by default; the name ends on `.gz`,
            `.bz2` or `.zst`); "zstd" (default), "snappy", "gzip", "lz4", "brotli" or "none" for Parquet; "deflate"
            (default), "bz2", "zstd", "snappy" or "none" for Avro.
        prefix: the beginning of the names of visible files.
        suffix: the end of their names; by default format and compression, which is what `FileSource` tells them by.
        delimiter: CSV only: the character between fields.
        header: CSV only: whether the first line of each file names the columns.

    Raises:
        ConfigurationError: no such format, mode, compression or bucket, or a URL that cannot be used.

    Example:
        >>> FileSink("/data/delays", "parquet", mode="overwrite")
        >>> FileSink("s3://lake/visits", "json", bucket=by_time("dt=%Y-%m-%d"), compression="gzip")
    """

    path: str | os.PathLike[str]
    format: Literal["parquet", "csv", "json", "avro"]
    mode: Literal["error", "overwrite", "append"] = "error"
    partition_by: Sequence[str] = ()
    bucket: BucketAssigner | BucketFunction | None = None
    roll: Rolling = _ONCE_A_CHECKPOINT
    compression: str | None = None
    prefix: str = "part"
    suffix: str | None = None
    delimiter: str = ","
    header: bool = True

    def __post_init__(self) -> None:
        parse_format(self.format, "file sink")
        if self.mode not in _MODES:
            raise ConfigurationError(f"file sink: no mode {self.mode!r}; choose {', '.join(map(repr, _MODES))}")
        _ = self._encoding, self._assigner
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        if not isinstance(self.roll, Rolling):
            raise ConfigurationError(f"file sink: roll must be Rolling(...), not {self.roll!r}")
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigurationError(f"file sink: {self.prefix!r} cannot begin the names of visible files")
        if self.suffix is not None and not _SUFFIX.fullmatch(self.suffix):
            raise ConfigurationError(f"file sink: {self.suffix!r} cannot end the names of files")
        text = os.fspath(self.path)
        is_far = is_url(text)
        path = normalise_url(text, "file sink") if is_far else os.path.abspath(os.path.expanduser(text))
        object.__setattr__(self, "path", path)

    def check(self, schema: pa.Schema | None) -> None:
        self._encoding.check_installed()
        if schema is not None:
            check_types(_stored(schema, self._assigner), self._encoding.format)
        folder = self._folder
        visible = sorted(name for name in folder.names() if not name.startswith("."))
        if self.mode == "error" and visible:
            raise ConfigurationError(
                f"file sink: {folder.path} is not empty (it has {visible[0]!r}); choose another "
                f"directory, or mode='overwrite' to remove its {self.prefix}-* files, or mode='append' to add to them"
            )

    def prepare(self) -> None:
        folder = self._folder
        folder.make()
        if self.mode == "overwrite":
            folder.remove(self._naming.is_part, deep=self._assigner is not None)

    def resumed(self) -> FileSink:
        return replace(self, mode="append")

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return _FileWriter(
            PartFiles(self._folder, self._naming, self._encoding, context),
            self._encoding,
            self._assigner,
            self.roll,
            context,
        )

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        """Show the files, wherever they were written; errors as of `part_files.show`."""
        where = f"operator {context.operator!r}, subtask {context.subtask}: file sink"
        show(pa.concat_tables([committable.data for committable in committables]), where)

    def discard(self, context: ConnectorContext) -> None:
        """Remove the hidden files of the job; errors as of `Folder.remove`."""

        def is_left(name: str) -> bool:
            return is_hidden_of(name, context.identity)

        # To look at the top is one request for a thousand names; to remove goes through all that is below.
        if context.identity and any(map(is_left, self._folder.names())):
            self._folder.remove(is_left, deep=False)

    @property
    def datasets(self) -> Sequence[Dataset]:
        return (dataset_of(os.fspath(self.path)),)

    def describe(self) -> str:
        return f"files({os.path.basename(self._folder.path)}, {self.format})"

    @property
    def _folder(self) -> Folder:
        return open_folder(os.fspath(self.path))

    @property
    def _encoding(self) -> Encoding:
        form = CsvForm(delimiter=self.delimiter, header=self.header)
        return Encoding.of(parse_format(self.format, "file sink"), self.compression, form)

    @property
    def _naming(self) -> Naming:
        return Naming(self.prefix, self._encoding.suffix if self.suffix is None else self.suffix)

    @property
    def _assigner(self) -> BucketAssigner | None:
        return assigner_of(self.bucket, self.partition_by)


def _stored(schema: pa.Schema, assigner: BucketAssigner | None) -> pa.Schema:
    """The columns of the files; errors as of `ColumnBuckets.check`."""
    if not isinstance(assigner, ColumnBuckets):
        return schema
    assigner.check(schema)
    return pa.schema([field for field in schema if field.name not in assigner.columns])


@dataclass(slots=True, eq=False)
class _OpenFile:
    """A file that is being written, and when (seconds, monotonic) it was begun."""

    part: PartFile
    begun: float


class _FileWriter(TransactionalWriter):
    """Writes hidden files: one for each bucket, until it is full or its checkpoint comes."""

    def __init__(
        self,
        files: PartFiles,
        encoding: Encoding,
        assigner: BucketAssigner | None,
        roll: Rolling,
        context: ConnectorContext,
    ) -> None:
        self._files, self._encoding, self._assigner, self._roll = files, encoding, assigner, roll
        self._clock = context.clock
        self._where = f"operator {context.operator!r}, subtask {context.subtask}"
        self._schema: pa.Schema | None = None
        self._open: dict[str, _OpenFile] = {}  # by bucket; the one that was written to last is the last
        self._finished: list[PartFile] = []

    def write(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        self._check_schema(batch.data.schema)
        if self._assigner is None:
            self._write("", batch.data)
            return
        try:
            parts = list(split(self._assigner, batch, self._clock.now_ms()))
        except RecordError as error:
            raise error.at(self._where) from error
        for bucket, rows in parts:
            self._write(bucket, rows)

    def _check_schema(self, schema: pa.Schema) -> None:
        if self._schema is None:
            check_types(_stored(schema, self._assigner), self._encoding.format)
            self._schema = schema
        elif not schema.equals(self._schema):
            raise RecordError(
                f"{self._where}: {_difference(self._schema, schema)}; a file has one schema: declare `returns=` "
                "on the function that makes these rows"
            )

    def _write(self, bucket: str, rows: pa.RecordBatch) -> None:
        file = self._open.pop(bucket, None)
        if file is None:
            file = _OpenFile(self._files.begin(bucket, rows.schema), self._clock.monotonic())
        self._open[bucket] = file
        try:
            file.part.write(rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError) as error:
            raise RecordError(
                f"{self._where}: rows cannot be written as {self._encoding.format.value} to {file.part.path}: {error}"
            ) from error
        if self._is_full(file):
            self._finish(bucket)
        while len(self._open) > _MOST_OPEN_FILES:
            self._finish(next(iter(self._open)))
        if sum(one.part.held_bytes for one in self._open.values()) > _MOST_HELD_BYTES:
            max((one.part for one in self._open.values()), key=lambda part: part.held_bytes).flush()

    def _is_full(self, file: _OpenFile) -> bool:
        size, largest = file.part.size, self._files.folder.largest_bytes
        if largest is not None and size >= largest:
            return True
        return self._roll.is_due(size, self._clock.monotonic() - file.begun)

    def _finish(self, bucket: str) -> None:
        self._open[bucket].part.finish()
        self._finished.append(self._open.pop(bucket).part)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        if self._open:
            # Each waits for the disk or the network, so they wait together.
            with ThreadPoolExecutor(max_workers=_FINISHED_AT_ONCE) as threads:
                list(threads.map(PartFile.finish, [file.part for file in self._open.values()]))
        self._finished += [file.part for file in self._open.values()]
        self._open.clear()
        if not self._finished:
            return []
        rows = [part.prepare() for part in self._finished]
        self._files.folder.sync()
        self._finished = []
        return [Committable(self._files.writer, checkpoint, pa.Table.from_pylist(rows, FILES))]

    def close(self) -> None:
        # What is prepared stays: a checkpoint that counts, or will, may hold it.
        for part in [*(file.part for file in self._open.values()), *self._finished]:
            part.abandon()
        self._open.clear()
        self._finished.clear()


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    """How the batch's columns differ from those of the first batch."""
    before = [(field.name, str(field.type)) for field in first]
    after = [(field.name, str(field.type)) for field in other]
    changed = next(((old, new) for old, new in zip(before, after, strict=False) if old != new), None)
    if changed is None:
        return f"the first batch had {len(before)} columns and this one has {len(after)}"
    (old_name, old_type), (new_name, new_type) = changed
    return f"the first batch had column {old_name!r} of {old_type}, this one {new_name!r} of {new_type}"
