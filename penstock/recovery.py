"""How users say when checkpoints are taken and what happens after a failure.

Each function gives a setting for `StreamEnvironment`; the names and the defaults are those of Flink's options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from penstock.engine.checkpoint_config import (
    CheckpointConfig,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
)
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.elements import CheckpointMode
from penstock.engine.errors import ConfigurationError, nearest

Mode = Literal["exactly-once", "unaligned", "at-least-once"]
_MODES: Mapping[str, CheckpointMode] = {
    "exactly-once": CheckpointMode.ALIGNED,
    "unaligned": CheckpointMode.UNALIGNED,
    "at-least-once": CheckpointMode.AT_LEAST_ONCE,
}


def checkpoints(
    interval: Duration = "0s",
    storage: str | None = None,
    savepoints: str | None = None,
    mode: Mode = "exactly-once",
    alignment_timeout: Duration | None = None,
    timeout: Duration = "10m",
    min_pause: Duration = "0s",
    max_concurrent: int = 1,
    tolerable_failures: int | None = 0,
    retained: int = 1,
    retain_on_cancel: bool = False,
    incremental: bool = True,
    operator_storage: Mapping[str, str] | None = None,
) -> CheckpointConfig:
    """When and how checkpoints are taken.

    Args:
        interval: from trigger to trigger; 0 takes none but those that are asked for.
        storage: URL of the folder for the checkpoints of all jobs: a path or `file://`, `s3://`, `gs://`, `az://`,
            `ray://` (the cluster's object store: does not survive the cluster), `memory://` (local runtime).
        savepoints: URL of the folder for savepoints that name none.
        mode: `"exactly-once"` aligns barriers; `"unaligned"` is exactly once too, and takes rows on their way into the
            checkpoint instead of waiting for them; `"at-least-once"` never waits.
        alignment_timeout: an aligned checkpoint becomes unaligned where its alignment takes longer; None: never.
        timeout: a checkpoint that takes longer is given up.
        min_pause: between the end of one and the next trigger.
        max_concurrent: how many may be under way.
        tolerable_failures: how many may fail in a row before the job does; None: any number.
        retained: how many completed checkpoints are kept.
        retain_on_cancel: whether the newest stays when the job is cancelled (that of a failed job always does).
        incremental: whether only what has changed is written.
        operator_storage: other storage for single operators, by uid.

    Raises:
        ConfigurationError: names every setting that cannot be used.

    Example:
        >>> StreamEnvironment(checkpoints=checkpoints("10s", "s3://bucket/checkpoints"))  # doctest: +SKIP
    """
    if mode not in _MODES:
        raise ConfigurationError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}{nearest(str(mode), _MODES)}")
    return CheckpointConfig(
        interval_ms=parse_duration(interval, "interval"),
        storage=storage,
        savepoint_storage=savepoints,
        mode=_MODES[mode],
        alignment_timeout_ms=None
        if alignment_timeout is None
        else parse_duration(alignment_timeout, "alignment_timeout"),
        timeout_ms=parse_duration(timeout, "timeout"),
        min_pause_ms=parse_duration(min_pause, "min_pause"),
        max_concurrent=max_concurrent,
        tolerable_failures=tolerable_failures,
        retained=retained,
        retain_on_cancel=retain_on_cancel,
        incremental=incremental,
        storage_overrides=tuple(sorted((operator_storage or {}).items())),
    )


def no_restart() -> NoRestart:
    """The first failure ends the job."""
    return NoRestart()


def fixed_delay(attempts: int = 3, delay: Duration = "1s") -> FixedDelay:
    """Up to `attempts` restarts, each after `delay`."""
    return FixedDelay(attempts, parse_duration(delay, "delay"))


def exponential_delay(
    initial: Duration = "100ms",
    largest: Duration = "1m",
    factor: float = 2.0,
    reset_after: Duration = "10m",
    jitter: float = 0.1,
    attempts: int | None = None,
) -> ExponentialDelay:
    """Restarts after a delay that grows with each failure.

    Args:
        initial, largest, factor: of the delay.
        reset_after: how long the job must run well for the delay to begin anew.
        jitter: share (0 to 1) by which each delay is longer or shorter at random.
        attempts: how many restarts without such a time; None: any number.
    """
    return ExponentialDelay(
        parse_duration(initial, "initial"),
        parse_duration(largest, "largest"),
        factor,
        parse_duration(reset_after, "reset_after"),
        jitter,
        attempts,
    )


def failure_rate(failures: int = 3, interval: Duration = "1m", delay: Duration = "1s") -> FailureRate:
    """Restarts, each after `delay`, as long as there are at most `failures` failures within `interval`."""
    return FailureRate(failures, parse_duration(interval, "interval"), parse_duration(delay, "delay"))
