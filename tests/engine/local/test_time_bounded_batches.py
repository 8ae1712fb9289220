"""Batches by time: checkpoints are quick beside slow functions, and no result depends on what the clock says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.datagen import DataGenSource, Sequence
from penstock.engine.clock import ManualClock
from penstock.recovery import checkpoints
from tests.draws import drawn
from tests.engine.helpers import Row, local_environment


def slow(clock: ManualClock, seconds: float) -> type[ps.KeyedProcessFunction]:
    """A function that takes so long for each row."""

    class Slow(ps.KeyedProcessFunction):
        def process_element(self, row: Row, context: Any) -> Any:
            clock.advance(seconds)
            yield row

    return Slow


@pytest.mark.parametrize("mode", ["exactly-once", "unaligned"])
@pytest.mark.parametrize("rate", [5_000, None])
def test_a_slow_function_does_not_keep_checkpoints_waiting(mode: Any, rate: float | None, tmp_path: Path) -> None:
    clock = ManualClock()
    env = local_environment(clock=clock, checkpoints=checkpoints("0s", str(tmp_path), mode=mode))
    rows = env.from_source(DataGenSource({"i": Sequence(), "k": lambda number: number % 10}, rate=rate))
    rows.key_by("k").process(slow(clock, 0.002)).filter(ps.col("i") < 0).collect()
    job = env.submit()
    took = []
    for _ in range(5):
        until = clock.monotonic() + 2.0
        while clock.monotonic() < until:
            job.pump(0.001)
        asked = clock.monotonic()
        job.checkpoint()
        took.append(clock.monotonic() - asked)
    job.cancel()
    assert max(took) < 1.5, f"seconds by the clock of the function: {took}"


@pytest.mark.parametrize(("uid", "parallelism"), [("rows", 8), ("slow", 2)])
def test_checkpoints_behind_a_live_rescale_wait_for_no_backlog(uid: str, parallelism: int, tmp_path: Path) -> None:
    """New senders do not know yet how slow the function is, and others keep rows back until new receivers are there."""
    clock = ManualClock()
    env = local_environment(1, clock=clock, checkpoints=checkpoints("0s", str(tmp_path)))
    rows = env.from_source(DataGenSource({"i": Sequence(), "k": lambda number: number % 10})).uid("rows")
    rows.key_by("k").process(slow(clock, 0.002)).uid("slow").filter(ps.col("i") < 0).collect()
    job = env.submit()
    until = clock.monotonic() + 1.0
    while clock.monotonic() < until:
        job.pump(0.001)
    assert job.rescale({uid: parallelism}) > 0
    took = []
    for _ in range(3):
        asked = clock.monotonic()
        job.checkpoint()
        took.append(clock.monotonic() - asked)
    job.cancel()
    assert max(took) < 3.0, f"seconds by the clock of the function: {took}"


@given(
    seed=st.integers(0, 1000),
    costs=st.lists(st.sampled_from([0.0, 1e-5, 1e-3, 0.1, 5.0]), min_size=1, max_size=7),
    target=st.sampled_from(["1ms", "100ms", "10s"]),
    parallelism=st.integers(1, 3),
)
@settings(max_examples=drawn(8))
def test_no_result_depends_on_what_rows_cost(seed: int, costs: list[float], target: str, parallelism: int) -> None:
    clock = ManualClock()

    def costly(row: Row) -> Row:
        clock.advance(costs[row["i"] % len(costs)])
        return row

    env = local_environment(parallelism, seed, clock, buffer_debloat_target=target, max_batch_rows=100)
    rows = env.from_source(DataGenSource({"i": Sequence()}, rows=300)).rebalance().map(costly)
    keyed = rows.with_columns(k=ps.col("i") % 7, at=ps.col("i")).key_by("k")
    last = {}
    for row in keyed.aggregate(n=ps.count(), total=ps.sum("i")).collect():
        last[row["k"]] = (row["n"], row["total"])
    expected = Counter(number % 7 for number in range(300))
    assert last == {k: (n, sum(range(k, 300, 7))) for k, n in expected.items()}
