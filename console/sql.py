"""`penstock sql`: runs scripts of SQL, and single statements; in a terminal, without any, a shell for them.

Queries show their rows, INSERT INTO runs as a job; tables, views and options stay from one statement to the next.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.console.options import Json, Traceback, output_of
from penstock.console.output import Output, duration_text
from penstock.console.sql_jobs import about_jobs
from penstock.console.sql_results import (
    ResultTable,
    as_texts,
    as_values,
    counted,
    paged,
    polls_of,
    show_live,
    shown_rows,
    shown_value,
)
from penstock.console.sql_shell import SqlShell, line_editing
from penstock.engine.errors import ConfigurationError
from penstock.environment import StreamEnvironment
from penstock.tables.environment import TableEnvironment
from penstock.tables.parse.statements import JobStatement
from penstock.tables.plan.nodes import INSERT_ONLY
from penstock.tables.plan.time_columns import is_bounded
from penstock.tables.table import OP, Table
from penstock.tables.types import STRING

_PAGE_SECONDS: Final = 1.0


def sql_command(
    context: typer.Context,
    statement: Annotated[
        str | None, typer.Argument(help="Statements; none begins a shell, or reads standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="A script to run.")] = None,
    init: Annotated[Path | None, typer.Option("-i", "--init", help="A script to run before: CREATE TABLE.")] = None,
    runtime: Annotated[str, typer.Option("--runtime", help="local: in this process; ray: on a cluster.")] = "local",
    parallelism: Annotated[int | None, typer.Option("-p", "--parallelism", help="Subtasks of each operator.")] = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Run SQL: a script (-f), statements, what comes by standard input, or in a terminal what is typed."""
    if file is not None and statement is not None:
        raise ConfigurationError("sql: give statements or -f FILE, not both")
    if runtime not in ("local", "ray"):
        raise ConfigurationError(f"sql: --runtime takes local or ray, not {runtime!r}")
    if (here := str(Path.cwd())) not in sys.path:
        # CREATE FUNCTION imports modules from where the command is called.
        sys.path.insert(0, here)
    env = StreamEnvironment(runtime="local" if runtime == "local" else "ray", parallelism=parallelism)
    env.configure({"pipeline.name": "sql"})
    output = output_of(context)
    results: list[dict[str, Any]] = []
    if init is not None:
        run_script(env, _read(init), output, [])
    if file is None and statement is None and sys.stdin.isatty() and not output.as_json:
        shell = SqlShell(env, output, lambda text: run_script(env, text, output, []), input)
        with line_editing(shell):
            shell.loop()
        return
    text = _read(file) if file is not None else statement if statement is not None else sys.stdin.read()
    run_script(env, text, output, results)
    if output.as_json:
        output.result({"results": results}, "")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigurationError(f"sql: {path} cannot be read: {error.strerror}") from error


def run_script(env: StreamEnvironment, text: str, output: Output, results: list[dict[str, Any]]) -> None:
    """Run the statements of a script, one after another; the first that fails ends it, and nothing is left of it.

    Args:
        env: whose tables and options they use.
        text: the script.
        output: shows the rows of queries.
        results: gets an entry for each statement that shows rows, for `--json`.
    """
    for statement, source in env.tables.script(text):
        if isinstance(statement, JobStatement):
            _tell(*about_jobs(statement, output), output, results)
            continue
        try:
            table = env.tables.run(statement, source)
            if table is not None:
                _show(table, env.tables, output, results)
            elif env.tables.has_inserts:
                _insert(env, output)
        finally:
            # The program of a job that could not start would be run with the next statement.
            env.clear()


def _tell(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], output: Output, results: list[dict[str, Any]]
) -> None:
    """Show what is known of jobs."""
    if output.as_json:
        results.append({"columns": {name: str(STRING) for name in names}, "rows": list(rows)})
    elif names:
        _show_rows(names, rows, output)


def _insert(env: StreamEnvironment, output: Output) -> None:
    """Run what INSERT INTO has added to the program, as a job of the name that SET gives it."""
    started = time.monotonic()
    job = env.execute()
    seconds = time.monotonic() - started
    output.say(f"job {job.name} {job.status().value} after {duration_text(seconds)}")


def _show(table: Table, session: TableEnvironment, output: Output, results: list[dict[str, Any]]) -> None:
    mode, zone = session.option("sql-client.execution.result-mode"), session.zone
    columns = {name: str(kind) for name, kind in table.columns.items()}
    polls = polls_of(table.collect(), as_values(zone) if output.as_json else as_texts(table.columns, zone))
    coming = chain.from_iterable(polls)
    if not is_bounded(table.plan) and not output.as_json:
        # They do not end, so nothing is waited for: each is shown when it comes.
        if mode == "TABLE":
            show_live(ResultTable(list(columns)), coming, output.console)
            return
        for row in coming:
            output.result(None, "  ".join(f"{name}={shown_value(value)}" for name, value in row.items()))
        return
    if mode == "TABLE":
        _show_there(columns, coming, output, results)
        return
    if table.changelog_mode != INSERT_ONLY:
        columns = {OP: str(STRING), **columns}
    if output.as_json:
        results.append({"columns": columns, "rows": list(coming)})
    else:
        _show_pages(list(columns), polls, output)


def _show_there(
    columns: Mapping[str, str], coming: Iterable[Mapping[str, Any]], output: Output, results: list[dict[str, Any]]
) -> None:
    """The rows that are there in the end, and in a terminal those that are there so far."""
    result = ResultTable(list(columns))
    if output.console.is_terminal and not output.as_json:
        show_live(result, coming, output.console)
        output.result(None, counted(len(result.rows())))
        return
    try:
        result.apply(coming)
    except KeyboardInterrupt:
        if not output.as_json:
            _show_rows(columns, result.rows(), output)
        raise
    if output.as_json:
        results.append({"columns": columns, "rows": result.rows()})
    else:
        _show_rows(columns, result.rows(), output)


def _show_pages(names: Sequence[str], polls: Iterable[Iterator[Mapping[str, Any]]], output: Output) -> None:
    """All rows or changes; in a terminal as they come, those of each second in a table."""
    pages = paged(polls, _PAGE_SECONDS if output.console.is_terminal else math.inf)
    shown = 0
    try:
        while True:
            with output.progress(f"reading, {counted(shown)} so far; Ctrl-C stops"):
                page = next(pages, None)
            if page is None:
                break
            output.result(None, shown_rows(names, page))
            shown += len(page)
        if not shown:
            output.result(None, shown_rows(names, ()))
    except KeyboardInterrupt:
        output.result(None, counted(shown))
        raise
    output.result(None, counted(shown))


def _show_rows(names: Iterable[str], rows: Sequence[Mapping[str, Any]], output: Output) -> None:
    output.result(None, shown_rows(list(names), rows))
    output.result(None, counted(len(rows)))
