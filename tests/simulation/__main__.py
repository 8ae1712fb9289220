"""`make simulate SEEDS=10000`: many seeds over all scenarios, with progress and a summary; exits with 1 on violations.

`python -m tests.simulation --seed 4711` runs one seed and shows its schedule; `--scenario exchanges` says of which job.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.testing.simulation import FaultRates, Outcome, Scenario, Sweep, simulate, sweep
from tests.simulation.regressions import RESCALED, how_to_run
from tests.simulation.scenarios import BRIEF, ON_DISK, SCENARIOS

_SHOWN = 5


def main(
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 500,
    start: Annotated[int | None, typer.Option(help="The first seed; without it, one that nobody has chosen.")] = None,
    seed: Annotated[int | None, typer.Option(help="Run this seed alone, and show what happened.")] = None,
    scenario: Annotated[str | None, typer.Option(help="Of this job alone; without it, the seed says which.")] = None,
    processes: Annotated[int, typer.Option(help="How many processes work at it.")] = os.cpu_count() or 1,
    rescales: Annotated[bool, typer.Option(help="Rescale often, and lose processes in the middle of it.")] = False,
    brief: Annotated[bool, typer.Option(help="Jobs with two fifths of the rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures and failures as JSON.")] = False,
) -> None:
    """Run seeds of the deterministic simulation."""
    scenarios = [one for one in (BRIEF if brief else SCENARIOS) if scenario in (None, one.name)]
    scenarios += [ON_DISK] if scenario == ON_DISK.name else []
    if not scenarios:
        raise typer.BadParameter(
            f"there are {', '.join(one.name for one in (*SCENARIOS, ON_DISK))}", param_hint="--scenario"
        )
    first = random.randrange(1_000_000_000) if start is None else start
    rates = RESCALED if rescales else FaultRates()
    chosen = range(first, first + seeds) if seed is None else range(seed, seed + 1)
    if seed is not None and not as_json:
        typer.echo(simulate(scenarios[seed % len(scenarios)], seed, rates, log_folder=_logs()))
    result = _run(scenarios, chosen, rates, processes, quiet=as_json or seed is not None)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(result), indent=1))
    elif seed is None:
        _summarise(result, chosen)
    sys.exit(1 if result.failed else 0)


def _run(scenarios: Sequence[Scenario], seeds: range, rates: FaultRates, processes: int, quiet: bool) -> Sweep:
    failures = TextColumn("{task.fields[failed]}")
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), failures)
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        task = progress.add_task("", total=len(seeds), failed="")
        failed: list[int] = []

        def on_run(outcome: Outcome) -> None:
            if outcome.violations:
                failed.append(outcome.seed)
            progress.update(task, advance=1, failed=f"failed: {failed}" if failed else "")

        most = min(processes, max(1, len(seeds) // 20))
        return sweep(scenarios, seeds, most, rates, on_run, _logs())


def _logs() -> Path:
    """Where the stimulus logs of runs that go wrong are kept."""
    return Path(tempfile.gettempdir()) / "penstock-simulation"


def _summarise(result: Sweep, seeds: range) -> None:
    console = Console()
    table = Table(title=f"Simulation: seeds {seeds.start} to {seeds.stop - 1}")
    for name in ("runs", "jobs", "managers", "kills", "faults", "steps", "violations", "seconds"):
        table.add_column(name, justify="right")
    counts = result.runs, result.jobs, result.managers, result.kills, result.faults, result.steps, len(result.failed)
    table.add_row(*(f"{count:,}" for count in counts), f"{result.seconds:.0f}")
    console.print(table)
    for outcome in result.failed[:_SHOWN]:
        console.print(
            f"{outcome}\n  run it again: {how_to_run(outcome.scenario, outcome.seed)}", markup=False, highlight=False
        )


if __name__ == "__main__":
    typer.run(main)
