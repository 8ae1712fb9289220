"""Which state each operator resumes from, and reading it: after a failure, from a savepoint, at another parallelism.

The manager of a job plans, which checks all before anything starts; each subtask then loads its share. Operators are
found by their uids, wherever in the program they are now; each subtask reads only what it may need.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    NativeHandle,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.checkpointing.preload import Preloaded, TakenState, Whose, changes_since, keyed_tables
from penstock.engine.checkpointing.restored import RestoredTask, share_in_flight
from penstock.engine.checkpointing.store import RestorePlan
from penstock.engine.checkpointing.task_capture import in_flight_origin
from penstock.engine.elements import Batch, SnapshotKind
from penstock.engine.errors import RestoreError, nearest
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan
from penstock.engine.graph.shared_uids import other_setting
from penstock.engine.state.keys.groups import key_group_range
from penstock.engine.state.rocksdb.folders import OwnedFolder
from penstock.engine.state.snapshot import (
    OperatorSnapshot,
    Redistribution,
    StateTable,
    by_group,
    rows_of_groups,
    share,
)
from penstock.savepoints.history import merge_rows, standing_rows
from penstock.savepoints.paths import JobPaths, check_path, join_url, split_url
from penstock.savepoints.segments import decode_batches, read_file, read_segment
from penstock.savepoints.storage import BlobStore, OpenBlobs, routed
from penstock.savepoints.writer import uids_of

NativeReader: TypeAlias = Callable[[Path, Mapping[str, str], range], Mapping[str, StateTable]]
"""Makes keyed tables of a backend's files: given their folder, `NativeHandle.metadata`, and the wanted key groups."""


class NonRestoredState(enum.Enum):
    """What becomes of state in a savepoint whose operator the program does not have."""

    REFUSED = "refused"
    """The job does not start."""
    DROPPED = "dropped"
    """The job starts without it."""


def url_of(plan: RestorePlan) -> str:
    """Where what a plan restores lies: the folder of the savepoint, or of the checkpoint."""
    if plan.checkpoint.kind is not SnapshotKind.CHECKPOINT:
        return plan.location
    manifest = JobPaths(plan.checkpoint.job_id).manifest(plan.checkpoint.checkpoint)
    return join_url(plan.location, split_url(manifest)[0])


def plan_failover(graph: PhysicalGraph, checkpoint: CompletedCheckpoint, location: str) -> RestorePlan:
    """The plan for resuming from the job's own checkpoint, after a failure or at another parallelism.

    Args:
        graph: the program, the same as when the checkpoint was taken but for its parallelism.
        checkpoint: what is restored.
        location: URL of the job's folder.

    Raises:
        RestoreError: it does not fit.
    """
    _check_fits(graph, checkpoint, location)
    _check_operators(graph, checkpoint, location)
    return RestorePlan(location, checkpoint, failover=_same_subtasks(graph, checkpoint))


def plan_restore(
    graph: PhysicalGraph,
    checkpoint: CompletedCheckpoint,
    location: str,
    non_restored: NonRestoredState = NonRestoredState.REFUSED,
) -> RestorePlan:
    """The plan for starting a program from a savepoint, or from a retained checkpoint of another job.

    Operators that the savepoint does not know start without state; the parallelism may be any.

    Args:
        graph: the program.
        checkpoint: what is restored.
        location: URL of the folder that its files are relative to.
        non_restored: what becomes of state whose operator the program does not have.

    Raises:
        RestoreError: the number of key groups differs, state or rows under way would get lost. Says what to do.
    """
    _check_fits(graph, checkpoint, location)
    dropped = _missing_operators(graph, checkpoint)
    if non_restored is NonRestoredState.REFUSED:
        _check_operators(graph, checkpoint, location)
    return RestorePlan(location, checkpoint, failover=False, drop_operators=tuple(dropped))


def _same_subtasks(graph: PhysicalGraph, checkpoint: CompletedCheckpoint) -> bool:
    """Whether each subtask resumes from one that had its number, its parallelism, and no other operators."""
    now = {(task.id, subtask): task for task in graph.tasks for subtask in range(task.parallelism)}
    then = {(handle.task, handle.subtask): handle for handle in checkpoint.subtasks}
    return now.keys() == then.keys() and all(
        handle.parallelism == now[place].parallelism
        and {operator.uid for operator in handle.operators} == {*uids_of(now[place])}
        for place, handle in then.items()
    )


