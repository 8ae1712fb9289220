"""Latency markers through whole jobs: every operator hears of every source, and results stay what they were."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.engine.elements import FEEDBACK_INPUT, LatencyMarker
from penstock.engine.metrics import JobMetrics
from penstock.engine.task.input_gate import InputGate
from tests.engine.helpers import local_environment

ROWS = [{"k": n % 7, "n": n} for n in range(200)]


def run(seed: int, interval: str) -> tuple[list[tuple[Any, Any]], JobMetrics]:
    env = local_environment(parallelism=2, seed=seed, max_batch_rows=5)
    env.configure({"metrics.latency.interval": interval})
    left, right = env.from_collection(ROWS).name("left"), env.from_collection(ROWS).name("right")
    kept = left.union(right).filter(ps.col("n") % 3 != 0).name("kept")
    result = kept.key_by("k").aggregate(total=ps.sum("n")).name("totals").collect()
    job = env.execute()
    final = {row["k"]: row["total"] for row in result}
    return sorted(final.items()), job.metrics()


@pytest.mark.parametrize("seed", range(3))
def test_every_operator_hears_of_every_source_and_the_rows_are_the_same(seed: int) -> None:
    without, silent = run(seed, "0ms")
    with_markers, metrics = run(seed, "1ms")
    assert with_markers == without
    assert not any(operator.latency for operator in silent.operators)
    behind = [operator for operator in metrics.operators if operator.name not in ("left", "right")]
    assert behind
    for operator in behind:
        assert {one.name for one in operator.latency} == {"left", "right"}
        assert all(one.value >= 1 and one.lowest >= 0 for one in operator.latency)


def test_a_marker_that_comes_back_from_a_loop_ends_there() -> None:
    gate = InputGate([0, FEEDBACK_INPUT])
    gate.put(0, (LatencyMarker("events", 1),), lambda: None)
    gate.put(1, (LatencyMarker("events", 2),), lambda: None)
    assert [gate.next() for _ in range(2)] == [(0, LatencyMarker("events", 1)), None]
