"""Which restart answers which fault, and what the report makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from penstock.engine.job.info import JobInfo, RestartInfo
from penstock.engine.job.status import JobStatus
from penstock.testing.chaos import ChaosReport, ChaosRun, ChaosSchedule, FaultRecord, Verdict
from penstock.testing.chaos.recoveries import Recoveries
from penstock.testing.chaos.report import HARMLESS, NOT_RECOVERED, RECOVERED


def info(started_ms: int, *restarts: tuple[float | None, float | None], status: str = "running") -> JobInfo:
    history = (RestartInfo("failure", "", 0, detected, restore_ms=restore) for detected, restore in restarts)
    return JobInfo(
        "orders-1", "orders", JobStatus(status), started_ms + 500, started_ms, restart_history=tuple(history)
    )


def fault(fired: float, outcome: str = NOT_RECOVERED, **more: Any) -> FaultRecord:
    return FaultRecord("kill", "x", at_s=fired, fired=fired, fired_ms=fired * 1000, outcome=outcome, **more)


def explained(record: FaultRecord, *infos: JobInfo) -> FaultRecord:
    recoveries = Recoveries()
    for one in infos:
        recoveries.see(one, 0)
    recoveries.explain([record])
    return record


def test_a_fault_is_answered_by_the_restart_behind_it() -> None:
    record = explained(fault(10), info(1000, (5, 200.0), (10.04, 300.0), (15, 100.0)))
    assert (record.outcome, record.detect_ms, record.restore_ms) == (RECOVERED, 40, 300)


def test_a_fault_in_the_middle_of_a_restart_is_part_of_it() -> None:
    assert explained(fault(10), info(1000, (9.5, 2000.0))).detect_ms == 0


def test_a_restart_that_is_not_complete_answers_nothing() -> None:
    assert explained(fault(10), info(1000, (10.1, None), status="restarting")).outcome == NOT_RECOVERED


def test_what_a_killed_manager_left_is_answered_by_its_successor() -> None:
    for record in (fault(10), fault(10, on_manager=True)):
        explained(record, info(1000, (4, 100.0), (9.9, None)), info(11_500, (20, 100.0)))
        assert (record.outcome, record.detect_ms, record.restore_ms) == (RECOVERED, 1500, 500)


def test_a_manager_that_is_killed_before_all_runs_hands_the_fault_on() -> None:
    killed = info(11_500, status="restarting")
    for record in (fault(10), fault(10, on_manager=True)):
        assert explained(record, info(1000, (4, 100.0)), killed).outcome == NOT_RECOVERED
        explained(record, info(1000, (4, 100.0)), killed, info(14_000, status="running"))
        assert (record.outcome, record.detect_ms, record.restore_ms) == (RECOVERED, 1500, 3000)


def test_what_a_manager_tells_of_the_one_before_counts_once() -> None:
    recoveries, told = Recoveries(), info(11_500, (20, 100.0))
    (newest,) = told.restart_history
    told = replace(told, restart_history=(replace(newest, detected_monotonic=None), newest))
    recoveries.see(info(1000, (4, 100.0)), 0)
    recoveries.see(told, 0)
    assert recoveries.restarts == 2


def test_what_was_asked_for_is_no_restart() -> None:
    recoveries, seen = Recoveries(), info(1000, (4, 100.0), (9, 100.0))
    failure, other = seen.restart_history
    seen = replace(seen, restart_history=(failure, replace(other, kind="rescale")))
    recoveries.see(seen, 0)
    recoveries.see(info(11_500, (20, 100.0)), 0)
    assert recoveries.restarts == 2


def test_a_takeover_is_no_restart_behind_a_failure_and_ends_with_its_first_rows() -> None:
    recoveries, seen = Recoveries(), info(11_500, (11.5, 100.0))
    takeover = replace(seen.restart_history[0], kind="takeover")
    seen = replace(seen, restart_history=(takeover,))
    recoveries.see(info(1000), 0)
    recoveries.see(seen, 0)
    assert (recoveries.restarts, recoveries.managers, recoveries.has_output) == (0, 2, False)
    recoveries.see(replace(seen, restart_history=(replace(takeover, first_output_ms=5.0),)), 0)
    assert recoveries.has_output


def test_a_pause_that_nobody_noticed_is_not_answered_by_a_later_restart() -> None:
    assert explained(fault(10, HARMLESS, until=12), info(1000, (14, 100.0))).outcome == HARMLESS


def report(*violations: str) -> ChaosReport:
    run = ChaosRun(
        "payments", ChaosSchedule.random(7), [fault(1.0, RECOVERED, detect_ms=12.0), FaultRecord("stop", optional=True)]
    )
    verdict = Verdict("sequence", rows=5)
    for violation in violations:
        verdict.object("lost", violation)
    run.verdicts.append(verdict)
    return ChaosReport([run])


@pytest.mark.parametrize("violations", [(), ("key 1 lacks 2",)])
def test_the_report_tells_what_was_done_and_what_came_of_it(violations: tuple[str, ...]) -> None:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(report(*violations))
    text = captured.get()
    assert "1 schedule, 1 fault fired: 1 not fired, 1 recovered" in text
    assert "12 ms" in text
    assert ("no violations" in text) == (not violations)
    assert ("seed 7: sequence: lost: key 1 lacks 2" in text) == bool(violations)


def test_a_run_that_hit_nothing_fails_and_says_that_nothing_was_tested_rather_than_that_rows_are_wrong() -> None:
    run = ChaosRun("payments", ChaosSchedule.random(7), [FaultRecord("pause the job manager", optional=True)])
    run.verdicts.append(Verdict("sequence", rows=5))
    console = Console(width=200)
    with console.capture() as captured:
        console.print(ChaosReport([run]))
    text = captured.get()
    assert "NOTHING TESTED" in text
    assert "pause the job manager was not fired: the job had ended before its moment came" in text
    assert "VIOLATION" not in text
    assert "no violations" not in text
    document = ChaosReport([run]).to_dict()
    assert document["verdict"] == "nothing tested"
    assert len(document["violations"]) == 1


def test_in_80_columns_no_word_and_no_figure_is_cut() -> None:
    run = ChaosRun("payments", ChaosSchedule.random(123_456))
    long = "aggregate(n=count(*)) -> files(out), subtask 10"
    times = {"detect_ms": 34.0, "restore_ms": 12_340.0, "first_output_ms": 23_000.0}
    run.faults = [
        FaultRecord("kill a subtask and a subtask", long, at_s=123.21, outcome=RECOVERED, note="was restarted", **times)
    ]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(ChaosReport([run]))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    table = lines[: lines.index("")]
    for figure in ("123456", "123.21 s", "34 ms", "12.34 s", "23.00 s", "detected", "restored", "output"):
        assert any(figure in line for line in table), figure
    told = " ".join(line[18:52].strip() for line in table)
    for word in ("subtask", "aggregate(n=count(*))", "files(out),", "recovered:", "restarted"):
        assert word in told, told
    assert "…" not in captured.get()


def test_the_report_as_json_has_everything() -> None:
    document = report("key 1 lacks 2").to_dict()
    assert document["violations"] == ["seed 7: sequence: lost: key 1 lacks 2"]
    assert document["verdict"] == "violated"
    assert report().to_dict()["verdict"] == "held"
    assert document["runs"][0]["schedule"] == str(ChaosSchedule.random(7)).splitlines()
    assert document["checked"] == {"rows checked": 5, "lost": 1}
    assert document["times_ms"]["detect_ms"] == {"median": 12.0, "longest": 12.0, "measured": 1}