def _check_fits(graph: PhysicalGraph, checkpoint: CompletedCheckpoint, location: str) -> None:
    most = graph.config.max_parallelism
    if checkpoint.max_parallelism != most:
        raise RestoreError(
            f"{_named(checkpoint, location)} has max_parallelism {checkpoint.max_parallelism}, and the program {most}: "
            "keyed state is kept by key groups, as many as max_parallelism, and cannot be divided otherwise; set "
            f"max_parallelism={checkpoint.max_parallelism} (parallelism may be anything up to that)"
        )
    exchanges = {uid for task in graph.tasks for uid in _ways_of(task)}
    under_way = {in_flight_origin(rows.exchange)[0] for handle in checkpoint.subtasks for rows in handle.in_flight}
    lost = sorted(under_way - exchanges)
    if lost:
        raise RestoreError(
            f"{_named(checkpoint, location)} is unaligned and holds rows that were on their way on exchanges which "
            f"the program does not have: {', '.join(map(repr, lost))}; restore it with the program that took it, take "
            "a savepoint, and start the new program from that"
        )


def _check_operators(graph: PhysicalGraph, checkpoint: CompletedCheckpoint, location: str) -> None:
    missing = _missing_operators(graph, checkpoint)
    if not missing:
        return
    known = [uid for task in graph.tasks for uid in uids_of(task)]
    listed = "; ".join(f"{uid!r} (operator {name!r}){nearest(uid, known)}" for uid, name in missing.items())
    raise RestoreError(
        f"{_named(checkpoint, location)} holds state of operators that the program does not have: {listed}"
        f"{other_setting(missing, known)}. The "
        f"program has the uids {', '.join(map(repr, known))}. Give the operators the uids that they "
        "had, .uid(...), or drop their state with allow_non_restored_state"
    )


def _missing_operators(graph: PhysicalGraph, checkpoint: CompletedCheckpoint) -> dict[str, str]:
    """Uid and name of the operators with state that the program does not have."""
    known = {uid for task in graph.tasks for uid in uids_of(task)}
    operators = [operator for handle in checkpoint.subtasks for operator in handle.operators]
    return {op.uid: op.name for op in operators if op.uid not in known and (op.tables or op.native is not None)}


def _named(checkpoint: CompletedCheckpoint, location: str) -> str:
    return f"{checkpoint.kind.noun} {checkpoint.checkpoint} of job {checkpoint.job_name!r} in {location}"


@dataclass(frozen=True, slots=True)
class _Share:
    """Whose share of the state is read.

    Args:
        blobs: where the files are.
        subtask, parallelism, max_parallelism: of the subtask that is restored.
        directory: for temporary files; None: the system's.
    """

    blobs: BlobStore
    subtask: int
    parallelism: int
    max_parallelism: int
    directory: str | None = None

    @property
    def whose(self) -> Whose:
        """Which subtask of which job that is."""
        return self.blobs.url, self.subtask, self.parallelism, self.max_parallelism

    def groups_of(self, old: SubtaskHandle) -> range:
        """The key groups that belonged to an old subtask and belong to this one."""
        return self.groups_of_old(old.subtask, old.parallelism)

    def groups_of_old(self, subtask: int, parallelism: int) -> range:
        """As `groups_of`, of one of `parallelism` subtasks."""
        now = key_group_range(self.subtask, self.parallelism, self.max_parallelism)
        then = key_group_range(subtask, parallelism, self.max_parallelism)
        start = max(now.start, then.start)
        return range(start, max(start, min(now.stop, then.stop)))


