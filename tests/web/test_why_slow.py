"""The sentence that says what holds a job up, for jobs that are slow for each of the reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.job.info import (
    CheckpointsInfo,
    EventTimeWait,
    InputInfo,
    JobInfo,
    OperatorInfo,
    RestartInfo,
    TaskInfo,
)
from penstock.engine.job.status import JobStatus
from penstock.engine.metric_types import Gauge
from penstock.engine.metrics import GateStatistics, SubtaskMetrics
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
    assert (
        "Subtask 2 of 'count -> sink' (key groups 64 to 95) gets 30.0 times as many rows as the others"
        in found.sentence
    )
    assert dict(found.figures)["last_key_group"] == 95


@pytest.mark.parametrize(
    ("rows", "keys", "cause"),
    [
        ((300, 700), (3, 7), "it has 7 of 10 keys, as these fall to subtasks by their hashes; more keys, or another"),
        ((10, 900), (500, 520), "a few keys have most of the rows."),
        ((10, 900), (1, 9), "a few keys have most of the rows."),
        ((300, 700), (0, 7), "a few keys have most of the rows, or few keys fall to subtasks unevenly."),
        ((300, 700), (None, 7), "a few keys have most of the rows, or few keys fall to subtasks unevenly."),
    ],
)
def test_keys_that_have_more_rows_and_subtasks_that_have_more_keys_are_told_apart(
    rows: tuple[int, int], keys: tuple[int | None, int], cause: str
) -> None:
    def at(second: int) -> list[SubtaskMetrics]:
        counts = [
            metrics(2, one, ["count"], rows[one] * second, busy * second, 0, (1 - busy) * second)
            for one, busy in ((0, 0.1), (1, 0.99))
        ]
        for one, held in zip(counts, keys, strict=True):
            if held is not None:
                gauge = Gauge()
                gauge.set(held)
                one.operators[0][1].keys = {"total": gauge}
        return [metrics(1, 0, ["events"], 1000 * second, 0.1 * second, 0.9 * second), *counts]

    observed = Observed()
    observed.see(ORDERS, at(10), 10.0, 0)
    found = why_slow(observed.see(ORDERS, at(20), 20.0, 0))
    assert (found.kind, found.subtask) == ("skew", 1)
    assert cause in found.sentence
    assert ("keys_of_all" in dict(found.figures)) is bool(keys[0])


def test_a_subtask_with_all_rows_is_named_and_one_beside_others_that_are_as_busy_is_not() -> None:
    def named(shares: tuple[float, float], rows: tuple[int, int]) -> Reason:
        def at(second: int) -> list[SubtaskMetrics]:
            source = metrics(1, 0, ["events"], 1000 * second, 0.1 * second, 0.9 * second)
            counts = [
                metrics(2, one, ["count"], rows[one] * second, shares[one] * second, 0, (1 - shares[one]) * second)
                for one in (0, 1)
            ]
            return [source, *counts]

        observed = Observed()
        observed.see(ORDERS, at(10), 10.0, 0)
        return why_slow(observed.see(ORDERS, at(20), 20.0, 0))

    assert named((0.05, 0.99), (0, 900)).kind == "skew"
    assert "Subtask 1 of 'count -> sink' (key groups 64 to 127) gets all rows" in named((0.05, 0.99), (0, 900)).sentence
    assert named((0.05, 0.99), (200, 900)).subtask == 1
    assert named((0.98, 0.99), (200, 900)).kind == "slow-sink"


def test_a_function_that_keeps_the_collector_of_garbage_busy_is_named() -> None:
    def at(second: int) -> list[SubtaskMetrics]:
        read = [metrics(1, 0, ["x"], 10 * second, 0.1 * second, 0.9 * second)]
        return [*read, replace(metrics(2, 0, ["x"], 10 * second, second), garbage_seconds=0.4 * second)]

    observed = Observed()
    observed.see(CHAIN, at(10), 10.0, 0)
    found = why_slow(observed.see(CHAIN, at(20), 20.0, 0))
    assert (found.kind, found.task) == ("garbage", 2)
    assert "'enrich' looks for garbage 40% of its time; 'read' waits for it" in found.sentence


@pytest.mark.parametrize(
    ("busy", "marks", "behind_ms", "kind"),
    [
        (0.2, (700_000, 600_000), 0, "lagging-split"),
        (1.0, (700_000, 600_000), 0, "lagging-split"),
        (0.2, (600_001, 600_000), 90_000, "lagging-split"),
        (0.2, (640_000, 600_000), 0, "fine"),
        (1.0, (640_000, 600_000), 0, "source"),
        (0.2, (MAX_TIMESTAMP, 600_000), 0, "fine"),
        (0.2, (MIN_TIMESTAMP, 600_000), 0, "fine"),
    ],
)
def test_a_split_that_is_far_behind_is_named(busy: float, marks: tuple[int, int], behind_ms: int, kind: str) -> None:
    tasks = (replace(CHAIN.tasks[0], parallelism=2), *CHAIN.tasks[1:])

    def at(second: int) -> list[SubtaskMetrics]:
        read = []
        for one, mark in enumerate(marks):
            counted = metrics(1, one, ["read"], 10 * second, busy * second, 0.0, (1 - busy) * second)
            counted.operators[0][1].watermark = mark
            slowest = ("orders-3",) if one else ("orders-1",)
            read.append(replace(counted, gate=GateStatistics(splits=2, slowest=slowest, behind_ms=one * behind_ms)))
        return read

    observed = Observed()
    observed.see(replace(CHAIN, tasks=tasks), at(10), 10.0, 0)
    found = why_slow(observed.see(replace(CHAIN, tasks=tasks), at(20), 20.0, 0))
    assert found.kind == kind
    if kind == "lagging-split":
        assert (found.task, found.subtask) == (1, 1)
        assert "Split orders-3 of 'read' is " in found.sentence


def test_a_subtask_whose_splits_are_idle_is_not_taken_for_one_that_is_behind() -> None:
    tasks = (replace(CHAIN.tasks[0], parallelism=2), *CHAIN.tasks[1:])

    def at(second: int) -> list[SubtaskMetrics]:
        quiet, reading = (metrics(1, one, ["read"], 10 * second, 0.2 * second, 0.0, 0.8 * second) for one in (0, 1))
        quiet.operators[0][1].watermark, reading.operators[0][1].watermark = 600_000, 4_200_000
        reading.gate = GateStatistics(splits=1, slowest=("orders-1",))
        return [replace(quiet, gate=GateStatistics(splits=1)), reading]

    observed = Observed()
    observed.see(replace(CHAIN, tasks=tasks), at(10), 10.0, 0)
    assert why_slow(observed.see(replace(CHAIN, tasks=tasks), at(20), 20.0, 0)).kind == "fine"


def test_event_time_that_stands_is_told_where_all_else_is_well() -> None:
    wait = EventTimeWait("window", 0, "read", 0, 7, 9, 1_000, None, ("orders-3",))
    found = reason(replace(CHAIN, event_time=(wait,)), (0.2, 0.0), (0.2, 0.0), (0.2, 0.0))
    assert found.kind == "lagging-split"
    assert "Windows do not fire: operator 'window', subtask 0: no watermark has come" in found.sentence
    assert "split 'orders-3' is furthest behind" in found.sentence
    other = replace(CHAIN, event_time=(replace(wait, splits=()),))
    assert reason(other, (0.2, 0.0), (0.2, 0.0), (0.2, 0.0)).kind == "event-time"


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


@pytest.mark.parametrize(("sync_ms", "kind"), [(800.0, "checkpoint"), (100.0, "busy")])
def test_a_task_for_which_others_wait_while_it_captures_waits_for_its_checkpoints(sync_ms: float, kind: str) -> None:
    assert reason(often(), (0.1, 0.9), (0.9, 0.0), (0.1, 0.0), sync_ms=sync_ms).kind == kind


def test_checkpoints_that_only_wait_for_a_task_at_work_are_not_named() -> None:
    assert reason(often(), (0.1, 0.0), (0.7, 0.0), (0.1, 0.0), start_delay_ms=850.0).kind == "fine"


def test_work_on_rows_in_the_task_of_a_source_is_said_to_be_a_cause() -> None:
    read = replace(CHAIN.tasks[0], operators=(OperatorInfo("read"), OperatorInfo("enrich")))
    found = reason(replace(CHAIN, tasks=(read,)), (1.0, 0.0))
    assert "a higher parallelism, or less work a row, would help" in found.sentence


def test_without_rows_or_without_running_there_is_nothing_to_be_slow() -> None:
    assert reason(CHAIN, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), rows=0).kind == "idle"
    waiting = replace(ORDERS, status=JobStatus.DEPLOYING, waiting_for="4 CPUs")
    assert why_slow(viewed(waiting)).sentence == "The job does not run: it is starting, waiting for 4 CPUs."


@pytest.mark.parametrize(("history", "begun"), [((), "started"), (ORDERS.restart_history, "restarted")])
def test_a_job_that_has_just_begun_is_not_taken_for_one_without_rows(
    history: tuple[RestartInfo, ...], begun: str
) -> None:
    info = replace(CHAIN, restart_history=history, since_ms=10_000)

    def seen(observed: Observed, second: int) -> Reason:
        """What is said so many seconds after the job began to run."""
        subtasks = [metrics(number, 0, ["x"], 0, 0.0, 0.0, float(second)) for number in (1, 2, 3)]
        return why_slow(observed.see(info, subtasks, float(second), 10_000 + 1000 * second))

    observed = Observed()
    observed.see(replace(info, status=JobStatus.RESTARTING), [], 0.0, 10_000)
    for second in (1, 4):
        found = seen(observed, second)
        assert (found.kind, found.sentence) == ("starting", f"The job has just {begun}: no rows have come yet.")
    assert seen(observed, 20).kind == "idle"


def test_at_the_first_reading_there_are_no_figures() -> None:
    subtasks = [metrics(number, 0, ["x"], 500, 1.0, 0.0, 60.0) for number in (1, 2, 3)]
    found = why_slow(Observed().see(CHAIN, subtasks, 1.0, 90_000))
    assert (found.kind, found.sentence.partition(":")[0]) == ("starting", "There are no figures yet")


def test_a_job_whose_manager_does_not_answer_is_restarting_whatever_was_seen_last() -> None:
    assert why_slow(replace(viewed(), answers=False)).sentence == "The job does not run: it is restarting."
