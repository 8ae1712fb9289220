"""Fraud as chains of events, from a topic of an account's events to a topic of alerts, exactly once.

Payments, transfers, new devices and their confirmations are written to Kafka, out of order by seconds. The job looks
for three chains in the events of each account: a card that is tried with two tiny payments and then emptied; a new
device that nobody confirms before a large transfer (and, as a time-out, one that nobody confirms at all); payments of
which each is more than twice the one before. Alerts are written in transactions, one a checkpoint, so that a reader who
wants committed records alone sees each of them once, whatever fails. In the end the example is such a reader.

    python examples/fraud_chains.py
    python examples/fraud_chains.py --kafka localhost:9092   # brokers of yours, such as those of `make services`
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from brokers import add_option, brokers
from rich.console import Console
from rich.table import Table

import penstock as ps
from penstock import Pattern, col
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat

EVENTS, ALERTS = "account-events", "alerts"
EVENT = JsonFormat({"account": "string", "kind": "string", "amount": "float64", "at": "int64"})
COLUMNS = {"account": "string", "chain": "string", "began": "int64", "ended": "int64", "amount": "float64"}
ALERT = JsonFormat(COLUMNS)
OUT_OF_ORDERNESS = "10s"
UNCONFIRMED = ps.OutputTag("unconfirmed", COLUMNS)

ACCOUNTS = 5_000
EVENTS_PER_SECOND = 100  # of event time
EVENTS_PER_CHAIN = 200
START_MS = 1_790_000_000_000
KINDS = ("payment", "transfer", "device", "confirmed")
SHOWN = 8

TRIED_CARD = (
    Pattern.begin("tiny").where((col("kind") == "payment") & (col("amount") < 1)).times(2).consecutive()
    .next("large").where((col("kind") == "payment") & (col("amount") > 500))
    .within("10m")
)  # fmt: skip
TAKEOVER = (
    Pattern.begin("device").where(col("kind") == "device")
    .not_followed_by("confirmed").where(col("kind") == "confirmed")
    .followed_by("transfer").where((col("kind") == "transfer") & (col("amount") > 1_000))
    .within("5m")
)  # fmt: skip


def doubled(before: str) -> Any:
    """The condition that an amount is more than twice that of the stage before."""
    return lambda row, match: row["amount"] > 2 * match.events(before)[-1]["amount"]


CLIMBING = (
    Pattern.begin("first").where((col("kind") == "payment") & (col("amount") >= 100))
    .followed_by("second").where(col("kind") == "payment").where(doubled("first"))
    .followed_by("third").where(col("kind") == "payment").where(doubled("second"))
    .within("1m")
)  # fmt: skip


def events(rows: int, seed: int = 0) -> pa.Table:
    """Events in the order in which they come: up to five seconds behind their time. A few accounts are robbed."""
    random = np.random.default_rng(seed)
    chains = rows // EVENTS_PER_CHAIN
    parts = [_usual(rows - 9 * chains, rows, random)]
    for kinds, amounts in (
        (("payment", "payment", "payment"), (0.5, 0.9, 700.0)),
        (("device", "payment", "transfer"), (0.0, 20.0, 1_500.0)),
        (("payment", "payment", "payment"), (110.0, 240.0, 510.0)),
    ):
        account = np.repeat(random.integers(0, ACCOUNTS, chains), 3)
        at = np.repeat(_times(chains, rows, random), 3) + np.tile([0, 2_000, 4_000], chains)
        parts.append((account, np.tile(kinds, chains), np.tile(amounts, chains), at))
    account, kind, amount, at = (np.concatenate(column) for column in zip(*parts, strict=True))
    came = np.argsort(at + random.integers(0, 5_000, rows), kind="stable")
    names = np.char.add("account-", account[came].astype(str))
    return pa.table({"account": names, "kind": kind[came], "amount": amount[came].round(2), "at": at[came]})


def _usual(count: int, rows: int, random: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    kind = random.choice(KINDS, count, p=(0.92, 0.04, 0.02, 0.02))
    amount = np.where(np.isin(kind, KINDS[:2]), random.lognormal(3.5, 1.0, count), 0.0)
    return random.integers(0, ACCOUNTS, count), kind, amount, _times(count, rows, random)


def _times(count: int, rows: int, random: np.random.Generator) -> Any:
    return START_MS + random.integers(0, rows * 1_000 // EVENTS_PER_SECOND, count)


def produce(env: ps.StreamEnvironment, servers: str, rows: pa.Table) -> None:
    """Write the events; those of one account go to one partition, in their order."""
    sink = KafkaSink(servers, EVENTS, key="account", format=EVENT, guarantee="at-least-once")
    env.from_collection(rows).sink_to(sink).name("events")
    env.execute("events")


def chains(rows: ps.DataStream) -> ps.DataStream:
    """The alerts for events that have their times."""
    accounts = rows.key_by("account")
    tried = accounts.match(TRIED_CARD).select(
        lambda match: alert("tried card", match["tiny"][0], match["large"][0]), returns=COLUMNS
    )
    takeover = accounts.match(TAKEOVER).select(
        lambda match: alert("takeover", match["device"][0], match["transfer"][0]),
        returns=COLUMNS,
        timed_out=UNCONFIRMED,
        on_timeout=lambda match, at: alert("unconfirmed device", match["device"][0], {"at": at, "amount": 0.0}),
    )
    climbing = accounts.match(CLIMBING).select(
        lambda match: alert("climbing", match["first"][0], match["third"][0]), returns=COLUMNS
    )
    streams = {"tried": tried, "takeover": takeover, "climbing": climbing}
    for name, stream in streams.items():
        stream.uid(name)
    return tried.union(takeover, takeover.get_side_output(UNCONFIRMED), climbing)


def alert(chain: str, first: Any, last: Any) -> dict[str, Any]:
    """A row of the alerts' topic."""
    began, ended, amount = first["at"], last["at"], last["amount"]
    return {"account": first["account"], "chain": chain, "began": began, "ended": ended, "amount": amount}


