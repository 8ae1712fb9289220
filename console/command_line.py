"""Puts the commands of the command line together, and turns every error into a message and an exit code.

Exit codes: 0; 1 for errors at run time; 2 for usage and configuration; 130 for Ctrl-C.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

import typer
from typer.exceptions import TyperException

import penstock
from penstock.console.lazy_commands import LazyGroup, lazy_group
from penstock.console.options import Json, Traceback, output_of
from penstock.console.output import FAILED, Output
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


def _savepoint_app() -> typer.Typer:
    from penstock.console import jobs, savepoints

    app = typer.Typer(cls=savepoints.SavepointGroup, add_completion=False, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_savepoint)
    app.command(savepoints.TAKE, hidden=True)(jobs.savepoint_command)
    app.command("inspect")(savepoints.inspect_command)
    app.command("diff")(savepoints.diff_command)
    app.command("dispose")(savepoints.dispose_command)
    return app


def _job_app() -> typer.Typer:
    from penstock.console.replay import replay_command

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_job)
    app.command("replay")(replay_command)
    return app


def _chaos_app() -> typer.Typer:
    from penstock.console.chaos_commands import chaos_run_command

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_chaos)
    app.command("run")(chaos_run_command)
    return app


_COMMANDS: Final[Mapping[str, str | Callable[[], typer.Typer]]] = {
    "run": "penstock.console.run:run",
    "sql": "penstock.console.sql:sql_command",
    "list": "penstock.console.jobs:list_command",
    "info": "penstock.console.jobs:info_command",
    "checkpoint": "penstock.console.jobs:checkpoint_command",
    "savepoint": _savepoint_app,
    "stop": "penstock.console.jobs:stop_command",
    "cancel": "penstock.console.jobs:cancel_command",
    "rescale": "penstock.console.jobs:rescale_command",
    "preview-rescale": "penstock.console.rescale_preview:preview_rescale_command",
    "autoscaler": "penstock.console.jobs:autoscaler_command",
    "drain": "penstock.console.drain:drain_command",
    "config": "penstock.console.config:config_command",
    "doctor": "penstock.console.doctor.command:doctor_command",
    "init": "penstock.console.init.command:init_command",
    "console": "penstock.console.web_commands:console_command",
    "why": "penstock.console.web_commands:why_command",
    "logs": "penstock.console.web_commands:logs_command",
    "tail": "penstock.console.tail:tail_command",
    "job": _job_app,
    "chaos": _chaos_app,
}


def _app() -> LazyGroup:
    app = typer.Typer(name="penstock", cls=LazyGroup, add_completion=True, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_root)
    return lazy_group(app, _COMMANDS)


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
            if _interrupts(error):
                output.error(KeyboardInterrupt("interrupted"))
                return INTERRUPTED
            output.error(error, "" if isinstance(error, PenstockError | OSError) else _unforeseen(error))
            return FAILED
        if code == INTERRUPTED:
            output.error(KeyboardInterrupt("interrupted"))
    return code if isinstance(code, int) else 0


def _interrupts(error: BaseException) -> bool:
    """Whether Ctrl-C is behind the error: a module that is interrupted while it is loaded may raise what it likes."""
    chain: BaseException | None = error
    while isinstance(chain, ImportError | SystemError):
        chain = chain.__cause__ or chain.__context__
    return isinstance(chain, KeyboardInterrupt)


def _hint(error: TyperException) -> str:
    """Where the user finds how the command is called."""
    context = getattr(error, "ctx", None)
    return f"\n`{context.command_path} --help` shows how it is called" if context is not None else ""


def _unforeseen(error: Exception) -> str:
    """What an error is that was not raised on purpose, so that its text may say little."""
    return f" ({type(error).__name__}; --traceback shows where)"
