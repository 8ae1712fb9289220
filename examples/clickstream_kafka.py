"""Visits to a web site, from a topic of clicks to a topic of visits, exactly once.

Clicks of 2,000 people are written to Kafka. The job reads them, cuts each person's clicks into visits wherever half
an hour passes without one, and writes the visits to another topic: in transactions, one a checkpoint, so that a reader
who wants committed records alone sees each visit once, whatever fails. In the end the example is such a reader.

    python examples/clickstream_kafka.py
    python examples/clickstream_kafka.py --kafka localhost:9092   # brokers of yours, such as those of `make services`
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
from brokers import add_option, brokers
from rich.console import Console
from rich.table import Table

import penstock as ps
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat

CLICKS, VISITS = "clicks", "visits"
CLICK = JsonFormat({"user": "string", "page": "string", "at": "int64"})
VISIT = JsonFormat({"user": "string", "began": "int64", "ended": "int64", "pages": "int64"})
GAP = "30m"
OUT_OF_ORDERNESS = "10s"

USERS = 2_000
PAGES = ("/", "/search", "/item", "/basket", "/pay")
DAY_MS = 86_400_000
START_MS = 1_790_000_000_000 // DAY_MS * DAY_MS
SHOWN = 10


def clicks(rows: int, seed: int = 0) -> pa.Table:
    """A day of clicks in the order in which they come: up to five seconds behind their time."""
    random = np.random.default_rng(seed)
    # Few people make most of the clicks, at their own times of the day.
    user = random.zipf(1.3, rows) % USERS
    at = START_MS + (user * 40_503 % DAY_MS + random.exponential(2 * 3_600_000, rows).astype(np.int64)) % DAY_MS
    page = random.integers(0, len(PAGES), rows)
    came = np.argsort(at + random.integers(0, 5_000, rows), kind="stable")
    names = np.char.add("user-", user.astype(str))
    return pa.table({"user": names[came], "page": np.array(PAGES)[page[came]], "at": at[came]})


def produce(env: ps.StreamEnvironment, servers: str, rows: pa.Table) -> None:
    """Write the clicks; those of one person go to one partition, in their order."""
    env.from_collection(rows).sink_to(
        KafkaSink(servers, CLICKS, key="user", format=CLICK, guarantee="at-least-once")
    ).name("clicks")
    env.execute("clicks")


def build(env: ps.StreamEnvironment, servers: str) -> None:
    """The program: from clicks to visits. Without `until` it would run for ever."""
    # A watermark for each partition: they are read at their own speed, and only each by itself is nearly in order.
    in_order = ps.WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDERNESS).with_timestamp_assigner("at")
    visits = (
        env.from_source(KafkaSource(servers, CLICKS, format=CLICK, until="latest"), "clicks", in_order)
        .uid("clicks")
        .key_by("user")
        .window(ps.session(GAP))
        .aggregate(began=ps.min("at"), ended=ps.max("at"), pages=ps.count())
        .uid("visits")
        .select("user", "began", "ended", "pages")
    )
    visits.sink_to(KafkaSink(servers, VISITS, key="user", format=VISIT)).uid("visits topic")


def committed(env: ps.StreamEnvironment, servers: str) -> pa.Table:
    """All visits that a reader of committed records sees."""
    return env.from_source(KafkaSource(servers, VISITS, format=VISIT, until="latest")).collect().to_arrow()


def show(visits: pa.Table) -> None:
    """Print the visits with the most pages."""
    table = Table("visitor", "from", title="The longest visits", title_justify="left")
    for heading in ("minutes", "pages"):
        table.add_column(heading, justify="right")
    for row in visits.sort_by([("pages", "descending"), ("user", "ascending")]).slice(0, SHOWN).to_pylist():
        began = time.strftime("%H:%M", time.gmtime(row["began"] / 1000))
        table.add_row(row["user"], began, str((row["ended"] - row["began"]) // 60_000), str(row["pages"]))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Clicks to visits through Kafka, exactly once.")
    parser.add_argument("--runtime", choices=("ray", "local"), default="ray", help="where to run (default: ray)")
    parser.add_argument("--mode", choices=("streaming", "batch"), default="streaming", help="(default: streaming)")
    parser.add_argument("--clicks", type=int, default=200_000, metavar="N", help="how many (default: 200,000)")
    add_option(parser, f"{CLICKS} and {VISITS}")
    options = parser.parse_args()
    if options.runtime == "local" and options.mode == "batch":
        parser.error("--mode batch runs Spark on Ray; leave out --runtime local")

    rows = clicks(options.clicks)
    with (
        tempfile.TemporaryDirectory(prefix="clickstream-") as folder,
        brokers(options.kafka, CLICKS, VISITS) as servers,
    ):
        local = ps.StreamEnvironment(runtime="local", parallelism=1)
        produce(local, servers, rows)
        env = ps.StreamEnvironment(
            runtime=options.runtime, parallelism=2, checkpoints=ps.checkpoints("1s", f"{folder}/checkpoints")
        )
        build(env, servers)
        started = time.perf_counter()
        job = env.execute("visits", mode=options.mode)
        seconds = time.perf_counter() - started
        visits = committed(local, servers)
    show(visits)
    pages = sum(visits["pages"].to_pylist())
    late = job.metrics().late_rows
    print(f"clicks={len(rows)} visits={len(visits)} clicks_in_visits={pages} late={late} seconds={seconds:.3f}")
    sys.exit(0 if pages + late == len(rows) else 1)


if __name__ == "__main__":
    main()
