"""What the server has seen of the jobs of a cluster: the newest values, and those before for rates and charts.

The collector shows it each reading, in one thread; REST, Flight, Prometheus and the pages are made of what it gives, in
any. It knows no cluster and no clock: times come with the readings. All that it keeps is bounded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

import numpy as np

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.job.info import JobInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import SubtaskMetrics, held_keys
from penstock.web.figures import NO_SUBTASKS, Columns, Subtasks, no_rates, rates_between
from penstock.web.watermarks import MARKS_KEPT, Point, Watermarks

WINDOW_SECONDS: Final = 60.0
"""Rates are over the last so many seconds, as Flink's meters are."""
CHART_POINTS: Final = 300
"""Of each task: ten minutes at a reading every two seconds."""
ENDED_KEPT: Final = 100
FIGURES_KEPT: Final = 20_000
"""Subtasks and points of charts of all jobs that are over, but for the last; older ones are listed without."""


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
    subtasks: Subtasks = NO_SUBTASKS

    def mean(self, name: str) -> float:
        """A share of `Rates`, on average."""
        return self.subtasks.rate(name) / len(self.subtasks) if self.subtasks else 0.0

    def held_keys(self) -> Mapping[tuple[str, str], int]:
        """Of how many keys each state holds something, by uid and the name that the state is stored by."""
        chains = zip(*(one.operators for one in self.subtasks.metrics), strict=False)
        return {
            (operator.uid, name): count
            for operator, counted in zip(self.info.operators, chains, strict=False)
            for name, count in held_keys(counters for _, counters in counted).items()
        }

    @property
    def pending_records(self) -> float | None:
        """Records that its source has not read yet, as far as it counts them; None where it counts none."""
        return None if self.info.inputs else self.subtasks.pending_records

    def work_out(self) -> None:
        """Have ready what is shown of it without its subtasks."""
        self.subtasks.work_out()
        _ = self.pending_records


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it is shown.

    Args:
        info: its newest state.
        tasks: with their figures.
        seen_ms: when that was read.
        began_ms: when the server first saw it, or when its manager started: the earlier.
        answers: whether its manager answered at the last reading.
        rates_seconds: how long the rates are of; 0: there was one reading since the job began to run, and they are 0.
    """

    info: JobInfo
    tasks: tuple[TaskView, ...]
    seen_ms: int
    began_ms: int
    answers: bool = True
    rates_seconds: float = 0.0

    def task(self, task: int) -> TaskView | None:
        """One of the tasks."""
        return next((one for one in self.tasks if one.info.id == task), None)

    def watermark_lag_ms(self, task: TaskView) -> int | None:
        """How far the event time of a task was behind the clock when it was read; None before the first watermark and
        at the end of input."""
        watermark = task.subtasks.watermark
        return None if watermark is None or watermark == MAX_TIMESTAMP else self.seen_ms - watermark


@dataclass(slots=True, eq=False)
class _Seen:
    view: JobView
    attempts: int = -1
    ran: bool = False
    totals: deque[tuple[float, Columns]] = field(default_factory=deque)
    charts: dict[int, deque[ChartPoint]] = field(default_factory=dict)
    watermarks: Watermarks = field(default_factory=Watermarks)

    @property
    def subtasks(self) -> int:
        """How many it has figures of."""
        return sum(len(task.subtasks) for task in self.view.tasks)

    @property
    def figures(self) -> int:
        """How many subtasks and points of charts it holds."""
        return sum(len(task.info.subtasks) for task in self.view.tasks) + sum(map(len, self.charts.values()))

    def forget_figures(self) -> None:
        """Keep what the job is and what it went through, without its subtasks and their figures."""
        tasks = tuple(replace(task, subtasks=()) for task in self.view.info.tasks)
        self.view = replace(self.view, info=replace(self.view.info, tasks=tasks), tasks=tuple(map(TaskView, tasks)))
        self.totals.clear()
        self.charts.clear()


class Observed:
    """The jobs that were seen.

    Args:
        ended: jobs that had ended before this server began, the newest last.
        on_end: told of a job each time that it is seen to have ended, before that is shown; None: nobody wants to know.
    """

    def __init__(self, ended: Iterable[JobInfo] = (), on_end: Callable[[JobInfo], None] | None = None) -> None:
        self._on_end = on_end
        # Readers are in other threads than who shows it readings, and wait for no reading to be worked out.
        self._changing = threading.Lock()
        self._jobs: dict[str, _Seen] = {}
        for info in ended:
            tasks = tuple(TaskView(task) for task in info.tasks)
            self._jobs[info.id] = _Seen(JobView(info, tasks, info.since_ms, info.started_ms))
        self._forget()

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
        metrics = sorted(metrics, key=attrgetter("task", "subtask"))
        totals = Columns.of(metrics)
        seen.totals.append((now, totals))
        while len(seen.totals) > 2 and now - seen.totals[1][0] >= WINDOW_SECONDS:
            seen.totals.popleft()
        view = self._view(seen, info, metrics, totals, now, now_ms, began)
        points = _points(view, seen.totals, now_ms)
        for task_view in view.tasks:
            task_view.work_out()
        moving = {task.info.id: task.subtasks for task in view.tasks}
        if info.status.ended:
            # It has no rates any more, and its event time moves no further.
            seen.totals.clear()
            moving = {}
            if self._on_end is not None:
                # Before it is shown: whoever sees the end may end this process.
                self._on_end(info)
        with self._changing:
            seen.view = view
            for task, point in points:
                seen.charts.setdefault(task, deque(maxlen=CHART_POINTS)).append(point)
            if moving:
                room = MARKS_KEPT // max(1, sum(one.subtasks for one in self._jobs.values()))
                seen.watermarks.add(now_ms, moving, room)
            # Newest last.
            self._jobs.pop(info.id, None)
            self._jobs[info.id] = seen
            self._forget()
        return view

    def _view(
        self,
        seen: _Seen,
        info: JobInfo,
        metrics: Sequence[SubtaskMetrics],
        totals: Columns,
        now: float,
        now_ms: int,
        began: int,
    ) -> JobView:
        since, first = seen.totals[0]
        rates = no_rates(totals) if info.status.ended else rates_between(first, totals, now - since)
        places = _places(totals)
        tasks = tuple(
            TaskView(task, Subtasks(metrics[rows], totals.taken(rows), rates[rows]))
            for task, rows in ((task, places.get(task.id, slice(0, 0))) for task in info.tasks)
        )
        return JobView(info, tasks, now_ms, began, rates_seconds=now - since)

    def miss(self, running: Iterable[str]) -> None:
        """Jobs that are not among the ids `running` have no manager that answers."""
        there = set(running)
        with self._changing:
            for job_id, seen in self._jobs.items():
                if job_id not in there and not seen.view.info.status.ended:
                    seen.view = replace(seen.view, answers=False)

    def _forget(self) -> None:
        over = [job_id for job_id, seen in self._jobs.items() if seen.view.info.status.ended or not seen.view.answers]
        for job_id in over[: max(0, len(over) - ENDED_KEPT)]:
            del self._jobs[job_id]
        left = FIGURES_KEPT
        for job_id in reversed(over[-ENDED_KEPT:-1]):
            seen = self._jobs[job_id]
            seen.watermarks.clear()
            left -= seen.figures
            if left < 0:
                seen.forget_figures()

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
        with self._changing:
            seen = self._jobs.get(job_id)
            return {} if seen is None else {task: tuple(points) for task, points in seen.charts.items()}

    def watermarks(self, job_id: str) -> Sequence[Point]:
        """Those of all subtasks, oldest first; of jobs that run, and of the one that has ended last."""
        with self._changing:
            seen = self._jobs.get(job_id)
            return () if seen is None else seen.watermarks.points()


def _places(columns: Columns) -> Mapping[int, slice]:
    """Where the subtasks of each task are; they are sorted by it."""
    tasks = np.array([task for task, _ in columns.places], np.int64)
    found, begins = np.unique(tasks, return_index=True)
    ends = [*begins[1:].tolist(), len(tasks)]
    return {task: slice(begin, end) for task, begin, end in zip(found.tolist(), begins.tolist(), ends, strict=False)}


def _points(view: JobView, totals: Sequence[tuple[float, Columns]], now_ms: int) -> Sequence[tuple[int, ChartPoint]]:
    """A point for each task that has figures, by its id; none of a job that has ended, or of a first reading."""
    if view.info.status.ended or len(totals) < 2:
        return ()
    return [
        (
            task.info.id,
            ChartPoint(
                now_ms,
                task.subtasks.rate("rows_in"),
                task.subtasks.rate("rows_out"),
                task.mean("busy"),
                task.mean("blocked"),
                None if (watermark := task.subtasks.watermark) == MAX_TIMESTAMP else watermark,
            ),
        )
        for task in _latest(view, totals)
        if task.subtasks
    ]


def _latest(view: JobView, readings: Sequence[tuple[float, Columns]]) -> Iterator[TaskView]:
    """The tasks with their rates since the reading before: charts show what a minute's mean would hide."""
    (since, before), (now, totals) = readings[-2], readings[-1]
    rates, places = rates_between(before, totals, now - since), _places(totals)
    for task in view.tasks:
        yield replace(task, subtasks=task.subtasks.with_rates(rates[places.get(task.info.id, slice(0, 0))]))


def status_of(view: JobView) -> JobStatus:
    """Where the job is, for people: one whose manager is away is being restarted, or is lost."""
    return view.info.status if view.answers or view.info.status.ended else JobStatus.RESTARTING
