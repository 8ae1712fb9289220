"""Conditions of ASOF JOIN that are refused; the rows are those of DuckDB in `test_correlated_queries.py`."""

from __future__ import annotations

import re

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import SqlError


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("b >= u.b", "column 'b' is in several tables (t, u); write t.b"),
        ("t.a = u.a AND id + 1 = 2 AND t.b >= u.b", "column 'id' is in several tables (t, u); write t.id"),
        ("t.b >= u.b - 1", "compares one column of u, as it is, by"),
    ],
)
def test_it_is_to_say_which_column_of_which_side_it_means(condition: str, told: str) -> None:
    env = StreamEnvironment(runtime="local")
    for name in ("t", "u"):
        env.sql(f"CREATE VIEW {name} AS SELECT * FROM (VALUES (1, 2, 3)) AS v (id, a, b)")
    with pytest.raises(SqlError, match=re.escape(told)):
        env.sql(f"SELECT t.id FROM t ASOF JOIN u ON {condition}")
