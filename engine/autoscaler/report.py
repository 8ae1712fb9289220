"""What the autoscaler has seen and done, as values: for commands, REST and the console.

`Autoscaler.report` makes it; it travels with the `JobInfo`.
"""

from __future__ import annotations

from dataclasses import dataclass

RESCALED = "rescaled"
DRY_RUN = "dry-run"
HELD_BACK = "held-back"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TaskAdvice:
    """One task over the last window; rates are rows a second.

    Args:
        task, name: which.
        parallelism, wanted: what it has, and what it should have.
        busy: share of its time, of its busiest subtask.
        rate, true_rate, target_rate: what it takes, could take (None: unknown), and would have to.
        reason: in words.
    """

    task: int
    name: str
    parallelism: int
    wanted: int
    busy: float
    rate: float
    true_rate: float | None
    target_rate: float
    reason: str


@dataclass(frozen=True, slots=True)
class ScalingRecord:
    """One decision.

    Args:
        at_ms: when.
        outcome: `rescaled`; `dry-run`; `held-back` by a setting; `refused` by the job.
        wanted: parallelism by uid of a task's first operator.
        reasons: one line a task.
        message: why it was held back or refused.
        seconds: that the job stood still; None: it has not been rescaled, or not yet.
    """

    at_ms: int
    outcome: str
    wanted: tuple[tuple[str, int], ...]
    reasons: tuple[str, ...]
    message: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AutoscalerInfo:
    """The autoscaler of a job.

    Args:
        state: what it does now, in words.
        is_dry_run: whether it only says what it would do.
        lag_seconds: how far the sources are behind, as far as they say.
        tasks: by the last full window; none before the first.
        history: the newest decisions, the oldest first.
    """

    state: str
    is_dry_run: bool
    lag_seconds: float = 0.0
    tasks: tuple[TaskAdvice, ...] = ()
    history: tuple[ScalingRecord, ...] = ()
