"""What `info` shows of a job: short in a terminal, whole where that is asked for, and never cut within a path."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from penstock.console.job_views import autoscaler_view, job_view, jobs_table
from penstock.console.output import duration_text, one_line
from penstock.engine.autoscaler.report import AutoscalerInfo, ScalingRecord, TaskAdvice
from penstock.engine.elements import SnapshotKind
from penstock.engine.job.info import CheckpointInfo, CheckpointsInfo, EventTimeWait, JobInfo, RestartInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.metric_types import MetricKind, MetricReading
from penstock.engine.metrics import JobMetrics, OperatorReport

CAUSE = "the process of task 'map', subtask 0 died: The actor died unexpectedly\n\tclass_name: SubtaskActor\n\tpid: 7"


RESTART = RestartInfo("failure", CAUSE, 1000, attempt=1_000_002, checkpoint=3, restore_ms=9.0)
RUNNING = JobInfo("orders-1", "orders", JobStatus.RUNNING, attempt=1_000_002, restarts=1, restart_history=(RESTART,))


def shown(content: JobInfo, verbose: bool = False) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(job_view(content, str if verbose else one_line), crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_failure_has_one_line_and_all_of_them_where_that_is_asked_for() -> None:
    text = shown(replace(RUNNING, error=CAUSE, status=JobStatus.FAILED))
    assert text.count("The actor died unexpectedly (--verbose shows the rest)\n") == 2
    assert "SubtaskActor" not in text
    assert "class_name: SubtaskActor" in shown(RUNNING, verbose=True)


def test_attempts_are_counted_from_1_under_each_manager() -> None:
    assert ": running since 1970-01-01 00:00:00 UTC, attempt 2\n" in shown(RUNNING)
    assert "(attempt 2, from checkpoint 3)" in shown(RUNNING)
    assert "UTC, attempt 1 of job manager 3\n" in shown(replace(RUNNING, attempt=3_000_001))


def test_a_restart_that_has_not_come_to_its_end_says_so() -> None:
    begun = replace(RESTART, attempt=0, checkpoint=0, restore_ms=None)
    assert "UTC (it has not come to a new attempt): the process" in shown(replace(RUNNING, restart_history=(begun,)))
    first = replace(begun, attempt=1_000_002, restore_ms=1.0)
    assert "(attempt 2, from the beginning)" in shown(replace(RUNNING, restart_history=(first,)))


def test_a_restart_that_fails_again_shows_what_keeps_the_job_from_running_now() -> None:
    again = replace(RESTART, restore_ms=None, failures=7, last_cause="no broker can be used\nat localhost")
    restarting = replace(RUNNING, status=JobStatus.RESTARTING, restart_history=(again,))
    assert "  failed 7 times, the last time by: no broker can be used (--verbose shows the rest)\n" in shown(restarting)
    console = Console(file=io.StringIO(), width=400)
    console.print(jobs_table([restarting]))
    assert isinstance(console.file, io.StringIO)
    assert "restarted after: no broker can be used" in console.file.getvalue()


def test_an_error_that_keeps_a_rescaling_job_from_running_is_shown() -> None:
    once = replace(RESTART, kind="rescale", cause="rescale to 3", restore_ms=None, failures=1, last_cause="no broker")
    restarting = replace(RUNNING, status=JobStatus.RESTARTING, restart_history=(once,))
    assert ": rescale to 3\n  failed once, by: no broker\n" in shown(restarting)
    console = Console(file=io.StringIO(), width=400)
    console.print(jobs_table([restarting, replace(RUNNING, restart_history=(replace(once, last_cause=None),))]))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("restarted after: no broker") == 1
    assert "rescale to 3" not in console.file.getvalue()


def test_a_job_that_fails_again_and_again_shows_what_makes_it_give_up() -> None:
    hint = "7 restarts so far; restart-strategy.type, such as -Drestart-strategy.type=fixed-delay, says when"
    assert hint in shown(replace(RUNNING, restarts=7, status=JobStatus.RESTARTING))
    assert "so far" not in shown(replace(RUNNING, restarts=2))
    assert "so far" not in shown(replace(RUNNING, restarts=7, status=JobStatus.CANCELLED))


def test_the_table_shows_why_jobs_have_failed_and_whose_manager_is_silent() -> None:
    failed = replace(RUNNING, status=JobStatus.FAILED, error="UserCodeError: no number\nTraceback ...")
    silent = JobInfo("", "sales", JobStatus.RESTARTING, answers=False)
    console = Console(file=io.StringIO(), width=300)
    console.print(jobs_table([silent, failed]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "UserCodeError: no number" in text
    assert "Traceback" not in text
    assert "no answer" in text
    assert "restarting" not in text


def test_a_job_that_runs_again_after_a_failure_shows_it_in_the_table() -> None:
    console = Console(file=io.StringIO(), width=300)
    console.print(jobs_table([RUNNING, replace(RUNNING, restart_history=(), restarts=0)]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("restarted after: the process of task 'map', subtask 0 died: The actor died") == 1
    assert "class_name" not in text


def test_a_job_that_was_stopped_says_with_which_savepoint() -> None:
    stop = CheckpointInfo(2, SnapshotKind.SUSPEND, "completed", 1, 0, 1.0, 1, 1, 9, 9, url="file:///s/savepoint-2")
    checkpoints = CheckpointsInfo(completed=1, history=(stop,))
    stopped = replace(RUNNING, status=JobStatus.FINISHED, checkpoints=checkpoints)
    assert "\nstopped with savepoint file:///s/savepoint-2\n" in shown(stopped)
    console = Console(file=io.StringIO(), width=300)
    console.print(jobs_table([stopped]))
    assert isinstance(console.file, io.StringIO)
    assert "stopped with savepoint file:///s/savepoint-2" in console.file.getvalue()
    assert "\ndrained, savepoint file:///s/savepoint-2\n" in shown(replace(stopped, drained=True))
    running_out = replace(checkpoints, history=(replace(stop, kind=SnapshotKind.SAVEPOINT),))
    for other in (
        replace(stopped, status=JobStatus.RUNNING),
        replace(stopped, checkpoints=running_out),
        replace(stopped, checkpoints=None),
    ):
        assert "stopped with" not in shown(other)


def test_a_job_that_was_ended_and_kept_its_checkpoint_says_where_it_is() -> None:
    kept = CheckpointsInfo(completed=7, latest=7, latest_url="file:///c/orders/chk-7")
    suspended = replace(RUNNING, status=JobStatus.CANCELLED, checkpoints=kept)
    assert "\nleft file:///c/orders/chk-7; resume with --resume\n" in shown(suspended)
    for other in (
        replace(suspended, status=JobStatus.RUNNING),
        replace(suspended, checkpoints=replace(kept, latest=None, latest_url=None)),
    ):
        assert "resume with" not in shown(other)


def test_what_was_counted_before_a_restart_is_said_to_be_gone() -> None:
    def told(info: JobInfo) -> str:
        console = Console(file=io.StringIO(), width=120)
        latency = MetricReading("events", MetricKind.HISTOGRAM, 3, 1.0, 90.0, ((0.5, 4.0), (0.99, 88.0)), 95.0)
        report = OperatorReport(1, 0, "map", 1, 5, 5, 0, 0.5, 0.0, None, latency=(latency,))
        console.print(job_view(info, str, metrics=JobMetrics((report,))), crop=False)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    assert "a restart sets its counters to zero" in told(RUNNING)
    assert "counters" not in told(replace(RUNNING, restart_history=()))
    assert "latency from events to map: p50 4 ms, p99 88 ms, at most 90 ms" in told(RUNNING)


def test_operators_are_shown_with_their_counters_and_event_time_that_waits_with_its_reason() -> None:
    wait = EventTimeWait("windows", 0, "clicks", 1, 0, 20_000, 0)
    counted = OperatorReport(1, 0, "clicks", 2, 0, 20_000, 3, 0.5, 0.25, None)
    console = Console(file=io.StringIO(), width=300)
    console.print(job_view(replace(RUNNING, event_time=(wait,)), str, 30_000, JobMetrics((counted,))), crop=False)
    assert isinstance(console.file, io.StringIO)
    text = " ".join(console.file.getvalue().split())
    assert "clicks 0 20000 3 50% 25% -" in text
    assert "warning: operator 'windows', subtask 0: no watermark has come for 30 s, and 20000 rows have" in text
    assert "wait for 'clicks', subtask 1, which has given no row yet" in text


def test_short_times_are_in_milliseconds() -> None:
    assert [duration_text(seconds) for seconds in (0.0, 0.0404, 0.99, 2.62)] == ["0 ms", "40 ms", "990 ms", "2.6 s"]


def test_the_autoscaler_shows_what_it_sees_and_why_it_did_what() -> None:
    reason = "window: 0.92 busy at 410 k/s, target 2 -> 3"
    task = TaskAdvice(2, "window", 2, 3, 0.92, 410_000.0, 446_000.0, 410_000.0, reason)
    record = ScalingRecord(0, "refused", (("w", 3),), (reason,), "there is no room")
    console = Console(file=io.StringIO(), width=120)
    console.print(autoscaler_view(AutoscalerInfo("watching: 35 of 60 s", True, 12.0, (task,), (record,))))
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines[:2] == ["dry run: watching: 35 of 60 s", "the sources are 12 s behind"]
    assert lines[3].split() == ["window", "2", "3", "0.92", "410", "k/s", "446", "k/s", "410", "k/s"]
    assert lines[4:] == [reason, "1970-01-01 00:00:00 UTC refused: there is no room", f"  {reason}"]


def test_a_rescale_that_is_under_way_is_shown() -> None:
    assert "\nbeing changed: rescale window to 3\n" in shown(replace(RUNNING, changing="rescale window to 3"))
