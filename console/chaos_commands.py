"""The command `penstock chaos run`: has processes of a job killed by schedules, and reports how it got over that."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from penstock.console.cluster import connect_to_running
from penstock.console.flows import build, load_flow
from penstock.console.options import Address, Json, Traceback, output_of
from penstock.engine.durations import Duration, parse_duration
from penstock.environment import StreamEnvironment

if TYPE_CHECKING:
    from penstock.testing.chaos import ChaosRun, ChaosSchedule

_Shake: TypeAlias = "Callable[[ChaosSchedule], ChaosRun]"
_SEEDS: Final = 1_000_000
_FAILED: Final = 1
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
        typer.Option(metavar="JOB", help="sequence, bank, module:flow, file.py:flow, or the name of a running job."),
    ] = "sequence",
    parallelism: Annotated[int, typer.Option("-p", "--parallelism", metavar="N", min=1, help="Of the job.")] = 2,
    address: Address = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Kill and stop processes of a job by seeded schedules; exit code 1 if anything was lost or repeated."""
    output = output_of(context)
    parse_duration(duration, "--duration")
    from penstock.testing.chaos import ChaosReport, ChaosSchedule

    first = random.randrange(_SEEDS) if seed is None else seed
    plans = [ChaosSchedule.random(number, duration, faults) for number in range(first, first + schedules)]
    runs = []
    with _target(job, duration, parallelism, address) as shake:
        for done, plan in enumerate(plans):
            with output.progress(f"chaos: {job}, schedule {done + 1} of {schedules} (seed {plan.seed})"):
                runs.append(shake(plan))
    report = ChaosReport(runs)
    output.result(report.to_dict(), report)
    if report.violations:
        raise typer.Exit(_FAILED)


@contextmanager
def _target(job: str, duration: Duration, parallelism: int, address: str | None) -> Iterator[_Shake]:
    """What carries a schedule out: against a job that runs, or against a new one for each schedule."""
    from penstock.testing.chaos import (
        JOBS,
        ChaosHarness,
        chaos_environment,
        quiet_cluster,
        run_chaos_flow,
        run_chaos_job,
    )

    if job not in JOBS and ":" not in job:
        connect_to_running(address)
        yield lambda plan: ChaosHarness(job, plan).run()
        return
    flow = load_flow(job) if job not in JOBS else None
    target = flow.target if flow is not None else None
    if isinstance(target, StreamEnvironment):
        raise typer.BadParameter(f"{job} is an environment; chaos starts it anew for each schedule: name a function")
    quiet = quiet_cluster(address, max(parallelism, _SLOTS))
    with quiet, tempfile.TemporaryDirectory(prefix="penstock-chaos-") as folder:

        def shake(plan: ChaosSchedule) -> ChaosRun:
            env = chaos_environment(folder, parallelism)
            if flow is None or target is None:
                return run_chaos_job(JOBS[job], plan, env, duration)
            return run_chaos_flow(lambda filled: build(target, filled, job), flow.name, plan, env)

        yield shake
