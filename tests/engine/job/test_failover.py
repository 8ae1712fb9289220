"""Delays of restarts as Flink's strategies have them, and the parts of a job that restart together."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.checkpoint_config import (
    CheckpointConfig,
    ExponentialDelay,
    FailoverConfig,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.config import JobConfig
from penstock.engine.exchange.partitioners import Broadcast, Forward, Hash, Partitioner, Rebalance, Rescale
from penstock.engine.graph.physical import Exchange, PhysicalGraph, TaskPlan
from penstock.engine.job.failover import RestartPolicy, default_strategy, regions


def policy(strategy: RestartStrategy) -> RestartPolicy:
    return RestartPolicy(strategy, random.Random(1))


class TestStrategies:
    def test_none_gives_up_at_once(self) -> None:
        assert policy(NoRestart()).on_failure(0.0) is None

    def test_fixed_delay_counts_over_the_life_of_the_job(self) -> None:
        restarts = policy(FixedDelay(attempts=2, delay_ms=300))
        delays = []
        for now in (0.0, 1e6, 2e6):
            delays.append(restarts.on_failure(now))
            restarts.on_running(now + 1)
        assert delays == [0.3, 0.3, None]

    def test_failure_rate_gives_up_when_too_many_come_within_the_interval(self) -> None:
        restarts = policy(FailureRate(failures=2, interval_ms=10_000, delay_ms=500))
        assert [restarts.on_failure(now) for now in (0.0, 6.0, 12.0, 18.0, 19.0)] == [0.5, 0.5, 0.5, 0.5, None]

    def test_delay_doubles_up_to_the_largest(self) -> None:
        restarts = policy(ExponentialDelay(initial_ms=100, largest_ms=500, factor=2.0, jitter=0.0))
        delays = []
        for now in range(0, 50, 10):
            delays.append(restarts.on_failure(float(now)))
            restarts.on_running(now + 1.0)
        assert delays == [0.1, 0.2, 0.4, 0.5, 0.5]

    def test_delay_begins_anew_after_the_job_has_run_well(self) -> None:
        restarts = policy(ExponentialDelay(initial_ms=100, reset_after_ms=60_000, jitter=0.0))
        assert [restarts.on_failure(0.0), restarts.on_failure(1.0)] == [0.1, 0.2]
        restarts.on_running(2.0)
        assert restarts.on_failure(61.9) == 0.4
        restarts.on_running(62.5)
        assert restarts.on_failure(122.5) == 0.1

    def test_time_that_the_job_does_not_run_resets_nothing(self) -> None:
        restarts = policy(ExponentialDelay(initial_ms=100, reset_after_ms=1000, jitter=0.0))
        restarts.on_failure(0.0)
        assert restarts.on_failure(1e6) == 0.2

    def test_another_failure_before_the_restart_is_the_same_restart(self) -> None:
        restarts = policy(ExponentialDelay(initial_ms=1000, jitter=0.0))
        assert restarts.on_failure(0.0) == 1.0
        assert restarts.on_failure(0.25) == 0.75
        restarts.on_running(1.5)
        assert restarts.on_failure(2.0) == 2.0

    def test_attempts_count_from_when_the_delay_began_anew(self) -> None:
        restarts = policy(ExponentialDelay(attempts=1, reset_after_ms=1000, jitter=0.0))
        for now in (0.0, 10.0):
            assert restarts.on_failure(now) == 0.1
            restarts.on_running(now + 1)
        assert restarts.on_failure(11.5) is None

    @given(st.integers(0, 2**32), st.floats(0, 1), st.integers(1, 20))
    def test_jitter_stays_within_its_share(self, seed: int, jitter: float, failures: int) -> None:
        strategy = ExponentialDelay(initial_ms=100, largest_ms=10_000, factor=1.5, jitter=jitter)
        restarts, same = (RestartPolicy(strategy, random.Random(seed)) for _ in range(2))
        for n in range(failures):
            exact = min(0.1 * 1.5**n, 10.0)
            delay = restarts.on_failure(100.0 * n)
            assert delay is not None
            assert exact * (1 - jitter) - 1e-9 <= delay <= min(exact * (1 + jitter), 10.0) + 1e-9
            assert same.on_failure(100.0 * n) == delay

    def test_default_restarts_only_where_there_are_checkpoints(self) -> None:
        checkpoints = CheckpointConfig(interval_ms=1000)
        assert default_strategy(JobConfig()) == NoRestart()
        assert default_strategy(JobConfig(checkpoints=checkpoints)) == ExponentialDelay()
        chosen = FailoverConfig(restart=FixedDelay())
        assert default_strategy(JobConfig(checkpoints=checkpoints, failover=chosen)) == FixedDelay()


def graph(parallelisms: list[int], *edges: tuple[int, int | None, Partitioner]) -> PhysicalGraph:
    """Tasks 1, 2 ... and exchanges (upstream, downstream or None for the client, partitioner)."""
    exchanges = [Exchange(up, down, how, 0, "there") for up, down, how in edges]
    tasks = [
        TaskPlan(number, f"t{number}", parallelism, None, (), tuple(e for e in exchanges if e.upstream == number), None)
        for number, parallelism in enumerate(parallelisms, start=1)
    ]
    return PhysicalGraph("Job", JobConfig(), tuple(tasks))


def region(*places: Place) -> frozenset[Place]:
    return frozenset(places)


class TestRegions:
    def test_forward_channels_make_pipelines(self) -> None:
        assert regions(graph([2, 2], (1, 2, Forward()))) == [region((1, 0), (2, 0)), region((1, 1), (2, 1))]

    @pytest.mark.parametrize("partitioner", [Rebalance(), Broadcast(), Hash(("k",))])
    def test_shuffle_makes_one(self, partitioner: Partitioner) -> None:
        assert regions(graph([2, 3], (1, 2, partitioner))) == [region((1, 0), (1, 1), (2, 0), (2, 1), (2, 2))]

    def test_rescale_makes_groups(self) -> None:
        assert regions(graph([2, 4], (1, 2, Rescale()))) == [
            region((1, 0), (2, 0), (2, 1)),
            region((1, 1), (2, 2), (2, 3)),
        ]

    def test_programs_beside_each_other_and_rows_for_the_client(self) -> None:
        assert regions(graph([1, 1, 1], (1, 3, Forward()), (2, None, Forward()))) == [
            region((1, 0), (3, 0)),
            region((2, 0)),
        ]

    def test_large_shuffle_takes_no_quadratic_time(self) -> None:
        (everything,) = regions(graph([5000, 5000], (1, 2, Rebalance())))
        assert len(everything) == 10_000
