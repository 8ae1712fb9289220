"""Decides when a running job gets more or fewer subtasks: readings in, requests out; no clock, no thread, no cluster.

The job manager feeds it; so do simulated workloads, in tests. It asks for one rescale at a time, and keeps why.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from penstock.engine.autoscaler.evaluation import JobFigures, TaskFigures, evaluate
from penstock.engine.autoscaler.readings import JobReading, TaskReading
from penstock.engine.autoscaler.report import (
    DRY_RUN,
    HELD_BACK,
    REFUSED,
    RESCALED,
    AutoscalerInfo,
    ScalingRecord,
    TaskAdvice,
)
from penstock.engine.autoscaler.scaling import Advice, advise
from penstock.engine.autoscaler_config import AutoscalerConfig

_CEILING_INTERVALS: Final = 12
"""For so many scale-down intervals it is remembered how fast a task took rows when there were enough."""


@dataclass(frozen=True, slots=True)
class _Ceiling:
    """When there were enough rows for a task, each of its subtasks took them at that rate."""

    at: float
    rate: float


@dataclass(frozen=True, slots=True)
class _Need:
    """What a task needed in a window that began then; with more subtasks than `bearable` it was too idle."""

    since: float
    needed: int
    bearable: float


@dataclass(frozen=True, slots=True)
class _ScaleUp:
    """A task was given more subtasks: from so many, to so many, when it could take rows at that rate."""

    before: int
    after: int
    true_rate: float


class Autoscaler:
    """Watches one job.

    Args:
        config: its settings.
    """

    def __init__(self, config: AutoscalerConfig) -> None:
        self._config = config
        self._readings: deque[JobReading] = deque()
        self._shape: tuple[int, tuple[int, ...]] = (0, ())
        self._since = 0.0
        self._state = "waiting for the job to run"
        self._is_asking = False
        self._lag = 0.0
        self._advice: Sequence[Advice] = ()
        self._needs: dict[str, deque[_Need]] = {}
        self._fewer_at: list[float] = []
        self._asked: float | None = None
        self._asked_fewer = False
        self._fewer_takes: float | None = None
        self._more_takes = math.inf
        self._ups: dict[str, _ScaleUp] = {}
        self._ceilings: dict[str, _Ceiling] = {}
        self._room: int | None = None
        self._history: deque[ScalingRecord] = deque(maxlen=config.history)

    def report(self) -> AutoscalerInfo:
        """What it has seen and done."""
        return AutoscalerInfo(
            self._state,
            not self._config.scaling_enabled,
            round(self._lag, 3),
            tuple(map(_shown, self._advice)),
            tuple(self._history),
        )

    def observe(self, reading: JobReading) -> Mapping[str, int] | None:
        """Take a look at the job: the parallelism that operators, by uid, should have now; None: it stays as it is.

        Behind a request, `on_rescaled`, `on_no_room` or `on_refused` tells what came of it; there is no other before.
        """
        if self._is_asking:
            return None
        window = self._window(reading)
        if window is None:
            return None
        first, last = window
        figures = self._with_ceilings(evaluate(first, last, self._config), last.at)
        self._lag = figures.lag_seconds
        wanted = self._with_ties(self._advised(figures, first.at, last))
        self._advice = self._within_quota(self._within_room(wanted), last.slot_cpus)
        changes = [one for one in self._advice if one.change]
        if not changes:
            waiting = self._waiting(last.at)
            self._state = f"nothing to change{waiting}"
            return None
        return self._decide(changes, last)

    def on_rescaled(self, seconds: float) -> None:
        """The job runs at what was asked for, after it has stood still for `seconds`."""
        self._is_asking = False
        self._history[-1] = replace(self._history[-1], seconds=round(seconds, 3))

    def on_no_room(self, room: int, message: str) -> None:
        """There is room for `room` slots only: what they allow is asked for at the next look, and all of it later on.

        So a cluster that grows by itself hears again of what is missing, for as long as a request waits for room.
        """
        if room <= max(self._shape[1], default=0):
            self.on_refused(message)
        else:
            self._note_refusal(message)
            self._room = room

    def on_refused(self, message: str) -> None:
        """The job runs on as it was; it is asked again when a new window is full."""
        self._note_refusal(message)
        self._readings.clear()
        self._since = 0.0
        self._shape = (0, ())

    def _note_refusal(self, message: str) -> None:
        self._is_asking, self._asked = False, None
        self._history[-1] = replace(self._history[-1], outcome=REFUSED, message=message)
        self._ups.clear()

    # Readings

    def _window(self, reading: JobReading) -> tuple[JobReading, JobReading] | None:
        """The first and the last reading of a full window, if there is one."""
        shape = reading.attempt, tuple(task.parallelism for task in reading.tasks)
        if shape != self._shape:
            self._shape, self._since = shape, reading.at
            self._readings.clear()
            if self._asked is not None:
                self._learn_what_it_takes(reading.at - self._asked)
        self._asked = None
        stable = self._since + self._config.stabilization_ms / 1000
        window = self._config.metrics_window_ms / 1000
        if reading.at < stable:
            self._state = f"waiting {stable - reading.at:.0f} s for the job to become steady"
            return None
        self._readings.append(reading)
        # The first one is at least a window old, where there is one that old.
        while len(self._readings) > 1 and self._readings[1].at <= reading.at - window:
            self._readings.popleft()
        first = self._readings[0]
        seen = reading.at - first.at
        if seen < window:
            self._state = f"watching: {seen:.0f} of {window:.0f} s"
            return None
        return first, reading

    def _learn_what_it_takes(self, seconds: float) -> None:
        """More subtasks may have waited for room, so the least that they took tells what fewer will take."""
        if self._asked_fewer:
            self._fewer_takes = seconds
        else:
            self._more_takes = min(self._more_takes, seconds)

    # Advice

    def _advised(self, figures: JobFigures, since: float, reading: JobReading) -> Sequence[Advice]:
        seconds = reading.rescale_seconds
        rescale_seconds = self._config.restart_time_ms / 1000 if seconds is None else seconds
        self._fewer_at = []
        return _without_use(
            [
                self._held(advise(one, figures, rescale_seconds, self._config), since, reading.at)
                for one in figures.tasks
            ]
        )

    def _held(self, advice: Advice, since: float, at: float) -> Advice:
        """The advice, but for what settings and history are against."""
        task = advice.figures.task
        key = task.uids[0]
        self._remember(key, advice, since)
        if self._is_excluded(task):
            return _kept(advice, "excluded")
        if advice.change < 0:
            return self._fewer_in_time(advice, at)
        up = self._ups.get(key)
        if up is None or task.parallelism != up.after:
            self._ups.pop(key, None)
            return advice
        if advice.change > 0 and self._is_ineffective(advice, up):
            why = f"{up.before} -> {up.after} subtasks made it no faster; something else holds it up"
            return replace(_kept(advice, why), is_stuck=True)
        return advice

    def _is_excluded(self, task: TaskReading) -> bool:
        return bool({*task.uids, *task.operators, task.name} & set(self._config.excluded))

    def _is_ineffective(self, advice: Advice, up: _ScaleUp) -> bool:
        hoped = up.true_rate * (up.after / up.before - 1)
        gained = (advice.figures.true_rate or 0.0) - up.true_rate
        return self._config.effectiveness_detection and gained < self._config.effectiveness_threshold * hoped

    def _remember(self, key: str, advice: Advice, since: float) -> None:
        """Keep what a task needed for the interval; numbers of subtasks mean the same behind a rescale.

        Args:
            key: of the task.
            advice: for it.
            since: when the window began that it follows from: so long it has needed no more.
        """
        seconds = self._config.scale_down_interval_ms / 1000
        needs = self._needs.setdefault(key, deque())
        needs.append(_Need(since, advice.needed, advice.bearable))
        while len(needs) > 1 and needs[1].since <= since - seconds:
            needs.popleft()

    def _fewer_in_time(self, advice: Advice, at: float) -> Advice:
        """Fewer subtasks, once they would have been enough for the interval: as many as were needed at its worst.

        They are asked for as much earlier as it takes, at the look that is nearest to that, so that some leave when the
        interval is over.
        """
        task = advice.figures.task
        seconds = self._seconds_before_fewer()
        newest_first = reversed(self._needs[task.uids[0]])
        enough = list(takewhile(lambda one: max(one.needed, one.bearable) < task.parallelism, newest_first))
        since = enough[-1].since if enough else at
        if at - since < seconds:
            self._fewer_at.append(since + seconds)
            return _kept(advice, f"{advice.wanted} would do; waits for the scale-down interval")
        lately = (one.needed for one in enough if one.since >= at - seconds)
        most = max([advice.wanted, *lately])
        return replace(advice, wanted=most, reason=_renamed(advice, most))

    def _seconds_before_fewer(self) -> float:
        """How long fewer subtasks must have been enough before they are asked for."""
        interval, between_looks = self._config.scale_down_interval_ms / 1000, self._config.interval_ms / 1000
        takes = self._fewer_takes
        if takes is None:
            takes = 0.0 if math.isinf(self._more_takes) else self._more_takes
        return max(interval / 2, interval - takes - between_looks / 2)

    def _with_ceilings(self, figures: JobFigures, at: float) -> JobFigures:
        """The figures, but for tasks that have shown to be slower than their busy time lets one conclude."""
        return replace(figures, tasks=tuple(self._with_ceiling(one, at) for one in figures.tasks))

    def _with_ceiling(self, figures: TaskFigures, at: float) -> TaskFigures:
        key, parallelism = figures.task.uids[0], figures.task.parallelism
        if figures.is_observed and figures.true_rate is not None:
            self._ceilings[key] = _Ceiling(at, figures.true_rate / parallelism)
        ceiling = self._ceilings.get(key)
        lasts = _CEILING_INTERVALS * self._config.scale_down_interval_ms / 1000
        if ceiling is None or at - ceiling.at > lasts or figures.true_rate is None:
            return figures
        return replace(figures, true_rate=min(figures.true_rate, max(figures.rate, ceiling.rate * parallelism)))

    def _within_room(self, advised: Sequence[Advice]) -> Sequence[Advice]:
        """The advice, but for what the room that was found just now does not allow."""
        room, self._room = self._room, None
        if room is None:
            return advised
        why = "once there is room for so many slots"
        return [one if one.wanted <= room else _shortened(one, room, why) for one in advised]

    def _within_quota(self, advised: Sequence[Advice], slot_cpus: float) -> Sequence[Advice]:
        """The advice, but for slots that the quota does not allow; a job that has more of them keeps these."""
        quota = self._config.quota_cpu
        if quota is None or slot_cpus <= 0:
            return advised
        within = []
        for one in advised:
            most = max(one.figures.task.parallelism, math.floor(round(quota / slot_cpus, 6)))
            within.append(one if one.wanted <= most else _shortened(one, most, f"over the quota of {quota:g} CPUs"))
        return within

    def _with_ties(self, advised: Sequence[Advice]) -> Sequence[Advice]:
        """Tasks that must have one parallelism get the highest that is wanted for any of them and that all can have.

        They stay as they are where one of them is left alone.
        """
        by_task = {one.figures.task.id: one for one in advised}
        tied = []
        for one in advised:
            task = one.figures.task
            together = [by_task[other] for other in task.tied if other in by_task]
            limit = max(task.parallelism, min(other.figures.task.most for other in together))
            most = min(limit, max(other.wanted for other in together))
            if any(self._is_excluded(other.figures.task) for other in together):
                most = task.parallelism
            if most == one.wanted:
                tied.append(one)
            else:
                tied.append(replace(one, wanted=most, reason=f"{_renamed(one, most)} (tied to others by forward)"))
        return tied

    def _waiting(self, at: float) -> str:
        if not self._fewer_at:
            return ""
        return f"; fewer subtasks would do, which is decided in {max(0.0, min(self._fewer_at) - at):.0f} s"

    # Decisions

    def _decide(self, changes: Sequence[Advice], reading: JobReading) -> Mapping[str, int] | None:
        wanted = {one.figures.task.uids[0]: one.wanted for one in changes}
        record = ScalingRecord(
            reading.at_ms, RESCALED, tuple(sorted(wanted.items())), tuple(one.reason for one in changes)
        )
        against = self._against(reading)
        if against:
            self._note(replace(record, outcome=HELD_BACK, message=against))
            return None
        if not self._config.scaling_enabled:
            self._note(replace(record, outcome=DRY_RUN))
            return None
        self._state = "rescaling"
        self._history.append(record)
        self._is_asking = True
        self._asked, self._asked_fewer = reading.at, all(one.change < 0 for one in changes)
        for one in changes:
            task = one.figures.task
            if one.change > 0 and one.figures.true_rate is not None:
                self._ups[task.uids[0]] = _ScaleUp(task.parallelism, one.wanted, one.figures.true_rate)
        return wanted

    def _against(self, reading: JobReading) -> str:
        """What forbids any change now; empty: nothing."""
        period = next((one for one in self._config.excluded_periods if one.holds(reading.at_ms)), None)
        return "" if period is None else f"it is the excluded period {period.text}"

    def _note(self, record: ScalingRecord) -> None:
        """Keep a decision that changes nothing; held back for the same reason, it takes the place of the last."""
        self._state = record.message or "a dry run: would rescale"
        last = self._history[-1] if self._history else None
        if last is not None and (last.outcome, last.message) == (record.outcome, record.message):
            if last.wanted == record.wanted:
                return
            if record.outcome == HELD_BACK:
                self._history.pop()
        self._history.append(record)


def _without_use(advised: Sequence[Advice]) -> Sequence[Advice]:
    """The advice, but for more subtasks before a task that cannot take more rows."""
    held: list[Advice] = []
    blocking: set[int] = set()
    for one in reversed(advised):
        task = one.figures.task
        if one.is_stuck or task.id in blocking:
            blocking.update(task.inputs)
        in_vain = task.id in blocking and one.change > 0
        held.append(_kept(one, "what follows it cannot take more") if in_vain else one)
    return held[::-1]


def _shortened(advice: Advice, most: int, why: str) -> Advice:
    return replace(advice, wanted=most, reason=f"{_renamed(advice, most)} ({advice.wanted} {why})")


def _kept(advice: Advice, why: str) -> Advice:
    return replace(
        advice, wanted=advice.figures.task.parallelism, reason=f"{advice.reason.partition(', target ')[0]}; {why}"
    )


def _renamed(advice: Advice, wanted: int) -> str:
    """The reason, with another target."""
    text = advice.reason.partition(", target ")[0]
    now = advice.figures.task.parallelism
    return text if wanted == now else f"{text}, target {now} -> {wanted}"


def _shown(advice: Advice) -> TaskAdvice:
    figures, task = advice.figures, advice.figures.task
    return TaskAdvice(
        task.id,
        task.name,
        task.parallelism,
        advice.wanted,
        round(figures.busy, 3),
        round(figures.rate, 1),
        None if figures.true_rate is None else round(figures.true_rate, 1),
        round(figures.target_rate, 1),
        advice.reason,
    )
