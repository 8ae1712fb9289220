"""Random queries by event time: what is there in the end is what DuckDB says, also where processes and storage fail."""

from __future__ import annotations

import pytest

from penstock.testing.simulation import simulate
from tests.tables.by_time.cases import check
from tests.tables.by_time.simulated import SCENARIO


@pytest.mark.parametrize("part", range(5))
def test_rows_are_those_of_duckdb(part: int) -> None:
    for seed in range(8 * part, 8 * part + 8):
        verdict = check(seed, 2)
        assert verdict.kind != "wrong", verdict.detail


@pytest.mark.parametrize("seed", range(6))
def test_a_query_survives_failures(seed: int) -> None:
    outcome = simulate(SCENARIO, seed)
    assert not outcome.violations, str(outcome)
