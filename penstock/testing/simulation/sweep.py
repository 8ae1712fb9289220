"""Many seeds over several scenarios and processes: what CI, `make simulate` and users run.

Seed s runs scenario s modulo their number, so that any range of seeds is spread over all of them, and a seed alone says
what it runs.
"""

from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.testing.simulation.faults import FaultRates
from penstock.testing.simulation.scenario import Outcome, Scenario
from penstock.testing.simulation.world import simulate

_CHUNK = 20


@dataclass(slots=True)
class Sweep:
    """What many runs came to.

    Attributes:
        runs, steps, faults, kills, managers, jobs: how many there were.
        failed: the runs with violations.
        seconds: how long it took.
    """

    runs: int = 0
    steps: int = 0
    faults: int = 0
    kills: int = 0
    managers: int = 0
    jobs: int = 0
    failed: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one run."""
        self.runs += 1
        self.steps += outcome.steps
        self.faults += len(outcome.schedule)
        self.kills += outcome.restarts
        self.managers += outcome.managers
        self.jobs += outcome.jobs
        if outcome.violations:
            self.failed.append(outcome)


def run_seed(scenarios: Sequence[Scenario], seed: int, rates: FaultRates, log_folder: Path | None = None) -> Outcome:
    """Run one seed; an error of the engine or of the scenario is a violation too. `log_folder`: see `simulate`."""
    scenario = scenarios[seed % len(scenarios)]
    try:
        return simulate(scenario, seed, rates, log_folder)
    except Exception:
        return Outcome(scenario.name, seed, 0, (), (f"raised {traceback.format_exc()}",), "")


def _run_chunk(
    scenarios: Sequence[Scenario], seeds: range, rates: FaultRates, log_folder: Path | None
) -> list[Outcome]:
    # What is loaded by now stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    return [run_seed(scenarios, seed, rates, log_folder) for seed in seeds]


def sweep(
    scenarios: Sequence[Scenario],
    seeds: range,
    processes: int = 1,
    rates: FaultRates = FaultRates(),  # noqa: B008 - frozen
    progress: Callable[[Outcome], None] = lambda _: None,
    log_folder: Path | None = None,
) -> Sweep:
    """Run each seed once.

    Args:
        scenarios: seed s runs number s modulo their number. With several processes they must be picklable.
        seeds: which.
        processes: how many work at it.
        rates: which faults there are.
        progress: told of each run.
        log_folder: where the stimulus logs of runs that go wrong are written; None: they are not.

    Example:
        >>> assert not sweep([scenario], range(100)).failed  # doctest: +SKIP
    """
    total, begun = Sweep(), time.monotonic()
    for outcome in _outcomes(scenarios, seeds, processes, rates, log_folder):
        total.add(outcome)
        progress(outcome)
    total.seconds = time.monotonic() - begun
    return total


def _outcomes(
    scenarios: Sequence[Scenario], seeds: range, processes: int, rates: FaultRates, log_folder: Path | None
) -> Iterator[Outcome]:
    if processes < 2:
        yield from (run_seed(scenarios, seed, rates, log_folder) for seed in seeds)
        return
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, spawn) as pool:
        due = [pool.submit(_run_chunk, scenarios, chunk, rates, log_folder) for chunk in chunks]
        for done in concurrent.futures.as_completed(due):
            yield from done.result()
