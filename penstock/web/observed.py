"""What the server has seen of the jobs of a cluster: the newest values, and those before for rates and charts.

The collector shows it each reading; REST, Flight, Prometheus and the pages are made of what it gives, in any thread. It
knows no cluster and no clock: times come with the readings. All that it keeps is bounded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.job.info import JobInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.metric_types import pending_records
from penstock.engine.metrics import SubtaskMetrics

WINDOW_SECONDS: Final = 60.0
"""Rates are over the last so many seconds, as Flink's meters are."""
CHART_POINTS: Final = 300
"""Of each task: ten minutes at a reading every two seconds."""
ENDED_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class Totals:
    """What a subtask has done so far: the counters of which rates are made.

    Args:
        rows_in: taken by the first operator of the chain; of a source, those that it has read, as in Flink.
        rows_out: emitted by the last one.
        bytes_out, messages_out: sent to other subtasks.
        busy, blocked, idle: seconds.
    """

    rows_in: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    messages_out: int = 0
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0

    @staticmethod
    def of(metrics: SubtaskMetrics) -> Totals:
        """Those of one reading."""
        operators = metrics.operators
        return Totals(
            (operators[0][1].rows_in or operators[0][1].rows_out) if operators else 0,
            operators[-1][1].rows_out if operators else 0,
            metrics.output.bytes_sent,
            metrics.output.messages_sent,
            metrics.busy_seconds,
            metrics.blocked_seconds,
            metrics.idle_seconds,
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """What a subtask did a second over the window; shares are from 0 to 1 of the time that it has accounted for."""

    rows_in: float = 0.0
    rows_out: float = 0.0
    bytes_out: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """A subtask as it is shown.

    Args:
        metrics: its newest counters.
        totals, rates: made of them.
    """

    metrics: SubtaskMetrics
    totals: Totals
    rates: Rates

    @property
    def subtask(self) -> int:
        """Its index."""
        return self.metrics.subtask

    @property
    def input_watermark(self) -> int | None:
        """The event time that has come to it, int64 ms; None before the first, and at a source."""
        return _known(self.metrics.operators[0][1].input_watermark) if self.metrics.operators else None

    @property
    def watermark(self) -> int | None:
        """The event time that it has passed on; None before the first."""
        return _known(self.metrics.operators[-1][1].watermark) if self.metrics.operators else None


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One reading of a task, as charts show it; time is civil, in ms. Shares are means over its subtasks."""

    at_ms: int
    rows_in: float
    rows_out: float
    busy: float
    blocked: float
    watermark: int | None


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as it is shown: its subtasks by index; none before the first reading."""

    info: TaskInfo
    subtasks: tuple[SubtaskView, ...]

    def total(self, name: str) -> float:
        """A member of `Totals`, added up."""
        return float(sum(getattr(one.totals, name) for one in self.subtasks))

    def rate(self, name: str) -> float:
        """A member of `Rates`, added up."""
        return float(sum(getattr(one.rates, name) for one in self.subtasks))

    def mean(self, name: str) -> float:
        """A share of `Rates`, on average."""
        return self.rate(name) / len(self.subtasks) if self.subtasks else 0.0

    def highest(self, name: str) -> float:
        """A share of `Rates`: that of the subtask that has most of it."""
        return max((float(getattr(one.rates, name)) for one in self.subtasks), default=0.0)

    @property
    def pending_records(self) -> float | None:
        """Records that its source has not read yet, as far as it counts them; None where it counts none."""
        return pending_records(counters.group for one in self.subtasks for _, counters in one.metrics.operators)

    @property
    def splits_left(self) -> int:
        """Of a source: its splits that are not at their end."""
        return sum(one.metrics.gate.splits for one in self.subtasks)

    @property
    def skew(self) -> float:
        """How uneven the subtasks' rates of rows are: the highest over the mean, minus one; 0 is even."""
        rates = [one.rates.rows_in or one.rates.rows_out for one in self.subtasks]
        mean = sum(rates) / len(rates) if rates else 0.0
        return max(rates) / mean - 1 if mean > 0 else 0.0

    @property
    def watermark(self) -> int | None:
        """The lowest that its subtasks have passed on."""
        return min((one.watermark for one in self.subtasks if one.watermark is not None), default=None)


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it is shown.

    Args:
        info: its newest state.
        tasks: with their figures.
        seen_ms: when that was read.
        began_ms: when the server first saw it, or when its manager started: the earlier.
        answers: whether its manager answered at the last reading.
    """

    info: JobInfo
    tasks: tuple[TaskView, ...]
    seen_ms: int
    began_ms: int
    answers: bool = True

    def task(self, task: int) -> TaskView | None:
        """One of the tasks."""
        return next((one for one in self.tasks if one.info.id == task), None)

    def watermark_lag_ms(self, task: TaskView) -> int | None:
        """How far the event time of a task was behind the clock when it was read; None before the first watermark and
        at the end of input."""
        watermark = task.watermark
        return None if watermark is None or watermark == MAX_TIMESTAMP else self.seen_ms - watermark


@dataclass(slots=True, eq=False)
class _Seen:
    view: JobView
    attempts: int = -1
    ran: bool = False
    totals: deque[tuple[float, Mapping[tuple[int, int], Totals]]] = field(default_factory=deque)
    charts: dict[int, deque[ChartPoint]] = field(default_factory=dict)


class Observed:
    """The jobs that were seen.

    Args:
        ended: jobs that had ended before this server began, the newest last.
        on_end: told of a job each time that it is seen to have ended; None: nobody wants to know.
    """

    def __init__(self, ended: Iterable[JobInfo] = (), on_end: Callable[[JobInfo], None] | None = None) -> None:
        self._on_end = on_end
        # Readers may be in other threads than who shows it readings.
        self._changing = threading.Lock()
        self._jobs: dict[str, _Seen] = {}
        for info in ended:
            tasks = tuple(TaskView(task, ()) for task in info.tasks)
            self._jobs[info.id] = _Seen(JobView(info, tasks, info.since_ms, info.started_ms))

    def see(self, info: JobInfo, metrics: Sequence[SubtaskMetrics], now: float, now_ms: int) -> JobView:
        """Take in a reading of a job.

        Args:
            info, metrics: as its manager has given them.
            now: monotonic seconds.
            now_ms: civil time.
        """
        before = self._jobs.get(info.id)
        began = info.started_ms if before is None else min(before.view.began_ms, info.started_ms)
        seen = before or _Seen(JobView(info, (), now_ms, began))
        if seen.attempts != info.attempt or not seen.ran:
            # Counters begin anew with each attempt, and do not move before it runs.
            seen.totals.clear()
        seen.attempts, seen.ran = info.attempt, info.status is JobStatus.RUNNING
        totals = {(one.task, one.subtask): Totals.of(one) for one in metrics}
        seen.totals.append((now, totals))
        while len(seen.totals) > 2 and now - seen.totals[1][0] >= WINDOW_SECONDS:
            seen.totals.popleft()
        seen.view = self._view(seen, info, metrics, totals, now, now_ms, began)
        self._chart(seen, now_ms)
        with self._changing:
            # Newest last.
            self._jobs.pop(info.id, None)
            self._jobs[info.id] = seen
            self._forget()
        if info.status.ended and self._on_end is not None:
            self._on_end(info)
        return seen.view

    def _view(
        self,
        seen: _Seen,
        info: JobInfo,
        metrics: Sequence[SubtaskMetrics],
        totals: Mapping[tuple[int, int], Totals],
        now: float,
        now_ms: int,
        began: int,
    ) -> JobView:
        since, first = seen.totals[0]
        by_task: dict[int, list[SubtaskView]] = {}
        for one in sorted(metrics, key=lambda one: one.subtask):
            place = (one.task, one.subtask)
            rates = Rates() if info.status.ended else _rates(first.get(place), totals[place], now - since)
            by_task.setdefault(one.task, []).append(SubtaskView(one, totals[place], rates))
        tasks = tuple(TaskView(task, tuple(by_task.get(task.id, ()))) for task in info.tasks)
        return JobView(info, tasks, now_ms, began)

    def _chart(self, seen: _Seen, now_ms: int) -> None:
        if seen.view.info.status.ended:
            return
        for task in _latest(seen):
            if task.subtasks:
                points = seen.charts.setdefault(task.info.id, deque(maxlen=CHART_POINTS))
                watermark = task.watermark
                points.append(
                    ChartPoint(
                        now_ms,
                        task.rate("rows_in"),
                        task.rate("rows_out"),
                        task.mean("busy"),
                        task.mean("blocked"),
                        None if watermark == MAX_TIMESTAMP else watermark,
                    )
                )

    def miss(self, running: Iterable[str]) -> None:
        """Jobs that are not among the ids `running` have no manager that answers."""
        there = set(running)
        for job_id, seen in self._jobs.items():
            if job_id not in there and not seen.view.info.status.ended:
                seen.view = replace(seen.view, answers=False)

    def _forget(self) -> None:
        over = [job_id for job_id, seen in self._jobs.items() if seen.view.info.status.ended or not seen.view.answers]
        for job_id in over[: max(0, len(over) - ENDED_KEPT)]:
            del self._jobs[job_id]

    def jobs(self) -> list[JobView]:
        """All jobs: those that have not ended by name, then the others, the last first."""
        with self._changing:
            views = [seen.view for seen in self._jobs.values()]
        return sorted(
            views,
            key=lambda view: (
                view.info.status.ended,
                -view.info.since_ms if view.info.status.ended else 0,
                view.info.name,
            ),
        )

    def job(self, job_id: str) -> JobView | None:
        """One of them, by its id; by its name where that means one that has not ended."""
        with self._changing:
            seen = self._jobs.get(job_id)
        if seen is not None:
            return seen.view
        named = [view for view in self.jobs() if view.info.name == job_id and not view.info.status.ended]
        return named[0] if len(named) == 1 else None

    def charts(self, job_id: str) -> Mapping[int, Sequence[ChartPoint]]:
        """The points of each task, oldest first; of jobs that the server saw running."""
        seen = self._jobs.get(job_id)
        return {} if seen is None else {task: tuple(points) for task, points in seen.charts.items()}


def _rates(before: Totals | None, now: Totals, seconds: float) -> Rates:
    """Rates between two readings; a subtask that was not there at the first has begun since."""
    before = before or (Totals() if seconds > 0 else now)
    accounted = (now.busy - before.busy) + (now.blocked - before.blocked) + (now.idle - before.idle)
    if accounted <= 0:
        return _shares(now)
    each = 1 / seconds if seconds > 0 else 0.0
    return Rates(
        max(0, now.rows_in - before.rows_in) * each,
        max(0, now.rows_out - before.rows_out) * each,
        max(0, now.bytes_out - before.bytes_out) * each,
        (now.busy - before.busy) / accounted,
        (now.blocked - before.blocked) / accounted,
        (now.idle - before.idle) / accounted,
    )


def _shares(totals: Totals) -> Rates:
    """What is known at the first reading, and within a long step: where the time has gone so far."""
    accounted = totals.busy + totals.blocked + totals.idle
    if accounted <= 0:
        return Rates()
    return Rates(busy=totals.busy / accounted, blocked=totals.blocked / accounted, idle=totals.idle / accounted)


def _latest(seen: _Seen) -> Iterator[TaskView]:
    """The tasks with their rates since the reading before: charts show what a minute's mean would hide."""
    if len(seen.totals) < 2:
        yield from seen.view.tasks
        return
    (since, before), (now, totals) = seen.totals[-2], seen.totals[-1]
    for task in seen.view.tasks:
        places = [(one, (task.info.id, one.subtask)) for one in task.subtasks]
        yield replace(
            task,
            subtasks=tuple(
                replace(one, rates=_rates(before.get(place), totals[place], now - since)) for one, place in places
            ),
        )


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_TIMESTAMP else watermark


def status_of(view: JobView) -> JobStatus:
    """Where the job is, for people: one whose manager is away is being restarted, or is lost."""
    return view.info.status if view.answers or view.info.status.ended else JobStatus.RESTARTING
