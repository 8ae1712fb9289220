"""The simulation can fail: each safeguard, switched off, is objected to by some seed; with it, the same seeds pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.testing.simulation import FaultRates, Outcome
from penstock.testing.simulation.scenario import Scenario
from penstock.testing.simulation.sweep import run_seed
from tests.simulation.live_mutants import LIVE_MUTANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.scenarios import SCENARIOS

MOST_SEEDS = 60
MOST_STEPS = 12_000
"""Jobs that are well have ended by then, and those that never end are found after a fifth of the time."""


def _first_failure(mutant: Mutant) -> Outcome | None:
    scenarios = _scenarios(mutant)
    for number in range(MOST_SEEDS):
        outcome = _run(scenarios, mutant.first_seed + number, mutant.rates)
        if outcome.violations:
            return outcome
    return None


def _scenarios(mutant: Mutant) -> list[Scenario]:
    chosen = (scenario for scenario in SCENARIOS if scenario.name in mutant.scenarios)
    return [replace(scenario, most_steps=MOST_STEPS) for scenario in chosen]


def _run(scenarios: list[Scenario], seed: int, rates: FaultRates) -> Outcome:
    try:
        return run_seed(scenarios, seed, rates)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Outcome("", seed, 0, (), (repr(error),), "")


@pytest.mark.parametrize("mutant", [*MUTANTS, *LIVE_MUTANTS], ids=lambda mutant: mutant.name)
def test_a_safeguard_that_is_off_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        mutant.switch_off(patched)
        outcome = _first_failure(mutant)
    assert outcome is not None, f"{MOST_SEEDS} seeds did not notice: {mutant.name}"
    assert not run_seed(_scenarios(mutant), outcome.seed, mutant.rates).violations, "it fails with the safeguard, too"
