"""The bounds of sorted ranges, beside plain Python; that rows go to their ranges is seen in test_sorting.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.spark.native.ranges import about_rows, quantiles
from penstock.engine.ordering import SortKey
from tests.engine.test_ordering import rank, sorted_rows

FLOATS = st.none() | st.sampled_from([float("nan"), float("inf"), -1.5, 0.0, 2.0])
BYTES = st.none() | st.binary(max_size=2).map(bytearray)


@given(st.lists(st.tuples(FLOATS, BYTES), max_size=20), st.tuples(st.booleans(), st.booleans()), st.integers(1, 5))
def test_each_range_ends_with_a_bound(rows: list[Any], descending: tuple[bool, bool], ranges: int) -> None:
    keys = [SortKey("x", descending[0]), SortKey("raw", descending[1])]
    order = sorted_rows(rows, descending)
    ends = (len(rows) * number // ranges for number in range(1, ranges)) if rows else ()
    expected = [[rank(value) for value in rows[order[max(0, end - 1)]]] for end in ends]
    assert [[rank(value) for value in bound] for bound in quantiles(rows, keys, ranges)] == expected


def test_rows_of_files_are_told_by_their_footers_and_of_many_files_by_some(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for path, rows in zip(paths, (0, 1000, 2000), strict=True):
        pq.write_table(pa.table({"n": range(rows)}), path)
    assert about_rows([]) == 0
    assert about_rows(paths[:1]) == 0
    assert about_rows(paths) == 3000
    assert about_rows(paths[1:2] * 300 + paths[2:] * 300) == 900_000
