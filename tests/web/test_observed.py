"""Rates over the window, what is kept, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.engine.job.info import JobInfo, SubtaskInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import GateStatistics
from penstock.web import observed as observed_module
from penstock.web.observed import CHART_POINTS, ENDED_KEPT, Observed, status_of
from penstock.web.prometheus import prometheus_text
from tests.web.fakes import ORDERS, metrics, orders_metrics, viewed


def test_rates_are_over_the_window_and_not_since_the_beginning() -> None:
    observed = Observed()
    for second in range(1, 200):
        rows = second if second < 100 else 100 + (second - 100) * 10
        observed.see(ORDERS, orders_metrics(rows), float(second), second * 1000)
    task = observed.jobs()[0].task(2)
    assert task is not None
    assert task.subtasks.rate("rows_in") == pytest.approx(1000, rel=0.02)


def test_shares_add_up_and_the_first_reading_has_those_since_the_start() -> None:
    observed = Observed()
    first = observed.see(ORDERS, orders_metrics(10), 10.0, 0).task(2)
    assert first is not None
    assert (first.subtasks.highest("busy"), first.subtasks.rate("rows_in")) == (pytest.approx(0.9), 0)
    task = viewed().task(2)
    assert task is not None
    assert [one.rates.busy + one.rates.blocked + one.rates.idle for one in task.subtasks] == pytest.approx([1, 1])


def test_a_new_attempt_begins_anew() -> None:
    observed = Observed()
    observed.see(ORDERS, orders_metrics(1000), 1.0, 0)
    observed.see(replace(ORDERS, attempt=2), orders_metrics(1), 2.0, 0)
    task = observed.see(replace(ORDERS, attempt=2), orders_metrics(2), 3.0, 0).task(2)
    assert task is not None
    assert task.subtasks.rate("rows_in") == pytest.approx(100)


def test_a_skewed_task_says_by_how_much() -> None:
    even, skewed = (viewed(even=even).task(2) for even in (True, False))
    assert even is not None
    assert skewed is not None
    assert (even.subtasks.skew, skewed.subtasks.skew) == (pytest.approx(0), pytest.approx(0.96))


def test_what_is_left_to_read_and_how_far_time_is_behind() -> None:
    read = [*orders_metrics(10), metrics(1, 1, ["events"], 7)]
    for subtask, pending in ((read[0], 5), (read[-1], 2)):
        subtask.operators[0][1].group.gauge("pending_records", lambda pending=pending: pending)
    read[0].gate = GateStatistics(splits=3)
    view = Observed().see(ORDERS, read, 1.0, seen := 1_602_500)
    source, count = view.tasks
    assert (source.pending_records, source.subtasks.total("splits")) == (7, 3)
    assert view.watermark_lag_ms(source) == seen - 1_500_000
    plain = viewed().task(2)
    assert plain is not None
    assert (plain.pending_records, plain.subtasks.total("splits"), count.subtasks.total("splits")) == (None, 0, 0)
    text = prometheus_text([view])
    assert 'penstock_task_splits_left{job="orders",task="1: events"} 3' in text
    assert 'penstock_task_watermark_lag_seconds{job="orders",task="1: events"} 102.5' in text


def test_what_is_kept_is_bounded() -> None:
    observed = Observed()
    for second in range(2 * CHART_POINTS):
        observed.see(ORDERS, orders_metrics(second), float(second), second)
    assert {len(points) for points in observed.charts("orders-1").values()} == {CHART_POINTS}
    for number in range(2 * ENDED_KEPT):
        observed.see(JobInfo(f"j{number}", "x", JobStatus.FINISHED), [], 1.0, 1)
    assert len(observed.jobs()) == ENDED_KEPT + 1


def test_of_many_wide_jobs_that_have_ended_only_the_last_keep_their_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    width = 2
    monkeypatch.setattr(observed_module, "FIGURES_KEPT", 2 * width)
    subtasks = tuple(SubtaskInfo(number) for number in range(width))
    tasks = (TaskInfo(1, "wide", width, subtasks=subtasks),)
    wide = [JobInfo(f"j{number}", "wide", JobStatus.FINISHED, tasks=tasks, since_ms=number) for number in range(5)]
    counters = [metrics(1, number, ["wide"], 1) for number in range(width)]
    observed = Observed(wide[:2])
    for number, info in enumerate(wide[2:], 2):
        observed.see(info, counters, float(number), number)
    held = {view.info.id: (len(view.tasks[0].info.subtasks), len(view.tasks[0].subtasks)) for view in observed.jobs()}
    # The last is always shown whole, beside as many as may be.
    assert held == {"j4": (width, width), "j3": (width, width), "j2": (width, width), "j1": (0, 0), "j0": (0, 0)}
    assert observed.charts("j1") == {}
    # What runs keeps its figures whatever has ended.
    observed.see(ORDERS, orders_metrics(1), 9.0, 9)
    observed.see(replace(wide[0], id="j5"), counters, 10.0, 10)
    running = observed.job("orders-1")
    assert running is not None
    assert all(task.subtasks for task in running.tasks)


def test_charts_begin_when_there_are_rates() -> None:
    observed = Observed()
    for second in (10, 20):
        observed.see(ORDERS, orders_metrics(second), float(second), second)
    assert [[round(one.rows_in) for one in points] for points in observed.charts("orders-1").values()] == [[100], [100]]


def test_a_job_whose_manager_is_away_is_being_restarted() -> None:
    observed = Observed()
    observed.see(ORDERS, [], 1.0, 1)
    observed.miss([])
    assert status_of(observed.jobs()[0]) is JobStatus.RESTARTING
    observed.see(ORDERS, [], 2.0, 2)
    assert status_of(observed.jobs()[0]) is JobStatus.RUNNING


def test_the_end_of_a_job_is_written_down_before_anybody_is_shown_it() -> None:
    shown: list[JobStatus] = []

    def write(info: JobInfo) -> None:
        shown.extend(view.info.status for view in observed.jobs() if view.info.id == info.id)

    observed = Observed(on_end=write)
    observed.see(ORDERS, [], 1.0, 1)
    observed.see(replace(ORDERS, status=JobStatus.CANCELLED), [], 2.0, 2)
    assert shown == [JobStatus.RUNNING]
    assert observed.jobs()[0].info.status is JobStatus.CANCELLED


def test_jobs_are_found_by_id_and_running_ones_by_name() -> None:
    observed = Observed([replace(ORDERS, id="orders-0", status=JobStatus.FAILED)])
    observed.see(ORDERS, [], 1.0, 1)
    found = [observed.job(name) for name in ("orders", "orders-0", "other")]
    assert [one.info.id if one else None for one in found] == ["orders-1", "orders-0", None]
