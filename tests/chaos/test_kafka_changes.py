"""A job from Kafka to Kafka is rescaled, and goes on as another version from a savepoint: no gap, no duplicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import DataStream, JobStatus
from penstock.actors.client import RayJob
from penstock.testing.chaos import chaos_environment
from penstock.testing.chaos.kafka_job import KafkaJob, Topics, check_transactions, feeding, read_committed
from penstock.testing.chaos.server_jobs import COUNTED, check_counted, count_events
from penstock.testing.services import Kafka
from tests.actors.keyed_job import kill, subtask_pids, until, until_checkpoint

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]

ROWS, RATE = 6000, 1000
UPGRADED = 1_000_000


@pytest.mark.long("tests/actors/test_savepoints.py rescales; the test below rescales by a savepoint")
def test_a_rescaled_job_resumes_where_it_was(kafka: Kafka, tmp_path: Path) -> None:
    topics, job = started(kafka, tmp_path)
    with feeding(kafka.bootstrap_servers, topics.incoming, ROWS, RATE) as finish:
        until_checkpoint(job, 2)
        job.rescale(3)
        info = until_checkpoint(job)
        assert info.parallelism == 3
        # What a subtask had prepared that there was not at first is committed by its successor.
        kill(subtask_pids(info)[-1])
        until(job, lambda info: info.restarts >= 1 and info.status is JobStatus.RUNNING)
        finish()
        job.wait()
    assert not objections(kafka, topics, read_committed(kafka.bootstrap_servers, topics.outgoing))


@dataclass(frozen=True)
class UpgradedJob(KafkaJob):
    """The next version of the job: each of its counts shows who has written it."""

    def program(self, events: DataStream) -> DataStream:
        return count_events(events).map(lambda row: {**row, "count": row["count"] + UPGRADED}, returns=COUNTED)


@pytest.mark.long("tests/connectors/kafka/test_sink_commits.py: anybody commits what was prepared")
def test_another_version_resumes_from_a_savepoint_at_another_parallelism(kafka: Kafka, tmp_path: Path) -> None:
    topics, job = started(kafka, tmp_path)
    with feeding(kafka.bootstrap_servers, topics.incoming, ROWS, RATE) as finish:
        until_checkpoint(job, 2)
        savepoint = job.stop()
        assert job.status() is JobStatus.FINISHED
        finish()
        env = chaos_environment(str(tmp_path), parallelism=3)
        UpgradedJob(kafka).build(env, topics, ROWS)
        env.submit("version 2", savepoint=savepoint).wait()
    rows = read_committed(kafka.bootstrap_servers, topics.outgoing)
    assert not objections(kafka, topics, [{**row, "count": row["count"] % UPGRADED} for row in rows])
    assert 0 < sum(row["count"] > UPGRADED for row in rows) < ROWS


def started(kafka: Kafka, folder: Path) -> tuple[Topics, RayJob]:
    """The job, which has taken a checkpoint, and whose topics are empty."""
    topics, env = Topics.make(kafka), chaos_environment(str(folder), parallelism=2)
    KafkaJob(kafka).build(env, topics, ROWS)
    job = env.submit("version 1")
    assert isinstance(job, RayJob)
    until_checkpoint(job)
    return topics, job


def objections(kafka: Kafka, topics: Topics, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the checkers say of the output."""
    transactions = check_transactions(kafka.bootstrap_servers, [topics.outgoing, topics.markers])
    return [text for verdict in [*check_counted(rows, ROWS), transactions] for text in verdict.violations]
