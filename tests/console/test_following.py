"""What `--follow` does while a job recovers, and when it has ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.actors.task_log import LogLine
from penstock.console.jobs import follow_job
from penstock.engine.errors import JobError, NoAnswerError
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.web.cluster import Reading
from tests.console.conftest import Penstock
from tests.web.fakes import ORDERS, FakeCluster
from tests.web.serving import Server


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[Server]:
    running = Server(cluster)
    yield running
    running.stop()


def test_logs_are_followed_through_a_restart_until_the_job_ends(
    penstock: Penstock, server: Server, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.console.jobs._AGAIN_SECONDS", 0)
    monkeypatch.setattr("penstock.console.web_commands._FOLLOW_SECONDS", 0)
    answers = iter(["before", NoAnswerError("it is being restarted"), NoAnswerError("it is being restarted"), "behind"])

    def logs(*arguments: Any) -> list[LogLine]:
        answer = next(answers, "at the end")
        if isinstance(answer, Exception):
            raise answer
        if answer == "at the end":
            cluster.readings = [Reading(replace(ORDERS, status=JobStatus.FINISHED), [])]
        return [LogLine(("before", "behind", "at the end").index(answer) + 1, 0, "INFO", "", answer)]

    monkeypatch.setattr(cluster, "logs", logs)
    done = penstock("logs", "orders", "--follow", "--url", server.url)
    assert done.code == 0, done.err
    assert [line.split("/0 ")[1] for line in done.out.splitlines()] == ["before", "behind", "at the end"]


class Ending:
    """A job that is said to run so often, and to have finished from then on."""

    def __init__(self, runs: float) -> None:
        self.runs = runs

    def info(self) -> JobInfo:
        self.runs -= 1
        return replace(ORDERS, status=JobStatus.FINISHED if self.runs < 0 else JobStatus.RUNNING)


def looks(*answers: str) -> Callable[[], str]:
    """Gives the answers, and is then told that the job has ended."""
    left = iter(answers)

    def look() -> str:
        if (answer := next(left, None)) is None:
            raise JobError("it has ended")
        return answer

    return look


def test_a_job_that_ends_between_two_looks_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.console.jobs._AGAIN_SECONDS", 0)
    assert list(follow_job(Ending(4), looks("one", "two"), follow=True)) == ["one", "two"]
    with pytest.raises(JobError, match="it has ended"):
        list(follow_job(Ending(0), looks(), follow=True))
    with pytest.raises(JobError, match="it has ended"):
        list(follow_job(Ending(math.inf), looks("one"), follow=True))


def test_who_does_not_follow_is_told_that_there_is_no_answer(
    penstock: Penstock, server: Server, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def logs(*arguments: Any) -> list[LogLine]:
        raise NoAnswerError("it is being restarted")

    monkeypatch.setattr(cluster, "logs", logs)
    done = penstock("logs", "orders", "--url", server.url)
    assert (done.code, "it is being restarted" in done.err) == (1, True)


def test_of_a_job_that_has_ended_it_is_said_where_its_lines_are(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster([Reading(replace(ORDERS, status=JobStatus.FINISHED), [])])
    server = Server(cluster)
    try:
        monkeypatch.setattr(cluster, "logs", lambda *_: [])
        done = penstock("logs", "orders-1", "--url", server.url)
        assert (done.code, done.out) == (0, "")
        assert "job orders has ended (finished), and its lines went with its processes" in done.err
        assert "in the temporary folder of each node: ray/session_*/logs/worker-*.out" in done.err
        assert penstock("logs", "orders-1", "--json", "--url", server.url).document == []
        monkeypatch.setattr(cluster, "logs", lambda *_: [LogLine(1, 0, "INFO", "", "still here", 1)])
        assert penstock("logs", "orders-1", "--url", server.url).err == ""
    finally:
        server.stop()
