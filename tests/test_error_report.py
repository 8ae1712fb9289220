"""A failed job in one screen: the user's own lines, where it was, the row and what to do, and nothing of ours."""

from __future__ import annotations

import io
import queue
import signal
import subprocess
import sys
import traceback
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import penstock as ps
from penstock import error_report
from penstock.engine import errors
from penstock.engine.errors import ConfigurationError, JobFailedError, PenstockError, UserCodeError
from penstock.error_report import own_place, report, show_errors_briefly


def number_of(row: Any) -> Any:
    return {"n": int(row["text"])}


def parse(row: Any) -> Any:
    return number_of(row)


def failure() -> JobFailedError:
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    env.from_collection([{"text": "1"}, {"text": "x"}]).map(parse, returns={"n": "int64"}).name("parse").print()
    with pytest.raises(JobFailedError) as failed:
        env.execute("orders")
    return failed.value


def test_a_failed_job_fits_a_screen_with_the_users_lines_alone() -> None:
    text = report(failure())
    first, *rest = text.splitlines()
    assert first == "job 'orders' failed: ValueError: invalid literal for int() with base 10: 'x'"
    assert len(rest) < 24
    assert [line.split(", in ")[1] for line in rest if line.startswith("  File ")] == ["parse", "number_of"], text
    assert "where: operator 'parse', subtask 0" in rest
    assert "with:  {'text': 'x'}" in rest
    assert any(line.startswith("what to do: Mend the function for this row") for line in rest)
    assert text.count("invalid literal") == 2, text


class NoModel(ps.KeyedProcessFunction):
    def open(self, context: Any) -> None:
        raise FileNotFoundError("no file model.bin")

    def process_element(self, row: Any, ctx: Any) -> Any:
        return None


def test_an_error_in_open_speaks_of_no_row() -> None:
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    env.from_collection([{"n": 1}]).key_by("n").process(NoModel, returns={"n": "int64"}).name("score").print()
    with pytest.raises(JobFailedError) as failed:
        env.execute("orders")
    text = report(failed.value)
    assert "in:    open(context)" in text.splitlines()
    assert "row" not in text.partition("what to do: ")[2], text


def test_the_place_is_the_users_line_and_not_that_of_a_library_below() -> None:
    def frame(name: str, line: int) -> traceback.FrameSummary:
        return traceback.FrameSummary(name, line, "f", line="x")

    ours, library = frame(error_report.__file__, 9), frame(str(queue.__file__), 401)
    mine, installed = frame("mine.py", 7), frame(str(pytest.__file__), 1)
    assert own_place([mine, ours, library]) == mine
    assert own_place([installed, ours, library]) == installed
    assert own_place([ours]) is None
    assert own_place([frame("<string>", 1), ours, library]) is None


def test_what_a_function_gives_back_is_not_blamed_on_rows() -> None:
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    stream = env.from_collection([{"u": "a", "n": 1}] * 2).key_by("u")
    stream.reduce(lambda one, other: one["n"] + other["n"]).print()
    with pytest.raises(JobFailedError) as failed:
        env.execute("sums")
    assert "no row is to blame" in report(failed.value)


def _of_function(build: Any) -> str:
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    build(env.from_collection([{"n": 1}])).print()
    with pytest.raises(JobFailedError) as failed:
        env.execute("results")
    return report(failed.value)


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.map(lambda row: {"n": "text"}, returns={"n": "int64"}),
        lambda stream: stream.map(lambda row: {"m": 1}, returns={"n": "int64"}),
        lambda stream: stream.flat_map(lambda row: 5, returns={"n": "int64"}),
        lambda stream: stream.map_batches(lambda batch: 5, returns={"n": "int64"}),
    ],
)
def test_a_return_that_does_not_fit_is_blamed_on_the_function(build: Any) -> None:
    assert "what to do: Mend the function, or declare what it gives (`returns=`" in _of_function(build)


class NoOnTimer(ps.KeyedProcessFunction):
    def process_element(self, row: Any, ctx: Any) -> Any:
        ctx.timer_service.register_processing_time_timer(5)
        return []


def test_a_timer_without_on_timer_is_told_to_implement_it() -> None:
    text = _of_function(lambda stream: stream.key_by("n").process(NoOnTimer, returns={"n": "int64"}))
    assert "on_timer" in text.partition("what to do: ")[2]


def test_a_long_text_of_an_error_is_told_once() -> None:
    def fails(row: Any) -> Any:
        raise ValueError("x" * 5_000)

    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    env.from_collection([{"x": 1}]).map(fails).print()
    with pytest.raises(JobFailedError) as failed:
        env.execute()
    first, *rest = report(failed.value).splitlines()
    assert first == "job 'penstock job' failed: ValueError: ".ljust(400, "x") + " ..."
    assert f"ValueError: {'x' * 5_000}" in rest


def test_a_deep_recursion_shows_its_end() -> None:
    frames = "".join(f'  File "mine.py", line {n}, in f\n    f()\n' for n in range(500))
    deep = UserCodeError(
        "op", 0, "{}", "RecursionError: too deep", f"Traceback (most recent call last):\n{frames}E: x\n"
    )
    lines = report(deep).splitlines()
    assert len(lines) < 45
    assert "  ..." in lines
    assert "E: x" in lines


