"""The live view: one line an operator, however narrow the terminal is."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from penstock import JobStatus, StreamEnvironment, col
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.job.handle import StageProgress
from penstock.engine.metrics import JobMetrics, OperatorMetrics, SubtaskMetrics, report
from penstock.live_view import Rates, job_table, number_text, stage_bars, tell, watermark_text


def metrics(rows: int) -> JobMetrics:
    operators = [("a filter with a long name, much longer than fits", OperatorMetrics(rows, rows // 2, rows // 100, 0))]
    return report([SubtaskMetrics(1, 0, operators, busy_seconds=3.0, blocked_seconds=1.0)])


def drawn(status: JobStatus, rates: Rates, rows: int, now: float) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(job_table("flights", status, metrics(rows), rates, now))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_while_the_job_runs_the_view_shows_rates_between_two_readings() -> None:
    rates = Rates()
    drawn(JobStatus.RUNNING, rates, 0, 10.0)
    lines = drawn(JobStatus.RUNNING, rates, 40_000, 12.0).splitlines()
    assert lines[0].strip() == "flights: running"
    assert lines[2].split() == ["operator", "x", "in/s", "out/s", "late", "busy", "backpr.", "watermark"]
    assert lines[4].split()[-7:] == ["20.0k", "10.0k", "400", "75%", "25%", "1970-01-01", "00:00"]


def test_at_the_end_the_view_shows_rows_in_all_on_one_line_an_operator() -> None:
    lines = [line for line in drawn(JobStatus.FINISHED, Rates(), 40_000, 12.0).splitlines() if "filter" in line]
    assert len(lines) == 1
    assert "40.0k" in lines[0]
    assert len(lines[0]) <= 80


def test_a_stage_at_work_has_a_bar_as_long_as_the_part_that_is_done() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(stage_bars([StageProgress(4, 4, 0), StageProgress(8, 2, 2), StageProgress(3, 0, 0)]))
    assert isinstance(console.file, io.StringIO)
    (line,) = console.file.getvalue().splitlines()
    assert line.split() == ["stage", "2", "of", "3", "━" * 7 + "╸", "2", "of", "8", "tasks"]
    assert line.index("2 of 8") == line.index("━") + 31


def test_in_a_notebook_the_view_is_one_output_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    outputs = SimpleNamespace(update=shown.append)
    shell = SimpleNamespace(kernel=object(), custom_exceptions=(Exception,))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    displays = SimpleNamespace(HTML=str, display=lambda _, display_id: outputs)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    env = StreamEnvironment(runtime="local", parallelism=1)
    results = env.from_collection([{"n": n} for n in range(7)]).filter(col("n") > 1).collect()
    env.execute("flights")
    assert "flights: finished" in shown[-1]
    assert shown[-1].startswith("<pre>")
    (line,) = (line for line in shown[-1].splitlines() if "filter" in line)
    assert line.split()[4:6] == ["7", "5"], line
    assert len(list(results)) == 5


def test_a_line_for_the_user_is_not_cut_and_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    line = f"Spark's pages: http://[::1]:4040/{'x' * 200}"
    tell(line)
    assert capsys.readouterr() == ("", f"{line}\n")


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (9999, "9999"), (12_345, "12.3k"), (4_560_000, "4.56M"), (2e10, "20.0G")]
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert number_text(number) == text


@pytest.mark.parametrize(
    ("watermark", "text"),
    [(None, ""), (MAX_TIMESTAMP, "end"), (1_357_000_000_000, "2013-01-01 00:26"), (2**60, f"{2**60} ms")],
)
def test_watermarks_are_times_in_utc(watermark: int | None, text: str) -> None:
    assert watermark_text(watermark) == text


def test_no_watermark_yet_is_none_in_the_report() -> None:
    assert (
        report([SubtaskMetrics(1, 0, [("x", OperatorMetrics(watermark=MIN_TIMESTAMP))])]).operators[0].current_watermark
        is None
    )
