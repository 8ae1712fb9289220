"""Tests of the program: by hand, as a whole, and with crashes. None needs a cluster."""

from __future__ import annotations

import random
from collections import Counter

from flow import EVENT_TIME, per_minute

import penstock as ps
from penstock.engine.clock import ManualClock
from penstock.testing.harness import Harness, Input
from penstock.testing.simulation import Case, Scenario, Warehouse, WarehouseSink, simulate

ORDERS = Input({"customer": "int64", "amount": "int64", "at": "int64"}, event_time="at")
MINUTE = 60_000


def test_a_minute_is_counted_when_it_is_over() -> None:
    with Harness(per_minute, ORDERS) as harness:
        harness.push({"customer": 1, "amount": 5, "at": 0}, {"customer": 1, "amount": 7, "at": 59_999})
        harness.watermark(MINUTE - 2)
        assert harness.take() == []
        harness.watermark(MINUTE)
        (row,) = harness.take()
        assert (row["customer"], row["orders"], row["total"]) == (1, 2, 12)


def test_what_comes_out_is_what_plain_python_computes() -> None:
    rows = made_up(random.Random(1))
    env = ps.StreamEnvironment(runtime="local", parallelism=2)
    found = Counter(
        total_of(row) for row in per_minute(env.from_collection(rows).assign_timestamps(EVENT_TIME)).collect()
    )
    assert found == expected(rows)


def test_nothing_is_lost_or_counted_twice_whatever_crashes() -> None:
    for seed in range(10):
        outcome = simulate(Scenario("orders", crashing), seed)
        assert not outcome.violations, outcome


def crashing(sink: WarehouseSink, chosen: random.Random) -> Case:
    """The program in a simulation that kills its processes and managers, and fails its storage."""
    rows = made_up(chosen)
    env = ps.StreamEnvironment(
        runtime="local",
        clock=ManualClock(),
        parallelism=2,
        max_batch_rows=5,
        checkpoints=ps.checkpoints("20ms", "memory://simulation", tolerable_failures=None),
    )
    per_minute(env.from_collection(rows).assign_timestamps(EVENT_TIME)).sink_to(sink)

    def check(warehouse: Warehouse) -> list[str]:
        found, wanted = Counter(map(total_of, warehouse.rows)), expected(rows)
        return [] if found == wanted else [f"missing {wanted - found}, too many {found - wanted}"]

    return Case(env.program("orders"), check)


def made_up(chosen: random.Random) -> list[dict[str, int]]:
    """Forty orders, in order of time."""
    times = sorted(chosen.randrange(10 * MINUTE) for _ in range(40))
    return [{"customer": chosen.randrange(3), "amount": chosen.randrange(100), "at": at} for at in times]


def expected(rows: list[dict[str, int]]) -> Counter[tuple[int, int, int, int]]:
    """What the program must give, computed without it."""
    numbers: Counter[tuple[int, int]] = Counter()
    totals: Counter[tuple[int, int]] = Counter()
    for row in rows:
        window = row["customer"], row["at"] // MINUTE
        numbers[window] += 1
        totals[window] += row["amount"]
    return Counter((*window, numbers[window], totals[window]) for window in numbers)


def total_of(row: dict[str, object]) -> tuple[object, int, object, object]:
    """Customer, minute, number and sum."""
    minute = int(row["window_start"].timestamp()) // 60  # type: ignore[attr-defined]
    return row["customer"], minute, row["orders"], row["total"]