def test_the_line_of_a_program_does_not_show_its_passwords() -> None:
    frame = traceback.FrameSummary("shop.py", 1, "<module>", line='PostgresSink("postgresql://a:x@10.0.0.1/shop", "t")')
    assert error_report._at(frame) == '\nat shop.py:1: PostgresSink("postgresql://a:***@10.0.0.1/shop", "t")'


def test_an_uncaught_error_of_a_script_is_shown_so_and_any_other_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.delenv("PENSTOCK_TRACEBACK", raising=False)
    show_errors_briefly()
    error = failure()
    assert "Traceback" not in shown(error)
    assert shown(error).startswith("JobFailedError: job 'orders' failed: ValueError")
    assert "Traceback" in shown(_raised(ValueError("no")))
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "full")
    assert shown(error).count("Traceback") > 3


def test_what_a_script_raises_before_there_is_an_environment_is_shown_so_too() -> None:
    script = "from penstock.connectors.records import JsonFormat\nJsonFormat({'at': 'nosuch'})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("ConfigurationError: JSON records: column 'at': 'nosuch' is no type"), done.stderr
    assert "Traceback" not in done.stderr


def test_who_shows_errors_otherwise_goes_on_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*error: Any) -> None:
        pass

    monkeypatch.setattr(sys, "excepthook", own)
    show_errors_briefly()
    assert sys.excepthook is own


def test_an_interrupted_cell_shows_the_users_line_and_no_frames_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: dict[str, Any] = {}
    shown: list[type[BaseException]] = []

    def set_custom_exc(kinds: tuple[type[BaseException], ...], show: Any) -> None:
        taken.update(dict.fromkeys([kind.__name__ for kind in kinds], show))

    shell = SimpleNamespace(
        custom_exceptions=(), set_custom_exc=set_custom_exc, showtraceback=lambda what, tb_offset: shown.append(what[0])
    )
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    show_errors_briefly()

    def cell(interrupted: Any) -> None:
        try:
            interrupted()
        except KeyboardInterrupt as error:
            taken["KeyboardInterrupt"](shell, KeyboardInterrupt, error, error.__traceback__)

    interrupt = Mock(side_effect=KeyboardInterrupt)
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    monkeypatch.setattr("penstock.live_view.wait_showing", interrupt)
    env.from_collection([{"n": 1}]).print()
    cell(lambda: env.execute("orders"))
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "interrupted"
    assert told[1].endswith('cell(lambda: env.execute("orders"))')
    assert (len(told), shown) == (2, [])
    cell(interrupt)
    assert shown == [KeyboardInterrupt]


def test_ctrl_c_in_a_program_that_waits_is_told_in_two_lines_and_ends_it_as_one(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import signal\nfrom penstock import StreamEnvironment\n"
        "env = StreamEnvironment(runtime='local', parallelism=1)\n"
        "env.from_collection([{'n': 1}]).map(lambda row: signal.raise_signal(signal.SIGINT) or row).print()\n"
        "env.execute('orders')\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr.splitlines()[-2:] == ["interrupted", f"at {script}:5: env.execute('orders')"]
    assert "Traceback" not in ended.stderr


def test_rays_way_of_showing_errors_is_kept_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: seen.append(error[1]))
    monkeypatch.setattr(sys.excepthook, "__module__", "ray._private.worker")
    monkeypatch.delenv("PENSTOCK_TRACEBACK", raising=False)
    show_errors_briefly()
    other = _raised(ValueError("no"))
    assert shown(failure()).startswith("JobFailedError: job 'orders' failed: ValueError")
    assert shown(other) == ""
    assert seen == [other]


def test_every_error_says_what_to_do() -> None:
    assert [kind.__name__ for kind in _all(PenstockError) if not kind.remedy] == []
    tree = str(errors.__doc__).split()
    assert [kind.__name__ for kind in _all(PenstockError) if kind.__name__ not in tree] == []
    assert report(ConfigurationError("port must be a number")).splitlines()[0] == "port must be a number"


def _all(kind: type[PenstockError]) -> list[type[PenstockError]]:
    below = [one for one in kind.__subclasses__() if one.__module__ == "penstock.engine.errors"]
    return [found for one in below for found in [one, *_all(one)]]


def _raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as raised:
        raise error
    return raised.value


def shown(error: BaseException) -> str:
    stream = io.StringIO()
    with redirect_stderr(stream):
        sys.excepthook(type(error), error, error.__traceback__)
    return stream.getvalue()


def test_remedies_speak_of_options_that_there_are() -> None:
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    with pytest.raises(JobFailedError) as failed:
        env.sql("SELECT 1 / n FROM (VALUES (0)) AS t(n)").collect().to_arrow()
    shown = report(failed.value)
    assert "TRY_CAST or CASE" in shown
    assert "bad_records" not in shown, "files and tables have none"