def load_task(
    open_blobs: OpenBlobs,
    graph: PhysicalGraph,
    plan: RestorePlan,
    task: int,
    subtask: int,
    preloaded: Preloaded | None = None,
) -> RestoredTask:
    """Read what one subtask resumes from.

    Args:
        open_blobs: opens the folder of the plan.
        graph, plan: the program and the plan made for it.
        task, subtask: which.
        preloaded: what has been taken in before; it is used up.

    Raises:
        CheckpointCorruptError: a file is missing or not as it was written.
        RestoreError: a state is in a format that this installation does not know.
    """
    own, checkpoint = graph.task(task), plan.checkpoint
    to = _share_of(open_blobs, graph, plan, task, subtask)
    held = {uid: _old_subtasks(checkpoint, uid) for uid in uids_of(own)}
    known = {} if preloaded is None else preloaded.usable(to.whose, checkpoint)
    operators = {uid: _load_operator(to, old, known.get(uid)) for uid, old in held.items() if old}
    return RestoredTask(
        operators,
        _load_in_flight(to, own, checkpoint),
        _had_finished(graph, plan, task, subtask),
        tracked=plan.failover,
    )


def preload_task(
    open_blobs: OpenBlobs,
    graph: PhysicalGraph,
    plan: RestorePlan,
    task: int,
    subtask: int,
    before: Preloaded | None = None,
) -> Preloaded:
    """Take in the keyed state that one subtask will resume from, but for what changes until then.

    Not what RocksDB has written: that is read as a whole when the subtask is restored.

    Args:
        before: what has been taken in of an older checkpoint; it is used up.
        open_blobs, graph, plan, task, subtask: as for `load_task`, as are the errors.
    """
    to = _share_of(open_blobs, graph, plan, task, subtask)
    known = {} if before is None else before.usable(to.whose, plan.checkpoint)
    preloaded = Preloaded(to.whose, plan.checkpoint.checkpoint, plan.checkpoint.attempt)
    for operator in graph.task(task).operators:
        old = _old_subtasks(plan.checkpoint, operator.uid)
        if not keyed_tables(old) or any(own.native is not None for _, own in old):
            continue
        taken = _changed(to, old, known.get(operator.uid)) or _taken(to, old)
        if taken.held is None:
            rows: dict[str, list[pa.Table]] = {}
            for (name, _, _), part in taken.rows.items():
                rows.setdefault(name, []).append(part)
            together = {name: pa.concat_tables(parts, promote_options="default") for name, parts in rows.items()}
            tables = {name: StateTable(Redistribution.KEYED, by_group(table)) for name, table in together.items()}
            snapshot = OperatorSnapshot(tables)
            only_keyed = all(len(own.tables) == len(keyed_tables([(handle, own)])) for handle, own in old)
            expires = any(table.expiry is not None for table in taken.tables.values())
            held = operator.spec.hold(snapshot) if only_keyed and tables and not expires else None
            if held is None:
                operator.spec.warm(snapshot)
            taken = TakenState(taken.tables, {} if held is not None else taken.rows, held)
        preloaded.operators[operator.uid] = taken
    return preloaded


def _share_of(open_blobs: OpenBlobs, graph: PhysicalGraph, plan: RestorePlan, task: int, subtask: int) -> _Share:
    own, config = graph.task(task), graph.config
    blobs = routed(open_blobs(plan.location), config.checkpoints.storage_overrides, plan.checkpoint.job_id, open_blobs)
    to = _Share(blobs, subtask, own.parallelism, config.max_parallelism, config.state_directory)
    if to.directory is not None:
        Path(to.directory).mkdir(parents=True, exist_ok=True)
    return to


def _taken(to: _Share, old: Sequence[_Old]) -> TakenState:
    """All that is there of an operator's keyed state."""
    tables, parts = keyed_tables(old), {}
    for key, table in tables.items():
        groups = to.groups_of_old(*key[1:])
        segments = _read_groups(to, table.segments, groups)
        if segments:
            parts[key] = merge_rows(segments, table.identity)
    return TakenState(tables, parts)


