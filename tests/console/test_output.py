"""Whatever names and values hold, what is printed for people gives the terminal no orders."""

from __future__ import annotations

import io
import json

import pytest
from rich.table import Table

from penstock.console import command_line
from penstock.console.command_line import run_command
from penstock.console.output import Output
from penstock.engine.errors import SubtaskError

ORDERS = "\x1b]0;owned\x07\x1b[2Jorders\r\x9b31m\u202e"


def test_control_characters_are_shown_as_text() -> None:
    table = Table("name")
    table.add_row(ORDERS)
    for shown in (ORDERS, table):
        stream = io.StringIO()
        Output(stream).result({"name": ORDERS}, shown)
        assert not {"\x1b", "\x07", "\r", "\x9b", "\u202e"} & set(stream.getvalue())
        assert "\\x1b[2Jo" in stream.getvalue()


def test_errors_are_shown_as_text_too(capsys: pytest.CaptureFixture[str]) -> None:
    Output(io.StringIO()).error(ValueError(f"job {ORDERS}\n\tdoes not run"))
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\\x1b[2Jorders" in err
    assert "does not run" in err.splitlines()[-1]


def test_an_error_that_nobody_foresaw_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raising(*arguments: object, **options: object) -> None:
        raise AttributeError("module 'six' has no attribute 'moves'")

    monkeypatch.setattr(command_line, "_app", lambda: raising)
    assert run_command(["list"]) == 1
    assert capsys.readouterr().err == (
        "error: module 'six' has no attribute 'moves' (AttributeError; --traceback shows where)\n"
    )


def test_all_frames_of_an_error_are_shown_to_who_asks_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    frames = f'Traceback (most recent call last):\n  File "{command_line.__file__}", line 1, in run\nOSError: full'
    error = SubtaskError("sink", 0, "OSError: full", frames)
    Output(io.StringIO()).error(error)
    assert command_line.__file__ not in capsys.readouterr().err
    Output(io.StringIO(), tracebacks=True).error(error)
    assert command_line.__file__ in capsys.readouterr().err


def test_json_is_whole() -> None:
    stream = io.StringIO()
    Output(stream, as_json=True).result({"name": ORDERS}, ORDERS)
    assert "\x1b" not in stream.getvalue()
    assert json.loads(stream.getvalue()) == {"name": ORDERS}
