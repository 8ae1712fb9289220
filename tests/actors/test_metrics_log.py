"""The line that a job manager logs of its job from time to time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from penstock.actors.metrics_log import log_metrics, metrics_line
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import OperatorMetrics, SubtaskMetrics, report


def reading(rows: int, late: int = 0) -> list[SubtaskMetrics]:
    source = SubtaskMetrics(1, 0, [("events", OperatorMetrics(0, rows))], busy_seconds=1.0, blocked_seconds=3.0)
    window = [("window", OperatorMetrics(rows, rows // 10, late)), ("sink", OperatorMetrics(rows // 10, 0))]
    return [source, SubtaskMetrics(2, 0, window, busy_seconds=2.0, idle_seconds=2.0)]


def test_the_line_has_rates_since_the_reading_before_and_where_time_goes() -> None:
    line = metrics_line("orders", JobStatus.RUNNING, report(reading(1000)), report(reading(3000, late=7)), 2.0)
    assert line == (
        "job orders running: events out 1000/s busy 25% backpressured 75%; "
        "window in 1000/s out 100/s late 7 busy 50% backpressured 0%; sink in 100/s out 0/s"
    )


def test_a_new_attempt_that_counts_from_0_has_no_negative_rates() -> None:
    line = metrics_line("orders", JobStatus.RUNNING, report(reading(1000)), report(reading(10)), 1.0)
    assert "-" not in line


def test_a_job_is_told_of_until_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    states = iter([JobStatus.DEPLOYING, JobStatus.RUNNING, JobStatus.FINISHED])

    async def status() -> JobStatus:
        return next(states)

    async def read() -> list[SubtaskMetrics]:
        return []

    with caplog.at_level(logging.INFO):
        asyncio.run(log_metrics("orders", 0.0001, status, read))
    assert [record.message for record in caplog.records] == [
        "job orders deploying: no operators yet",
        "job orders running: no operators yet",
    ]
