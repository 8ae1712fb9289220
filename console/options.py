"""The options that several commands have, declared once, and the object that carries the output to the commands."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from penstock.console.output import Output

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]
Traceback: TypeAlias = Annotated[bool, typer.Option("--traceback", help="Show errors with their tracebacks.")]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Of the Ray cluster; without it, the one on this machine."),
]
Url: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Of the web console, asked instead of the Ray cluster; token in PENSTOCK_TOKEN."),
]
Define: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("-D", metavar="KEY=VALUE", help="Set a configuration key; may be repeated."),
]
ConfigFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Configuration; else $PENSTOCK_CONF, else ./penstock.yaml."),
]
Job: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="Name or id.")]


def output_of(context: typer.Context) -> Output:
    """Where the command of this context prints."""
    output = context.find_root().obj
    assert isinstance(output, Output)
    return output
