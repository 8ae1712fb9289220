"""A cluster with jobs that were made up: what the server shows of it is known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock import savepoints
from penstock.actors.stacks import SampledStack
from penstock.actors.task_log import LogLine
from penstock.engine.checkpointing.handles import PartTimes, Size
from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.engine.graph.scale import ParallelismRequest, describe_request
from penstock.engine.job.info import (
    CheckpointInfo,
    CheckpointsInfo,
    InputInfo,
    JobInfo,
    OperatorInfo,
    RestartInfo,
    SubtaskInfo,
    TaskInfo,
)
from penstock.engine.job.rescale_preview import RescalePreview, TaskPreview
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import ChannelStatistics, OperatorMetrics, OutputStatistics, SubtaskMetrics
from penstock.engine.task.tap import TappedRows
from penstock.savepoints.live_state import LiveState
from penstock.savepoints.reader import Savepoint
from penstock.web.cluster import Node, Reading
from penstock.web.observed import JobView, Observed
from penstock.web.security import Tokens
from tests.savepoints.by_hand import RunByHand

TOKENS = Tokens("viewers-0123456789", "operators-0123456789")
DONE = CheckpointInfo(
    7, SnapshotKind.CHECKPOINT, "completed", 1, 1_000, 250.0, 3, 3, 5_000, 1_000, url="file:///c/chk-7"
)
SAVED = replace(DONE, checkpoint=8, kind=SnapshotKind.SAVEPOINT, triggered_ms=2_000, url="file:///s/savepoint-8")
FAILED = replace(DONE, checkpoint=9, status="aborted", reason=AbortReason.DECLINED, message="no disk", url=None)
ORDERS = JobInfo(
    "orders-1",
    "orders",
    JobStatus.RUNNING,
    since_ms=10_000,
    started_ms=9_000,
    attempt=1,
    manager_pid=100,
    parallelism=2,
    max_parallelism=128,
    tasks=(
        TaskInfo(1, "events", 1, (OperatorInfo("events", "src"),), (), (SubtaskInfo(0, 1, 11, JobStatus.RUNNING),)),
        TaskInfo(
            2,
            "count -> sink",
            2,
            (OperatorInfo("count", "totals"), OperatorInfo("sink", "out")),
            (InputInfo(1, "hash by user"),),
            (SubtaskInfo(0, 1, 12, JobStatus.RUNNING), SubtaskInfo(1, 1, 13, JobStatus.RUNNING)),
        ),
    ),
    restarts=1,
    restart_history=(
        RestartInfo("failure", "the process died\nat line 3", 5_000, attempt=1),
        RestartInfo("rescale", "", 6_000, failures=1, last_cause="no broker can be used\nat line 5"),
    ),
    checkpoints=CheckpointsInfo(
        2, 1, 0, 7, "file:///c/chk-7", "file:///s/savepoint-8", None, 250.0, 5_000, 1_000, (DONE, SAVED, FAILED)
    ),
    settings=(("checkpoints.interval_ms", "1000"), ("checkpoints.mode", "aligned"), ("state_backend", "heap")),
)


def metrics(
    task: int, subtask: int, names: Sequence[str], rows: int, busy: float = 0.0, blocked: float = 0.0, idle: float = 0.0
) -> SubtaskMetrics:
    """A subtask that took and gave `rows` rows and spent its time so."""
    operators = [(name, OperatorMetrics(rows, rows, 0, 1_500_000, 1_600_000)) for name in names]
    return SubtaskMetrics(task, subtask, operators, busy, blocked, idle)


def orders_metrics(seconds: int, busy: float = 0.9, blocked: float = 0.8, even: bool = True) -> list[SubtaskMetrics]:
    """The subtasks of `orders` after some seconds: the source waits, and its second task is busy."""
    first, second = (50, 50) if even else (98, 2)
    return [
        metrics(1, 0, ["events"], 100 * seconds, seconds * (1 - blocked), seconds * blocked),
        metrics(2, 0, ["count", "sink"], first * seconds, seconds * busy, 0.0, seconds * (1 - busy)),
        metrics(2, 1, ["count", "sink"], second * seconds, seconds * busy / 2, 0.0, seconds * (1 - busy / 2)),
    ]


def viewed(info: JobInfo = ORDERS, **how: Any) -> JobView:
    """A job that was read at 10 s and at 20 s."""
    observed = Observed()
    observed.see(info, orders_metrics(10, **how), 10.0, 20_000)
    return observed.see(info, orders_metrics(20, **how), 20.0, 30_000)


@dataclass
class FakeCluster:
    """Says what it is told to, and keeps what was asked of it."""

    readings: list[Reading] = field(default_factory=lambda: [Reading(ORDERS, orders_metrics(10))])
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    refuses: str = ""
    checkpoint_urls: list[str] = field(default_factory=list)
    away: bool = False
    slow: Sequence[str] = ()

    def read(self) -> Sequence[Reading]:
        if self.away:
            raise ConnectionError("the cluster is away")
        return self.readings

    def awaited(self) -> Sequence[str]:
        return self.slow

    def nodes(self) -> Sequence[Node]:
        return [Node("n1", "10.0.0.1", 4.0, 1.0, 1 << 30, True, True)]

    def _asked(self, *what: Any) -> None:
        self.asked.append(what)
        if self.refuses:
            raise CheckpointError(self.refuses)

    def checkpoint(self, job_id: str) -> str:
        self._asked("checkpoint", job_id)
        return "file:///c/chk-00000010"

    def savepoint(self, job_id: str, directory: str | None) -> str:
        self._asked("savepoint", job_id, directory)
        return "file:///s/savepoint-10"

    def stop(self, job_id: str, directory: str | None) -> str:
        self._asked("stop", job_id, directory)
        return "file:///s/savepoint-11"

    def drain(self, job_id: str, directory: str | None) -> str:
        self._asked("drain", job_id, directory)
        return "file:///s/savepoint-12"

    def cancel(self, job_id: str) -> bool:
        self._asked("cancel", job_id)
        return True

    def rescale(self, job_id: str, parallelism: ParallelismRequest) -> float:
        self._asked("rescale", job_id, parallelism)
        return 0.5

    def preview_rescales(self, job_id: str, wanted: Sequence[ParallelismRequest]) -> Sequence[RescalePreview]:
        self._asked("preview", job_id, *wanted)
        return [
            RescalePreview(describe_request(one), "live", "", (TaskPreview("count -> sink", 2, 3, 0.6),), 3, 1.5)
            for one in wanted
        ]

    def tail(self, job_id: str, uid: str, side: str, rows: int, seconds: float) -> TappedRows:
        self._asked("tail", job_id, uid, side, rows, seconds)
        amounts = pa.table({"subtask": pa.array([0, 1], pa.int32()), "amount": [5, 7], "token": ["***", "***"]})
        return TappedRows(amounts.slice(0, rows), 12)

    def live_state(self, job_id: str, uid: str, name: str) -> LiveState:
        self.asked.append(("state", job_id, uid, name))
        run = RunByHand(lambda keyed: keyed.aggregate(n=ps.count())).take([("ann", "a", 1), ("bob", "a", 2)])
        run.away = 1000 if self.away else 0
        return run.state(name)

    def newest_checkpoint(self, info: JobInfo) -> Savepoint:
        if not self.checkpoint_urls:
            raise CheckpointError("there is no checkpoint")
        return savepoints.read(self.checkpoint_urls.pop(0) if self.checkpoint_urls[1:] else self.checkpoint_urls[0])

    def checkpoint_parts(self, job_id: str, checkpoint: int) -> Sequence[CheckpointPart]:
        self._asked("parts", job_id, checkpoint)
        return [
            CheckpointPart(1, 0, 1_100, Size(10, 10)),
            CheckpointPart(2, 0, 1_250, Size(4_000, 900), PartTimes(40.2, 1.6, 120.0)),
            CheckpointPart(2, 1),
        ]

    def channels(self, job_id: str, task: int, subtask: int) -> Sequence[ChannelStatistics]:
        self._asked("channels", job_id, task, subtask)
        return [
            ChannelStatistics(2, 0, 700, OutputStatistics(1, 20, 160, 4, 1, 12, 5_440), credits=0),
            ChannelStatistics(2, 1, 300, OutputStatistics(1, 0, 0, 0, 0, 9, 2_400), credits=4),
        ]

    def logs(self, job_id: str, after: Mapping[tuple[int, int], int], most: int) -> Sequence[LogLine]:
        return [LogLine(1, 1_000, "WARNING", "fraud", "no such user", 2, 1, 1, "count")][:most]

    def explain(self, job_id: str) -> str:
        self._asked("explain", job_id)
        return "task 1 x1\n  source events\n    -> task 2 (hash by user)"

    def stacks(self, job_id: str, task: int, subtask: int | None, seconds: float) -> Sequence[SampledStack]:
        self._asked("stacks", job_id, task, subtask)
        return [
            SampledStack(("task-loop", "step (task/loop.py:1)", "f (user/flow.py:7)"), 3, 3),
            SampledStack(("task-loop", "wait (x/y.py:2)"), 2, 0),
        ]


def wide(tasks: int, parallelism: int) -> Reading:
    """A job of many tasks, each with many subtasks."""
    infos = tuple(
        TaskInfo(
            number,
            f"task {number}",
            parallelism,
            (OperatorInfo(f"o{number}"),),
            (InputInfo(number - 1, "hash"),) if number > 1 else (),
            tuple(SubtaskInfo(one, 1, one + 2, JobStatus.RUNNING) for one in range(parallelism)),
        )
        for number in range(1, tasks + 1)
    )
    read = [metrics(task.id, one, ["x"], 10, 0.5, 0, 0.5) for task in infos for one in range(parallelism)]
    return Reading(JobInfo("wide-1", "wide", JobStatus.RUNNING, attempt=1, parallelism=parallelism, tasks=infos), read)
