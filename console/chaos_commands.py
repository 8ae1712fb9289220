"""The command `penstock chaos run`: has processes of a job killed by schedules, and reports how it got over that."""

from __future__ import annotations

import random
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.console.flows import build, load_flow
from penstock.console.jobs import comes_to_its_end, connect_to
from penstock.console.options import Json, Traceback, output_of
from penstock.console.output import Output
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, JobError
from penstock.engine.job.termination import EXIT_CODE, ending
from penstock.environment import StreamEnvironment

if TYPE_CHECKING:
    from penstock.testing.chaos import ChaosRun, ChaosSchedule

_SEEDS: Final = 1_000_000
_FAILED: Final = 1
_INTERRUPTED: Final = 130
_SLOTS: Final = 4
"""CPUs that the embedded cluster has at least: for rescaling, and for what replaces what was killed."""


def chaos_run_command(
    context: typer.Context,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Of the first schedule; the others count on. Else drawn at random.")
    ] = None,
    schedules: Annotated[int, typer.Option(metavar="N", min=1, help="How many.")] = 1,
    duration: Annotated[str, typer.Option(metavar="TIME", help="In which the faults of one fire.")] = "10s",
    faults: Annotated[int, typer.Option(metavar="N", min=1, help="How many a schedule has.")] = 3,
    job: Annotated[
        str,
        typer.Option(
            metavar="JOB",
            help="sequence, bank; kafka, s3, postgres (each starts its server); module:flow, file.py:flow, "
            "whose sinks write as ever; or the name of a running job.",
        ),
    ] = "sequence",
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Of faults; may be repeated: subtask, two, manager, pause, pause-manager, standby, savepoint, "
            "rescale, rescale-one, storm, drain. Without it, kills and pauses.",
        ),
    ] = None,
    during: Annotated[
        str | None,
        typer.Option(
            "--during",
            metavar="KIND",
            help="Of one more fault, which fires first, such as storm: the others hit a job that deals with it.",
        ),
    ] = None,
    parallelism: Annotated[int, typer.Option("-p", "--parallelism", metavar="N", min=1, help="Of the job.")] = 2,
    address: Annotated[
        str | None,
        typer.Option(
            "--cluster", "--address", metavar="HOST:PORT", help="A Ray cluster that runs; without it, a new one here."
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="For the checkpoints, where all nodes reach it; without it, a folder here."),
    ] = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Kill and stop processes of a job by seeded schedules; exit code 1 if rows are lost or repeated, or none hit."""
    output = output_of(context)
    parse_duration(duration, "--duration")
    from penstock.testing.chaos import ChaosReport, keep_log

    first = random.randrange(_SEEDS) if seed is None else seed
    runs: list[ChaosRun] = []
    try:
        with ending(), _target(job, duration, _Place(parallelism, address, storage), output) as target:
            draw = partial(target.draw, during=during)
            if kinds is not None:
                draw = partial(draw, weights=dict.fromkeys(kinds, 1.0))
            plans = [draw(number, duration, faults) for number in range(first, first + schedules)]
            for done, plan in enumerate(plans):
                with output.progress(f"chaos: {job}, schedule {done + 1} of {schedules} (seed {plan.seed})"):
                    runs.append(target.shake(plan))
                    if schedules > 1:
                        # Who gives up waiting knows then whether it hangs, or takes its time on a busy machine.
                        output.say(f"{done + 1} of {schedules}: {runs[-1].outcome}")
                    if runs[-1].wrong:
                        keep_log(runs[-1], Path(tempfile.gettempdir()) / "penstock-chaos")
    except (KeyboardInterrupt, SystemExit) as told:
        _end_early(told, runs, output)
        raise
    report = ChaosReport(runs)
    output.result(report.to_dict(), report)
    if report.violations:
        raise typer.Exit(_FAILED)


def _end_early(told: KeyboardInterrupt | SystemExit, runs: Sequence[ChaosRun], output: Output) -> None:
    """Give what the schedules that are over have found, where a signal ends the command.

    Raises:
        SystemExit: with the code of the signal.
    """
    from penstock.testing.chaos import ChaosReport

    if isinstance(told, KeyboardInterrupt):
        name, code = "SIGINT", _INTERRUPTED
    elif told.code in (EXIT_CODE, signal.SIGTERM):
        # Ray has a handler of its own, which exits with the number of the signal.
        name, code = "SIGTERM", EXIT_CODE
    else:
        return
    report = ChaosReport(runs, name)
    if runs or output.as_json:
        output.result(report.to_dict(), report)
    output.say("error: interrupted" if code == _INTERRUPTED else "error: told to end (SIGTERM)")
    raise SystemExit(code) from None


@dataclass(frozen=True, slots=True)
class _Target:
    """What is shaken.

    Args:
        draw: the schedule of a seed, for so long, with so many faults.
        shake: carries one out.
    """

    draw: Callable[..., ChaosSchedule]
    shake: Callable[[ChaosSchedule], ChaosRun]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where jobs run.

    Args:
        parallelism: of their operators.
        address: of the cluster; None: a new one in this process.
        storage: URL of the folder for their checkpoints; None: a temporary one.
    """

    parallelism: int
    address: str | None
    storage: str | None

    @contextmanager
    def environments(self) -> Iterator[Callable[[], StreamEnvironment]]:
        """Makes environments, as often as it is called, on one cluster.

        Raises:
            ConfigurationError: the cluster is on several machines, and there is no storage that all of them reach.
        """
        from penstock.testing.chaos import chaos_environment, quiet_cluster
        from penstock.testing.chaos.elsewhere import machines

        quiet = quiet_cluster(self.address, max(self.parallelism, _SLOTS))
        # The folder goes behind the cluster, whose processes write in it to their end.
        with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as folder, quiet:
            if self.storage is None and len(found := machines()) > 1:
                raise ConfigurationError(
                    f"the cluster is on {len(found)} machines ({', '.join(found)}), which reach no folder of this one: "
                    "give --storage, a URL that all of them reach, such as s3://bucket/chaos"
                )
            yield lambda: chaos_environment(self.storage or folder, self.parallelism)


