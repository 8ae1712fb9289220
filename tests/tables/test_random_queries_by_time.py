"""Random queries by event time: what is there in the end is what DuckDB says, also where processes and storage fail."""

from __future__ import annotations

import pytest

from penstock.tables.lower.column_times import ColumnTimes
from penstock.testing.simulation import simulate
from tests.tables.by_time.cases import check
from tests.tables.by_time.simulated import SCENARIO


@pytest.mark.parametrize("part", range(5))
def test_rows_are_those_of_duckdb(part: int) -> None:
    for seed in range(8 * part, 8 * part + 8):
        verdict = check(seed, 2)
        assert verdict.kind != "wrong", verdict.detail


def test_watermarks_that_are_not_held_back_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ColumnTimes, "on_watermark", lambda self, watermark, out: watermark)
    assert any(check(seed, 3).kind == "wrong" for seed in (12, 35, 36))


@pytest.mark.parametrize("seed", range(6))
def test_a_query_survives_failures(seed: int) -> None:
    outcome = simulate(SCENARIO, seed)
    assert not outcome.violations, str(outcome)
