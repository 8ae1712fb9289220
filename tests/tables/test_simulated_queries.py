"""Random queries whose processes, managers and storage fail: what they have said in the end is what DuckDB says."""

from __future__ import annotations

import pytest

from penstock.testing.simulation import simulate
from tests.tables.simulated_queries import SCENARIO


# 338: a union of a table that changes and one that grows, whose batches were joined on their way.
@pytest.mark.parametrize("seed", [0, 1, 338])
def test_a_query_survives_failures(seed: int) -> None:
    outcome = simulate(SCENARIO, seed)
    assert not outcome.violations, str(outcome)


@pytest.mark.long("three other seeds: this one takes a minute")
def test_a_query_that_takes_61_000_steps_is_not_taken_for_one_that_hangs() -> None:
    outcome = simulate(SCENARIO, 1297911378)
    assert not outcome.violations, str(outcome)
