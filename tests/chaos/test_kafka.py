"""Kafka to Kafka, exactly once: real processes and a real broker, all of which are killed, restarted and stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.engine.connectors import TransactionalSink
from penstock.testing.chaos import (
    AfterCheckpoints,
    ChaosRun,
    ChaosSchedule,
    KillStandby,
    ScheduledFault,
    chaos_environment,
    run_server_job,
    server_schedule,
)
from penstock.testing.chaos.kafka_job import KafkaJob
from penstock.testing.services import Kafka
from tests.chaos.faulty_sinks import (
    Around,
    CommitsTooEarly,
    CrashesBehindCommit,
    CrashesBetweenPrepareAndCompletion,
    IgnoresMarkers,
    Once,
    StopsWithinTransaction,
)

LONG = pytest.mark.long("another seed, moment or fault of the same job")

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


WATCH = ChaosSchedule([ScheduledFault(AfterCheckpoints(6), KillStandby(), optional=True)])
"""Next to nothing; until then the job is watched, and what is to happen to it has happened."""


@LONG
@pytest.mark.parametrize("seed", [4, 12])
def test_each_row_is_seen_once_and_in_order(seed: int, kafka: Kafka, tmp_path: Path) -> None:
    job = KafkaJob(kafka)
    schedule = server_schedule(job, seed, "3s")
    run = run_server_job(job, schedule, chaos_environment(str(tmp_path)), "3s")
    assert not run.violations
    assert run.status == "finished"
    assert run.fired


@dataclass(frozen=True)
class FaultyJob(KafkaJob):
    """The job with another sink.

    Args:
        around: makes it of the sink that the job has.
        once: when something has happened to it.
    """

    around: type[Around] = Around
    once: Once = field(default_factory=lambda: Once(Path()))

    def sink(self, topic: str, markers: str) -> TransactionalSink:
        return self.around(super().sink(topic, markers), self.once)


def ran(around: type[Around], kafka: Kafka, folder: Path, heartbeat_timeout: str = "1s") -> ChaosRun:
    """The run of the job with this sink, to which what it is made for has happened."""
    job = FaultyJob(kafka, around=around, once=Once(folder / "happened"))
    env = chaos_environment(str(folder / "checkpoints"))
    env.configure({"heartbeat.timeout": heartbeat_timeout})
    run = run_server_job(job, WATCH, env, "3s")
    assert not run.problems
    assert job.once.note.exists()
    return run


@pytest.mark.long("test_sink_commits.py of Kafka kills processes around the commit; the simulation, those of jobs")
@pytest.mark.parametrize("around", [CrashesBetweenPrepareAndCompletion, CrashesBehindCommit])
def test_a_crash_at_either_side_of_the_commit_does_no_harm(around: type[Around], kafka: Kafka, tmp_path: Path) -> None:
    assert not ran(around, kafka, tmp_path).violations


@pytest.mark.long("tests/testing/chaos/test_checkers.py: the checkers object")
@pytest.mark.parametrize("around", [CommitsTooEarly, IgnoresMarkers])
def test_the_same_crash_shows_what_a_wrong_sink_repeats(around: type[Around], kafka: Kafka, tmp_path: Path) -> None:
    counts = {
        kind: times for verdict in ran(around, kafka, tmp_path).verdicts for kind, times in verdict.counts.items()
    }
    assert counts["duplicated"] > 0
    assert counts["input: missing"] == 0


@LONG
@pytest.mark.parametrize(("heartbeat_timeout", "restarts"), [("1s", 1), ("30s", 0)], ids=["replaced", "goes on"])
def test_a_process_is_stopped_past_the_time_out_of_its_transaction(
    heartbeat_timeout: str, restarts: int, kafka: Kafka, tmp_path: Path
) -> None:
    run = ran(StopsWithinTransaction, kafka, tmp_path, heartbeat_timeout)
    assert not run.violations
    # Where it is replaced, it wakes up as a zombie; where it is not, the brokers have aborted its transaction.
    assert run.restarts >= restarts
    assert restarts or not run.restarts
