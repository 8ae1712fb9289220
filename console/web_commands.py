"""The commands `console`, which starts the web server of a cluster and says where it is, `why` and `logs`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import webbrowser
from collections.abc import Mapping, Set
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.client import Cluster
from penstock.console.jobs import connect_to, find, follow_job
from penstock.console.options import Address, Job, Json, Traceback, Url, output_of
from penstock.console.output import Output, time_text
from penstock.engine.errors import ConfigurationError, UnknownOperatorError, nearest
from penstock.job_folders import DEFAULT_FOLDER
from penstock.web.export.options import export_options
from penstock.web.serve import DEFAULT_PORT, ServerOptions, default_folder

if TYPE_CHECKING:
    from penstock.actors.task_log import LogLine
    from penstock.engine.job.info import JobInfo
    from penstock.web.why_slow import Reason

_RAY_FILES: Final = "ray/session_*/logs/worker-*.out and .err"
_FOLLOW_SECONDS: Final = 1.0


def console_command(
    context: typer.Context,
    open_it: Annotated[bool, typer.Option("--open", help="Open the pages in a browser.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End the server; jobs do not notice.")] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="Where it listens; 0: a free one.", show_default=f"{DEFAULT_PORT}"
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Where it listens; beyond this machine it asks for a token.",
            show_default="127.0.0.1",
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="A further name by which browsers may call it; may be repeated."),
    ] = None,
    proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--trust-proxy",
            metavar="ADDRESS",
            help="Of a proxy that logs users in (OIDC) and says who they are in X-Forwarded-User; may be repeated.",
        ),
    ] = None,
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operator-group",
            metavar="NAME",
            help="Users of this group, in X-Forwarded-Groups, are operators, all others viewers; may be repeated.",
        ),
    ] = None,
    offline: Annotated[
        Path | None,
        typer.Option(
            "--offline",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Without a cluster: show the savepoints, checkpoints and ended jobs in a folder, until Ctrl-C.",
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            "--otlp",
            metavar="URL",
            envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
            help="An OpenTelemetry collector (OTLP over HTTP): it gets metrics, and checkpoints and restarts as spans.",
        ),
    ] = None,
    openlineage: Annotated[
        str | None,
        typer.Option(
            "--openlineage",
            metavar="URL",
            envvar="OPENLINEAGE_URL",
            help="A server that gets the runs of jobs, and the data that they read and write.",
        ),
    ] = None,
    flight: Annotated[
        int | None,
        typer.Option(
            "--flight", metavar="PORT", min=0, max=65535, help="Also give state over Arrow Flight there; 0: a free one."
        ),
    ] = None,
    address: Address = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Start the web console of the cluster, if it does not run, and say where it is."""
    output = output_of(context)
    _check_installed()
    if offline is not None:
        _serve_offline(offline, DEFAULT_PORT if port is None else port, open_it, output)
        return
    connect_to(address, output)
    from penstock.web.serve import start_server, stop_server

    if stop:
        did = stop_server()
        output.result({"stopped": did}, "the web console has ended" if did else "no web console runs")
        return
    export = export_options(otlp, openlineage, os.environ)
    options = ServerOptions(
        host,
        port,
        tuple(names or ()),
        str(default_folder()),
        export,
        flight,
        tuple(proxies or ()),
        tuple(operators or ()),
        str(DEFAULT_FOLDER.expanduser() / "checkpoints"),
    )
    with output.progress("starting the web console"):
        found = start_server(options)
    shown = f"web console: {found.url}"
    if found.flight is not None:
        shown += f"\nstate over Arrow Flight: {found.flight}"
    if names or not _is_loopback(found.url):
        shown += f"\ntokens for viewers and operators: {found.token_file} on {found.node}"
    output.result(asdict(found), shown)
    if open_it:
        webbrowser.open(_with_token(found.url, Path(found.token_file)))


