"""DuckDB as the oracle: what a query gives over the rows that a changelog leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from tests.engine.operators.changelog.jobs import Row

_CONNECTION = duckdb.connect(config={"threads": 1})


def query(sql: str, tables: Mapping[str, tuple[pa.Schema, Sequence[Row]]]) -> list[Row]:
    """The rows of a query, sorted.

    Args:
        sql: names the tables, which have a column `arrival` behind the others.
        tables: columns and rows, in order of arrival.
    """
    for name, (schema, rows) in tables.items():
        columns = {field.name: pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)}
        _CONNECTION.register(name, pa.table({**columns, "arrival": pa.array(range(len(rows)), pa.int64())}))
    found = [tuple(map(_plain, row)) for row in _CONNECTION.execute(sql).fetchall()]
    return sorted(found, key=repr)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list) else value
