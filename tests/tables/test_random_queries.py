"""Two hundred random queries over random changelogs: each prefix of the changes gives what DuckDB says."""

from __future__ import annotations

import pytest

from tests.tables.random_queries import check


@pytest.mark.parametrize("seed", range(20))
def test_every_prefix_gives_what_duckdb_says(seed: int) -> None:
    check(seed, 5, 2)
