"""The files of a new savepoint: tables as Arrow files of whole key groups, and copies of files as they are.

The editor writes by it. A run that fails removes what it has written, since no manifest will ever refer to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    FileHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.errors import CheckpointError, ConfigurationError
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, StateTable
from penstock.savepoints.content import ALGORITHM, Data, algorithm_of, digest_of
from penstock.savepoints.paths import JobPaths, checkpoint_folder, split_url
from penstock.savepoints.segments import encode_table, read_file, write_file
from penstock.savepoints.storage import BlobStore, normalise_url, open_blobs

_SEGMENT_ROWS: Final = 2**20
"""Rows of one file: who restores reads whole files, of those that have its key groups."""


def savepoint_url(path: str) -> str:
    """The URL of the folder of a new savepoint.

    Raises:
        ConfigurationError: it cannot be used.
    """
    url = normalise_url(path)
    if checkpoint_folder(split_url(url)[1]) is not None:
        raise ConfigurationError(f"{url}: folders named chk-... belong to jobs; name the savepoint otherwise")
    return url


def new_folder(url: str) -> BlobStore:
    """The folder of a new savepoint, which is empty.

    Raises:
        CheckpointError: something is there already.
        ConfigurationError: the URL cannot be used.
    """
    blobs = open_blobs(url)
    if blobs.list():
        raise CheckpointError(f"{url} is not empty; a savepoint is written to a new folder: name another")
    return blobs


@dataclass(slots=True)
class SavepointFiles:
    """Writes files into the folder of a new savepoint, and remembers them.

    Args:
        blobs: the folder.
        taken: what the manifest will say, but for the operators.
        written: the paths so far.
    """

    blobs: BlobStore
    taken: CompletedCheckpoint
    written: list[str] = field(default_factory=list)

    def table(self, subtask: SubtaskHandle, table: StateTable) -> TableHandle:
        """A table as segments of whole key groups, behind one another."""
        segments = []
        for rows in _segments(table):
            file = self._file(subtask, encode_table(rows), "arrow")
            groups = rows.column(KEY_GROUP) if table.redistribution is Redistribution.KEYED and rows.num_rows else None
            bounds = (-1, -1) if groups is None else (groups[0].as_py(), groups[-1].as_py())
            segments.append(SegmentHandle(file, rows.num_rows, *bounds))
        return TableHandle(table.redistribution, (), tuple(segments))

    def copy(self, source: BlobStore, subtask: SubtaskHandle, file: FileHandle) -> FileHandle:
        """A file as it is."""
        data, algorithm = read_file(source, file), algorithm_of(file.digest)
        return self._file(subtask, data, file.path.rpartition(".")[2], algorithm)

    def _file(self, subtask: SubtaskHandle, data: Data, suffix: str, algorithm: str = ALGORITHM) -> FileHandle:
        taken, digest = self.taken, digest_of(data, algorithm)
        path = JobPaths(taken.job_id).savepoint_data(
            digest, taken.checkpoint, taken.attempt, subtask.task, subtask.subtask, len(self.written), suffix
        )
        self.written.append(path)
        return write_file(self.blobs, path, data, digest)

    def remove_written(self) -> None:
        """There is no savepoint that would refer to them; what cannot be removed stays behind."""
        with contextlib.suppress(CheckpointError):
            self.blobs.delete(self.written)


def _segments(table: StateTable) -> Iterator[pa.Table]:
    rows = table.data.combine_chunks()
    if table.redistribution is not Redistribution.KEYED or rows.num_rows <= _SEGMENT_ROWS:
        yield rows
        return
    groups = rows.column(KEY_GROUP).to_numpy()
    start = 0
    while start < len(groups):
        last = groups[min(start + _SEGMENT_ROWS, len(groups)) - 1]
        end = int(np.searchsorted(groups, last, side="right"))
        yield rows.slice(start, end - start)
        start = end
