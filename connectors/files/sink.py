"""The file sink: each subtask writes hidden files into a directory, and shows each when its rows are final.

Programs build a `FileSink`; the engine checks and prepares it once and opens a writer in each subtask. With checkpoints
a file is shown when the checkpoint that it belongs to is complete, exactly once; without them, when the input ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from penstock.connectors.files.encoders import check_types
from penstock.connectors.files.formats import FileFormat, parse_format
from penstock.connectors.files.part_files import PartFile, PartFiles, make_directory, names_in, remove_parts, show
from penstock.engine.connectors import Committable, ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError

_MODES: Final = ("error", "overwrite", "append")


@dataclass(frozen=True, slots=True)
class FileSink(TransactionalSink):
    """Writes `part-<subtask>-<unique>.<format>` files into a directory; a subtask without rows writes none.

    Guarantee: exactly once with checkpoints, read committed. A subtask writes one file for each checkpoint, under a
    hidden name, and shows it when the checkpoint is complete; what a failed attempt wrote after the last complete
    checkpoint is never seen. So rows are seen late by up to the checkpoint interval, and short intervals make many
    small files: choose the interval for the size of the files. Without checkpoints, each subtask shows one file when
    its own input ends; a failed job may leave the files of the subtasks that had finished. Starting again from a
    savepoint that is not the job's last writes again what was written since.

    Hidden files are skipped by readers of the directory: `.part-*.inprogress` while they are written, and
    `.part-*.prepared` when they are whole and wait for their checkpoint. A failing attempt removes the one that it was
    writing; what a killed process was writing is removed by the job's next attempt, as each subtask opens its writer:
    files of the same operator and job alone, so that nobody else's are touched. Prepared files of an attempt that
    failed before their checkpoint was complete stay hidden, since a savepoint may hold them; `mode="overwrite"` removes
    them.

    Rows are written as they come: changelog row kinds and event timestamps are not stored. JSON lines hold times as
    ISO-8601 text (timestamps with a zone in UTC), bytes as base64, decimals as text, durations as numbers in the
    column's unit, maps as lists of pairs, and NaN and infinities as null. CSV quotes text, so that an empty text
    differs from null. Parquet is compressed by zstd.

    Args:
        path: the directory; it is created if it does not exist. Every node must see the same one.
        format: "parquet", "csv" or "json" (lines).
        mode: "error" refuses a directory that has visible files; "overwrite" removes its `part-*` and
            hidden `.part-*` files before the job starts and leaves others alone; "append" adds files. A job that
            goes on from a savepoint adds files in every mode.

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
            check_types(schema, FileFormat(self.format))
        visible = sorted(name for name in names_in(self._directory) if not name.startswith("."))
        if self.mode == "error" and visible:
            raise ConfigurationError(
                f"file sink: {self._directory} is not empty (it has {visible[0]!r}); choose another "
                "directory, or mode='overwrite' to remove its part-* files, or mode='append' to add to them"
            )

    def prepare(self) -> None:
        make_directory(self._directory)
        if self.mode == "overwrite":
            remove_parts(self._directory)

    def resumed(self) -> FileSink:
        return replace(self, mode="append")

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return _FileWriter(PartFiles(self._directory, FileFormat(self.format), context), self.format, context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        """Show the files, wherever they were written; errors as of `part_files.show`."""
        where = f"operator {context.operator!r}, subtask {context.subtask}: file sink"
        show(pa.concat_tables([committable.data for committable in committables]), where)

    def describe(self) -> str:
        return f"files({os.path.basename(self._directory)}, {self.format})"

    @property
    def _directory(self) -> str:
        return os.fspath(self.path)


class _FileWriter(TransactionalWriter):
    """Writes one hidden file for each checkpoint."""

    def __init__(self, files: PartFiles, file_format: str, context: ConnectorContext) -> None:
        self._files = files
        self._format = file_format
        self._where = f"operator {context.operator!r}, subtask {context.subtask}"
        self._schema: pa.Schema | None = None
        self._part: PartFile | None = None

    def write(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        self._check_schema(batch.data.schema)
        if self._part is None:
            self._part = self._files.begin(batch.data.schema)
        try:
            self._part.write(batch.data)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError) as error:
            raise RecordError(
                f"{self._where}: rows cannot be written as {self._format} to {self._part.path}: {error}"
            ) from error

    def _check_schema(self, schema: pa.Schema) -> None:
        if self._schema is None:
            check_types(schema, FileFormat(self._format))
            self._schema = schema
        elif not schema.equals(self._schema):
            raise RecordError(
                f"{self._where}: {_difference(self._schema, schema)}; a file has one schema: declare `returns=` "
                "on the function that makes these rows"
            )

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        if self._part is None:
            return []
        files = self._part.close()
        self._part = None
        return [Committable(self._files.writer, checkpoint, files)]

    def close(self) -> None:
        # What is prepared stays: a checkpoint that counts, or will, may hold it.
        if self._part is not None:
            self._part.abandon()
            self._part = None


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    """How the batch's columns differ from those of the first batch."""
    before = [(field.name, str(field.type)) for field in first]
    after = [(field.name, str(field.type)) for field in other]
    changed = next(((old, new) for old, new in zip(before, after, strict=False) if old != new), None)
    if changed is None:
        return f"the first batch had {len(before)} columns and this one has {len(after)}"
    (old_name, old_type), (new_name, new_type) = changed
    return f"the first batch had column {old_name!r} of {old_type}, this one {new_name!r} of {new_type}"
