"""A job as values: what everything that shows a job (commands, REST, console, chaos report, tests) is made of.

`description` and, on Ray, `actors/info.py` build it; at the border it becomes JSON by the names of its members
(`document`). Names that end with `_ms` are times: civil time in int64 ms UTC, or durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.engine.autoscaler.report import AutoscalerInfo
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.connectors import Dataset
from penstock.engine.elements import SnapshotKind
from penstock.engine.job.status import JobStatus

_MOST_SPLITS: Final = 3
"""How many splits a message names."""
_IDLENESS: Final = (
    ".with_idleness('30s'), in SQL SET 'table.exec.source.idle-timeout' = '30 s', lets quiet splits not count"
)


@dataclass(frozen=True, slots=True)
class SubtaskInfo:
    """One subtask.

    Args:
        subtask: its index, from 0.
        attempt: that it belongs to; 0 before the first.
        pid: of its process, on the node that this runs on; None: it has none.
        status: finished where it has emitted everything, else that of the job.
    """

    subtask: int
    attempt: int = 0
    pid: int | None = None
    status: JobStatus = JobStatus.CREATED


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """One operator of a task's chain.

    Args:
        name: the operator's name; a source comes first.
        uid: by which its state is found; empty where it has none.
        reads, writes: of a source and of a sink: the data that have a name elsewhere.
    """

    name: str
    uid: str = ""
    reads: tuple[Dataset, ...] = ()
    writes: tuple[Dataset, ...] = ()


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One exchange into a task.

    Args:
        task: id of the task that sends.
        partitioner: how rows are divided, in words: forward, hash, broadcast.
    """

    task: int
    partitioner: str


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task: operators chained together, in several subtasks.

    Args:
        id, name, parallelism: which, and how many subtasks it has.
        operators: the chain, the first one first.
        inputs: where its rows come from; none at a source.
        subtasks: by index.
    """

    id: int
    name: str
    parallelism: int
    operators: tuple[OperatorInfo, ...] = ()
    inputs: tuple[InputInfo, ...] = ()
    subtasks: tuple[SubtaskInfo, ...] = ()

    @property
    def uids(self) -> tuple[str, ...]:
        """The uids of its operators, the first one first."""
        return tuple(operator.uid for operator in self.operators)


@dataclass(frozen=True, slots=True)
class RestartInfo:
    """Subtasks were started anew.

    Args:
        kind: `failure`, `takeover` (another job manager), `rescale` or `move` (off nodes that leave).
        cause: the error as text, or what was asked for; where something failed again before all ran, the first error.
        at_ms: when it was noticed.
        detected_monotonic: the same in monotonic seconds of the manager's machine; None: under another manager.
        subtasks: how many were restarted.
        attempt: that followed; 0 while there is none.
        checkpoint: what that was restored from; 0 for none.
        restore_ms: until all ran again; None: they do not yet.
        first_output_ms: until the first rows came to an end of the job.
        failures: how often something failed before all ran again.
        last_cause: the newest of these errors; None where there is none but `cause`.
    """

    kind: str
    cause: str
    at_ms: int
    detected_monotonic: float | None = None
    subtasks: int = 0
    attempt: int = 0
    checkpoint: int = 0
    restore_ms: float | None = None
    first_output_ms: float | None = None
    failures: int = 0
    last_cause: str | None = None

    @property
    def newest_cause(self) -> str:
        """The newest error: what keeps a job from running that does not run yet."""
        return self.last_cause or self.cause


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What became of a checkpoint or savepoint.

    Args:
        checkpoint, kind, attempt: which.
        status: `completed` or `aborted`.
        triggered_ms, duration_ms: when it began, and how long it took to its outcome.
        acknowledged, subtasks: how many have acknowledged, of how many.
        bytes, bytes_written: of its files, all, and those written for it.
        reason, message: why it was aborted.
        url: where it is; None: it is not kept.
    """

    checkpoint: int
    kind: SnapshotKind
    status: str
    attempt: int
    triggered_ms: int
    duration_ms: float
    acknowledged: int
    subtasks: int
    bytes: int
    bytes_written: int
    reason: AbortReason | None = None
    message: str = ""
    url: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointsInfo:
    """The checkpoints and savepoints of a job.

    Args:
        completed, failed, in_progress: how many.
        latest, latest_url: the newest checkpoint; None: there is none.
        savepoint_url: the newest savepoint.
        restored_url: what the job began with.
        last_duration_ms, last_bytes, last_bytes_written: of the newest that completed.
        history: the last outcomes, the oldest first.
    """

    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    latest: int | None = None
    latest_url: str | None = None
    savepoint_url: str | None = None
    restored_url: str | None = None
    last_duration_ms: float | None = None
    last_bytes: int = 0
    last_bytes_written: int = 0
    history: tuple[CheckpointInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class EventTimeWait:
    """An operator at which rows come while event time stands, so that windows do not fire.

    Args:
        operator, subtask: that waits.
        holder, holder_subtask: whose event time has not come further: a source, or what assigns timestamps.
        holder_rows: how many rows that subtask has given.
        rows: that have come to the operator, in all subtasks.
        since_ms: since when it has stood.
        watermark: where it stands, int64 ms; None: there was no watermark yet.
        splits: of a holder that is a source, those of its splits (partitions, files) that are furthest behind.
    """

    operator: str
    subtask: int
    holder: str
    holder_subtask: int
    holder_rows: int
    rows: int
    since_ms: int
    watermark: int | None = None
    splits: tuple[str, ...] = ()

    def text(self, now_ms: int) -> str:
        """The message for users, with the remedy."""
        seconds = max(0, now_ms - self.since_ms) // 1000
        stands = "no watermark has come" if self.watermark is None else f"event time stands at {self.watermark} ms"
        who = f"{self.holder!r}, subtask {self.holder_subtask}"
        if self.holder_rows:
            why = (
                f"which has given {self.holder_rows} rows{self._behind()}; does its strategy make watermarks, and does "
                f"a split of it (a partition without rows) hold them back? {_IDLENESS}"
            )
        else:
            why = f"which has given no row yet{self._behind()}; {_IDLENESS}"
        return (
            f"operator {self.operator!r}, subtask {self.subtask}: {stands} for {seconds} s, and {self.rows} rows have: "
            f"windows and timers of event time wait for {who}, {why}"
        )

    def _behind(self) -> str:
        named = ", ".join(map(repr, self.splits[:_MOST_SPLITS]))
        match len(self.splits):
            case 0:
                return ""
            case 1:
                return f", and whose split {named} is furthest behind"
            case some if some <= _MOST_SPLITS:
                return f", and whose splits {named} are furthest behind"
            case many:
                return f", and whose splits {named} and {many - _MOST_SPLITS} more are furthest behind"


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job.

    Args:
        id, name: which.
        status, since_ms: where it is in its life, and since when.
        started_ms: when its manager started.
        error: why it failed.
        waiting_for: what it or its rescale waits for, such as room on the cluster.
        changing: the rescale or move that is under way, as it was asked for; None: none is.
        attempt: number of the newest one.
        manager_pid, standby_pids: the processes beside the subtasks' own.
        parallelism: the highest of its tasks.
        max_parallelism: number of key groups.
        tasks: in the order of their ids.
        restarts: how many failures it had to get over.
        restart_history: the newest restarts, the oldest first.
        checkpoints: None where there is no storage for them.
        autoscaler: what it has seen and done; None: it is off.
        settings: the job's configuration by name, `checkpoints.interval_ms`, without secrets.
        event_time: where event time cannot advance.
        answers: whether its manager has answered; where not, what is known is old, or no more than the name.
        drained: whether it has finished by a drain.
    """

    id: str
    name: str
    status: JobStatus
    since_ms: int = 0
    started_ms: int = 0
    error: str | None = None
    waiting_for: str | None = None
    changing: str | None = None
    attempt: int = 0
    manager_pid: int = 0
    standby_pids: tuple[int, ...] = ()
    parallelism: int = 0
    max_parallelism: int = 0
    tasks: tuple[TaskInfo, ...] = ()
    restarts: int = 0
    restart_history: tuple[RestartInfo, ...] = ()
    checkpoints: CheckpointsInfo | None = None
    autoscaler: AutoscalerInfo | None = None
    settings: tuple[tuple[str, str], ...] = ()
    event_time: tuple[EventTimeWait, ...] = ()
    answers: bool = True
    drained: bool = False

    @property
    def completed_checkpoints(self) -> int:
        """How many checkpoints and savepoints there are so far; 0 without storage."""
        return 0 if self.checkpoints is None else self.checkpoints.completed
