"""`penstock config`: the configuration keys, their values, and where each value comes from."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.configuration_keys import KEYS, OPERATOR_STORAGE
from penstock.configuration_kinds import shown
from penstock.console.options import ConfigFile, Define, Json, Traceback, output_of
from penstock.console.sources import gather
from penstock.savepoints.storage import redact

_DEFAULT = "default"


def config_command(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also keys that nobody has set.")] = False,
    define: Define = None,
    config: ConfigFile = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Show the configuration that `run` would use: keys, values, where each comes from."""
    output = output_of(context)
    configuration = gather(config, os.environ, define or [])
    settings = configuration.settings()
    rows = []
    for key in KEYS.values():
        given = configuration.values.get(key.name)
        if given is not None:
            rows.append((key.name, shown(key.kind, getattr(settings, key.field)), given.origin, key.meaning))
        elif every:
            rows.append((key.name, key.default, _DEFAULT, key.meaning))
    for name, given in configuration.values.items():
        if name.startswith(OPERATOR_STORAGE):
            rows.append((name, str(given.value), given.origin, KEYS[f"{OPERATOR_STORAGE}UID"].meaning))
    rows = [(name, redact(value), origin, meaning) for name, value, origin, meaning in rows]
    document = [
        {"key": name, "value": value or None, "origin": origin, "meaning": meaning}
        for name, value, origin, meaning in rows
    ]
    table = Table("key", "value", "from", box=None)
    for name, value, origin, _ in rows:
        table.add_row(Text(name), Text(value), Text(origin))
    output.result(document, table if rows else "nothing is set; `penstock config --all` shows the defaults")
