"""Two jobs chained through a topic: one condenses readings of sensors, the other finds those that are out of line.

The first job averages each sensor's readings over ten seconds and writes the means to Kafka, exactly once. The second
reads them as they come, learns each sensor's mean and spread, and tells of values that lie far outside. The topic
between them keeps them apart: each is stopped, upgraded and scaled without the other, and more jobs can read along.

    python examples/anomaly_detection.py
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from brokers import add_option, brokers
from rich.console import Console
from rich.table import Table

import penstock as ps
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat

MEANS = "sensor-means"
MEAN = JsonFormat({"sensor": "string", "at": "int64", "mean": "float64"})
SENSORS = 50
NAMES = np.array([f"sensor-{number:02}" for number in range(SENSORS)])
START_MS = 1_790_000_000_000
READINGS_PER_SECOND = 500  # of event time: ten of each sensor
FAULT_EVERY, FAULT_READINGS = 60_000, 6_000  # now and then one sensor is wrong for twelve seconds
LEARNED = 20  # means that a sensor must have shown before it is judged
FAR = 6.0  # standard deviations
SHOWN = 10

SEEN = ps.ValueStateDescriptor("seen", "int64", default=0)
MEAN_SO_FAR = ps.ValueStateDescriptor("mean", "float64", default=0.0)
SQUARES = ps.ValueStateDescriptor("squares", "float64", default=0.0)


def sensor(rows: Any) -> pa.Array:
    """Each in turn."""
    return pa.array(NAMES[rows % SENSORS])


def value(rows: Any) -> pa.Array:
    """A daily wave, some noise, and the faults."""
    noise = np.random.default_rng(0).normal(0.0, 1.0, 4_096)[(rows * 2_654_435_761 >> 7) % 4_096]
    wrong = (rows % FAULT_EVERY < FAULT_READINGS) & (rows % SENSORS == rows // FAULT_EVERY % SENSORS)
    return pa.array(20.0 + rows % SENSORS % 7 + noise + np.where(wrong & (rows >= FAULT_EVERY), 25.0, 0.0))


class Outliers(ps.KeyedProcessFunction):
    """Learns mean and variance of each sensor (Welford's method) and yields the values far outside."""

    def open(self, context: Any) -> None:
        self.seen, self.mean, self.squares = (context.get_state(one) for one in (SEEN, MEAN_SO_FAR, SQUARES))

    def process_element(self, row: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        seen, mean, squares = self.seen.value(), self.mean.value(), self.squares.value()
        off = row["mean"] - mean
        spread = math.sqrt(squares / seen) if seen else 0.0
        if seen >= LEARNED and abs(off) > FAR * spread:
            yield {"sensor": row["sensor"], "at": row["at"], "mean": row["mean"], "deviations": off / spread}
            return  # What is wrong is not learned.
        self.seen.update(seen + 1)
        self.mean.update(mean + off / (seen + 1))
        self.squares.update(squares + off * (row["mean"] - (mean + off / (seen + 1))))


def condense(env: ps.StreamEnvironment, servers: str, readings: int) -> None:
    """The first job: readings to means."""
    source = ps.DataGenSource(
        {"sensor": sensor, "value": value, "time": ps.EventTime(START_MS, READINGS_PER_SECOND)}, rows=readings
    )
    in_order = ps.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    means = (
        env.from_source(source, "readings", in_order)
        .uid("readings")
        .key_by("sensor")
        .window(ps.tumbling("10s"))
        .aggregate(mean=ps.mean("value"))
        .uid("means")
        .with_columns(at=ps.col("window_start").dt.timestamp("ms"))
        .select("sensor", "at", "mean")
    )
    means.sink_to(KafkaSink(servers, MEANS, key="sensor", format=MEAN)).uid("topic")


def detect(env: ps.StreamEnvironment, servers: str) -> ps.DataStream:
    """The second job: means to anomalies, for ever."""
    anomaly = {"sensor": "string", "at": "int64", "mean": "float64", "deviations": "float64"}
    means = env.from_source(KafkaSource(servers, MEANS, format=MEAN), "means").uid("means")
    return means.key_by("sensor").process(Outliers, returns=anomaly).uid("outliers")


def show(anomalies: pa.Table) -> None:
    """Print the values that lie farthest outside."""
    table = Table("sensor", "from", title="The farthest values", title_justify="left")
    for heading in ("mean", "deviations"):
        table.add_column(heading, justify="right")
    for row in anomalies.sort_by([("deviations", "descending"), ("at", "ascending")]).slice(0, SHOWN).to_pylist():
        at = time.strftime("%H:%M:%S", time.gmtime(row["at"] / 1000))
        table.add_row(row["sensor"], at, f"{row['mean']:.1f}", f"{row['deviations']:.0f}")
    Console().print(table)


def run(servers: str, runtime: str, readings: int, folder: str) -> tuple[pa.Table, int]:
    """Run both jobs at once, the second until it has read all that the first wrote: anomalies, and number of means."""

    def environment(name: str) -> ps.StreamEnvironment:
        # A slot of a quarter of a CPU each: they share the machine.
        settings = ps.checkpoints("1s", f"{folder}/{name}", savepoints=f"{folder}/savepoints")
        return ps.StreamEnvironment(runtime=runtime, parallelism=1, slot_cpus=0.25, checkpoints=settings)

    second = environment("detect")
    anomalies = detect(second, servers).collect()
    detecting = second.submit("detect")
    first = environment("condense")
    condense(first, servers, readings)
    condensing = first.submit("condense")
    try:
        while condensing.pump(0.1):
            detecting.pump(0.1)
        written = condensing.metrics().operators[-1].rows_in
        while detecting.metrics().operators[0].rows_out < written and detecting.pump(0.1):
            pass
        detecting.drain()
        detecting.wait()
    finally:
        detecting.cancel()
        condensing.cancel()
    return anomalies.take(), written


def main() -> None:
    parser = argparse.ArgumentParser(description="Readings to means to anomalies: two jobs and a topic.")
    parser.add_argument("--runtime", choices=("ray", "local"), default="ray", help="where to run (default: ray)")
    parser.add_argument("--readings", type=int, default=600_000, metavar="N", help="how many (default: 600,000)")
    add_option(parser, MEANS)
    options = parser.parse_args()

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="anomalies-") as folder, brokers(options.kafka, MEANS) as servers:
        anomalies, means = run(servers, options.runtime, options.readings, folder)
    show(anomalies)
    sensors = len(set(anomalies["sensor"].to_pylist()))
    print(
        f"readings={options.readings} means={means} anomalies={len(anomalies)} sensors={sensors} "
        f"seconds={time.perf_counter() - started:.3f}"
    )
    sys.exit(0)


if __name__ == "__main__":
    main()
