"""Whole jobs that read Kafka, with checkpoints and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.connectors.kafka import KafkaSource
from penstock.connectors.records.raw import RawFormat
from penstock.recovery import checkpoints, fixed_delay
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import produce

NewTopic = Callable[..., str]
ROWS = 3000


class FailingOnce:
    """A function that fails behind a checkpoint that was taken behind its first rows, and notes the rows it got.

    Args:
        folder: of the notes.
        storage: of the checkpoints.
    """

    def __init__(self, folder: Path, storage: Path) -> None:
        self.notes = folder / "rows"
        self.failed = folder / "failed"
        self._storage = storage
        self._first: int | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        newest = max((int(path.parent.name[4:]) for path in self._storage.rglob("chk-*/manifest.json")), default=0)
        self._first = newest if self._first is None else self._first
        # The one after the newest may have been triggered before the first row.
        if newest > self._first + 1 and not self.failed.exists():
            self.failed.touch()
            raise OSError("once")
        with self.notes.open("ab") as notes:
            notes.write(row["v"] + b"\n")
        return row


def test_a_job_that_fails_counts_each_record_once(kafka: Kafka, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(3)
    for partition in range(3):
        values = [b"%d" % number for number in range(partition, ROWS, 3)]
        produce(kafka.bootstrap_servers, topic, values, partition)
    env = ps.StreamEnvironment(
        parallelism=2,
        runtime="local",
        max_batch_rows=10,
        checkpoints=checkpoints("10ms", str(tmp_path / "storage")),
        restart=fixed_delay(3, "1ms"),
    )
    source = KafkaSource(kafka.bootstrap_servers, topic, format=RawFormat("v"), until="latest", metadata=["partition"])
    function = FailingOnce(tmp_path, tmp_path / "storage")
    rows = env.from_source(source).map(function, returns=source.schema)
    final: dict[int, int] = {}
    for row in rows.key_by("partition").aggregate(n=ps.count()).collect():
        final[row["partition"]] = max(row["n"], final.get(row["partition"], 0))
    assert final == Counter(number % 3 for number in range(ROWS))
    assert function.failed.exists()
    # The first record was before the checkpoint, and what was before it is not read again.
    seen = Counter(function.notes.read_bytes().split())
    assert seen[b"0"] == 1
    assert len(seen) == ROWS
