"""Of Parquet files a query reads the columns that it needs; a column that is not there shows which these are."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import JobFailedError

_COLUMNS = "`missing` STRING, a BIGINT, b STRING, `at` TIMESTAMP(3), `absent` BIGINT"
_COMPUTED = ", twice AS a * 2, other AS `absent` + 1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files without two of the columns that their table has."""
    at = pa.array([datetime(2026, 1, 1, 0, 0, second) for second in range(4)], pa.timestamp("ms"))
    pq.write_table(pa.table({"a": [1, 2, 3, 4], "b": ["x", "y", "x", "y"], "at": at}), tmp_path / "rows.parquet")
    return tmp_path


def _rows(folder: Path, query: str, further: str = "") -> list[tuple[object, ...]]:
    env = StreamEnvironment(runtime="local", parallelism=1)
    table = f"CREATE TABLE t ({_COLUMNS}{further}) WITH ('connector' = 'filesystem', 'path' = '{folder}'"
    env.sql(f"{table}, 'format' = 'parquet')")
    found = env.sql(query)
    assert found is not None
    return [tuple(row.values()) for row in found.to_changelog().collect()]


def test_what_is_selected_or_tested_is_read(folder: Path) -> None:
    assert _rows(folder, "SELECT b FROM t WHERE a > 2") == [("+I", "x"), ("+I", "y")]


def test_rows_are_counted_that_nothing_is_read_of(tmp_path: Path) -> None:
    pq.write_table(pa.table({"missing": ["x", "y"]}), tmp_path / "rows.parquet")
    assert _rows(tmp_path, "SELECT COUNT(*) FROM t") == [("+I", 2)]
    assert _rows(tmp_path, "SELECT 1 FROM t") == [("+I", 1)] * 2


@pytest.mark.parametrize("delay", ["`at` - INTERVAL '1' SECOND", "`at` - a * INTERVAL '1' SECOND"])
def test_event_time_is_read_and_what_watermarks_are_made_of(folder: Path, delay: str) -> None:
    query = """SELECT b, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))
    GROUP BY b, window_start, window_end"""
    assert sorted(_rows(folder, query, f", WATERMARK FOR `at` AS {delay}")) == [("+I", "x", 2), ("+I", "y", 2)]


def test_what_computed_columns_are_made_of_is_read(folder: Path) -> None:
    assert _rows(folder, "SELECT twice FROM t WHERE a = 4", _COMPUTED) == [("+I", 8)]
    further = f"{_COMPUTED}, WATERMARK FOR `at` AS `at`"
    assert _rows(folder, "SELECT twice FROM t WHERE a = 4", further) == [("+I", 8)]


def test_a_column_that_is_read_must_be_there(folder: Path) -> None:
    with pytest.raises(JobFailedError, match="no column 'absent'"):
        _rows(folder, "SELECT a, `absent` FROM t")
