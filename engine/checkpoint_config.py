"""The settings of checkpoints and of restarts.

Users build them, or the configuration does (`penstock/configuration.py`); the coordinator and the failover obey them.
All values are checked when they are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.elements import CheckpointMode
from penstock.engine.errors import ConfigurationError

LONGEST_MS: Final = 2**40
"""35 years: the limit of every duration."""
MOST: Final = 2**31 - 1
"""The limit of every count."""


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """When and how checkpoints are taken.

    Args:
        interval_ms: from trigger to trigger, and at most `timeout_ms`; 0 takes none but those that are asked for.
        storage: URL of the folder that holds the checkpoints of all jobs: `file://`, `s3://`, `gs://`, `az://`,
            `memory://` (one process), `ray://` (the cluster's object store).
        savepoint_storage: URL of the folder for savepoints that name none.
        mode: aligned or unaligned (exactly once), or at least once.
        alignment_timeout_ms: a checkpoint becomes unaligned where its alignment takes longer; None: an aligned one
            never, an unaligned one at once.
        timeout_ms: a checkpoint that takes longer is aborted.
        min_pause_ms: between the end of one and the trigger of the next, so that only one is under way at a time.
        max_concurrent: how many may be under way; one where they can become unaligned.
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

    def __post_init__(self) -> None:
        problems = _not_whole(
            ("interval_ms", self.interval_ms, 0, LONGEST_MS),
            ("timeout_ms", self.timeout_ms, 1, LONGEST_MS),
            ("min_pause_ms", self.min_pause_ms, 0, LONGEST_MS),
            ("max_concurrent", self.max_concurrent, 1, MOST),
            ("retained", self.retained, 1, MOST),
            *_if_given("alignment_timeout_ms", self.alignment_timeout_ms, 0, LONGEST_MS),
            *_if_given("tolerable_failures", self.tolerable_failures, 0, MOST),
        )
        if not isinstance(self.mode, CheckpointMode):
            problems.append(f"mode must be a CheckpointMode, not {self.mode!r}")
        _refuse("checkpoints", problems or self._conflicts())

    def _conflicts(self) -> list[str]:
        """Settings that are good in themselves, but not together."""
        problems = []
        if self.interval_ms > self.timeout_ms:
            problems.append(
                f"interval_ms {self.interval_ms} is over timeout_ms {self.timeout_ms}; raise timeout_ms to it or more"
            )
        unaligned = self.mode is CheckpointMode.UNALIGNED or self.alignment_timeout_ms is not None
        if unaligned and self.max_concurrent > 1:
            problems.append(
                f"max_concurrent {self.max_concurrent} is more than the 1 that unaligned checkpoints allow: their "
                "barriers would overtake each other; set it to 1, or take aligned ones without alignment_timeout_ms"
            )
        if self.mode is CheckpointMode.AT_LEAST_ONCE and self.alignment_timeout_ms is not None:
            problems.append(
                "alignment_timeout_ms means nothing in mode at_least_once, which aligns nothing; leave it out"
            )
        operators = [uid for uid, _ in self.storage_overrides]
        twice = sorted({uid for uid in operators if operators.count(uid) > 1})
        if twice:
            problems.append(f"storage_overrides names {', '.join(map(repr, twice))} more than once")
        return problems

    @property
    def enabled(self) -> bool:
        """Whether the job takes checkpoints by itself."""
        return self.interval_ms > 0


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure ends the job."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Up to `attempts` restarts in all, each after `delay_ms`."""

    attempts: int = 3
    delay_ms: int = 1000

    def __post_init__(self) -> None:
        counts = ("attempts", self.attempts, 0, MOST), ("delay_ms", self.delay_ms, 0, LONGEST_MS)
        _refuse("restart strategy fixed delay", _not_whole(*counts))


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """Any number of restarts (or `attempts`), with a delay that grows until the job has run well for a while.

    Args:
        initial_ms, largest_ms, factor: of the delay.
        reset_after_ms: how long the job must run for the delay to begin anew.
        jitter: share of the delay by which it is made longer or shorter at random (0 to 1).
        attempts: how many restarts there may be without the delay beginning anew; one more failure ends the job.
            None: any number.
    """

    initial_ms: int = 100
    largest_ms: int = 60_000
    factor: float = 2.0
    reset_after_ms: int = 600_000
    jitter: float = 0.1
    attempts: int | None = None

    def __post_init__(self) -> None:
        problems = _not_whole(
            ("initial_ms", self.initial_ms, 1, LONGEST_MS),
            ("largest_ms", self.largest_ms, 1, LONGEST_MS),
            ("reset_after_ms", self.reset_after_ms, 1, LONGEST_MS),
            *_if_given("attempts", self.attempts, 0, MOST),
        )
        if not _is_number(self.factor, 1.0, 1000.0):
            problems.append(f"factor must be a number from 1 to 1000, not {self.factor!r}")
        if not _is_number(self.jitter, 0.0, 1.0):
            problems.append(f"jitter must be a number from 0 to 1, not {self.jitter!r}")
        if not problems and self.initial_ms > self.largest_ms:
            problems.append(f"initial_ms {self.initial_ms} is over largest_ms {self.largest_ms}")
        _refuse("restart strategy exponential delay", problems)


@dataclass(frozen=True, slots=True)
class FailureRate:
    """As many restarts as there may be: at most `failures` within `interval_ms`, each after `delay_ms`."""

    failures: int = 3
    interval_ms: int = 60_000
    delay_ms: int = 1000

    def __post_init__(self) -> None:
        counts = (
            ("failures", self.failures, 1, MOST),
            ("interval_ms", self.interval_ms, 1, LONGEST_MS),
            ("delay_ms", self.delay_ms, 0, LONGEST_MS),
        )
        _refuse("restart strategy failure rate", _not_whole(*counts))


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
        heartbeat_timeout_ms: a process that lives and has not answered for so long is replaced (Ray).
        min_parallelism: with how many subtasks of each operator a job that takes checkpoints may restart where the
            cluster has no room for as many as it had; it gets them back once there is. None: it waits for room.
    """

    restart: RestartStrategy | None = None
    standbys: int = 1
    local_recovery: bool = False
    regions: bool = True
    heartbeat_timeout_ms: int = 50_000
    min_parallelism: int | None = None

    def __post_init__(self) -> None:
        problems = _not_whole(
            ("standbys", self.standbys, 0, 10_000),
            ("heartbeat_timeout_ms", self.heartbeat_timeout_ms, 100, LONGEST_MS),
            *_if_given("min_parallelism", self.min_parallelism, 1, MOST),
        )
        if not isinstance(self.restart, RestartStrategy | None):
            problems.append(f"restart must be a restart strategy or None, not {self.restart!r}")
        _refuse("failover", problems)


def _not_whole(*settings: tuple[str, object, int, int]) -> list[str]:
    """What is wrong with settings (name, value, smallest, largest) that must be whole numbers."""
    return [
        f"{name} must be a whole number from {low} to {high}, not {value!r}"
        for name, value, low, high in settings
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high
    ]


def _if_given(name: str, value: object, low: int, high: int) -> Iterable[tuple[str, object, int, int]]:
    return () if value is None else ((name, value, low, high),)


def _is_number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _refuse(what: str, problems: list[str]) -> None:
    if problems:
        raise ConfigurationError(f"{what}: {'; '.join(problems)}")
