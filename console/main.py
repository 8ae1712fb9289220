"""The entry of the command line: puts the commands together, and turns every error into a message and an exit code.

Exit codes: 0; 1 for errors at run time; 2 for usage and configuration; 130 for Ctrl-C.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from typer.exceptions import TyperException

import penstock
from penstock.console.chaos_commands import chaos_run_command
from penstock.console.config import config_command
from penstock.console.doctor.command import doctor_command
from penstock.console.drain import drain_command
from penstock.console.init.command import init_command
from penstock.console.jobs import (
    autoscaler_command,
    cancel_command,
    checkpoint_command,
    info_command,
    list_command,
    rescale_command,
    savepoint_command,
    stop_command,
)
from penstock.console.options import Json, Traceback, output_of
from penstock.console.output import FAILED, Output
from penstock.console.replay import replay_command
from penstock.console.run import run
from penstock.console.savepoints import TAKE, SavepointGroup, diff_command, dispose_command, inspect_command
from penstock.console.sql import sql_command
from penstock.console.tail import tail_command
from penstock.console.web_commands import console_command, logs_command, why_command
from penstock.engine.errors import ConfigurationError, PenstockError

MISUSED: Final = 2
INTERRUPTED: Final = 130


def _version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {penstock.__version__}")  # noqa: T201 - asked for
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Run flows, and drive the jobs of a Ray cluster."""
    _check_named(context)


def _savepoint(context: typer.Context) -> None:
    """Take a savepoint of a job: `savepoint JOB [DIR]`. Or look at one, compare two, delete one."""
    _check_named(context)


def _chaos(context: typer.Context) -> None:
    """Kill and stop processes of a job, and see what it makes of that."""
    _check_named(context)


def _job(context: typer.Context) -> None:
    """Look into what a job's manager decided."""
    _check_named(context)


def _check_named(context: typer.Context) -> None:
    """Show which commands there are where none is named."""
    if context.invoked_subcommand is None:
        output_of(context).show_help(context.get_help())
        raise typer.Exit(MISUSED)


def _app() -> typer.Typer:
    app = typer.Typer(name="penstock", add_completion=True, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_root)
    app.command("run")(run)
    app.command("sql")(sql_command)
    app.command("list")(list_command)
    app.command("info")(info_command)
    app.command("checkpoint")(checkpoint_command)
    savepoint = typer.Typer(rich_markup_mode=None)
    savepoint.callback(invoke_without_command=True)(_savepoint)
    savepoint.command(TAKE, hidden=True)(savepoint_command)
    savepoint.command("inspect")(inspect_command)
    savepoint.command("diff")(diff_command)
    savepoint.command("dispose")(dispose_command)
    app.add_typer(
        savepoint,
        name="savepoint",
        cls=SavepointGroup,
    )
    app.command("stop")(stop_command)
    app.command("cancel")(cancel_command)
    app.command("rescale")(rescale_command)
    app.command("autoscaler")(autoscaler_command)
    app.command("drain")(drain_command)
    app.command("config")(config_command)
    app.command("doctor")(doctor_command)
    app.command("init")(init_command)
    app.command("console")(console_command)
    app.command("why")(why_command)
    app.command("logs")(logs_command)
    app.command("tail")(tail_command)
    job = typer.Typer(rich_markup_mode=None)
    job.callback(invoke_without_command=True)(_job)
    job.command("replay")(replay_command)
    app.add_typer(job, name="job")
    chaos = typer.Typer(rich_markup_mode=None)
    chaos.callback(invoke_without_command=True)(_chaos)
    chaos.command("run")(chaos_run_command)
    app.add_typer(chaos, name="chaos")
    return app


def run_command(arguments: Sequence[str]) -> int:
    """Run a command line; its exit code.

    Args:
        arguments: without the program's name.
    """
    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    output = Output(sys.stdout, "--json" in given, "--traceback" in given)
    # What flows and libraries print is no part of the document.
    elsewhere = contextlib.redirect_stdout(sys.stderr) if output.as_json else contextlib.nullcontext()
    with elsewhere:
        try:
            code = _app()(list(arguments), prog_name="penstock", standalone_mode=False, obj=output)
        except TyperException as error:
            output.error(error, _hint(error))
            return MISUSED
        except ConfigurationError as error:
            output.error(error)
            return MISUSED
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except Exception as error:
            output.error(error, "" if isinstance(error, PenstockError | OSError) else _unforeseen(error))
            return FAILED
        if code == INTERRUPTED:
            output.error(KeyboardInterrupt("interrupted"))
    return code if isinstance(code, int) else 0


def _hint(error: TyperException) -> str:
    """Where the user finds how the command is called."""
    context = getattr(error, "ctx", None)
    return f"\n`{context.command_path} --help` shows how it is called" if context is not None else ""


def _unforeseen(error: Exception) -> str:
    """What an error is that was not raised on purpose, so that its text may say little."""
    return f" ({type(error).__name__}; --traceback shows where)"


def main() -> None:
    """What the script `penstock` calls."""
    sys.exit(run_command(sys.argv[1:]))
