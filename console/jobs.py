"""The commands on jobs of a cluster: `list`, `info`, `checkpoint`, `stop`, `cancel`, `rescale`, taking savepoints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final, TypeVar

import typer

from penstock.client import Cluster
from penstock.console.cluster import connect_to_running
from penstock.console.documents import document
from penstock.console.job_views import autoscaler_view, job_view, jobs_table
from penstock.console.options import Address, Job, Json, Traceback, Url, output_of
from penstock.console.output import Output, duration_text, one_line
from penstock.console.sources import gather
from penstock.engine.errors import JobError, NoAnswerError, StateNotReadyError
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.savepoints.storage import normalise_url

_Seen = TypeVar("_Seen")
_AGAIN_SECONDS: Final = 0.5
_LOOKS_AT_END: Final = 8
_LEFT: Final = (
    "Ctrl-C ends this command; the job is still rescaled if there is room in that time, else continues as it is"
)
_HAD_ENDED: Final = {
    JobStatus.FINISHED: "had finished already",
    JobStatus.FAILED: "had failed already",
    JobStatus.CANCELLED: "was cancelled already",
}
"""The error of a job that nobody can end any more."""
SavepointFolder = Annotated[
    str | None,
    typer.Argument(metavar="[DIR]", help="Folder for the savepoint; without it, the one the job is configured with."),
]


def list_command(
    context: typer.Context,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """List the jobs of the cluster."""
    output = output_of(context)
    jobs = jobs_of(address, url, output)
    output.result([document(job) for job in jobs], jobs_table(jobs) if jobs else "no jobs")


def info_command(
    context: typer.Context,
    job: Job,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all lines of errors, as --json does.")] = False,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Show a job: status, tasks, operators with their counters, checkpoints, restarts."""
    output = output_of(context)
    control = find(job, address, url, output)
    info = control.info()
    # A web console gives what `info` says, and counters by its own pages.
    metrics = _metrics_of(control) if url is None else None
    counted = None if metrics is None else [document(operator) for operator in metrics.operators]
    now_ms = time.time_ns() // 1_000_000
    shown = job_view(info, str if verbose else one_line, now_ms, metrics)
    output.result({**document(info), "operators": counted}, shown)


