"""Each query of Nexmark gives what DuckDB gives, over the same events."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.clock import ManualClock
from perf.nexmark import expected, given, written
from perf.nexmark_queries import QUERIES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5,000 events in five seconds, so that there are several windows."""
    return written(tmp_path_factory.mktemp("nexmark"), 5_000, per_ms=1)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_duckdb_gives(name: str, folder: Path) -> None:
    wanted = expected(QUERIES[name], folder)
    assert wanted
    assert given(QUERIES[name], folder, parallelism=2, clock=ManualClock(0)) == wanted
