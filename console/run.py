"""`penstock run`: builds a flow, checks its configuration and starts the job, attached or detached.

An attached job ends with the command; Ctrl-C cancels it. A detached one keeps running on the cluster.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from penstock.configuration import Configuration, configured, conflicts, raise_problems
from penstock.configuration_keys import Settings
from penstock.console.cluster import connect_if_usable, connect_to_running, hosts, is_connected, storage_problems
from penstock.console.flows import Flow, build, load_flow, send_by_value
from penstock.console.job_views import RESTARTS_HINT
from penstock.console.options import Address, ConfigFile, Define, Json, Traceback, output_of
from penstock.console.output import Output, duration_text
from penstock.console.sources import DEFINED, gather
from penstock.engine.errors import ClusterError, ConfigurationError, GraphError, NoCheckpointError, PenstockError
from penstock.engine.graph.checkpointable import check_checkpointable
from penstock.engine.job.handle import JobHandle
from penstock.engine.job.status import JobStatus
from penstock.engine.job.termination import EXIT_CODE, ending
from penstock.environment import StreamEnvironment
from penstock.job_folders import DEFAULT_FOLDER, Resume, resumed_start
from penstock.savepoints.storage import check_writable, open_blobs

_OPTIONS: Final = "command line"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A program that is ready to be submitted."""

    env: StreamEnvironment
    name: str


@dataclass(frozen=True, slots=True)
class _Beginning:
    """How a program is submitted; as the arguments of `StreamEnvironment.submit`."""

    savepoint_to: str | None
    resume: Resume | None
    allow_non_restored: bool

    def submit(self, prepared: _Prepared, detached: bool) -> JobHandle:
        """Submit it."""
        return prepared.env.submit(
            prepared.name,
            allow_non_restored_state=self.allow_non_restored,
            detached=detached,
            savepoint_to=self.savepoint_to,
            resume=self.resume,
        )


