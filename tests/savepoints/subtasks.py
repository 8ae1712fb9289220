"""A job of one keyed operator for tests: its graph, captures of dicts, and the folders that they are written to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.handles import CompletedCheckpoint, SubtaskHandle
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.store import RestorePlan
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.config import JobConfig
from penstock.engine.elements import Barrier, Batch, CheckpointMode, SnapshotKind
from penstock.engine.errors import CheckpointCorruptError, CheckpointError
from penstock.engine.exchange.partitioners import Hash
from penstock.engine.graph.physical import Exchange, OperatorPlan, PhysicalGraph, TaskPlan
from penstock.engine.operators.base import Operator
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.capture import DELETED, Expiry, OperatorCapture, TableCapture
from penstock.engine.state.keys.groups import key_groups, subtask_of
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, with_groups
from penstock.savepoints.content import Data, whole
from penstock.savepoints.paths import JobPaths
from penstock.savepoints.restore import load_task, plan_failover
from penstock.savepoints.writer import CheckpointWriter

GROUPS = 16
ROOT = "memory://tests/job"
PATHS = JobPaths("job")
UID, STATE = "count", "value"


@dataclass
class Blobs:
    """A folder in a dict, which fails when it is told to."""

    url: str = ROOT
    files: dict[str, bytes] = field(default_factory=dict)
    fail_after: int | None = None
    """How many more files can be written; None: any number."""
    written: int = 0
    """Bytes."""

    def put(self, path: str, data: Data) -> None:
        if self.fail_after is not None:
            if self.fail_after == 0:
                raise CheckpointError(f"{self.url}/{path}: the disk is full")
            self.fail_after -= 1
        self.files[path] = bytes(whole(data))
        self.written += len(self.files[path])

    def create(self, path: str, data: Data) -> None:
        assert path not in self.files
        self.put(path, data)

    def get(self, path: str) -> pa.Buffer:
        if path not in self.files:
            raise CheckpointCorruptError(f"{self.url}/{path} is missing")
        return pa.py_buffer(self.files[path])

    def list(self, prefix: str = "") -> Sequence[tuple[str, int]]:
        return sorted((path, len(data)) for path, data in self.files.items() if path.startswith(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.pop(path, None)


@dataclass
class Storage:
    """Folders by URL."""

    folders: dict[str, Blobs] = field(default_factory=dict)

    def open(self, url: str) -> Blobs:
        return self.folders.setdefault(url, Blobs(url))


class NoOperator(OperatorSpec):
    """Of a graph that is never run."""

    def create(self) -> Operator:
        raise NotImplementedError

    def describe(self) -> str:
        return "no operator"


def task(number: int, parallelism: int, uids: Sequence[str], outputs: Sequence[tuple[str, int]] = ()) -> TaskPlan:
    """A task of operators called by their uids; `outputs`: uid and downstream task of each exchange."""
    operators = tuple(OperatorPlan(f"the {uid}", NoOperator(), (), (), uid=uid) for uid in uids)
    exchanges = tuple(Exchange(number, to, Hash(("k",)), 0, "", uid=uid) for uid, to in outputs)
    return TaskPlan(number, " -> ".join(uids), parallelism, None, operators, exchanges, None)


def graph_of(*tasks: TaskPlan, config: JobConfig | None = None) -> PhysicalGraph:
    return PhysicalGraph("job", config or JobConfig(max_parallelism=GROUPS), tasks)


def graph(parallelism: int, overrides: Mapping[str, str] | None = None) -> PhysicalGraph:
    """The job of the one keyed operator."""
    checkpoints = CheckpointConfig(storage_overrides=tuple((overrides or {}).items()))
    return graph_of(task(1, parallelism, [UID]), config=JobConfig(max_parallelism=GROUPS, checkpoints=checkpoints))


def completed(
    checkpoint: int, subtasks: Iterable[SubtaskHandle], kind: SnapshotKind = SnapshotKind.CHECKPOINT
) -> CompletedCheckpoint:
    return CompletedCheckpoint("job", "job", checkpoint, 1, kind, CheckpointMode.ALIGNED, GROUPS, 0, 0, tuple(subtasks))


def keyed_rows(entries: Mapping[int, tuple[str, int]], deleted: Iterable[int] | None = None) -> pa.Table:
    """Rows (k, value, at) of a dict, in its order; with `deleted`, changes."""
    gone = list(deleted or ())
    values = [*entries.values(), *((None, None) for _ in gone)]
    data = {
        "k": pa.array([*entries, *gone], pa.int64()),
        "value": pa.array([value for value, _ in values], pa.string()),
        "at": pa.array([at for _, at in values], pa.int64()),
    }
    if deleted is not None:
        data[DELETED] = pa.array([False] * len(entries) + [True] * len(gone), pa.bool_())
    return with_groups(pa.table(data), ["k"], GROUPS)


def entries_of(restored: RestoredTask) -> dict[int, tuple[str, int]]:
    """The dict that the rows of a restored subtask make."""
    snapshot = restored.operators.get(UID)
    if snapshot is None or STATE not in snapshot.tables:
        return {}
    data = snapshot.tables[STATE].data
    assert data.column_names == [KEY_GROUP, "k", "value", "at"]
    groups = data.column(KEY_GROUP).to_pylist()
    assert groups == sorted(groups)
    keys = data.column("k").to_pylist()
    assert len(keys) == len(set(keys)), "a key comes twice"
    values = zip(data.column("value").to_pylist(), data.column("at").to_pylist(), strict=True)
    return dict(zip(keys, values, strict=True))


def owner(key: int, parallelism: int) -> int:
    return int(subtask_of(int(key_groups([pa.array([key])], GROUPS)[0]), parallelism, GROUPS))


def keyed_capture(
    rows: pa.Table, is_changes: bool = False, expiry: Expiry | None = None, keys: object | None = None
) -> OperatorCapture:
    table = TableCapture(Redistribution.KEYED, lambda: rows, ("k",), is_changes, expiry, keys=keys)
    return OperatorCapture({STATE: table})


def capture_of(
    barrier: Barrier,
    operator: OperatorCapture,
    subtask: int = 0,
    parallelism: int = 1,
    in_flight: Mapping[str, Sequence[Batch]] | None = None,
) -> TaskCapture:
    return TaskCapture(barrier, 1, subtask, parallelism, [(UID, "the count", operator)], in_flight or {})


def writer(
    storage: Storage,
    parallelism: int = 1,
    subtask: int = 0,
    attempt: int = 1,
    plan: RestorePlan | None = None,
    overrides: Mapping[str, str] | None = None,
) -> CheckpointWriter:
    return CheckpointWriter(
        storage.open(ROOT),
        PATHS,
        graph(parallelism, overrides),
        1,
        subtask,
        attempt,
        plan,
        storage.open,
    )


def restored_entries(
    storage: Storage, checkpoint: CompletedCheckpoint, parallelism: int = 1
) -> dict[int, tuple[str, int]]:
    """What all subtasks together restore; each has only what it owns."""
    now = graph(parallelism)
    plan = plan_failover(now, checkpoint, ROOT)
    found: dict[int, tuple[str, int]] = {}
    for subtask in range(parallelism):
        own = entries_of(load_task(storage.open, now, plan, 1, subtask))
        assert all(owner(key, parallelism) == subtask for key in own)
        found.update(own)
    return found
