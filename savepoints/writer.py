"""Turns the captures of one subtask into files, and tells by a handle which files hold its state.

The runtime's background thread calls it, one writer for each subtask and attempt. A checkpoint refers to the files of
its base and adds one file for each state that has changed since; whatever fails is in the next one that succeeds. A
savepoint is written whole, into its own folder, and changes nothing of that.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.engine.checkpointing.handles import (
    FileHandle,
    InFlightHandle,
    NativeHandle,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.checkpointing.store import RestorePlan
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.state.capture import NativeCapture, OperatorCapture, TableCapture, merge_rows
from penstock.engine.state.key_groups import key_group_range
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, rows_of_groups
from penstock.savepoints.compaction import first_to_merge, merge_changes
from penstock.savepoints.history import Delta, TableHistory
from penstock.savepoints.paths import JobPaths
from penstock.savepoints.routing import route_of, routed
from penstock.savepoints.segments import decode_table, encode_batches, encode_table, read_file, sha256_of, write_file
from penstock.savepoints.storage import BlobStore, Data, OpenBlobs

_UPLOADS: Final = 4
"""Files of one capture that are encoded and written at the same time: buckets are far away, memory is not endless."""

_TableKey: TypeAlias = tuple[str, str]
"""A state: uid of its operator, and its name."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """Where the files of one capture go; `name` makes the path of a file of its hash, number and suffix."""

    blobs: BlobStore
    name: Callable[[str, int, str], str]
    routes: Mapping[str, str] = field(default_factory=dict)
    """First part of the path by uid, of the operators with storage of their own."""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    written: list[FileHandle] = field(default_factory=list)

    def write(self, uid: str, data: Data, suffix: str, sha256: str | None = None) -> FileHandle:
        """Write a file of the operator `uid`."""
        sha256 = sha256 or sha256_of(data)
        path = self.name(sha256, next(self.numbers), suffix)
        if uid in self.routes:
            path = f"{self.routes[uid]}/{path}"
        handle = write_file(self.blobs, path, data, sha256)
        self.written.append(handle)
        return handle

    def remove_written(self) -> None:
        """Nothing will refer to them; what cannot be removed now stays behind."""
        with contextlib.suppress(CheckpointError):
            self.blobs.delete([handle.path for handle in self.written])


class CheckpointWriter:
    """A `SubtaskWriter`.

    Args:
        blobs: the job's folder.
        paths: names the files in it.
        graph: the job.
        task, subtask: which.
        attempt: number of the execution, part of the names.
        plan: what the subtask was restored from, or None.
        targets: where savepoints go, by number.
        open_blobs: opens the folders of savepoints, and the storage of operators that have their own.
    """

    def __init__(
        self,
        blobs: BlobStore,
        paths: JobPaths,
        graph: PhysicalGraph,
        task: int,
        subtask: int,
        attempt: int,
        plan: RestorePlan | None,
        targets: Mapping[int, str],
        open_blobs: OpenBlobs,
    ) -> None:
        overrides = graph.config.checkpoints.storage_overrides
        self._blobs = routed(blobs, overrides, paths.job_id, open_blobs)
        self._routes = {uid: route_of(url) for uid, url in overrides}
        self._paths = paths
        self._place = (attempt, task, subtask)
        self._where = f"task {graph.task(task).name!r}, subtask {subtask}"
        self._owned = key_group_range(subtask, graph.task(task).parallelism, graph.config.max_parallelism)
        self._targets = targets
        self._open_blobs = open_blobs
        self._numbers = itertools.count()
        self._tables: dict[_TableKey, TableHistory] = {}
        self._native: dict[int, dict[str, NativeHandle]] = {}
        """By checkpoint and uid; its keys are the checkpoints that are known."""
        self._own_files: set[str] = set()
        """Paths of files of backends that this writer has written: the same name is the same content."""
        if plan is not None and plan.failover:
            self._restore(plan, graph, task, subtask)

    def write(self, capture: TaskCapture) -> SubtaskHandle:
        checkpoint = capture.barrier.checkpoint
        try:
            if capture.barrier.kind is SnapshotKind.CHECKPOINT:
                return self._write_checkpoint(capture)
            return self._write_savepoint(capture)
        except Exception as error:
            kind = type(error) if isinstance(error, CheckpointError) else CheckpointError
            text = str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
            raise kind(f"{self._where}: checkpoint {checkpoint} cannot be written: {text}") from error
        finally:
            for _, _, operator in capture.operators:
                if operator.native is not None:
                    operator.native.release()

    def close(self) -> None:
        self._tables.clear()
        self._native.clear()

    def _restore(self, plan: RestorePlan, graph: PhysicalGraph, task: int, subtask: int) -> None:
        restored = plan.checkpoint.checkpoint
        self._native[restored] = {}
        own = {operator.uid for operator in graph.task(task).operators}
        handles = [handle for handle in plan.checkpoint.subtasks if handle.subtask == subtask]
        for operator in (operator for handle in handles for operator in handle.operators if operator.uid in own):
            for name, table in operator.tables.items():
                self._tables[operator.uid, name] = TableHistory({restored: table})
            if operator.native is not None:
                self._native[restored][operator.uid] = operator.native

    def _write_checkpoint(self, capture: TaskCapture) -> SubtaskHandle:
        checkpoint, base = capture.barrier.checkpoint, capture.barrier.base
        self._take(capture)
        attempt, task, subtask = self._place

        def name(sha256: str, number: int, suffix: str) -> str:
            return self._paths.shared(sha256, checkpoint, attempt, task, subtask, number, suffix)

        folder = _Folder(self._blobs, name, self._routes, self._numbers)
        deltas = {key: history.delta(base) for key, history in self._tables.items()}
        try:
            tables, natives, rows = _each(
                [
                    *(lambda key=key, delta=delta: self._table(folder, key, delta, base) for key, delta in deltas.items()),
                ]
            )
        except Exception:
            folder.remove_written()
            raise
        return SubtaskHandle(task, subtask, capture.parallelism, ())
