"""The Yahoo streaming benchmark that answers from the job's own state, instead of Redis; both can be run and measured.

In the benchmark the views of each campaign, ten seconds at a time, go to Redis, where a dashboard reads them. A job of
Penstock can be asked itself: its open windows are queryable state, and nothing is written at all. A dashboard asks for
campaigns while the job runs, either way; the last lines say what the answers cost, in CPU of everything together: job,
Redis and dashboard. Source: S. Chintapalli et al., Benchmarking Streaming Computation Engines (2016).

    python examples/advertising_answers.py
    python examples/advertising_answers.py --answers state --campaigns 100000 --lookups 500
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

import penstock as ps
from penstock.connectors.redis import RedisSink
from penstock.testing.services import Redis

JOB, UID, PREFIX = "advertising", "views", "views:"
ADS_PER_CAMPAIGN = 10
START_MS = 1_790_000_000_000
EVENTS_PER_SECOND = 20_000  # of event time
TICK = "1s"  # how often the counts in Redis are brought up to date
Views = dict[int, int]
"""By the begin of the window, in ms."""
Ask = Callable[[str], Views]
"""The views of a campaign."""


def events(campaigns: int, rows: int | None = None) -> ps.DataGenSource:
    """The events of so many campaigns, the same ones at each run."""
    return ps.DataGenSource(
        {
            "ad": ps.RandomInt(0, campaigns * ADS_PER_CAMPAIGN),
            "event_type": ps.Choice(["view", "click", "purchase"]),
            "event_time": ps.EventTime(START_MS, EVENTS_PER_SECOND),
        },
        rows=rows,
    )


def views(env: ps.StreamEnvironment, source: ps.DataGenSource, campaigns: int) -> ps.KeyedStream:
    """The views, by campaign."""
    ads = range(campaigns * ADS_PER_CAMPAIGN)
    names = [f"campaign-{ad // ADS_PER_CAMPAIGN}" for ad in ads]
    in_order = ps.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("event_time")
    return (
        env.from_source(source, "events", in_order)
        .filter(ps.col("event_type") == "view")
        .select("ad")
        .lookup_join(ps.ArrowTable(pa.table({"ad": list(ads), "campaign": names}), keys="ad"), on="ad")
        .key_by("campaign")
    )


def keep_in_state(viewed: ps.KeyedStream, folder: str) -> None:
    """The counts stay where they are made; windows that are over go to files."""
    viewed.window(ps.tumbling("10s")).aggregate(views=ps.count()).uid(UID).sink_to(ps.FileSink(folder, "json"))


def keep_in_redis(viewed: ps.KeyedStream, url: str) -> None:
    """What has been counted so far is written out, again and again: a hash a campaign, with its newest window."""
    counted = viewed.window(ps.cumulative("10s", TICK)).aggregate(views=ps.count())
    out = counted.select("campaign", "views", at=ps.col("window_start").dt.timestamp("ms"))
    out.sink_to(RedisSink(url, keys="campaign", prefix=PREFIX))


def from_state(job: str) -> Ask:
    """Asks the job for the open windows of a campaign."""
    state = ps.state(job, UID, "window_aggregate")

    def ask(campaign: str) -> Views:
        rows = state.scan([campaign]).to_pylist()
        return {int(row["slice_start"].timestamp() * 1000): row["count(*)"] for row in rows}

    return ask


def from_redis(url: str) -> Ask:
    """Asks Redis for the newest window of a campaign."""
    import redis

    client = redis.Redis.from_url(url, decode_responses=True)

    def ask(campaign: str) -> Views:
        held = client.hgetall(PREFIX + campaign)
        return {int(held["at"]): int(held["views"])} if held else {}

    return ask


def cpu_seconds() -> float:
    """What this process and all that it has started have used so far."""
    times: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended.
        times[int(stat.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in times.items() if parent in ours} - ours:
        ours |= more
    return sum(times[pid][1] for pid in ours if pid in times) / os.sysconf("SC_CLK_TCK")


def rows_in(job: ps.JobHandle) -> int:
    """The events that have come so far."""
    return max((operator.rows_out for operator in job.metrics().operators if operator.name == "events"), default=0)


def measure(answers: str, job: ps.JobHandle, ask: Ask, options: argparse.Namespace) -> None:
    """Ask while the job runs, and say what that took."""
    while rows_in(job) == 0 and job.pump(0.2):
        pass  # It is being started.
    job.pump(options.warm_up)
    random_campaign, latencies, known = random.Random(1), list[float](), 0
    rows, cpu, began = rows_in(job), cpu_seconds(), time.perf_counter()
    while (now := time.perf_counter()) < began + options.seconds:
        known += bool(ask(f"campaign-{random_campaign.randrange(options.campaigns)}"))
        latencies.append(time.perf_counter() - now)
        time.sleep(max(0.0, began + len(latencies) / options.lookups - time.perf_counter()))
    seconds, rows, cpu = time.perf_counter() - began, rows_in(job) - rows, max(cpu_seconds() - cpu, 0.01)
    latencies.sort()
    print(
        f"answers={answers} events={rows} events_per_second={rows / seconds:.0f} "
        f"events_per_cpu_second={rows / cpu:.0f} lookups={len(latencies)} known={known} "
        f"p50_ms={1000 * latencies[len(latencies) // 2]:.1f} "
        f"p99_ms={1000 * latencies[len(latencies) * 99 // 100]:.1f}"
    )


def run(answers: str, options: argparse.Namespace) -> None:
    """One job, with the answers from one place."""
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory())
        kept = ps.checkpoints("10s", storage=f"{folder}/checkpoints")
        env = ps.StreamEnvironment(runtime="ray", parallelism=options.parallelism, checkpoints=kept)
        viewed = views(env, events(options.campaigns), options.campaigns)
        server = running.enter_context(Redis()) if answers == "redis" else None
        if server is None:
            keep_in_state(viewed, f"{folder}/views")
        else:
            keep_in_redis(viewed, server.url)
        job = env.submit(JOB)
        running.callback(job.cancel)
        measure(answers, job, from_state(JOB) if server is None else from_redis(server.url), options)


def main() -> None:
    parser = argparse.ArgumentParser(description="The Yahoo streaming benchmark, asked while it runs.")
    parser.add_argument(
        "--answers", choices=("both", "state", "redis"), default="both", help="(default: both, in turn)"
    )
    parser.add_argument("--campaigns", type=int, default=1_000, metavar="N", help="how many (default: 1,000)")
    parser.add_argument("--lookups", type=float, default=20.0, metavar="N", help="a second (default: 20)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the measurement (default: 10)")
    parser.add_argument("--warm-up", type=float, default=5.0, metavar="SECONDS", help="before it (default: 5)")
    parser.add_argument("--parallelism", type=int, default=2, metavar="N", help="subtasks (default: 2)")
    options = parser.parse_args()
    for answers in ("state", "redis") if options.answers == "both" else (options.answers,):
        run(answers, options)
    sys.exit(0)


if __name__ == "__main__":
    main()
