"""What is simulated, and how it went: a `Scenario` goes in, an `Outcome` comes out; the world is between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.engine.graph.physical import JobProgram
from penstock.testing.simulation.warehouse import Warehouse, WarehouseSink

Check: TypeAlias = Callable[[Warehouse], Sequence[str]]
"""Says what is wrong with the committed rows; empty if nothing is."""


@dataclass(frozen=True, slots=True)
class Case:
    """A job, and what its sink must show.

    Args:
        program: the job. How often it may be restarted is the simulation's affair.
        check: judges the rows when the job has come to the end of its input.
        check_drained: judges them when the sources were ended early; None: the job is not drained.
    """

    program: JobProgram
    check: Check
    check_drained: Check | None = None


Build: TypeAlias = Callable[[WarehouseSink, random.Random], Case]
"""Writes a job whose rows go to the sink. Equal random numbers must give equal jobs and equal input."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of job.

    Args:
        name: for people.
        build: see there; called once for each job of a run.
        most_steps: how many steps a job may take before it counts as one that hangs.

    Example:
        >>> scenario = Scenario("totals", build)  # doctest: +SKIP
    """

    name: str
    build: Build
    most_steps: int = 60_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went.

    Args:
        scenario, seed: chose everything.
        steps: how many there were.
        schedule: the faults that happened, one a line.
        violations: what was wrong; empty if nothing was.
        trace: hash of everything that happened, equal for equal seeds.
        logs: files with the stimulus logs of a run that went wrong; `penstock job replay` reads them.
        restarts, managers, jobs: how many attempts were killed, and how many managers and jobs there were.
    """

    scenario: str
    seed: int
    steps: int
    schedule: tuple[str, ...]
    violations: tuple[str, ...]
    trace: str
    restarts: int = 0
    managers: int = 0
    jobs: int = 1
    logs: tuple[str, ...] = ()

    def with_violation(self, violation: str) -> Outcome:
        """The same, with one more violation."""
        return replace(self, violations=(*self.violations, violation))

    def __str__(self) -> str:
        told = "\n".join(f"  {line}" for line in (*self.schedule, *(f"VIOLATION: {v}" for v in self.violations)))
        logs = "".join(f"\n  stimulus log: {log}" for log in self.logs)
        counted = f"{self.steps} steps, {self.jobs} jobs, {self.managers} managers, {self.restarts} kills"
        return f"{self.scenario}, seed {self.seed}: {counted}\n{told}{logs}"
