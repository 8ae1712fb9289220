"""The simulation can fail: each safeguard, switched off, is objected to by some seed; with it, the same seeds pass."""

from __future__ import annotations

import pytest

from penstock.testing.simulation import FaultRates, Outcome, world
from penstock.testing.simulation.scenario import Scenario
from penstock.testing.simulation.sweep import run_seed
from tests.simulation.live_mutants import LIVE_MUTANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.scenarios import SCENARIOS

MOST_SEEDS = 60
MOST_STEPS = 12_000
"""Jobs that are well have ended by then, and those that never end are found after a fifth of the time."""


def _first_failure(mutant: Mutant) -> Outcome | None:
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in mutant.scenarios]
    for number in range(MOST_SEEDS):
        outcome = _run(scenarios, mutant.first_seed + number, mutant.rates)
        if outcome.violations:
            return outcome
    return None


def _run(scenarios: list[Scenario], seed: int, rates: FaultRates) -> Outcome:
    try:
        return run_seed(scenarios, seed, rates)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Outcome("", seed, 0, (), (repr(error),), "")


@pytest.mark.parametrize("mutant", [*MUTANTS, *LIVE_MUTANTS], ids=lambda mutant: mutant.name)
def test_a_safeguard_that_is_off_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "_MOST_STEPS", MOST_STEPS)
    with monkeypatch.context() as patched:
        mutant.switch_off(patched)
        outcome = _first_failure(mutant)
    assert outcome is not None, f"{MOST_SEEDS} seeds did not notice: {mutant.name}"
    scenarios = [scenario for scenario in SCENARIOS if scenario.name in mutant.scenarios]
    assert not run_seed(scenarios, outcome.seed, mutant.rates).violations, "it fails with the safeguard, too"
