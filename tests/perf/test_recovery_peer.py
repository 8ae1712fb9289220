"""What is made of the answers of a cluster of Flink's, whose task managers are killed; the cluster is made up here."""

from __future__ import annotations

import random
from typing import Any

import pytest

from perf import recovery
from perf.harness import BenchmarkError, Options
from perf.peers.engines import ENGINES, Engine, PeerError
from perf.peers.flink_cluster import FlinkCluster, until
from perf.recovery_peer import FlinkJob


class MadeUp(FlinkCluster):
    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.killed: list[str] = []
        self.added: list[str] = []

    def get(self, path: str) -> Any:
        return self.answers[path]

    def kill(self, name: str) -> None:
        self.killed.append(name)

    def add(self, *names: str) -> None:
        self.added += names


def job_with(state: str, *tasks: dict[str, int]) -> dict[str, Any]:
    return {"state": state, "vertices": [{"id": str(number), "tasks": of} for number, of in enumerate(tasks)]}


@pytest.mark.parametrize(
    ("job", "runs"),
    [
        (job_with("RUNNING", {"RUNNING": 2, "FAILED": 0}, {"RUNNING": 2}), True),
        (job_with("RUNNING", {"RUNNING": 2, "FAILED": 0}, {"RUNNING": 1, "INITIALIZING": 1}), False),
        (job_with("RESTARTING", {"RUNNING": 2}), False),
        (job_with("RUNNING"), False),
    ],
)
def test_a_job_runs_when_all_of_its_subtasks_do(job: dict[str, Any], runs: bool) -> None:
    assert FlinkJob(MadeUp({"/jobs/1": job}), "1").is_running() is runs


def test_failures_and_checkpoints_are_those_that_the_cluster_tells() -> None:
    entries = [{"timestamp": 30, "exceptionName": "x"}, {"timestamp": 20}]
    answers: dict[str, Any] = {
        "/jobs/1/exceptions?maxExceptions=100": {"exceptionHistory": {"entries": entries}},
        "/jobs/1/checkpoints": {"counts": {"completed": 3, "failed": 1}},
    }
    job = FlinkJob(MadeUp(answers), "1")
    assert (job.failures(), job.checkpoints()) == ([20, 30], 3)
    answers["/jobs/1/checkpoints"] = answers["/jobs/1/exceptions?maxExceptions=100"] = {"state": "UNKNOWN"}
    assert (job.failures(), job.checkpoints()) == ([], 0)


def test_only_a_task_manager_with_subtasks_is_killed_and_each_is_replaced() -> None:
    cluster = MadeUp({"/jobs/1": job_with("RUNNING", {"RUNNING": 2})})
    cluster.answers["/jobs/1/vertices/0"] = {"subtasks": [{"taskmanager-id": "tm-0"}, {"taskmanager-id": "tm-2"}]}
    job = FlinkJob(cluster, "1")
    for seed in range(8):
        job.kill_one(random.Random(seed))
        job.replace()
    assert set(cluster.killed) == {"tm-0", "tm-2"}
    assert cluster.added == [f"standby-{number}" for number in range(1, 9)]


def test_what_does_not_come_is_told() -> None:
    with pytest.raises(PeerError, match=r"flink: no running job within 0 s"):
        until(lambda: False, "running job", 0.01)


@pytest.mark.parametrize("case", recovery.CASES, ids=lambda case: case.variant)
def test_a_recovery_that_no_peer_has_is_told(case: recovery.Case) -> None:
    peer = Engine("other", "other", "other", frozenset(), lambda *_: ([], {}), 0.0)
    with pytest.raises(BenchmarkError, match="other has no program for recovery"):
        list(recovery.run(Options(peer=peer), case.variant))


def test_a_killed_subtask_is_measured_beside_flink(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seen in (("_recoveries", 500.0), ("_recoveries_of_peer", 8000.0)):
        monkeypatch.setattr(recovery, name, lambda case, options, seen=seen: ([recovery.Recovery(seen)], 100.0))
    monkeypatch.setattr(recovery, "shut_down", lambda: None)
    monkeypatch.setattr(Engine, "version", lambda engine: "2")
    results = list(recovery.run(Options(peer=ENGINES["flink"]), "subtask every 5s, standbys 1"))
    told = [(result.variant, result.ours.latency_ms["p50"]) for result in results]
    assert told == [("subtask every 5s, standbys 1", 500.0), ("subtask every 5s, standbys 1, flink 2", 8000.0)]