@contextmanager
def _target(job: str, duration: Duration, place: _Place, output: Output) -> Iterator[_Target]:
    """A job that runs, or a new one for each schedule."""
    from penstock.testing.chaos import (
        JOBS,
        ChaosHarness,
        ChaosSchedule,
        run_chaos_flow,
        run_chaos_job,
        run_server_job,
        server_schedule,
    )
    from penstock.testing.chaos.own_servers import SERVER_JOBS

    if job in JOBS:
        with place.environments() as new:
            yield _Target(ChaosSchedule.random, lambda plan: run_chaos_job(JOBS[job], plan, new(), duration))
    elif job in SERVER_JOBS:
        with SERVER_JOBS[job]() as served, place.environments() as new:
            draw = partial(server_schedule, served)
            yield _Target(draw, lambda plan: run_server_job(served, plan, new(), duration))
    elif ":" in job:
        flow = load_flow(job)
        target = flow.target
        if isinstance(target, StreamEnvironment):
            raise typer.BadParameter(
                f"{job} is an environment; chaos starts it anew for each schedule: name a function"
            )
        with place.environments() as new:

            def shake(plan: ChaosSchedule) -> ChaosRun:
                return run_chaos_flow(lambda filled: build(target, filled, job), flow.name, plan, new())

            yield _Target(ChaosSchedule.random, shake)
    else:
        connect_to(place.address, output)
        _check_runs(job)
        yield _Target(ChaosSchedule.random, lambda plan: ChaosHarness(job, plan).run())


def _check_runs(job: str) -> None:
    """Refuse a job that no fault can hit.

    Raises:
        JobError: it has ended, or there is none of that name or id.
    """
    from penstock.actors.registry import find_job

    control = find_job(job)
    if comes_to_its_end(control, looks=1):
        info = control.info()
        raise JobError(f"job {info.name!r} has ended: it is {info.status.value}; start it again, and then shake it")