def _serve_offline(folder: Path, port: int, open_it: bool, output: Output) -> None:
    from penstock.web.offline import serve_offline
    from penstock.web.serve import listening_socket

    with listening_socket("127.0.0.1", port) as listening, contextlib.suppress(KeyboardInterrupt):
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        output.say(f"web console of {folder}: {url}; Ctrl-C ends it")
        if open_it:
            webbrowser.open(url)
        serve_offline(folder, listening)


def why_command(
    context: typer.Context,
    job: Job,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Say what holds a job up, from two readings a few seconds apart."""
    output = output_of(context)
    reason = _reason(job, address, output) if url is None else Cluster(url).job(job).why_slow()
    figures = ", ".join(f"{name} {value:g}" for name, value in reason.figures)
    output.result(asdict(reason), f"{reason.sentence}\n({figures})" if figures else reason.sentence)


def _reason(job: str, address: str | None, output: Output) -> Reason:
    connect_to(address, output)
    from penstock.web.look import look_twice
    from penstock.web.why_slow import why_slow

    with output.progress("looking at the job"):
        return why_slow(look_twice(job))


def logs_command(
    context: typer.Context,
    job: Job,
    operator: Annotated[
        str | None,
        typer.Option("--operator", metavar="OPERATOR", help="Only of this one, by its uid or a part of its name."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, or until the job ends.")] = False,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Show what the functions of a job have printed and logged."""
    output = output_of(context)
    control = find(job, address, url, output)
    info = control.info()
    names = {task.id: task.name for task in info.tasks}
    wanted = None if operator is None else _called(operator, info)
    known: dict[tuple[int, int], int] = {}
    for lines in follow_job(control, lambda: control.logs(known), follow and not as_json, _FOLLOW_SECONDS):
        for line in lines:
            known[line.task, line.subtask] = max(known.get((line.task, line.subtask), 0), line.number)
        said = [line for line in lines if wanted is None or (line.task, line.operator) in wanted]
        if as_json:
            output.result([asdict(line) for line in said], "")
        elif said:
            output.result(None, "\n".join(_log_line(line, info.name, names) for line in said))
    if info.status.ended and not known:
        output.say(
            f"job {info.name} has ended ({info.status.value}), and its lines went with its processes; what these wrote "
            f"is in the temporary folder of each node: {_RAY_FILES}"
        )


def _called(operator: str, info: JobInfo) -> Set[tuple[int, str]]:
    """The task and name of each operator of that uid, else of those with this in their name, as lines have them.

    Raises:
        UnknownOperatorError: there is none; names those that there are.
    """
    among = [(task, one) for task in info.tasks for one in task.operators]
    found = [(task, one) for task, one in among if one.uid == operator]
    found = found or [(task, one) for task, one in among if operator in one.name]
    if not found:
        known = [one.uid or one.name for _, one in among]
        raise UnknownOperatorError(
            f"job {info.name!r} has no operator {operator!r}{nearest(operator, known)}; it has {', '.join(known)}"
        )
    # What a process says while none of its operators works is said by the first.
    unnamed = {(task.id, "") for task, one in found if one is task.operators[0]}
    return {(task.id, one.name) for task, one in found} | unnamed


def _log_line(line: LogLine, job: str, names: Mapping[int, str]) -> str:
    """Time, level, job, operator and subtask before the text, so that lines of many subtasks can be told apart."""
    speaker = line.operator or names.get(line.task, "process")
    logger = f"{line.logger}: " if line.logger else ""
    return f"{time_text(line.at_ms)} {line.level} {job}/{speaker}/{line.subtask} {logger}{line.text}"


def _check_installed() -> None:
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"the web console needs {' and '.join(missing)}: pip install 'penstock[console]'")


def _is_loopback(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "http://localhost:", "http://[::1]:"))


def _with_token(url: str, file: Path) -> str:
    """The address that logs a browser in; behind #, where no server and no log sees it."""
    if _is_loopback(url) or not file.exists():
        return url
    return f"{url}#token={json.loads(file.read_text(encoding='utf-8'))['operator']}"
