"""Turns the captures of one subtask into files, and tells by a handle which files hold its state.

The runtime's background thread calls it, one writer for each subtask and attempt. A checkpoint refers to the files of
its base and adds one file for each state that has changed since; whatever fails is in the next one that succeeds. A
savepoint is written whole, into its own folder, and changes nothing of that.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

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
from penstock.engine.elements import Barrier, Batch, SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan
from penstock.engine.state.capture import Expiry, NativeCapture, TableCapture
from penstock.engine.state.keys.groups import key_group_range
from penstock.engine.state.snapshot import KEY_GROUP, rows_of_groups
from penstock.savepoints.content import Data, algorithm_of, digest_of, length_of
from penstock.savepoints.history import Delta, TableHistory, first_to_merge, merge_changes, merge_rows, standing_rows
from penstock.savepoints.paths import JobPaths, route_of
from penstock.savepoints.segments import encode_batches, encode_table, read_segment, write_file
from penstock.savepoints.storage import BlobStore, OpenBlobs, routed

UPLOADS: Final = 4
"""Files of one capture that are encoded and written at the same time: buckets are far away, memory is not endless."""
_APART_BYTES: Final = 1 << 20
"""Keys of so many bytes are worth a file by themselves, which the checkpoints behind it have in common."""

_T = TypeVar("_T")
_TableKey: TypeAlias = tuple[str, str]
"""A state: uid of its operator, and its name."""
_Unchanged: TypeAlias = Callable[[FileHandle, Path], bool]
"""Whether a file has the content of a handle with the same name."""


@dataclass(frozen=True, slots=True)
class _KeysApart:
    """Columns of rows that come into a file by themselves.

    Args:
        names: `KEY_GROUP` and the identity.
        file: the one that has them already, of the base; None: there is none.
    """

    names: list[str]
    file: FileHandle | None


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of one capture.

    Args:
        blobs: where they go.
        name: makes the path of a file of its digest, its number and its suffix.
        numbers: count the files.
        uploads: how many files are written at the same time.
        routes: the first part of the path, by uid, of operators with storage of their own.
    """

    blobs: BlobStore
    name: Callable[[str, int, int, int, int, int, str], str]
    place: tuple[int, int, int, int]
    numbers: Iterator[int]
    uploads: int
    routes: Mapping[str, str] = field(default_factory=dict)
    written: list[FileHandle] = field(default_factory=list)

    def write(self, uid: str, data: Data, suffix: str = "arrow", digest: str | None = None) -> FileHandle:
        """Write a file of the operator (or exchange) `uid`."""
        known = digest or digest_of(data)
        path = self.name(known, *self.place, next(self.numbers), suffix)
        handle = write_file(self.blobs, f"{self.routes[uid]}/{path}" if uid in self.routes else path, data, known)
        self.written.append(handle)
        return handle

    def write_rows(
        self, uid: str, rows: pa.Table, like: TableHandle | None = None, apart: _KeysApart | None = None
    ) -> SegmentHandle:
        """Write rows of a state, unless the only segment of the state `like` holds the same."""
        keys = None if apart is None else self._write_keys(uid, rows, apart)
        data = encode_table((rows if apart is None else rows.drop_columns(apart.names)).unify_dictionaries())
        digest, length = digest_of(data), length_of(data)
        only = like.segments[0] if like is not None and len(like.segments) == 1 else None
        if only is not None and (only.file.digest, only.file.length, only.keys) == (digest, length, keys):
            return only
        file = self.write(uid, data, digest=digest)
        if only is not None and only.keys is not None and only.keys == keys:
            return replace(only, file=file)
        first, last = -1, -1
        if KEY_GROUP in rows.column_names:
            bounds = pc.min_max(rows.column(KEY_GROUP)).as_py()
            first, last = bounds["min"], bounds["max"]
        return SegmentHandle(file, rows.num_rows, first, last, keys)

    def _write_keys(self, uid: str, rows: pa.Table, apart: _KeysApart) -> FileHandle:
        return apart.file or self.write(uid, encode_table(rows.select(apart.names).unify_dictionaries()))

    def write_in_flight(self, in_flight: Mapping[str, Sequence[Batch]]) -> tuple[InFlightHandle, ...]:
        """Write rows that were on their way, one file for each exchange and sender."""
        present = {key: batches for key, batches in in_flight.items() if batches}
        writes = [partial(self.write, key, encode_batches(batches)) for key, batches in present.items()]
        return tuple(map(InFlightHandle, present, _each(writes, self.uploads)))

    def remove_written(self) -> None:
        """Nothing will refer to them; what cannot be removed now stays behind."""
        if self.written:
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
        open_blobs: opens the folders of savepoints, and the storage of operators that have their own.
        uploads: how many files are written at the same time.
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
        open_blobs: OpenBlobs,
        uploads: int = UPLOADS,
    ) -> None:
        config, plan_of_task = graph.config, graph.task(task)
        overrides = config.checkpoints.storage_overrides
        self._blobs = routed(blobs, overrides, paths.job_id, open_blobs) if overrides else blobs
        self._routes = {uid: route_of(url) for uid, url in overrides}
        self._paths = paths
        self._place = (attempt, task, subtask)
        self._where = f"task {plan_of_task.name!r}, subtask {subtask}"
        self._owned = key_group_range(subtask, plan_of_task.parallelism, config.max_parallelism)
        self._open_blobs = open_blobs
        self._uploads = uploads
        self._numbers = itertools.count()
        self._tables: dict[_TableKey, TableHistory] = {}
        self._native: dict[int, Mapping[str, NativeHandle]] = {}
        """By uid, at each checkpoint that is known."""
        self._restored = self._taken = 0
        if plan is not None and plan.failover:
            self._restore(plan, plan_of_task, subtask)

    def write(self, capture: TaskCapture) -> SubtaskHandle:
        files = None
        try:
            is_checkpoint = capture.barrier.kind is SnapshotKind.CHECKPOINT
            if is_checkpoint:
                self._take(capture)
            files = self._files(capture.barrier)
            return self._write_checkpoint(capture, files) if is_checkpoint else self._write_savepoint(capture, files)
        except Exception as error:
            if files is not None:
                files.remove_written()
            raise self._failed(capture.barrier, error) from error
        finally:
            for _, _, operator in capture.operators:
                if operator.native is not None:
                    operator.native.release()

    def close(self) -> None:
        self._tables.clear()
        self._native.clear()

    def _failed(self, barrier: Barrier, error: Exception) -> CheckpointError:
        kind, text = CheckpointError, f"{type(error).__name__}: {error}"
        if isinstance(error, CheckpointError):
            kind, text = type(error), str(error)
        return kind(f"{self._where}: {barrier.kind.noun} {barrier.checkpoint} cannot be written: {text}")

    def _restore(self, plan: RestorePlan, task: TaskPlan, subtask: int) -> None:
        restored = self._restored = plan.checkpoint.checkpoint
        own = uids_of(task)
        handles = [handle for handle in plan.checkpoint.subtasks if handle.subtask == subtask]
        operators = [operator for handle in handles for operator in handle.operators if operator.uid in own]
        self._native[restored] = {operator.uid: operator.native for operator in operators if operator.native}
        for operator in operators:
            for name, table in operator.tables.items():
                self._tables[operator.uid, name] = TableHistory({restored: table})

    def _files(self, barrier: Barrier) -> _Files:
        paths, place = self._paths, (barrier.checkpoint, *self._place)
        if barrier.kind is SnapshotKind.CHECKPOINT:
            return _Files(self._blobs, paths.shared, place, self._numbers, self._uploads, self._routes)
        assert barrier.target is not None, "savepoints are triggered with their folder"
        return _Files(self._open_blobs(barrier.target), paths.savepoint_data, place, self._numbers, self._uploads)

    def _take(self, capture: TaskCapture) -> None:
        """Take all that the capture holds, before anything can fail."""
        checkpoint, errors, present = capture.barrier.checkpoint, [], set()
        for (uid, name), table in _tables_of(capture):
            present.add((uid, name))
            history = self._tables.get((uid, name)) or self._add_history((uid, name))
            try:
                history.add(checkpoint, table, table.rows())
            except Exception as error:
                history.add_lost(f"{type(error).__name__}: {error}")
                errors.append(error)
        for key in self._tables.keys() - present:
            self._tables[key].add_empty(checkpoint)
        self._taken = checkpoint
        if errors:
            raise errors[0]

    def _add_history(self, key: _TableKey) -> TableHistory:
        """What is known of a state that no capture had: it was empty in all of them."""
        history = self._tables[key] = TableHistory(dict.fromkeys(self._native))
        if self._taken:
            history.add_empty(self._taken)
        return history

    def _write_checkpoint(self, capture: TaskCapture, files: _Files) -> SubtaskHandle:
        checkpoint, base = capture.barrier.checkpoint, capture.barrier.base
        # Tasks wait for what they are replaced behind: it merges nothing.
        first = _nothing_to_merge if capture.barrier.replaced else first_to_merge
        writes = [partial(self._write_table, files, key, base, first) for key in self._tables]
        tables = dict(zip(self._tables, _each(writes, files.uploads), strict=True))
        known = self._native.get(base, {})
        # Another attempt wrote those that were restored: the backend may have given their names anew since.
        unchanged = _has_content if base == self._restored else _has_length
        natives = {
            uid: _write_native(files, uid, operator.native, known.get(uid), unchanged)
            for uid, _, operator in capture.operators
            if operator.native is not None
        }
        handle = _handle(capture, tables, natives, files.write_in_flight(capture.in_flight))
        for key, table in tables.items():
            self._tables[key].stood[checkpoint] = table
        self._tables = {key: history for key, history in self._tables.items() if not history.is_over}
        self._native = {number: native for number, native in self._native.items() if number >= base}
        self._native[checkpoint] = natives
        return handle

    def _write_table(
        self, files: _Files, key: _TableKey, base: int, first: Callable[[Sequence[int], int], int]
    ) -> TableHandle | None:
        history = self._tables[key]
        delta = history.delta(base)
        table, rows = delta.table, delta.rows
        if table.segments and delta.died is not None:
            rows = self._merged(table, 0, rows, delta.died)
            table = replace(table, segments=())
        elif rows is not None and rows.num_rows:
            kept = first([segment.rows for segment in table.segments], rows.num_rows)
            rows = self._merged(table, kept, rows)
            table = replace(table, segments=table.segments[:kept])
        if rows is not None and rows.num_rows:
            like = None if table.segments else history.stood.get(base)
            apart = None if delta.keys is None or like is None else _keys_apart(history, like, delta, rows)
            segment = files.write_rows(key[0], rows, like, apart)
            history.keys = delta.keys, segment.keys
            table = replace(table, segments=(*table.segments, segment))
        return table if table.segments else None

    def _merged(self, table: TableHandle, kept: int, rows: pa.Table | None, died: Expiry | None = None) -> pa.Table:
        """The new rows behind those of all segments but the `kept` first ones."""
        parts = [self._read(segment) for segment in table.segments[kept:]]
        if died is not None:
            parts = [standing_rows(parts, table.identity, died)]
        parts += [] if rows is None else [rows]
        if len(parts) == 1 and died is None:
            return parts[0]
        merge = merge_changes if kept else standing_rows
        return merge(parts, table.identity, table.expiry)

    def _read(self, segment: SegmentHandle) -> pa.Table:
        rows = read_segment(self._blobs, segment)
        return rows_of_groups(rows, self._owned) if KEY_GROUP in rows.column_names else rows

    def _write_savepoint(self, capture: TaskCapture, files: _Files) -> SubtaskHandle:
        captures = dict(_tables_of(capture))
        written = _each(
            [partial(_write_whole, files, uid, table) for (uid, _), table in captures.items()], files.uploads
        )
        natives = {
            uid: _write_native(files, uid, operator.native, None, _has_length)
            for uid, _, operator in capture.operators
            if operator.native is not None
        }
        tables = dict(zip(captures, written, strict=True))
        return _handle(capture, tables, natives, files.write_in_flight(capture.in_flight))


