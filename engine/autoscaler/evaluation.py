"""How fast each task could work, and how fast it would have to: figures of a window of readings.

The autoscaler decides by them. The formulas are those of Flink's autoscaler ("Autoscaler", Flink Kubernetes operator),
which has them from Kalavri et al., "Three steps is all you need" (OSDI 2018).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.autoscaler.readings import JobReading, SubtaskCounters, TaskReading
from penstock.engine.autoscaler_config import AutoscalerConfig

_SKEWED: Final = 1.0
"""The fullest subtask gets twice what the others get on average."""
_FEW_ROWS: Final = 1.0
_HOLDS_UP: Final = 0.25
"""Who is awaited for this share of the time, while sources have enough to read, has rows all the time: it takes them as
fast as it can, whatever its busy time says."""


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """One task over the window. Rates are rows a second.

    Args:
        task: as it was read last.
        rate: of rows taken.
        busy: of its busiest subtask, as an average hides it, but for what is chance; from 0 to 1.
        blocked: of the subtask that waited most for who takes its rows.
        true_rate: how fast it could take rows; None: it has done too little to tell.
        target_rate: how fast rows would come if nothing held them up.
        catch_up_rate: the part of a backlog that is to be worked off each second.
        skew: the most rows of a subtask over their mean, minus one.
        is_observed: whether the true rate was seen, as there were enough rows, and is not concluded of busy time.
    """

    task: TaskReading
    rate: float
    busy: float
    blocked: float
    true_rate: float | None
    target_rate: float
    catch_up_rate: float
    skew: float
    is_observed: bool = False

    @property
    def is_skewed(self) -> bool:
        """Whether a few keys have most of the rows, so that more subtasks would not divide them."""
        return self.task.parallelism > 1 and self.skew >= _SKEWED

    def capacity(self, utilization: float, rescale_seconds: float, catch_up_seconds: float) -> float:
        """The rate that it must be able to take rows at, to be so busy, and work off what waits in time.

        Args:
            utilization: from 0 to 1.
            rescale_seconds: for which rows gather while the job is rescaled; 0: it is not.
            catch_up_seconds: in which these are worked off.
        """
        gathered = self.target_rate * rescale_seconds / catch_up_seconds
        return self.catch_up_rate + gathered + self.target_rate / utilization


@dataclass(frozen=True, slots=True)
class JobFigures:
    """A job over the window.

    Args:
        tasks: upstream first.
        lag_seconds: how long its sources would read at their present rate to have nothing waiting; 0 where none says.
    """

    tasks: tuple[TaskFigures, ...]
    lag_seconds: float


def evaluate(first: JobReading, last: JobReading, config: AutoscalerConfig) -> JobFigures:
    """The figures between two readings of one attempt."""
    seconds = last.at - first.at
    before = {task.id: task for task in first.tasks}
    figures: dict[int, TaskFigures] = {}
    lags = [0.0]
    spent_by = {
        task.id: [_between(*pair) for pair in zip(before[task.id].subtasks, task.subtasks, strict=True)]
        for task in last.tasks
    }
    busy_by = {task: _busiest(spent) for task, spent in spent_by.items()}
    for task in last.tasks:
        spent, busy = spent_by[task.id], busy_by[task.id]
        rate = sum(one.rows_in for one in spent) / seconds
        blocked = max((_share(one.blocked, one) for one in spent), default=0.0)
        skew = _skew(spent, seconds)
        if task.inputs:
            target, catch_up = _asked_of(task, figures, rate, seconds, before, last)
            # The figures of the sources, and of all tasks before it, are there.
            is_full = max(lags) * 1000 >= config.observed_rate_lag_threshold_ms and (
                _awaited(task, last, figures, busy_by) >= _HOLDS_UP
            )
            true_rate = _by_busy_time(rate, busy)
            if is_full and blocked < 1:
                true_rate = _believed(true_rate, rate / (1 - blocked), config)
        else:
            pending, waited = task.pending or 0.0, before[task.id].pending
            # A source that has only begun to say how much waits has not got all that in the window.
            growth = 0.0 if task.pending is None or waited is None else (pending - waited) / seconds
            # One that was held up all the time has read nothing, and is no less behind for it.
            lag = pending / max(rate, 1 / seconds) if rate > 0 or blocked > 0 else 0.0
            lags.append(lag)
            target, catch_up = max(0.0, rate + growth), pending / (config.catch_up_duration_ms / 1000)
            true_rate = _of_source(rate, busy, blocked, lag, config)
        is_observed = true_rate != _by_busy_time(rate, busy)
        figures[task.id] = TaskFigures(task, rate, busy, blocked, true_rate, target, catch_up, skew, is_observed)
    return JobFigures(tuple(figures[task.id] for task in last.tasks), max(lags))


def _between(before: SubtaskCounters, now: SubtaskCounters) -> SubtaskCounters:
    return SubtaskCounters(
        max(0, now.rows_in - before.rows_in),
        max(0, now.rows_out - before.rows_out),
        max(0.0, now.busy - before.busy),
        max(0.0, now.blocked - before.blocked),
        max(0.0, now.idle - before.idle),
    )


def _share(part: float, whole: SubtaskCounters) -> float:
    accounted = whole.busy + whole.blocked + whole.idle
    return part / accounted if accounted > 0 else 0.0


def _busiest(spent: Sequence[SubtaskCounters]) -> float:
    """How busy the busiest subtask is, or would be with no more rows than comes of chance; at least the mean."""
    busy = [_share(one.busy, one) for one in spent]
    mean = sum(busy) / len(busy) if busy else 0.0
    return max(mean, max(busy, default=0.0) / (1 + _by_chance(sum(one.rows_in for one in spent), len(spent))))


def _by_chance(rows: int, subtasks: int) -> float:
    """By how much the fullest of some subtasks exceeds the mean when each row falls to any of them, as a share.

    With few rows in the window it is much, and is another subtask each time; with many it is nothing. Source: Raab and
    Steger, "Balls into bins: a simple and tight analysis" (RANDOM 1998), for many balls.
    """
    return math.sqrt(2 * subtasks * math.log(subtasks) / rows) if rows and subtasks > 1 else 0.0


def _skew(spent: Sequence[SubtaskCounters], seconds: float) -> float:
    mean = sum(one.rows_in for one in spent) / len(spent)
    return max(one.rows_in for one in spent) / mean - 1 if mean / seconds >= _FEW_ROWS else 0.0


def _by_busy_time(rate: float, busy: float) -> float | None:
    return rate / busy if busy > 0 and rate > 0 else None


def _awaited(
    task: TaskReading, last: JobReading, upstream: Mapping[int, TaskFigures], busy: Mapping[int, float]
) -> float:
    """The share of the time that a task before this one waits for it; of several behind one, for the busiest."""
    awaited = [0.0]
    for sender in task.inputs:
        behind = [one.id for one in last.tasks if sender in one.inputs]
        if busy[task.id] >= max(busy[one] for one in behind):
            awaited.append(upstream[sender].blocked)
    return max(awaited)


def _of_source(rate: float, busy: float, blocked: float, lag: float, config: AutoscalerConfig) -> float | None:
    """By busy time; but where a source that has enough to read reads less than that, by what it reads."""
    concluded = _by_busy_time(rate, busy)
    if concluded is None or lag * 1000 < config.observed_rate_lag_threshold_ms or blocked >= 1:
        return concluded
    return _believed(concluded, rate / (1 - blocked), config)


def _believed(concluded: float | None, observed: float, config: AutoscalerConfig) -> float | None:
    """The rate that is concluded from busy time, unless the one that was observed is much lower."""
    if concluded is None or concluded <= observed * (1 + config.observed_rate_switch_threshold):
        return concluded
    return observed


def _asked_of(
    task: TaskReading,
    upstream: dict[int, TaskFigures],
    rate: float,
    seconds: float,
    before: dict[int, TaskReading],
    last: JobReading,
) -> tuple[float, float]:
    """What the tasks before it would send if nothing held them up: at all times, and of their backlog."""
    now = {one.id: one for one in last.tasks}
    given = {
        one: sum(counters.rows_out for counters in now[one].subtasks)
        - sum(counters.rows_out for counters in before[one].subtasks)
        for one in task.inputs
    }
    total = sum(given.values())
    target = catch_up = 0.0
    for one in task.inputs:
        sender = upstream[one]
        if sender.rate <= 0:
            continue
        share = given[one] / total if total > 0 else 1 / len(task.inputs)
        # How many rows come here for each that the sender takes.
        ratio = rate * share / sender.rate
        target += sender.target_rate * ratio
        catch_up += sender.catch_up_rate * ratio
    return target, catch_up
