"""Whole jobs from Kafka to Kafka, with checkpoints and failures."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat
from penstock.recovery import checkpoints, fixed_delay
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import produce
from tests.connectors.kafka.written import records, transactions_end

NewTopic = Callable[..., str]
ROWS, KEYS = 300, 7


class FailingAfterCheckpoints:
    """A function that fails a few times, each behind two more checkpoints."""

    def __init__(self, storage: Path, times: int) -> None:
        self._storage = storage
        self._times = times
        self._seen: int | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        newest = max((int(path.parent.name[4:]) for path in self._storage.rglob("chk-*/manifest.json")), default=0)
        self._seen = newest if self._seen is None else self._seen
        failures = list(self._storage.glob("failed-*"))
        if len(failures) < self._times and newest > self._seen + 1:
            (self._storage / f"failed-{len(failures)}").touch()
            raise OSError("injected")
        return row


def test_counts_from_kafka_to_kafka(kafka: Kafka, new_topic: NewTopic, tmp_path: Path) -> None:
    incoming, outgoing, servers = new_topic(3, "in"), new_topic(2, "out"), kafka.bootstrap_servers
    for partition in range(3):
        values = [b'{"k": "key-%d"}' % (number % KEYS) for number in range(partition, ROWS, 3)]
        produce(servers, incoming, values, partition)
    env = ps.StreamEnvironment(
        parallelism=2,
        runtime="local",
        max_batch_rows=1,  # counts of one batch are one row
        checkpoints=checkpoints("50ms", str(tmp_path)),
        restart=fixed_delay(5, "1ms"),
    )
    source = KafkaSource(servers, incoming, format=JsonFormat({"k": "string"}), until="latest")
    output = JsonFormat({"k": "string", "n": "int64"})
    sink = KafkaSink(servers, outgoing, format=output, key="k")
    rows = env.from_source(source).map(FailingAfterCheckpoints(tmp_path, 2), returns=source.schema)
    rows.key_by("k").aggregate(n=ps.count()).sink_to(sink)
    env.execute()
    assert len(list(tmp_path.glob("failed-*"))) == 2
    counts: dict[str, list[int]] = {}
    for record in records(servers, outgoing):
        row = json.loads(record.value)
        assert record.key == row["k"].encode()
        counts.setdefault(row["k"], []).append(row["n"])
    expected = {f"key-{key}": list(range(1, len(range(key, ROWS, KEYS)) + 1)) for key in range(KEYS)}
    assert counts == expected
    assert transactions_end(servers, outgoing)
    # No thread of the sink's outlives the job.
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-")]