def _keys_apart(history: TableHistory, base: TableHandle, delta: Delta, rows: pa.Table) -> _KeysApart | None:
    """How keys that may stay, as they are those of the time before, come into a file by themselves; None: not."""
    (known, file), names = history.keys, [KEY_GROUP, *delta.table.identity]
    if known is not delta.keys or rows.select(names).nbytes < _APART_BYTES:
        return None
    if 8 * rows.drop_columns(names).nbytes < rows.num_rows:
        # A file of rows without a bit each, as of nulls alone, is taken for a damaged one.
        return None
    # What another checkpoint than the base refers to may be gone.
    return _KeysApart(names, file if file in [segment.keys for segment in base.segments[:1]] else None)


def _nothing_to_merge(segments: Sequence[int], new: int) -> int:
    """As `first_to_merge`."""
    return len(segments)


def uids_of(task: TaskPlan) -> list[str]:
    """The uids of the operators of a task, the source's first."""
    source = [] if task.source is None else [task.source.uid]
    return [*source, *(operator.uid for operator in task.operators)]


def _tables_of(capture: TaskCapture) -> Iterator[tuple[_TableKey, TableCapture]]:
    for uid, _, operator in capture.operators:
        for name, table in operator.tables.items():
            yield (uid, name), table


def _write_native(
    files: _Files, uid: str, native: NativeCapture, known: NativeHandle | None, unchanged: _Unchanged
) -> NativeHandle:
    """Write the files of a backend, but for immutable ones that `known` has and that are `unchanged`."""
    before = {} if known is None else {name: file for name, file in known.files.items() if name in native.immutable}

    def write(name: str, file: Path) -> FileHandle:
        handle = before.get(name)
        if handle is not None and unchanged(handle, file):
            return handle
        return files.write(uid, _mapped(file), "native")

    names = sorted(native.files)
    handles = _each([partial(write, name, native.files[name]) for name in names], files.uploads)
    return NativeHandle(native.format, dict(zip(names, handles, strict=True)), dict(native.metadata))


