"""The settings of checkpoints and of restarts.

Users build them, or the configuration does (`penstock/configuration.py`); the coordinator and the failover obey them.
All values are checked when they are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.elements import CheckpointMode


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """When and how checkpoints are taken.

    Args:
        interval_ms: from trigger to trigger; 0 takes none but those that are asked for.
        storage: URL of the folder that holds the checkpoints of all jobs: `file://`, `s3://`, `gs://`, `az://`,
            `memory://` (one process), `ray://` (the cluster's object store).
        savepoint_storage: URL of the folder for savepoints that name none.
        mode: aligned or unaligned (exactly once), or at least once.
        alignment_timeout_ms: an aligned checkpoint becomes unaligned where its alignment takes longer; None: never.
        timeout_ms: a checkpoint that takes longer is aborted.
        min_pause_ms: between the end of one and the trigger of the next.
        max_concurrent: how many may be under way.
        tolerable_failures: how many may fail in a row; one more fails the job. None: any number.
        retained: how many completed checkpoints are kept.
        retain_on_cancel: whether the newest one stays when the job is cancelled; one that fails always keeps it.
        incremental: whether checkpoints refer to files of those before them.
        storage_overrides: storage of single operators by uid, as `storage`.

    Raises:
        ConfigurationError: names every setting that cannot be used.
    """

    interval_ms: int = 0
    storage: str | None = None
    savepoint_storage: str | None = None
    mode: CheckpointMode = CheckpointMode.ALIGNED
    alignment_timeout_ms: int | None = None
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int | None = 0
    retained: int = 1
    retain_on_cancel: bool = False
    incremental: bool = True
    storage_overrides: tuple[tuple[str, str], ...] = ()

    @property
    def enabled(self) -> bool:
        """Whether the job takes checkpoints by itself."""
        return self.interval_ms > 0


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure ends the job."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Up to `attempts` restarts, each after `delay_ms`."""

    attempts: int = 3
    delay_ms: int = 1000


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """Any number of restarts (or `attempts`), with a delay that grows until the job has run well for a while.

    Args:
        initial_ms, largest_ms, factor: of the delay.
        reset_after_ms: how long the job must run for the delay to begin anew.
        jitter: share of the delay by which it is made longer or shorter at random (0 to 1).
        attempts: how many restarts before the delay begins anew; None: any number.
    """

    initial_ms: int = 100
    largest_ms: int = 60_000
    factor: float = 2.0
    reset_after_ms: int = 600_000
    jitter: float = 0.1
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class FailureRate:
    """As many restarts as there may be: at most `failures` within `interval_ms`, each after `delay_ms`."""

    failures: int = 3
    interval_ms: int = 60_000
    delay_ms: int = 1000


RestartStrategy: TypeAlias = NoRestart | FixedDelay | ExponentialDelay | FailureRate
"""What happens after a failure."""


@dataclass(frozen=True, slots=True)
class FailoverConfig:
    """How a job gets over failures.

    Args:
        restart: None means `ExponentialDelay()` where checkpoints are taken, and `NoRestart()` otherwise.
        standbys: processes kept warm to replace those that die (Ray).
        local_recovery: whether each process keeps a copy of what it wrote last on its own disk, to be restored from.
        regions: whether a failure restarts only the part of the job that is connected to it.
    """

    restart: RestartStrategy | None = None
    standbys: int = 1
    local_recovery: bool = False
    regions: bool = True
