"""How many Kafka records a second does one core make Arrow columns of, with values of 200 bytes?

A broker's answers are made in memory, as large as a consumer fetches them; `columnar` is what the Kafka source does
with one, checksums included, and `getmany` is aiokafka's own way, with an object for each record, made columns of.
No broker and no network is in a figure. Run by `python perf/kafka_decode.py`; exits with 1 where the two ways differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.connectors.kafka.fetched import Records, records_of
from penstock.connectors.kafka.record_batches import FetchedBatches

_FETCH_BYTES: Final = 1 << 20
"""`max_partition_fetch_bytes` by default."""
_TOPIC: Final = "events"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both ways for batches of 16 KB, a producer's default, and of 1 MiB."""
    given = _parser().parse_args(arguments)
    print(f"{'batch':>9}{'way':>10}{'records/s':>13}{'spread':>8}")
    for batch_bytes in (16_384, _FETCH_BYTES):
        raw, count = fetched(batch_bytes, given.value_bytes)
        rows = {name: way(raw) for name, way in WAYS.items()}
        if len(rows["columnar"].offsets) != count or rows["columnar"] != rows["getmany"]:
            print("the two ways differ", file=sys.stderr)
            return 1
        for name, way in WAYS.items():
            rates = [_rate(way, raw, count, given.seconds) for _ in range(given.repetitions)]
            middle = statistics.median(rates)
            spread = (max(rates) - min(rates)) / middle
            print(f"{batch_bytes:>9,}{name:>10}{middle:>13,.0f}{spread:>8.1%}", flush=True)
    return 0


def fetched(batch_bytes: int, value_bytes: int) -> tuple[bytes, int]:
    """The answer to a fetch, and how many records are in it.

    Args:
        batch_bytes: about the size of each record batch.
        value_bytes: of each record; the key has eight.
    """
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    raw, count = b"", 0
    while len(raw) < _FETCH_BYTES - batch_bytes // 2:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, batch_bytes)
        records = max(1, batch_bytes // (value_bytes + 20))
        for record in range(records):
            number = count + record
            value = number.to_bytes(8, "little") * (value_bytes // 8) + b"." * (value_bytes % 8)
            assert builder.append(record, 1_700_000_000_000 + number, number.to_bytes(8, "big"), value, []) is not None
        # The builder's batches begin at offset 0; the checksum does not cover the first twelve bytes.
        raw += count.to_bytes(8, "big") + bytes(builder.build())[8:]
        count += records
    return raw, count


def _unread(raw: bytes) -> Any:
    from aiokafka import TopicPartition
    from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
    from aiokafka.record.memory_records import MemoryRecords

    return PartitionRecords(TopicPartition(_TOPIC, 0), MemoryRecords(raw), [], 0, None, None, True, READ_COMMITTED)


def _columnar(raw: bytes) -> Records:
    return FetchedBatches(_unread(raw), raw).records()


def _getmany(raw: bytes) -> Records:
    unread = _unread(raw)
    return records_of(list(unread), unread.next_fetch_offset)


WAYS: Final[Mapping[str, Callable[[bytes], Records]]] = {"columnar": _columnar, "getmany": _getmany}


def _rate(way: Callable[[bytes], Records], raw: bytes, count: int, seconds: float) -> float:
    """Records per second of the CPU."""
    begin, rounds = time.process_time(), 0
    while (spent := time.process_time() - begin) < seconds:
        way(raw)
        rounds += 1
    return rounds * count / spent


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure the decoding of Kafka records.")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a measurement (default 2)")
    parser.add_argument("--repetitions", type=int, default=3, help="measurements of each way (default 3)")
    parser.add_argument("--value-bytes", type=int, default=200, help="size of a value (default 200)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