def checkpoint_command(
    context: typer.Context,
    job: Job,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Take a checkpoint of a job now."""
    output = output_of(context)
    with _working("checkpoint of", job, address, url, output) as control:
        path = control.checkpoint()
    output.result({"name": control.name, "checkpoint": path}, path)


def savepoint_command(
    context: typer.Context,
    job: Job,
    directory: SavepointFolder = None,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Take a savepoint of a job, which keeps running."""
    output = output_of(context)
    with _working("savepoint of", job, address, url, output) as control:
        path = control.savepoint(_folder(directory))
    output.result({"name": control.name, "savepoint": path}, path)


def stop_command(
    context: typer.Context,
    job: Job,
    drain: Annotated[
        bool, typer.Option("--drain", help="End the sources as if their input had: windows fire, then the job ends.")
    ] = False,
    savepoint_path: Annotated[
        str | None, typer.Option("--savepoint-path", metavar="DIR", help="Folder for the savepoint.")
    ] = None,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Stop a job behind a savepoint."""
    output = output_of(context)
    with _working("stopping", job, address, url, output) as control:
        folder = _folder(savepoint_path)
        path = control.drain(folder) if drain else control.stop(folder)
    output.result({"name": control.name, "savepoint": path, "drained": drain}, path)


def cancel_command(
    context: typer.Context,
    job: Job,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """End a job now, without a savepoint."""
    output = output_of(context)
    with _working("cancelling", job, address, url, output) as control:
        did = control.cancel()
    status = control.info().status
    outcome = {"name": control.name, "status": status.value, "had_ended": not did}
    output.result(outcome, f"job {control.name} {status.value if did else _HAD_ENDED.get(status, status.value)}")


def rescale_command(
    context: typer.Context,
    job: Job,
    operators: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPERATOR=N]...", help="Parallelism of single operators, by name or uid."),
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", metavar="N", min=1, help="Of all operators that set none.")
    ] = None,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Resume at another parallelism, behind a checkpoint taken now."""
    wanted = _wanted(operators or (), parallelism)
    output = output_of(context)
    with _working("rescaling", job, address, url, output) as control:
        seconds = control.rescale(wanted, lambda waits: output.say(f"{waits}; {_LEFT}"))
    outcome = {"name": control.name, "parallelism": wanted, "seconds": round(seconds, 3), "changed": seconds > 0}
    at = "parallelism " + (str(wanted) if isinstance(wanted, int) else ", ".join(f"{k}={n}" for k, n in wanted.items()))
    done = f"job {control.name} runs at {at}; it stood still for {duration_text(seconds)}"
    same = f"nothing was changed: at {at} job {control.name} is as it is already"
    output.result(outcome, done if seconds else same)


def _metrics_of(control: Any) -> Any:
    """The `JobMetrics` of a job; None where its processes have gone."""
    with suppress(JobError):
        return control.metrics()
    return None


def autoscaler_command(
    context: typer.Context,
    job: Job,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Show what the autoscaler of a job sees, would change, and has changed, and why."""
    output = output_of(context)
    info = find(job, address, url, output).info()
    if info.autoscaler is None:
        raise JobError(
            f"job {info.name!r} has no autoscaler; begin it with -Djob.autoscaler.enabled=true, and with "
            "-Djob.autoscaler.scaling.enabled=false only to see what it would do"
        )
    output.result(document(info.autoscaler), autoscaler_view(info.autoscaler))


def _wanted(operators: Sequence[str], parallelism: int | None) -> ParallelismRequest:
    """What the arguments of `rescale` ask for."""
    if bool(operators) == (parallelism is not None):
        raise typer.BadParameter("say either -p N, or OPERATOR=N for single operators")
    if parallelism is not None:
        return parallelism
    wanted = {}
    for given in operators:
        name, _, number = given.rpartition("=")
        if not name or not number.isdecimal() or int(number) < 1:
            raise typer.BadParameter(f"{given!r} is not OPERATOR=N, such as window=3", param_hint="OPERATOR=N")
        wanted[name] = int(number)
    return wanted


def connect_to(address: str | None, output: Output) -> None:
    """Connect to the cluster of that address; without one, of the key `penstock.address`, else of this machine.

    Raises:
        ClusterError: there is none.
    """
    given = gather(None, os.environ, []).over({"penstock.address": address}, "")
    known = given.values.get("penstock.address")
    with output.progress("connecting"):
        # The cluster's own news, as of a node that is lost meanwhile, are nothing that was asked for.
        connect_to_running(None if known is None else str(known.value), log_to_driver=False)


def jobs_of(address: str | None, url: str | None, output: Output) -> Sequence[JobInfo]:
    """The jobs of a cluster, or those that a web console knows.

    Raises:
        ClusterError: there is no cluster, or no web console.
    """
    if url is not None:
        return Cluster(url).jobs()
    connect_to(address, output)
    from penstock.actors.registry import list_jobs

    return list_jobs()


def find(job: str, address: str | None, url: str | None, output: Output) -> Any:
    """The `JobControl` of a job, or the `RemoteJob` where a web console is asked.

    Raises:
        JobError: there is no such job.
        ClusterError: there is no cluster, or no web console.
    """
    if url is not None:
        return Cluster(url).job(job)
    connect_to(address, output)
    from penstock.actors.registry import find_job

    return find_job(job)


def follow_job(control: Any, look: Callable[[], _Seen], follow: bool, pause: float = 0.0) -> Iterator[_Seen]:
    """What is seen of a job: once, or again and again until it has ended, also through its failures.

    Args:
        control: of the job.
        look: looks at it.
        follow: whether to show what comes later, too.
        pause: seconds between two looks.
    """
    seen = False
    while True:
        try:
            yield look()
            seen = True
            if not follow or comes_to_its_end(control, 1):
                return
        except (NoAnswerError, StateNotReadyError):
            # It recovers, which is when people look most.
            if not follow:
                raise
            time.sleep(_AGAIN_SECONDS)
        except JobError:
            # It may have ended between two looks.
            if not seen or not comes_to_its_end(control, _LOOKS_AT_END):
                raise
            return
        else:
            time.sleep(pause)


def comes_to_its_end(control: Any, looks: int) -> bool:
    """Whether a job has ended, by so many looks at it: a web console hears of it seconds later."""
    for look in range(looks):
        if look:
            time.sleep(_AGAIN_SECONDS)
        if control.info().status.ended:
            return True
    return False


@contextmanager
def _working(doing: str, job: str, address: str | None, url: str | None, output: Output) -> Iterator[Any]:
    """What `find` gives, to do something with that takes its time."""
    control = find(job, address, url, output)
    with output.progress(f"{doing} {control.name}"):
        yield control


def _folder(directory: str | None) -> str | None:
    """A folder as the job's processes, which have other working directories, understand it."""
    return directory if directory is None or directory.startswith("ray://") else normalise_url(directory)
