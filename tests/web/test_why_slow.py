"""The sentence that says what holds a job up, for jobs that are slow for each of the reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.engine.job.info import CheckpointsInfo, InputInfo, JobInfo, OperatorInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import SubtaskMetrics
from penstock.web.observed import Observed
from penstock.web.why_slow import Reason, why_slow
from tests.web.fakes import DONE, ORDERS, metrics, viewed

CHAIN = replace(
    ORDERS,
    tasks=(
        TaskInfo(1, "read", 1, (OperatorInfo("read"),)),
        TaskInfo(2, "enrich", 1, (OperatorInfo("enrich"),), (InputInfo(1, "hash"),)),
        TaskInfo(3, "write", 1, (OperatorInfo("write"),), (InputInfo(2, "hash"),)),
    ),
    checkpoints=None,
)


def reason(info: JobInfo, *shares: tuple[float, float], rows: int = 1000, **times: float) -> Reason:
    """For a job whose tasks spend such shares of their time busy and blocked, and such times on checkpoints."""

    def at(second: int) -> list[SubtaskMetrics]:
        return [
            replace(
                metrics(
                    number, 0, ["x"], rows * second, busy * second, blocked * second, (1 - busy - blocked) * second
                ),
                **times,
            )
            for number, (busy, blocked) in enumerate(shares, 1)
        ]

    observed = Observed()
    observed.see(info, at(10), 10.0, 0)
    return why_slow(observed.see(info, at(20), 20.0, 0))


@pytest.mark.parametrize(
    ("shares", "kind", "task", "words"),
    [
        (((0.1, 0.9), (0.95, 0.0), (0.2, 0.0)), "busy", 2, "'enrich' is busy 95% of its time; 'read' waits for it"),
        (((0.1, 0.9), (0.1, 0.8), (0.97, 0.0)), "slow-sink", 3, "'write' is busy 97% of its time; 'enrich' waits"),
        (((0.1, 0.9), (0.1, 0.8), (0.1, 0.0)), "slow-sink", 3, "waits for whoever takes its rows"),
        (((0.99, 0.0), (0.3, 0.0), (0.2, 0.0)), "source", 1, "reads as fast as it can"),
        (((0.2, 0.0), (0.3, 0.0), (0.2, 0.0)), "fine", 2, "Nothing holds it up"),
    ],
)
def test_the_bottleneck_is_named(shares: tuple[tuple[float, float], ...], kind: str, task: int, words: str) -> None:
    found = reason(CHAIN, *shares)
    assert (found.kind, found.task) == (kind, task)
    assert words in found.sentence


def test_a_few_keys_with_most_of_the_rows_are_named() -> None:
    tasks = (ORDERS.tasks[0], replace(ORDERS.tasks[1], parallelism=4))
    info = replace(ORDERS, tasks=tasks)

    def at(second: int) -> list[SubtaskMetrics]:
        hot = [metrics(2, 2, ["count"], 900 * second, 0.99 * second, 0, 0.01 * second)]
        cold = [metrics(2, one, ["count"], 30 * second, 0.1 * second, 0, 0.9 * second) for one in (0, 1, 3)]
        return [metrics(1, 0, ["events"], 1000 * second, 0.1 * second, 0.9 * second), *hot, *cold]

    observed = Observed()
    observed.see(info, at(10), 10.0, 0)
    found = why_slow(observed.see(info, at(20), 20.0, 0))
    assert (found.kind, found.task, found.subtask) == ("skew", 2, 2)
    assert "Subtask 2 of 'count -> sink' gets 3.6 times as many rows" in found.sentence


def test_checkpoints_that_are_always_under_way_are_named() -> None:
    found = reason(often(), (0.2, 0.0), (0.2, 0.0), (0.2, 0.0))
    assert found.kind == "checkpoint"
    assert "A checkpoint is under way 92% of the time" in found.sentence


def often(**each: Any) -> JobInfo:
    """The job with a checkpoint under way nearly always."""
    history = tuple(replace(DONE, checkpoint=n, triggered_ms=n * 1000, duration_ms=900.0, **each) for n in range(5))
    return replace(CHAIN, checkpoints=CheckpointsInfo(history=history))


@pytest.mark.parametrize(
    ("written", "times", "kind"),
    [
        (30_000, {"start_delay_ms": 850.0}, "busy"),
        (30_000, {}, "busy"),
        (30_000, {"sync_ms": 800.0}, "checkpoint"),
        (100_000_000, {}, "checkpoint"),
    ],
)
def test_a_busy_function_comes_before_checkpoints_unless_they_are_what_it_is_busy_with(
    written: int, times: dict[str, float], kind: str
) -> None:
    found = reason(often(bytes_written=written), (0.1, 0.0), (1.0, 0.0), (0.1, 0.0), **times)
    assert (found.kind, found.task) == (kind, 2)


def test_checkpoints_that_only_wait_for_a_task_at_work_are_not_named() -> None:
    assert reason(often(), (0.1, 0.0), (0.7, 0.0), (0.1, 0.0), start_delay_ms=850.0).kind == "fine"


def test_work_on_rows_in_the_task_of_a_source_is_said_to_be_a_cause() -> None:
    read = replace(CHAIN.tasks[0], operators=(OperatorInfo("read"), OperatorInfo("enrich")))
    found = reason(replace(CHAIN, tasks=(read,)), (1.0, 0.0))
    assert "a higher parallelism, or less work a row, would help" in found.sentence


def test_without_rows_or_without_running_there_is_nothing_to_be_slow() -> None:
    assert reason(CHAIN, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), rows=0).kind == "idle"
    waiting = replace(ORDERS, status=JobStatus.DEPLOYING, waiting_for="4 CPUs")
    assert why_slow(viewed(waiting)).sentence == "The job does not run: it is deploying, waiting for 4 CPUs."
