"""How many subtasks one task should have, by its figures; whether it gets them is decided elsewhere.

Source: "Autoscaler" of the Flink Kubernetes operator. Flink takes a number of subtasks that divides the key groups
evenly where one is near; here the fullest subtask's share of them decides, so that no more are taken than that needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.engine.autoscaler.evaluation import JobFigures, TaskFigures
from penstock.engine.autoscaler_config import AutoscalerConfig

_MORE_THAN_ITS_SHARE: Final = 1.05
"""The fullest subtask may get so many times what it is to take: there is room above the utilization aimed at."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What one task should have.

    Args:
        figures: that it follows from.
        wanted: the parallelism; its own: it stays.
        needed: what it would be, were there neither bounds within which it stays nor a largest change at once.
        bearable: with more subtasks than so many it is too idle.
        reason: in words.
        is_stuck: whether more subtasks would be needed, and would not help.
    """

    figures: TaskFigures
    wanted: int
    needed: int
    bearable: float
    reason: str
    is_stuck: bool = False

    @property
    def change(self) -> int:
        """How many more subtasks; negative: fewer."""
        return self.wanted - self.figures.task.parallelism


def advise(figures: TaskFigures, job: JobFigures, rescale_seconds: float, config: AutoscalerConfig) -> Advice:
    """What a task should have.

    Args:
        figures: its own.
        job: those of the whole job.
        rescale_seconds: how long a rescale takes.
        config: the settings.
    """
    task, catch_up_seconds = figures.task, config.catch_up_duration_ms / 1000
    if figures.true_rate is None:
        return Advice(figures, task.parallelism, task.parallelism, math.inf, f"{task.name}: too few rows to tell")
    # Who works off a backlog is busy for that, and idle behind it: neither says what is needed.
    in_backlog = job.lag_seconds * 1000 >= config.backlog_lag_threshold_ms
    too_idle = math.inf if in_backlog else figures.capacity(config.utilization_min, rescale_seconds, catch_up_seconds)
    too_busy = figures.capacity(1.0 if in_backlog else config.utilization_max, 0.0, catch_up_seconds)
    factor = figures.capacity(config.utilization_target, rescale_seconds, catch_up_seconds) / figures.true_rate
    wanted, needed = task.parallelism, _parallelism(factor, figures, config)
    if not too_busy <= figures.true_rate <= too_idle:
        at_once = min(max(factor, 1 - config.scale_down_max_factor), 1 + config.scale_up_max_factor)
        wanted = _parallelism(at_once, figures, config)
    if figures.busy > config.utilization_max:
        # What keeps it so busy may hold its source up, which then tells of fewer rows than there are.
        wanted, needed = max(wanted, task.parallelism), max(needed, task.parallelism)
    # A hot key cannot be divided.
    is_stuck = figures.is_skewed and wanted > task.parallelism
    if is_stuck:
        wanted = task.parallelism
    bearable = task.parallelism * too_idle / figures.true_rate
    return Advice(figures, wanted, needed, bearable, _reason(figures, wanted, job.lag_seconds), is_stuck)


def _parallelism(factor: float, figures: TaskFigures, config: AutoscalerConfig) -> int:
    task, now = figures.task, figures.task.parallelism
    # One that is beyond the bounds is not forced into them.
    lowest, most = min(now, config.min_parallelism), min(task.most, max(now, config.max_parallelism))
    return max(least(worth(now, task.divides) * factor, task.divides, most), lowest)


def least(needed: float, divides: int, most: int) -> int:
    """The least number of subtasks of which the fullest gets no more than its part, when `needed` share the work.

    Args:
        needed: subtasks, were the work divided evenly.
        divides: the key groups, or splits, that are shared out; 0: nothing of the kind.
        most: subtasks; where these are too few, as many as make a difference.

    Example:
        >>> least(6.2, 128, 100), least(5, 8, 100), least(5, 0, 100), least(200, 128, 127)
        (7, 8, 5, 64)
    """
    enough = min(needed / _MORE_THAN_ITS_SHARE, worth(most, divides))
    return next(
        one for one in range(max(1, math.ceil(round(enough, 6))), most + 1) if worth(one, divides) >= enough - 1e-6
    )


def worth(subtasks: int, divides: int) -> float:
    """How many subtasks would do the same if key groups could be shared out in parts.

    Example:
        >>> worth(3, 8), worth(4, 8), worth(7, 8), worth(8, 8), worth(5, 0)
        (2.6666666666666665, 4.0, 4.0, 8.0, 5)
    """
    return divides / math.ceil(divides / subtasks) if divides else subtasks


def _reason(figures: TaskFigures, wanted: int, lag_seconds: float) -> str:
    task = figures.task
    lag = f", {lag_seconds:.0f} s behind" if not task.inputs and lag_seconds >= 1 else ""
    skew = f", skewed: its fullest subtask gets {figures.skew + 1:.1f} times the mean" if figures.is_skewed else ""
    text = f"{task.name}: {figures.busy:.2f} busy at {rate_text(figures.rate)}{lag}{skew}"
    return text if wanted == task.parallelism else f"{text}, target {task.parallelism} -> {wanted}"


def rate_text(rate: float) -> str:
    """Rows a second, for people.

    Example:
        >>> rate_text(410_000), rate_text(12.3)
        ('410 k/s', '12 /s')
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}/s"
    return f"{rate:.0f} /s"
