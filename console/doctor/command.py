"""The command `doctor`: a table of findings, or JSON; exit code 1 where something that jobs need is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.console.doctor.findings import Finding, Level, examined
from penstock.console.documents import document
from penstock.console.options import Json, Traceback, output_of
from penstock.console.output import FAILED

_STYLES: Final = {Level.GOOD: "green", Level.ABSENT: "dim", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def doctor_command(context: typer.Context, as_json: Json = False, tracebacks: Traceback = False) -> None:
    """Look at what is installed and what this machine offers, and say how to get what is missing."""
    output = output_of(context)
    with output.progress("looking"):
        findings = list(examined())
    output.result([document(finding) for finding in findings], findings_table(findings))
    if any(finding.level is Level.PROBLEM for finding in findings):
        raise typer.Exit(FAILED)


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """The findings for people."""
    table = Table("", "what", "found", "what to do", box=None)
    for finding in findings:
        level = Text(finding.level.value, style=_STYLES[finding.level])
        table.add_row(level, Text(finding.subject), Text(finding.fact), Text(finding.remedy))
    return table
