"""`make parity PROGRAMS=100`: random programs in streaming mode, in batch mode, and handed over (`runs.MODES`).

`python -m tests.parity --seed 4711` runs one program and shows it. Exits with 1 if one gave anything but what plain
Python gives.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.actors.cluster import connect
from tests.parity.programs import random_program
from tests.parity.runs import MODES, Mismatch, Mode, mismatches

_CPUS = 8


def main(
    programs: Annotated[int, typer.Option(help="How many programs.")] = 100,
    start: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Run this program alone, and show it.")] = None,
    mode: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(MODES)}; all by default.")] = None,
    together: Annotated[int, typer.Option(help="How many programs are one job.")] = 10,
) -> None:
    """Run random programs."""
    seeds = range(start, start + programs) if seed is None else range(seed, seed + 1)
    if seed is not None:
        typer.echo(random_program(seed))
    chosen = MODES if mode is None else tuple(name for name in MODES if name in mode)
    if {"ray", "spark"} & {*chosen}:
        # Else the first job has a cluster of its own size made, and a wider one waits in vain.
        connect(None, _CPUS, log_to_driver=False)
    found: list[Mismatch] = []
    for one in chosen:
        found += _run(one, seeds, together)
    for mismatch in found:
        typer.echo(f"\n{mismatch}")
    sys.exit(1 if found else 0)


def _run(mode: Mode, seeds: Sequence[int], together: int) -> list[Mismatch]:
    found: list[Mismatch] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-parity-") as folder:
        for first in range(0, len(seeds), together):
            part = seeds[first : first + together]
            found += mismatches(part, mode, Path(folder) / f"{part[0]}")
            typer.echo(f"{mode}: {first + len(part)} of {len(seeds)}, {len(found)} failed")
    typer.echo(
        f"{mode}: {len(seeds)} programs (seeds {seeds[0]} to {seeds[-1]}), {len(found)} failed, "
        f"{time.monotonic() - begun:.0f} s"
    )
    return found


if __name__ == "__main__":
    typer.run(main)
