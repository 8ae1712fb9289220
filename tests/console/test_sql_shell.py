"""The shell of `penstock sql`, with lines that are typed by the test."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import StreamEnvironment
from penstock.console.output import Output
from penstock.console.sql import run_script
from penstock.console.sql_shell import SqlShell, is_complete


class Typed:
    """Gives lines, or raises what is among them, and keeps the prompts."""

    def __init__(self, lines: list[str | type[BaseException]]) -> None:
        self._lines: Iterator[str | type[BaseException]] = iter(lines)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt.strip())
        line = next(self._lines)
        if isinstance(line, str):
            return line
        raise line


def _typed(*lines: str | type[BaseException]) -> tuple[str, list[str]]:
    """What is shown, and the prompts."""
    env, shown, given = StreamEnvironment(runtime="local", parallelism=1), io.StringIO(), Typed(list(lines))
    output = Output(shown)
    SqlShell(env, output, lambda text: run_script(env, text, output, []), given).loop()
    return shown.getvalue(), given.prompts


def test_a_statement_of_several_lines_runs_at_its_semicolon() -> None:
    shown, prompts = _typed(
        "CREATE VIEW v AS SELECT 41 AS n;", "SELECT n + 1 AS m,", "  'a;", "b' AS t", "FROM v;", EOFError
    )
    assert "42" in shown
    assert "1 row" in shown
    assert prompts == ["penstock>", "penstock>", "...", "...", "...", "penstock>"]


def test_an_error_does_not_end_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    shown, _ = _typed("SELEC 1;", "SELECT 40 + 2 AS n;", "quit")
    assert "42" in shown
    assert "did you mean 'SELECT'" in capsys.readouterr().err


def test_an_interrupt_forgets_what_was_typed() -> None:
    shown, prompts = _typed("SELECT wrong", KeyboardInterrupt, "SELECT 7 AS n;", EOFError)
    assert "7" in shown
    assert prompts == ["penstock>", "...", "penstock>", "penstock>"]


def test_an_interrupt_stops_a_query_and_not_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    env, shown = StreamEnvironment(runtime="local", parallelism=1), io.StringIO()

    def run(text: str) -> None:
        raise KeyboardInterrupt

    SqlShell(env, Output(shown), run, Typed(["SELECT 1;", EOFError])).loop()
    assert "stopped" in capsys.readouterr().err


def test_tables_keywords_and_functions_are_completed() -> None:
    env = StreamEnvironment(runtime="local")
    env.sql("CREATE VIEW flights AS SELECT 1 AS n")
    shell = SqlShell(env, Output(io.StringIO()), lambda text: None, input)
    assert shell.completions("fl")[:2] == ["flights", "FLOOR"]
    assert "SELECT" in shell.completions("sel")


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1;", True),
        ("SELECT 1; -- all", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT `;", False),
        ("SELECT /* ;", False),
        ('SELECT "a";', True),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;", False),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;", True),
    ],
)
def test_a_text_is_complete_at_a_semicolon_of_its_own(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_a_statement_whose_job_cannot_start_is_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    obstacle = folder / "taken"
    obstacle.write_text("")
    good = "CREATE TABLE good (n INT) WITH ('connector'='filesystem','path'='out','format'='json');"
    bad = f"CREATE TABLE bad (n INT) WITH ('connector'='filesystem','path'='{obstacle}/rows','format'='json');"
    env, shown = StreamEnvironment(runtime="local", parallelism=1), io.StringIO()

    def run(text: str) -> None:
        if text == "SELECT 42 AS n;":
            obstacle.unlink()
        run_script(env, text, Output(shown), [])

    both = "EXECUTE STATEMENT SET BEGIN INSERT INTO good VALUES (2); INSERT INTO bad VALUES (3); END;"
    lines = [good, bad, "INSERT INTO bad VALUES (1);", both, "SELECT 41 AS n;", "SELECT 42 AS n;", EOFError]
    SqlShell(env, Output(shown), run, Typed(lines)).loop()
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert len(errors) == 2
    assert "41" in shown.getvalue()
    assert "42" in shown.getvalue()
    assert not obstacle.exists()
    assert not list(folder.rglob("*.json"))
