"""Payments by card, judged by how fast they follow one another; and a second version of the model, tried on the past.

A process function keeps the times and amounts of each card's last minute. It raises an alert where there are too many
payments in that minute, and a timer clears a card that has been quiet. The first version of the model runs over the
first half of the payments and stops behind a savepoint. From there both versions judge the second half: the first goes
on as it would have, the second sees the same past and decides otherwise. Their alerts are compared.

    python examples/fraud_detection.py
    python examples/fraud_detection.py --runtime local --payments 50000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import penstock as ps

START_MS = 1_790_000_000_000
PAYMENTS_PER_SECOND = 200  # of event time
CARDS = 2_000
WINDOW_MS = 60_000
FIRST_HALF_SECONDS = 4  # for which the first job runs, so that there is a middle to stop in
SHOWN = 8

TIMES = ps.ListStateDescriptor("times", "int64")
AMOUNTS = ps.ListStateDescriptor("amounts", "float64")


class CardVelocity(ps.KeyedProcessFunction):
    """Alerts where a card pays more often than `most` times within a minute, or more than `limit` in all.

    Args:
        version: of the model; goes into each alert.
        most: payments that are allowed within a minute.
        limit: the sum that is allowed within a minute.
    """

    def __init__(self, version: str, most: int, limit: float) -> None:
        self.version, self.most, self.limit = version, most, limit

    def open(self, context: Any) -> None:
        self.times = context.get_list_state(TIMES)
        self.amounts = context.get_list_state(AMOUNTS)

    def process_element(self, row: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        now = ctx.timestamp
        recent = [(at, paid) for at, paid in zip(self.times.get(), self.amounts.get(), strict=True)]
        recent = [(at, paid) for at, paid in recent if at > now - WINDOW_MS] + [(now, row["amount"])]
        self.times.update([at for at, _ in recent])
        self.amounts.update([paid for _, paid in recent])
        ctx.timer_service.register_event_time_timer(now + WINDOW_MS)
        total = sum(paid for _, paid in recent)
        if len(recent) > self.most or total > self.limit:
            yield {"card": row["card"], "at": now, "payments": len(recent), "total": total, "model": self.version}

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        if all(at <= timestamp - WINDOW_MS for at in self.times.get()):
            self.times.clear()
            self.amounts.clear()


MODELS = {"1": CardVelocity("1", most=8, limit=1e9), "2": CardVelocity("2", most=11, limit=900.0)}


def build(env: ps.StreamEnvironment, model: str, payments: int, rate: float | None = None) -> ps.DataStream:
    """The program with one version of the model. Each operator that has state or a position has a uid."""
    source = ps.DataGenSource(
        {
            "card": ps.Zipf(CARDS, 0.7),
            "amount": ps.RandomFloat(1.0, 200.0),
            "at": ps.EventTime(START_MS, PAYMENTS_PER_SECOND),
        },
        rows=payments,
        rate=rate,
    )
    in_order = ps.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    alert = {"card": "int64", "at": "int64", "payments": "int64", "total": "float64", "model": "string"}
    return (
        env.from_source(source, "payments", in_order)
        .uid("payments")
        .set_parallelism(1)  # one reader gives each card's payments in their order
        .key_by("card")
        .process(MODELS[model], returns=alert)
        .uid("velocity")
    )


def first_half(env: ps.StreamEnvironment, payments: int) -> tuple[pa.Table, str]:
    """Run the first version over about half of the payments: its alerts, and the savepoint that it stopped behind."""
    alerts = build(env, "1", payments, rate=payments / 2 / FIRST_HALF_SECONDS).collect()
    job = env.submit("fraud detection, model 1")
    while job.metrics().operators[0].rows_out < payments // 2 and job.pump(0.1):
        pass
    savepoint = job.stop()
    job.wait()
    return alerts.take(), savepoint


def second_half(env: ps.StreamEnvironment, model: str, payments: int, savepoint: str) -> pa.Table:
    """What a version of the model says of the rest."""
    alerts = build(env, model, payments).collect()
    env.execute(f"fraud detection, model {model}", savepoint=savepoint)
    return alerts.to_arrow()


def show(halves: dict[str, pa.Table]) -> None:
    """Print the cards on which the versions disagree most."""
    counts = {model: table.group_by("card").aggregate([("at", "count")]) for model, table in halves.items()}
    by_card = {
        model: dict(zip(t["card"].to_pylist(), t["at_count"].to_pylist(), strict=True)) for model, t in counts.items()
    }
    cards = sorted(by_card["1"].keys() | by_card["2"].keys())
    cards.sort(key=lambda card: -abs(by_card["1"].get(card, 0) - by_card["2"].get(card, 0)))
    table = Table("card", title="Alerts behind the savepoint", title_justify="left")
    for model in ("1", "2"):
        table.add_column(f"model {model}", justify="right")
    for card in cards[:SHOWN]:
        table.add_row(str(card), *(str(by_card[model].get(card, 0)) for model in ("1", "2")))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Card velocity, and a second model on the same history.")
    parser.add_argument("--runtime", choices=("ray", "local"), default="ray", help="where to run (default: ray)")
    parser.add_argument("--payments", type=int, default=100_000, metavar="N", help="how many (default: 100,000)")
    options = parser.parse_args()

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fraud-") as folder:
        env = ps.StreamEnvironment(
            runtime=options.runtime,
            parallelism=2,
            checkpoints=ps.checkpoints("1s", f"{folder}/checkpoints", savepoints=f"{folder}/savepoints"),
        )
        before, savepoint = first_half(env, options.payments)
        state = ps.savepoints.read(savepoint).operator("velocity").state("times")
        print(
            f"stopped behind {savepoint.rsplit('/', 1)[-1]}: {state.to_arrow().num_rows} cards paid in the last minute"
        )
        halves = {model: second_half(env, model, options.payments, savepoint) for model in MODELS}
    show(halves)
    print(
        f"payments={options.payments} alerts_before={len(before)} alerts_model_1={len(halves['1'])} "
        f"alerts_model_2={len(halves['2'])} seconds={time.perf_counter() - started:.3f}"
    )
    sys.exit(0)


if __name__ == "__main__":
    main()
