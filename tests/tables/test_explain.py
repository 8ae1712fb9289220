"""What EXPLAIN says of keys and of the size of state."""

from __future__ import annotations

import pytest

from penstock import StreamEnvironment
from penstock.tables.plan.state_size import type_bytes
from penstock.tables.udf import _type


def _plan(query: str) -> list[str]:
    table = StreamEnvironment(runtime="local").sql(f"EXPLAIN {query}")
    assert table is not None
    return [str(row["plan"]).strip() for row in table.collect()]


_ROWS = "(VALUES ('a', 1), ('b', 2)) AS t (k, v)"


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        (f"SELECT v, k, SUM(v) FROM {_ROWS} GROUP BY k, v", "upsertKeys=[[v, k]]"),
        (f"SELECT COUNT(*) + 1 FROM {_ROWS}", "upsertKeys=[[]]"),
        (f"SELECT UPPER(k), SUM(v) FROM {_ROWS} GROUP BY k", "changelogMode=[I,UB,UA,D]"),
        (f"SELECT k FROM {_ROWS}", "changelogMode=[I]"),
    ],
)
def test_updates_show_the_columns_that_they_are_known_by(query: str, keys: str) -> None:
    assert _plan(query)[0].endswith(keys)


def test_a_row_of_state_is_as_large_as_its_columns() -> None:
    small = _plan(f"SELECT k, SUM(v) FROM {_ROWS} GROUP BY k")[0]
    large = _plan(f"SELECT k, SUM(v), MIN(CAST(k AS STRING)), MAX(v) FROM {_ROWS} GROUP BY k")[0]
    assert [line.rpartition("; ")[2] for line in (small, large)] == ["about 37 bytes a row", "about 81 bytes a row"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("INT", 4), ("BIGINT", 8), ("CHAR(3)", 7), ("STRING", 28), ("ROW<a INT, b BOOLEAN>", 5), ("ARRAY<INT>", 20)],
)
def test_the_size_of_types(text: str, expected: int) -> None:
    assert type_bytes(_type(text)) == expected
