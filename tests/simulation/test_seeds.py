"""Seeds of whole jobs with faults; what the sinks show equals plain Python. `make simulate` runs more.

They are 420; with those that went wrong once, those of jobs without faults, and those in which the mutants are noticed,
which must be well without the mutant (`test_mutants.py`), 500.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.engine.job.replay import replay
from penstock.testing.simulation import Case, FaultRates, Outcome, Scenario, Warehouse, simulate, sweep
from penstock.testing.simulation.sweep import run_seed
from tests.simulation.regressions import REGRESSIONS, RESCALED, Regression, how_to_run
from tests.simulation.scenarios import BRIEF, ON_DISK, SCENARIOS

USUAL_SEEDS = range(75)
BLOCK = 80
"""So many seeds are a test, which a slow machine comes through in a minute."""
BRIEF_BLOCKS = [range(start, start + BLOCK) for start in range(75, 75 + 4 * BLOCK, BLOCK)]
RESCALED_SEEDS = range(25)
ON_DISK_SEEDS = range(10)
TRACED = range(len(SCENARIOS))


@pytest.mark.parametrize(
    ("scenarios", "seeds", "rates", "options"),
    [
        (SCENARIOS, USUAL_SEEDS, FaultRates(), ""),
        *((BRIEF, block, FaultRates(), " --brief") for block in BRIEF_BLOCKS),
        (SCENARIOS, RESCALED_SEEDS, RESCALED, " --rescales"),
        ([ON_DISK], ON_DISK_SEEDS, RESCALED, " --rescales"),
    ],
    ids=[
        "any faults",
        *(f"brief jobs, from seed {block.start}" for block in BRIEF_BLOCKS),
        "rescales",
        "rescales of state in RocksDB",
    ],
)
def test_seeds_show_no_violation(
    scenarios: Sequence[Scenario], seeds: range, rates: FaultRates, options: str, tmp_path: Path
) -> None:
    failed = sweep(scenarios, seeds, 1, rates, log_folder=tmp_path).failed
    assert not failed, "\n".join(
        f"{outcome}\n  run it again: {how_to_run(outcome.scenario, outcome.seed)}{options}" for outcome in failed
    )


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda regression: f"{regression.scenario}-{regression.seed}")
def test_what_went_wrong_once(regression: Regression, tmp_path: Path) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == regression.scenario)
    outcome = simulate(scenario, regression.seed, regression.rates, log_folder=tmp_path)
    assert not outcome.violations, f"{regression.found}\n{outcome}"


@pytest.mark.parametrize("number", TRACED[::4], ids=lambda number: SCENARIOS[number].name)
def test_a_run_that_went_wrong_names_logs_that_replay_to_what_was_decided(number: int, tmp_path: Path) -> None:
    objecting = replace(SCENARIOS[number], build=lambda *given: _objecting(SCENARIOS[number].build(*given)))
    outcome = simulate(objecting, 20_000 + number, FaultRates(corrupt=0, cancel=0), log_folder=tmp_path)
    assert "nobody is content" in outcome.violations
    assert len(outcome.logs) == outcome.managers
    assert f"stimulus log: {outcome.logs[0]}" in str(outcome)
    for log in outcome.logs:
        steps = list(replay([(0, Path(log).read_text().splitlines())]))
        assert [step.difference for step in steps if step.difference or step.now is None] == []


def _objecting(case: Case) -> Case:
    def check(warehouse: Warehouse) -> list[str]:
        return ["nobody is content"]

    return replace(case, check=check, check_drained=case.check_drained and check)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_without_faults_jobs_are_right_and_leave_nothing_behind(scenario: object) -> None:
    number = SCENARIOS.index(scenario)  # type: ignore[arg-type]
    outcome = simulate(SCENARIOS[number], 10_000 + number, FaultRates(budget=0, delay=0.0))
    assert (outcome.schedule, outcome.violations) == ((), ())


def test_the_same_seed_gives_the_same_run_in_any_process_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = {seed: run_seed(SCENARIOS, seed, FaultRates()).trace for seed in reversed(TRACED[::4])}
    there: dict[int, str] = {}

    def note(outcome: Outcome) -> None:
        there[outcome.seed] = outcome.trace

    # Here hashes are by chance.
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    sweep(SCENARIOS, TRACED[::4], processes=2, progress=note)
    assert there == backwards


def test_the_machines_clock_has_no_part_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tasks measure of themselves bounds their batches: they must not measure how busy the machine is."""
    calm = simulate(SCENARIOS[0], 3).trace
    jitter = random.Random(1)
    for reading in ("monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, reading, lambda: 1e9 * jitter.random())
    monkeypatch.setattr(time, "time_ns", lambda: jitter.randrange(10**18))
    assert simulate(SCENARIOS[0], 3).trace == calm


def test_another_seed_gives_another_run() -> None:
    assert simulate(SCENARIOS[0], 1).trace != simulate(SCENARIOS[0], 2).trace
