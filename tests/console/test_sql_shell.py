"""The shell of `penstock sql`, with lines that are typed by the test."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.console.output import Output
from penstock.console.sql import run_script
from penstock.console.sql_results import polls_of
from penstock.console.sql_shell import SqlShell, is_complete
from penstock.engine.errors import RestoreError, SqlError
from penstock.engine.job.handle import CollectResult


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


@pytest.mark.parametrize("mode", ["CHANGELOG", "TABLE"])
def test_an_interrupt_shows_the_rows_that_came(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(result: CollectResult, seen: Callable[[pa.Table], pa.Table]) -> Iterator[Iterator[dict[str, Any]]]:
        yield from polls_of(result, seen)
        raise KeyboardInterrupt

    env, shown = StreamEnvironment(runtime="local", parallelism=1), io.StringIO()
    env.sql(f"SET 'sql-client.execution.result-mode' = '{mode}'")
    monkeypatch.setattr("penstock.console.sql.polls_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_script(env, "SELECT n FROM (VALUES (4711), (4712)) AS t (n)", Output(shown), [])
    assert "4712" in shown.getvalue()
    assert "2 rows" in shown.getvalue()


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


def test_options_of_jobs_are_listed_and_taken_back() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    found = []
    for text in ("SET 'parallelism.default' = '2'", "SET 'pipeline.name' = 'mine'", "RESET 'parallelism.default'"):
        env.sql(text)
        found.append(_set_in(env))
    assert found == [
        {"parallelism.default": "2"},
        {"parallelism.default": "2", "pipeline.name": "mine"},
        {"pipeline.name": "mine"},
    ]
    assert _rows(env, "SET 'pipeline.name'") == [{"key": "pipeline.name", "value": "mine"}]
    assert _rows(env, "SET 'parallelism.default'") == [{"key": "parallelism.default", "value": None}]
    env.sql("RESET")
    assert _set_in(env) == {}
    for text in ("SET 'paralelism.default'", "RESET 'paralelism.default'"):
        with pytest.raises(SqlError, match="did you mean 'parallelism"):
            env.sql(text)


def test_a_job_runs_with_what_is_set_and_without_what_is_taken_back() -> None:
    env = StreamEnvironment(runtime="local")
    env.configure({"parallelism.default": 3})
    numbers = []
    for text in ("SET 'parallelism.default' = '2'", "RESET 'parallelism.default'", "SET 'parallelism.default' = '5'"):
        env.sql(text)
        env.from_collection([1]).rebalance().map(lambda row: row).print()
        numbers.append(max(task.parallelism for task in env.program().physical().tasks))
        env.clear()
    assert numbers == [2, 3, 5]
    env.configure({"parallelism.default": 4})
    assert _set_in(env) == {}


def test_statements_about_the_catalogue_run_whatever_is_set() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql("CREATE VIEW v AS SELECT 1 AS n")
    env.sql("SET 'execution.state-recovery.path' = '/nowhere'")
    for text in ("SHOW TABLES", "DESCRIBE v", "EXPLAIN SELECT * FROM v", "SET"):
        assert _rows(env, text)
    assert _rows(env, "SELECT * FROM v") == [{"n": 1}], "a query begins without state"
    env.sql("CREATE TABLE t (n INT) WITH ('connector' = 'blackhole')")
    env.sql("INSERT INTO t SELECT * FROM v")
    with pytest.raises(RestoreError):
        env.execute()
    assert _rows(env, "SHOW VIEWS") == [{"view name": "v"}]
    env.sql("RESET 'execution.state-recovery.path'")
    env.execute()


def test_batch_mode_is_refused_where_it_is_set() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    with pytest.raises(SqlError, match="--runtime ray"):
        env.sql("SET 'execution.runtime-mode' = 'batch'")
    assert _set_in(env) == {}
    StreamEnvironment().sql("SET 'execution.runtime-mode' = 'batch'")


def _set_in(env: StreamEnvironment) -> dict[str, str]:
    """The options of jobs that SET lists."""
    rows = _rows(env, "SET")
    return {row["key"]: row["value"] for row in rows if not row["key"].startswith(("table.", "sql-client."))}


def _rows(env: StreamEnvironment, text: str) -> list[dict[str, Any]]:
    table = env.sql(text)
    assert table is not None
    return list(table.collect())
