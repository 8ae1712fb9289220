"""How fast does the Kafka sink write, and how much later are rows seen that are written exactly once?

A broker is started for it. `rows/s` is of one writer with values of 200 bytes, from columns to the acknowledgement of
all batches; `small commit` is the time of a commit of one row, and `first commit` that of a writer that begins: with
the checkpoint interval, these are what exactly once adds to the time until a row is seen. Run by
`python perf/kafka_sink.py`; exits with 1 where the topic has not each row once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import RawFormat
from penstock.engine.clock import SystemClock
from penstock.engine.connectors import ConnectorContext
from penstock.engine.elements import Batch
from penstock.testing.services.kafka import Kafka

_BATCH_ROWS: Final = 8192
_PARTITIONS: Final = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both guarantees for epochs of several sizes, and the time of small commits."""
    given = _parser().parse_args(arguments)
    with Kafka() as kafka:
        print(f"{'guarantee':>14}{'epoch rows':>12}{'rows/s':>12}{'write s':>9}{'commit s':>10}")
        for guarantee in ("at-least-once", "exactly-once"):
            for rows in given.rows:
                topic = f"{guarantee}-{rows}"
                kafka.create_topic(topic, partitions=_PARTITIONS)
                sink = KafkaSink(kafka.bootstrap_servers, topic, format=RawFormat("v"), key="k", guarantee=guarantee)
                write, commit = _epochs(sink, rows, given.value_bytes, given.repetitions)
                total = rows / (write + commit)
                print(f"{guarantee:>14}{rows:>12,}{total:>12,.0f}{write:>9.3f}{commit:>10.3f}", flush=True)
                if (found := _count(kafka, topic)) != rows * (given.repetitions + 1):
                    print(f"the topic has {found} rows", file=sys.stderr)
                    return 1
        kafka.create_topic("small", partitions=_PARTITIONS)
        first, small = _small_commits(KafkaSink(kafka.bootstrap_servers, "small", format=RawFormat("v"), key="k"))
        print(
            f"first commit {first * 1000:.0f} ms, small commit {small[0] * 1000:.0f} ms (p99 {small[1] * 1000:.0f} ms)"
        )
    return 0


def _epochs(sink: KafkaSink, rows: int, value_bytes: int, repetitions: int) -> tuple[float, float]:
    """Median seconds of writing an epoch, and of committing (or flushing) it; a first one is not counted."""
    sink.prepare()
    context = _context()
    writer = sink.open(context)
    batches = [_batch(begin, min(_BATCH_ROWS, rows - begin), value_bytes) for begin in range(0, rows, _BATCH_ROWS)]
    spent: list[tuple[float, float]] = []
    for checkpoint in range(1, repetitions + 2):
        begin = time.perf_counter()
        for batch in batches:
            writer.write(batch)
        written = time.perf_counter()
        if committables := writer.prepare(checkpoint):
            sink.commit(committables, context)
        spent.append((written - begin, time.perf_counter() - written))
    writer.close()
    return statistics.median(one for one, _ in spent[1:]), statistics.median(one for _, one in spent[1:])


def _small_commits(sink: KafkaSink) -> tuple[float, tuple[float, float]]:
    """Seconds of the first commit of a writer, and median and 99th percentile of the others."""
    sink.prepare()
    context = _context()
    writer = sink.open(context)
    spent = []
    for checkpoint in range(1, 202):
        writer.write(_batch(checkpoint, 1, 200))
        committables = writer.prepare(checkpoint)
        spent.append(_timed(lambda committed=committables: sink.commit(committed, context)))
    writer.close()
    return spent[0], (statistics.median(spent[1:]), sorted(spent[1:])[-2])


def _timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _batch(begin: int, rows: int, value_bytes: int) -> Batch:
    keys = pa.array([b"user-%08d" % (number % 10_000) for number in range(begin, begin + rows)], pa.binary())
    value = pa.array([b"." * value_bytes] * rows, pa.binary())
    return Batch(pa.record_batch({"k": keys, "v": value}))


def _context() -> ConnectorContext:
    return ConnectorContext("write", 0, 1, SystemClock(), f"perf/{time.time_ns()}")


def _count(kafka: Kafka, topic: str) -> int:
    source = KafkaSource(kafka.bootstrap_servers, topic, format=RawFormat("v"), until="latest")
    context, count = _context(), 0
    for split in source.splits(1):
        reader = source.open(split, context)
        while (answer := reader.next_batch(100_000)) is not None:
            if isinstance(answer, pa.RecordBatch):
                count += answer.num_rows
            else:
                context.clock.wait_until(answer.until)
        reader.close()
    return count


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure the Kafka sink.")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 200_000], help="rows of an epoch")
    parser.add_argument("--repetitions", type=int, default=5, help="epochs of each size (default 5)")
    parser.add_argument("--value-bytes", type=int, default=200, help="size of a value (default 200)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
