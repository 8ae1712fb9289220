"""How a job gets over failures: after which delay it restarts, and which part of it. Pure policies.

The runtimes (job manager, local manager) ask `RestartPolicy` at each failure and `regions` once per graph. Both depend
on nothing but what they are given: the same times and the same random numbers give the same delays.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from penstock.engine.checkpoint_config import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.config import JobConfig
from penstock.engine.errors import (
    CheckpointCorruptError,
    FencedError,
    GraphError,
    RestoreError,
    SinkNotReadyError,
    StateError,
)
from penstock.engine.graph.physical import PhysicalGraph

TERMINAL_ERRORS: Final = (
    CheckpointCorruptError,
    RestoreError,
    StateError,
    GraphError,
    FencedError,
    SinkNotReadyError,
)
"""What is damaged, or does not fit, is so the next time too, as is a mistake in a program that only its rows show; who
is fenced must do nothing more; a job whose sinks cannot be made ready has not begun, and its user is told at once."""
ATTEMPTS: Final = 1_000_000
"""More than a manager ever makes: attempts of a manager and of the one that replaced it never have the same number."""
RETRY_SECONDS: Final = 1.0
"""How long the last checkpoint of a job waits before it is tried again."""


def attempt_text(number: int) -> str:
    """An attempt's number for people: counted from 1 under each job manager, of which a job has one unless that dies.

    Example:
        >>> attempt_text(1 * ATTEMPTS + 3), attempt_text(2 * ATTEMPTS + 1)
        ('attempt 3', 'attempt 1 of job manager 2')
    """
    manager, attempt = divmod(number, ATTEMPTS)
    return f"attempt {attempt}" if manager <= 1 else f"attempt {attempt} of job manager {manager}"


def default_strategy(config: JobConfig) -> RestartStrategy:
    """The strategy of a job: the one it sets, or `ExponentialDelay()` if it takes checkpoints, else `NoRestart()`."""
    if config.failover.restart is not None:
        return config.failover.restart
    return ExponentialDelay() if config.checkpoints.enabled else NoRestart()


class RestartPolicy:
    """When to restart after the failures of one job.

    Args:
        strategy: what the user has chosen.
        rng: the random numbers of the jitter.

    Example:
        >>> policy = RestartPolicy(FixedDelay(attempts=1, delay_ms=500), random.Random(0))
        >>> policy.on_failure(10.0), policy.on_failure(11.0)
        (0.5, None)

    Source: Flink's documentation, "Task Failure Recovery", and its `RestartBackoffTimeStrategy`.
    """

    def __init__(self, strategy: RestartStrategy, rng: random.Random) -> None:
        self._backoff = _backoff(strategy, rng)

    def on_failure(self, now: float) -> float | None:
        """An attempt has failed, or could not be started.

        Args:
            now: monotonic seconds.

        Returns:
            seconds to wait before the restart; None: give up.
        """
        return self._backoff.on_failure(now)

    def on_running(self, now: float) -> None:
        """All subtasks of an attempt run since `now`, monotonic seconds."""
        self._backoff.on_running(now)


class _FixedBackoff:
    def __init__(self, attempts: int, delay: float) -> None:
        self._left = attempts
        self._delay = delay

    def on_failure(self, now: float) -> float | None:
        if not self._left:
            return None
        self._left -= 1
        return self._delay

    def on_running(self, now: float) -> None:
        """Failures count over the whole life of the job."""


class _ExponentialBackoff:
    def __init__(self, strategy: ExponentialDelay, rng: random.Random) -> None:
        self._strategy = strategy
        self._rng = rng
        self._failures = 0
        self._delay = 0.0
        self._restart_at = float("-inf")
        self._running_since: float | None = None

    def on_failure(self, now: float) -> float | None:
        strategy = self._strategy
        if self._running_since is None and now < self._restart_at:
            # The restart that this failure asks for is under way already.
            return self._restart_at - now
        if self._running_since is not None and now - self._running_since >= strategy.reset_after_ms / 1000:
            self._failures = 0
        self._running_since = None
        self._failures += 1
        if strategy.attempts is not None and self._failures > strategy.attempts:
            return None
        largest = strategy.largest_ms / 1000
        grown = strategy.initial_ms / 1000 if self._failures == 1 else self._delay * strategy.factor
        self._delay = min(grown, largest)
        delay = min(self._delay * (1 + self._rng.uniform(-strategy.jitter, strategy.jitter)), largest)
        self._restart_at = now + delay
        return delay

    def on_running(self, now: float) -> None:
        self._running_since = now


class _RateBackoff:
    def __init__(self, strategy: FailureRate) -> None:
        self._strategy = strategy
        self._times: deque[float] = deque(maxlen=strategy.failures + 1)

    def on_failure(self, now: float) -> float | None:
        self._times.append(now)
        full = len(self._times) > self._strategy.failures
        if full and now - self._times[0] <= self._strategy.interval_ms / 1000:
            return None
        return self._strategy.delay_ms / 1000

    def on_running(self, now: float) -> None:
        """Only the times of the failures count."""


_Backoff: TypeAlias = _FixedBackoff | _ExponentialBackoff | _RateBackoff


def _backoff(strategy: RestartStrategy, rng: random.Random) -> _Backoff:
    match strategy:
        case NoRestart():
            return _FixedBackoff(0, 0.0)
        case FixedDelay():
            return _FixedBackoff(strategy.attempts, strategy.delay_ms / 1000)
        case ExponentialDelay():
            return _ExponentialBackoff(strategy, rng)
        case FailureRate():
            return _RateBackoff(strategy)


def regions(graph: PhysicalGraph) -> list[frozenset[Place]]:
    """The parts of a job that no channel connects: a failure in one needs no restart of another.

    Returns:
        the (task id, subtask) of each region; every subtask is in one. Ordered by their first subtasks.

    Source: Flink's `PipelinedRegion`. Here, all exchanges are pipelined.
    """
    joined = _Components((task.id, subtask) for task in graph.tasks for subtask in range(task.parallelism))
    seen: set[tuple[int, range]] = set()
    for task in graph.tasks:
        for output, exchange in enumerate(task.outputs):
            # The client is no part of the job that could be restarted.
            if exchange.downstream is None:
                continue
            for subtask in range(task.parallelism):
                targets = graph.output_targets(task, output, subtask)
                if not targets:
                    continue
                joined.join((task.id, subtask), (exchange.downstream, targets[0]))
                # All senders of a shuffle have the same targets: joining them once is enough.
                if (exchange.downstream, targets) not in seen:
                    seen.add((exchange.downstream, targets))
                    for target in targets[1:]:
                        joined.join((exchange.downstream, targets[0]), (exchange.downstream, target))
    return joined.components()


class _Components:
    """Sets of places that grow together (union-find with path halving)."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._parent = {place: place for place in places}

    def join(self, one: Place, other: Place) -> None:
        first, second = self._root(one), self._root(other)
        self._parent[max(first, second)] = min(first, second)

    def components(self) -> list[frozenset[Place]]:
        members: dict[Place, list[Place]] = {}
        for place in self._parent:
            members.setdefault(self._root(place), []).append(place)
        return [frozenset(members[root]) for root in sorted(members)]

    def _root(self, place: Place) -> Place:
        parent = self._parent
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place