def _changed(to: _Share, old: Sequence[_Old], before: TakenState | None) -> TakenState | None:
    """What has been taken in before, with what has changed since; None: that has to be read as a whole."""
    tables = keyed_tables(old)
    if before is None or before.tables.keys() != tables.keys():
        return None
    since = {key: changes_since(before.tables[key], table) for key, table in tables.items()}
    if any(segments is None for segments in since.values()):
        return None
    rows = dict(before.rows)
    for key, segments in since.items():
        parts = _read_groups(to, segments or (), to.groups_of_old(*key[1:]))
        if before.held is not None:
            # Oldest first, each key once in each: what is newer takes the place of what is older.
            if not all(before.held.change({key[0]: part}) for part in parts):
                return None
        elif parts:
            known = [rows[key]] if key in rows else []
            rows[key] = standing_rows([*known, *parts], tables[key].identity)
    return TakenState(tables, rows, before.held)


def _read_groups(to: _Share, segments: Sequence[SegmentHandle], groups: range) -> list[pa.Table]:
    """The rows of those key groups in some files of a keyed state."""
    parts = []
    for segment in segments if groups else ():
        first, last = segment.first_group, segment.last_group
        if first >= 0 and (last < groups.start or first >= groups.stop):
            continue
        parts.append(rows_of_groups(read_segment(to.blobs, segment), groups))
    return parts


_Old: TypeAlias = tuple[SubtaskHandle, OperatorHandle]
"""An old subtask, and its part of the operator in question."""


def _old_subtasks(checkpoint: CompletedCheckpoint, uid: str) -> list[_Old]:
    found = [
        (handle, operator) for handle in checkpoint.subtasks for operator in handle.operators if operator.uid == uid
    ]
    return sorted(found, key=lambda one: one[0].subtask)


def _had_finished(graph: PhysicalGraph, plan: RestorePlan, task: int, subtask: int) -> bool:
    """Whether nothing is left to do for a subtask.

    Where the job is as it was, that is so if the subtask had finished. Where anything is rescaled or changed, it may
    get rows from others than before: then all that could send it any, and all of its own task, must have finished.
    """
    own = [_old_subtasks(plan.checkpoint, uid) for uid in uids_of(graph.task(task))]
    if plan.failover:
        return all(any(handle.finished for handle, _ in old if handle.subtask == subtask) for old in own)
    old = [_old_subtasks(plan.checkpoint, uid) for one in _feeding(graph, task) for uid in uids_of(graph.task(one))]
    return all(handles and all(handle.finished for handle, _ in handles) for handles in old)


def _feeding(graph: PhysicalGraph, task: int) -> set[int]:
    """The ids of a task and of all whose rows may come to it; in a loop they feed each other."""
    found, left = {task}, [task]
    while left:
        reached = left.pop()
        senders = {one.id for one in graph.tasks for exchange in one.outputs if exchange.downstream == reached}
        left += senders - found
        found |= senders
    return found


def _load_in_flight(to: _Share, task: TaskPlan, checkpoint: CompletedCheckpoint) -> dict[str, list[Batch]]:
    exchanges = _ways_of(task)
    parts = []
    # Receivers first: what had arrived goes before what had not been sent.
    for handle in sorted(checkpoint.subtasks, key=lambda one: one.task, reverse=True):
        part: dict[str, list[Batch]] = {}
        for rows in handle.in_flight:
            exchange, sender = in_flight_origin(rows.exchange)
            if exchange in exchanges and sender % to.parallelism == to.subtask:
                part[rows.exchange] = decode_batches(read_file(to.blobs, rows.file), rows.file, to.blobs.url)
        parts.append(part)
    return share_in_flight(parts, to.subtask, to.parallelism)


def _ways_of(task: TaskPlan) -> set[str]:
    """The uids of the exchanges that leave a task, or would if operators that are one task were two."""
    return {exchange.uid for exchange in task.outputs} | task.calls.keys()


def _load_operator(to: _Share, old: Sequence[_Old], before: TakenState | None) -> OperatorSnapshot:
    taken = _changed(to, old, before)
    tables: list[dict[str, StateTable]] = [{} for _ in old]
    for name in dict.fromkeys(name for _, operator in old for name in operator.tables):
        for place, table in _load_state(to, name, old, taken).items():
            tables[place][name] = table
    for own, (handle, operator) in zip(tables, old, strict=True):
        if operator.native is not None:
            native = _load_native(to, operator.native, to.groups_of(handle))
            _check_apart(own, native, operator, to.blobs.url)
            own.update(native)
    snapshots = [OperatorSnapshot(own, operator.watermark) for own, (_, operator) in zip(tables, old, strict=True)]
    shared = share(snapshots, to.subtask, to.parallelism, to.max_parallelism)
    return shared if taken is None else replace(shared, held=taken.held)


