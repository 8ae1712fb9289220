"""The settings of the autoscaler.

Users set them by the keys `job.autoscaler.*`, which are Flink's (`penstock/configuration_keys.py`); `engine/autoscaler`
obeys them. All values are checked when they are made.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from penstock.engine.checkpoint_config import LONGEST_MS, MOST
from penstock.engine.errors import ConfigurationError
from penstock.engine.periods import Period

_SHARES: Final = (
    "utilization_target", "utilization_max", "utilization_min", "scale_down_max_factor", "effectiveness_threshold"
)  # fmt: skip
_LEAST_MS: Final = {"interval_ms": 100, "metrics_window_ms": 1000, "catch_up_duration_ms": 1000}


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """When and how a job is rescaled by itself.

    Args:
        enabled: whether the job is watched.
        scaling_enabled: whether it is rescaled too; False: a dry run, which only says what it would do.
        interval_ms: between two looks at the job.
        metrics_window_ms: over which rates are taken; nothing is decided before so much has been seen.
        stabilization_ms: behind each start of the job, for which its figures mean nothing.
        utilization_target: how busy a task is to be, from 0 to 1.
        utilization_max, utilization_min: a task busier or idler than that is rescaled.
        scale_down_interval_ms: for how long fewer subtasks must have been enough before some are given back.
        scale_down_max_factor, scale_up_max_factor: the largest change of a parallelism at once, as a share of it.
        catch_up_duration_ms: within which the backlog of a source, and what comes while the job is rescaled, is to
            be worked off.
        restart_time_ms: how long a rescale takes, until one has been measured.
        backlog_lag_threshold_ms: a job that is so far behind its sources only catches up: nothing is given back.
        observed_rate_lag_threshold_ms: a source so far behind is known to read as fast as it can.
        observed_rate_switch_threshold: by how much the rate that is concluded from busy time must be over the one
            that was observed then, for that to be believed instead.
        effectiveness_detection: whether a task that more subtasks have not made faster is left alone.
        effectiveness_threshold: the least share of the hoped-for rate that counts as faster.
        min_parallelism, max_parallelism: of each task; one that is beyond them already may stay there.
        excluded: tasks that are left alone, by uid or name of an operator.
        excluded_periods: when nothing is changed.
        quota_cpu: the most CPUs that the slots of the job may reserve; None: any number.
        history: how many decisions are kept.

    Raises:
        ConfigurationError: names every setting that cannot be used.
    """

    enabled: bool = False
    scaling_enabled: bool = True
    interval_ms: int = 5000
    metrics_window_ms: int = 60_000
    stabilization_ms: int = 30_000
    utilization_target: float = 0.7
    utilization_max: float = 0.9
    utilization_min: float = 0.45
    scale_down_interval_ms: int = 300_000
    scale_down_max_factor: float = 0.6
    scale_up_max_factor: float = 100_000.0
    catch_up_duration_ms: int = 300_000
    restart_time_ms: int = 3000
    backlog_lag_threshold_ms: int = 60_000
    observed_rate_lag_threshold_ms: int = 30_000
    observed_rate_switch_threshold: float = 0.15
    effectiveness_detection: bool = True
    effectiveness_threshold: float = 0.1
    min_parallelism: int = 1
    max_parallelism: int = 200
    excluded: tuple[str, ...] = ()
    excluded_periods: tuple[Period, ...] = ()
    quota_cpu: float | None = None
    history: int = 20

    def __post_init__(self) -> None:
        problems = [*self._durations(), *self._shares(), *self._counts()]
        if not self.utilization_min < self.utilization_target <= self.utilization_max:
            problems.append(
                f"utilization_min ({self.utilization_min}) must be below utilization_target "
                f"({self.utilization_target}), and that at most utilization_max ({self.utilization_max})"
            )
        if self.min_parallelism > self.max_parallelism:
            problems.append(f"min_parallelism {self.min_parallelism} is over max_parallelism {self.max_parallelism}")
        if problems:
            raise ConfigurationError("the autoscaler cannot be set so: " + "; ".join(problems))

    def _durations(self) -> list[str]:
        names = [field.name for field in fields(self) if field.name.endswith("_ms")]
        return [
            f"{name} must be a duration from {_LEAST_MS.get(name, 0)} ms, not {getattr(self, name)!r}"
            for name in names
            if not _LEAST_MS.get(name, 0) <= getattr(self, name) <= LONGEST_MS
        ]

    def _shares(self) -> list[str]:
        return [
            f"{name} must be over 0 and at most 1, not {getattr(self, name)!r}"
            for name in _SHARES
            if not 0 < getattr(self, name) <= 1
        ]

    def _counts(self) -> list[str]:
        problems = [
            f"{name} must be a whole number from 1, not {getattr(self, name)!r}"
            for name in ("min_parallelism", "max_parallelism", "history")
            if not 1 <= getattr(self, name) <= MOST
        ]
        if self.quota_cpu is not None and self.quota_cpu <= 0:
            problems.append(f"quota_cpu must be over 0, not {self.quota_cpu!r}")
        return problems