def run(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="module:flow or file.py:flow")],
    detached: Annotated[
        bool, typer.Option("-d", "--detached", help="Return once the job runs; it keeps running.")
    ] = False,
    savepoint: Annotated[
        str | None,
        typer.Option("-s", "--from-savepoint", metavar="PATH", help="Savepoint or checkpoint to start from."),
    ] = None,
    allow_non_restored: Annotated[
        bool,
        typer.Option("-n", "--allow-non-restored-state", help="Drop its state of operators that the program lacks."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume from what the newest run of a job of this name has left.")
    ] = False,
    resume_if_any: Annotated[
        bool, typer.Option("--resume-if-any", help="The same; without state where no run has left any.")
    ] = False,
    savepoint_to: Annotated[
        str | None,
        typer.Option("--savepoint-to", metavar="PATH", help="Folder for the savepoint that a batch job ends with."),
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", metavar="N", help="Subtasks of each operator.")
    ] = None,
    define: Define = None,
    config: ConfigFile = None,
    local: Annotated[bool, typer.Option("--local", help="Run in this process, without a cluster.")] = False,
    address: Address = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Run a flow: a function that takes the StreamEnvironment, or an environment that was filled in."""
    output = output_of(context)
    if sum([savepoint is not None, resume, resume_if_any]) > 1:
        raise typer.BadParameter("give one of --from-savepoint, --resume and --resume-if-any")
    if local and address is not None:
        raise typer.BadParameter("a local job uses no cluster; leave out --address, or --local")
    options: Mapping[str, Any] = {
        "execution.state-recovery.path": savepoint,
        "execution.state-recovery.ignore-unclaimed-state": allow_non_restored or None,
        "parallelism.default": parallelism,
        "penstock.runtime": "local" if local else None,
        "penstock.address": address,
    }
    found = load_flow(flow)
    prepared = _prepare(found, flow, gather(config, os.environ, define or []), options, detached, output)
    begin = _Beginning(savepoint_to, "latest" if resume else "if-any" if resume_if_any else None, allow_non_restored)
    if detached:
        _detach(prepared, begin, output)
    else:
        _attach(prepared, begin, output)


def _prepare(
    flow: Flow, text: str, configuration: Configuration, options: Mapping[str, Any], detached: bool, output: Output
) -> _Prepared:
    """The program with its settings, all of which were checked; the cluster is connected."""
    if isinstance(flow.target, StreamEnvironment):
        env, configuration = flow.target, _command_line_only(configuration)
    else:
        env = StreamEnvironment()
    configuration = configuration.over(options, _OPTIONS)
    settings, problems = configuration.checked()
    if settings is None:
        raise_problems(problems)
    assert settings is not None
    runtime = settings.runtime if "runtime" in settings.model_fields_set else env.runtime
    if runtime == "local" and detached:
        raise typer.BadParameter("a local job lives in this process; leave out -d, or --local")
    if runtime == "ray":
        _connect(settings.address or env.address, detached, output)
    machines = hosts() if runtime == "ray" else 1
    raise_problems([*problems, *_problems_together(settings, env, runtime, machines)])
    env.configure({key: given.value for key, given in configuration.values.items()})
    if not isinstance(flow.target, StreamEnvironment):
        build(flow.target, env, text)
    name = settings.name or flow.name
    if runtime == "ray":
        if flow.file is not None:
            send_by_value(flow.file)
        if machines == 1 and is_connected():
            _keep_by_default(env, name)
    return _Prepared(env, name)


def _command_line_only(configuration: Configuration) -> Configuration:
    """An environment that was filled in has settings of its own: of other places, only `-D` goes over them."""
    said = {key: given.value for key, given in configuration.values.items() if given.origin == DEFINED}
    return Configuration(problems=configuration.problems).over(said, DEFINED)


def _problems_together(settings: Settings, env: StreamEnvironment, runtime: str, machines: int) -> Sequence[str]:
    """What is wrong with good values in this program and on this cluster."""
    try:
        config = configured(settings, env.config)
    except ConfigurationError as error:
        return [] if conflicts(settings) else [str(error)]
    return storage_problems(config.checkpoints, runtime, machines)


def _connect(address: str | None, detached: bool, output: Output) -> None:
    if not detached:
        connect_if_usable(address, output.say)
        return
    try:
        connect_to_running(address, log_to_driver=False)
    except ClusterError as error:
        raise ClusterError(f"a detached job needs a cluster that outlives this command: {error}") from error


def _keep_by_default(env: StreamEnvironment, name: str) -> None:
    """Give a job without checkpoints of its own a folder, so that one can be asked for while it runs.

    Not where the job is to have a cluster of its own, to which no other command comes.
    """
    if env.config.checkpoints.storage is not None:
        return
    folder = DEFAULT_FOLDER.expanduser()
    try:
        check_checkpointable(env.program(name).physical())
        check_writable(open_blobs(str(folder / "checkpoints")))
    except (GraphError, ConfigurationError):
        return
    env.configure(
        {
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "execution.checkpointing.savepoint-dir": env.config.checkpoints.savepoint_storage
            or str(folder / "savepoints"),
        }
    )


def _detach(prepared: _Prepared, begin: _Beginning, output: Output) -> None:
    from penstock.actors.client import RayJob

    with output.progress(f"starting {prepared.name}"):
        job = begin.submit(prepared, detached=True)
        assert isinstance(job, RayJob)
        _say_start(job, output)
        try:
            # Whether its state can be restored is known once the subtasks run.
            status = job.wait_until_started(output.say)
        except KeyboardInterrupt:
            output.say(f"job {job.name} keeps running without this command; `penstock cancel {job.name}` ends it")
            raise
    document = {
        "id": job.job_id,
        "name": job.name,
        "status": status.value,
        "detached": True,
        "restored_from": job.restored_from,
        "dropped_operators": list(job.dropped_operators),
    }
    text = f"job {job.name} ({job.job_id}) is {status.value}; `penstock info {job.name}` shows it"
    if status is JobStatus.RESTARTING:
        text += f"; `penstock cancel {job.name}` ends it; {RESTARTS_HINT}"
    output.result(document, text)


def _attach(prepared: _Prepared, begin: _Beginning, output: Output) -> None:
    started = time.monotonic()
    try:
        with ending():
            with output.progress(f"starting {prepared.name}"):
                job = begin.submit(prepared, detached=False)
            _say_start(job, output)
            _run(job, prepared, output)
    except SystemExit as exit_:
        if exit_.code == EXIT_CODE:
            output.say(f"job {prepared.name} was told to end (SIGTERM): {_suspended(prepared)}")
        raise
    seconds = time.monotonic() - started
    metrics = job.metrics()
    document = {
        "id": getattr(job, "job_id", None),
        "name": job.name,
        "status": job.status().value,
        "seconds": round(seconds, 3),
        "restored_from": job.restored_from,
        "dropped_operators": list(job.dropped_operators),
        "late_rows": metrics.late_rows,
        "operators": [
            {
                "name": operator.name,
                "parallelism": operator.parallelism,
                "rows_in": operator.rows_in,
                "rows_out": operator.rows_out,
                "late_rows": operator.late_rows,
            }
            for operator in metrics.operators
        ],
    }
    output.result(document, f"job {job.name} {job.status().value} after {duration_text(seconds)}")


def _run(job: JobHandle, prepared: _Prepared, output: Output) -> None:
    """Wait for the job's end. An attached job does not outlive the command that runs it."""
    try:
        with job.attached():
            _wait(job, output)
    except KeyboardInterrupt:
        output.say(f"job {job.name} was cancelled (Ctrl-C): {_cancelled(prepared)}")
        raise


def _suspended(prepared: _Prepared) -> str:
    """Of a job that was suspended, what its next run begins with."""
    try:
        left = _left_by(prepared)
    except PenstockError as error:
        return f"what it has left cannot be read: {error}"
    if left is None:
        return "there is no checkpoint to resume from, so it begins anew"
    return f"suspended behind {left}; resume with --resume"


def _cancelled(prepared: _Prepared) -> str:
    """The same of a job that was cancelled, which keeps a checkpoint where it was told to."""
    try:
        left = _left_by(prepared)
    except PenstockError as error:
        return f"what it has left cannot be read: {error}"
    if left is not None:
        return f"its newest checkpoint stays, {left}; resume with --resume"
    checkpoints = prepared.env.config.checkpoints
    if not checkpoints.enabled:
        return "it took no checkpoints, so it begins anew"
    if checkpoints.retain_on_cancel:
        return "it had no checkpoint yet, so it begins anew"
    return (
        "its checkpoints went with it, so it begins anew; "
        "-Dexecution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION keeps the newest, and "
        "SIGTERM suspends a job"
    )


def _left_by(prepared: _Prepared) -> str | None:
    """URL of what a run of the job has left to resume from; None: nothing.

    Raises:
        PenstockError: that cannot be read.
    """
    checkpoints = prepared.env.config.checkpoints
    if not (checkpoints.enabled or checkpoints.storage):
        return None
    try:
        return resumed_start(prepared.name, checkpoints, "latest", False).savepoint
    except (NoCheckpointError, ConfigurationError):
        return None


def _say_start(job: JobHandle, output: Output) -> None:
    if job.restored_from is not None:
        output.say(f"resumes from {job.restored_from}")
    if job.dropped_operators:
        uids = ", ".join(map(repr, job.dropped_operators))
        output.say(f"dropped the state of operators that the program does not have: {uids}")


def _wait(job: JobHandle, output: Output) -> None:
    if output.as_json or not sys.stderr.isatty():
        job.wait()
        return
    from penstock.live_view import wait_showing

    wait_showing(job)