def _check_apart(
    tables: Mapping[str, StateTable], native: Mapping[str, StateTable], operator: OperatorHandle, url: str
) -> None:
    """Refuse a state that was put in beside a backend's files which have it too: one of the two would be lost."""
    for name in sorted(tables.keys() & native.keys()):
        # Imported here, since it knows of windows and all their operators.
        from penstock.savepoints.layout import shown_name

        raise RestoreError(
            f"{url}: operator {operator.uid!r} has the state {shown_name(name)!r} twice, in a table and in files of "
            "its backend, as it was put in beside these; change a savepoint of the job instead, which has no such files"
        )


def _load_state(to: _Share, name: str, old: Sequence[_Old], taken: TakenState | None) -> dict[int, StateTable]:
    """One state of the old subtasks by their places, as far as it may be this subtask's."""
    held = {place: operator.tables[name] for place, (_, operator) in enumerate(old) if name in operator.tables}
    way = next(iter(held.values())).redistribution
    needed = list(held)
    if taken is not None and way is Redistribution.KEYED:
        return _taken_state(taken, name, old)
    if way is Redistribution.BROADCAST:
        needed = [needed[to.subtask % len(needed)]]
    elif way is Redistribution.WHOLE:
        needed = [place for place in needed if place % to.parallelism == to.subtask]
    read = {place: _load_table(to, held[place], to.groups_of(old[place][0])) for place in needed}
    loaded = {place: StateTable(way, rows) for place, rows in read.items() if rows is not None}
    if way is Redistribution.WHOLE and loaded:
        # The places of the others count.
        nothing = StateTable(way, next(iter(loaded.values())).data.slice(0, 0))
        return {place: loaded.get(place, nothing) for place in range(len(old))}
    return loaded


def _taken_state(taken: TakenState, name: str, old: Sequence[_Old]) -> dict[int, StateTable]:
    """As `_load_state`, of what has been taken in."""
    found = {}
    for place, (handle, _) in enumerate(old):
        key = name, handle.subtask, handle.parallelism
        if key in taken.rows:
            table = taken.tables[key]
            rows = merge_rows([taken.rows[key]], table.identity, table.expiry)
            found[place] = StateTable(Redistribution.KEYED, rows)
    return found


def _load_table(to: _Share, table: TableHandle, groups: range) -> pa.Table | None:
    """The rows of one old subtask, of a keyed state those of `groups`; None where there are none."""
    if table.redistribution is Redistribution.KEYED:
        parts = _read_groups(to, table.segments, groups)
    else:
        parts = [read_segment(to.blobs, segment) for segment in table.segments]
    return merge_rows(parts, table.identity, table.expiry) if parts else None


def _load_native(to: _Share, native: NativeHandle, groups: range) -> Mapping[str, StateTable]:
    """A backend's files as tables, so that any backend can resume from them."""
    if native.format not in _NATIVE_READERS:
        raise RestoreError(
            f"state in {to.blobs.url} is in the format {native.format!r}, which this version does not read; it reads "
            f"{', '.join(_NATIVE_READERS)}: upgrade penstock"
        )
    if not groups:
        return {}
    owned = OwnedFolder(to.directory)
    owned.path.mkdir()
    try:
        for name, file in native.files.items():
            path = owned.path / check_path(name, to.blobs.url)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(memoryview(read_file(to.blobs, file)))
        return _NATIVE_READERS[native.format](owned.path, native.metadata, groups)
    finally:
        owned.remove()


def _read_rocksdb(folder: Path, metadata: Mapping[str, str], groups: range) -> Mapping[str, StateTable]:
    # Its library is installed where the backend is used.
    from penstock.engine.state.rocksdb.native import read_native

    return read_native(folder, metadata, groups)


_NATIVE_READERS: Final[Mapping[str, NativeReader]] = {"rocksdb": _read_rocksdb}