def _has_length(handle: FileHandle, file: Path) -> bool:
    return file.stat().st_size == handle.length


def _has_content(handle: FileHandle, file: Path) -> bool:
    if not _has_length(handle, file):
        return False
    return digest_of(_mapped(file), algorithm_of(handle.digest)) == handle.digest


def _mapped(file: Path) -> Data:
    if not file.stat().st_size:
        return b""
    with pa.memory_map(str(file)) as mapped:
        return mapped.read_buffer()


def _write_whole(files: _Files, uid: str, table: TableCapture) -> TableHandle | None:
    if table.is_changes:
        raise CheckpointError(f"operator {uid!r} gave changes for a savepoint, which must be whole")
    rows = merge_rows([table.rows()], table.identity, table.expiry)
    if not rows.num_rows:
        return None
    return TableHandle(table.redistribution, table.identity, (files.write_rows(uid, rows),), table.expiry)


def _handle(
    capture: TaskCapture,
    tables: Mapping[_TableKey, TableHandle | None],
    natives: Mapping[str, NativeHandle],
    in_flight: tuple[InFlightHandle, ...],
) -> SubtaskHandle:
    operators = []
    for uid, name, operator in capture.operators:
        present = {table: handle for table in operator.tables if (handle := tables.get((uid, table))) is not None}
        operators.append(OperatorHandle(uid, name, present, operator.watermark, natives.get(uid)))
    return SubtaskHandle(
        capture.task, capture.subtask, capture.parallelism, tuple(operators), in_flight, capture.finished
    )


def _each(jobs: Sequence[Callable[[], _T]], at_once: int) -> list[_T]:
    """The results of all jobs, some of which run at the same time."""
    if min(len(jobs), at_once) < 2:
        return [job() for job in jobs]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(_call, jobs))


def _call(job: Callable[[], _T]) -> _T:
    return job()
