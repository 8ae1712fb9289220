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
from penstock.savepoints import read
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import produce

NewTopic = Callable[..., str]
ROWS = 1500


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
        self._first: tuple[int, bytes] | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        newest = max((int(path.parent.name[4:]) for path in self._storage.rglob("chk-*/manifest.json")), default=0)
        self._first = (newest, row["v"]) if self._first is None else self._first
        # The one after the newest may have been triggered before the first row.
        if newest > self._first[0] + 1 and not self.failed.exists():
            self.failed.write_bytes(self._first[1])
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
    first = function.failed.read_bytes()
    # The first record was before the checkpoint, and what was before it is not read again.
    seen = Counter(function.notes.read_bytes().split())
    assert seen[first] == 1
    assert len(seen) == ROWS


def test_topics_that_come_while_a_job_runs_are_read_from_their_oldest_record(
    kafka: Kafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    prefix = new_topic()
    first = new_topic(2, f"{prefix}-x")
    produce(kafka.bootstrap_servers, first, [b"before the job"])
    source = KafkaSource(
        kafka.bootstrap_servers,
        format=RawFormat("v"),
        topic_pattern=f"{prefix}-x-.*",
        start="latest",
        discovery_interval="100ms",
    )
    seen: list[bytes] = []
    savepoint = None
    for records, wanted in (([b"1", b"2"], 2), ([b"3"], 4)):
        env = ps.StreamEnvironment(
            parallelism=2, runtime="local", checkpoints=checkpoints("100ms", str(tmp_path), savepoints=str(tmp_path))
        )
        rows = env.from_source(source).uid("kafka").collect()
        job = env.submit(savepoint=savepoint)
        produce(kafka.bootstrap_servers, new_topic(1, f"{prefix}-x"), records)
        while len(seen) < wanted:
            assert job.pump(0.1)
            seen += rows.take().column("v").to_pylist()
        savepoint = job.stop()
        # The plan of the next run finds it, and would begin at its newest record.
        produce(kafka.bootstrap_servers, new_topic(1, f"{prefix}-x"), [b"between"])
    assert sorted(seen) == [b"1", b"2", b"3", b"between"]


def test_a_job_that_is_resumed_with_other_topics_reads_those_alone(
    kafka: Kafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    kept, given_up, new = new_topic(), new_topic(), new_topic()
    for topic in (kept, given_up, new):
        produce(kafka.bootstrap_servers, topic, [b"1"])
    savepoint: str | None = None
    for topics in ([kept, given_up], [kept, new]):
        env = ps.StreamEnvironment(
            parallelism=2, runtime="local", checkpoints=checkpoints("100ms", str(tmp_path), savepoints=str(tmp_path))
        )
        source = KafkaSource(kafka.bootstrap_servers, topics, format=RawFormat("v"), metadata=["topic"])
        rows = env.from_source(source).uid("kafka").collect()
        job = env.submit(savepoint=savepoint)
        seen: list[str] = []
        while len(seen) < 2:
            assert job.pump(0.1)
            seen += rows.take().column("topic").to_pylist()
        savepoint = job.stop()
        assert sorted(seen) == sorted(topics)
        positions = read(savepoint).source_positions("kafka")
        assert sorted(positions["split_id"].to_pylist()) == sorted(f"{topic}-0" for topic in topics)
        for topic in (kept, given_up):
            produce(kafka.bootstrap_servers, topic, [b"2"])
