"""The command `tail`: the last rows of a stream of a running job, as they come."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer
from rich.table import Table
from rich.text import Text

from penstock.console.jobs import find, follow_job
from penstock.console.options import Address, Job, Json, Traceback, Url, output_of
from penstock.engine.task.tap import LONGEST_SECONDS, MOST_ROWS, TappedRows
from penstock.savepoints.shown import json_value, python_rows, value_text


def tail_command(
    context: typer.Context,
    job: Job,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="Name or uid of an operator or source.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, max=MOST_ROWS, help="How many at the most.")] = 20,
    seconds: Annotated[
        int, typer.Option("--seconds", min=1, max=int(LONGEST_SECONDS), help="For how long to look where fewer come.")
    ] = 5,
    side: Annotated[str, typer.Option("--side", metavar="TAG", help="A side output, instead of the results.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, or until the job ends.")] = False,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Show the last rows that an operator emits from now on; columns that are called as secrets are masked."""
    output = output_of(context)
    control = find(job, address, url, output)

    def looked() -> TappedRows:
        with output.progress(f"looking at {operator}"):
            found: TappedRows = control.tail(operator, rows, seconds, side)
            return found

    for found in follow_job(control, looked, follow and not as_json):
        document = {"seen": found.seen, "rows": [json_value(row) for row in python_rows(found.rows)]}
        output.result(document, _table(found.rows) if found.rows.num_rows else f"no row came within {seconds} s")


def _table(rows: pa.Table) -> Table:
    table = Table(box=None)
    for name in rows.column_names:
        table.add_column(Text(name))
    for row in python_rows(rows):
        table.add_row(*(Text(_shown(value)) for value in row.values()))
    return table


def _shown(value: object) -> str:
    return value if isinstance(value, str) else value_text(value)
