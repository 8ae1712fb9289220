"""The job of the Yahoo streaming benchmark: how often the advertisements of each campaign are seen, every ten seconds.

Events of advertisements (seen, clicked, bought) are filtered to those that were seen, the campaign is looked up by the
advertisement, and each campaign's events are counted in windows of event time. The events are made in the process or,
with `--source kafka`, written to a topic as JSON first and read from there. Source:
S. Chintapalli et al., Benchmarking Streaming Computation Engines (2016).

    python examples/advertising.py
    python examples/advertising.py --source kafka --events 1000000
    python examples/advertising.py --mode batch
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.compute as pc
from brokers import add_option, brokers
from rich.console import Console
from rich.table import Table

import penstock as ps
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat
from penstock.engine.connectors import Source

EVENTS = "ad-events"
CAMPAIGNS, ADS_PER_CAMPAIGN = 100, 10
ADS = [f"ad-{number:04}" for number in range(CAMPAIGNS * ADS_PER_CAMPAIGN)]
CAMPAIGN_OF_AD = pa.table(
    {"ad_id": ADS, "campaign": [f"campaign-{number // ADS_PER_CAMPAIGN:03}" for number in range(len(ADS))]}
)
START_MS = 1_790_000_000_000
EVENTS_PER_SECOND = 20_000  # of event time
EVENT = JsonFormat(
    {
        "user_id": "int64",
        "page_id": "int64",
        "ad_id": "string",
        "ad_type": "string",
        "event_type": "string",
        "event_time": "timestamp[ms, tz=UTC]",
        "ip_address": "string",
    }
)
SHOWN = 8


def events(rows: int) -> ps.DataGenSource:
    """The events, the same ones at each run."""
    return ps.DataGenSource(
        {
            "user_id": ps.RandomInt(0, 100_000),
            "page_id": ps.RandomInt(0, 10_000),
            "ad_id": ps.Choice(ADS),
            "ad_type": ps.Choice(["banner", "modal", "sponsored-search", "mail", "mobile"]),
            "event_type": ps.Choice(["view", "click", "purchase"]),
            "event_time": ps.EventTime(START_MS, EVENTS_PER_SECOND),
            "ip_address": ps.Choice([f"10.0.0.{number}" for number in range(256)]),
        },
        rows=rows,
    )


def produce(servers: str, rows: int) -> None:
    """Write the events to the topic."""
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    sink = KafkaSink(servers, EVENTS, format=EVENT, guarantee="at-least-once", partitioner="round-robin")
    env.from_source(events(rows)).sink_to(sink)
    env.execute("events")


def build(env: ps.StreamEnvironment, source: Source) -> ps.DataStream:
    """The program: events to views of each campaign in ten seconds."""
    in_order = ps.WatermarkStrategy.for_bounded_out_of_orderness("1s").with_timestamp_assigner("event_time")
    return (
        env.from_source(source, "events", in_order)
        .filter(ps.col("event_type") == "view")
        .select("ad_id", "event_time")
        .lookup_join(ps.ArrowTable(CAMPAIGN_OF_AD, keys="ad_id"), on="ad_id")
        .key_by("campaign")
        .window(ps.tumbling("10s"))
        .aggregate(views=ps.count())
    )


def show(views: pa.Table) -> None:
    """Print the campaigns that were seen most within ten seconds."""
    table = Table("campaign", "from", title="The most views within ten seconds", title_justify="left")
    table.add_column("views", justify="right")
    for row in views.sort_by([("views", "descending"), ("campaign", "ascending")]).slice(0, SHOWN).to_pylist():
        table.add_row(row["campaign"], f"{row['window_start']:%H:%M:%S}", str(row["views"]))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="The Yahoo streaming benchmark's job.")
    parser.add_argument("--runtime", choices=("ray", "local"), default="ray", help="where to run (default: ray)")
    parser.add_argument("--mode", choices=("streaming", "batch"), default="streaming", help="(default: streaming)")
    parser.add_argument("--source", choices=("generator", "kafka"), default="generator", help="(default: generator)")
    parser.add_argument("--events", type=int, default=2_000_000, metavar="N", help="how many (default: 2,000,000)")
    parser.add_argument("--parallelism", type=int, default=2, metavar="N", help="subtasks (default: 2)")
    add_option(parser, EVENTS)
    options = parser.parse_args()
    if options.runtime == "local" and options.mode == "batch":
        parser.error("--mode batch runs Spark on Ray; leave out --runtime local")

    env = ps.StreamEnvironment(runtime=options.runtime, parallelism=options.parallelism)
    with ExitStack() as running:
        source: Source = events(options.events)
        if options.source == "kafka":
            servers = running.enter_context(brokers(options.kafka, EVENTS))
            produce(servers, options.events)
            source = KafkaSource(servers, EVENTS, format=EVENT, until="latest")
        views = build(env, source).collect()
        started = time.perf_counter()
        job = env.execute("advertising", mode=options.mode)
        seconds = time.perf_counter() - started
    table = views.to_arrow()
    show(table)
    seen, late = pc.sum(table["views"]).as_py() or 0, job.metrics().late_rows
    print(
        f"events={options.events} views={seen} windows={len(table)} late={late} seconds={seconds:.3f} "
        f"events_per_second={options.events / seconds:.0f}"
    )
    sys.exit(0)


if __name__ == "__main__":
    main()