def build(env: ps.StreamEnvironment, servers: str) -> None:
    """The program: from events to alerts. Without `until` it would run for ever."""
    # A watermark for each partition: they are read at their own speed, and only each by itself is nearly in order.
    in_order = ps.WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDERNESS).with_timestamp_assigner("at")
    source = KafkaSource(servers, EVENTS, format=EVENT, until="latest")
    rows = env.from_source(source, "events", in_order).uid("events")
    chains(rows).sink_to(KafkaSink(servers, ALERTS, key="account", format=ALERT)).uid("alerts")


def committed(env: ps.StreamEnvironment, servers: str) -> pa.Table:
    """All alerts that a reader of committed records sees."""
    return env.from_source(KafkaSource(servers, ALERTS, format=ALERT, until="latest")).collect().to_arrow()


def show(alerts: pa.Table) -> None:
    """Print the alerts with the largest amounts."""
    table = Table("account", "chain", "at", title="The largest amounts", title_justify="left")
    for heading in ("seconds", "amount"):
        table.add_column(heading, justify="right")
    largest = alerts.sort_by([("amount", "descending"), ("account", "ascending"), ("began", "ascending")])
    for row in largest.slice(0, SHOWN).to_pylist():
        at = time.strftime("%H:%M:%S", time.gmtime(row["ended"] / 1000))
        seconds = (row["ended"] - row["began"]) / 1000
        table.add_row(row["account"], row["chain"], at, f"{seconds:.1f}", f"{row['amount']:,.2f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Chains of fraud through Kafka, exactly once.")
    parser.add_argument("--runtime", choices=("ray", "local"), default="ray", help="where to run (default: ray)")
    parser.add_argument("--events", type=int, default=200_000, metavar="N", help="how many (default: 200,000)")
    add_option(parser, f"{EVENTS} and {ALERTS}")
    options = parser.parse_args()

    rows = events(options.events)
    with (
        tempfile.TemporaryDirectory(prefix="fraud-chains-") as folder,
        brokers(options.kafka, EVENTS, ALERTS) as servers,
    ):
        local = ps.StreamEnvironment(runtime="local", parallelism=1)
        produce(local, servers, rows)
        env = ps.StreamEnvironment(
            runtime=options.runtime, parallelism=2, checkpoints=ps.checkpoints("1s", f"{folder}/checkpoints")
        )
        build(env, servers)
        started = time.perf_counter()
        job = env.execute("fraud chains")
        seconds = time.perf_counter() - started
        alerts = committed(local, servers)
    show(alerts)
    found = Counter(alerts["chain"].to_pylist())
    counts = " ".join(f"{name.replace(' ', '_')}={count}" for name, count in sorted(found.items()))
    late = job.metrics().late_rows
    print(f"events={len(rows)} alerts={len(alerts)} {counts} late={late} seconds={seconds:.3f}")
    sys.exit(0 if len(alerts) and not late else 1)


if __name__ == "__main__":
    main()
