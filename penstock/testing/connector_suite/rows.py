"""Compares rows as a user would: by their values, in any order, and says what is missing and what is too much.

The suites call it with tables of one schema, or with dicts that they bring to one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

Rows: TypeAlias = "pa.Table | Iterable[Mapping[str, Any]]"
"""Rows as authors give them."""
_SHOWN: Final = 3
_NUMBERED: Final = pa.schema([("id", pa.int64()), ("name", pa.string())])


def numbered_rows(first: int, count: int) -> pa.Table:
    """Rows that differ in each column: `id` (int64) from `first` on, and `name` (string)."""
    ids = range(first, first + count)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "name": pa.array([f"name {number}" for number in ids], pa.string())}
    )


def every(rows: pa.Table, index: int, count: int) -> pa.Table:
    """Every `count`-th row from `index` on."""
    return rows.take(list(range(index, rows.num_rows, count)))


def as_table(rows: Rows, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of `schema`.

    Raises:
        pa.ArrowException, KeyError, TypeError: they do not have these columns, or values of other types.
    """
    if isinstance(rows, pa.Table):
        return rows.select(schema.names).cast(schema)
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


def texts(table: pa.Table) -> list[str]:
    """A text for each row, equal for equal rows (NaN equals NaN)."""
    return [repr(row) for row in table.to_pylist()]


def difference(found: pa.Table, expected: pa.Table) -> str:
    """What is wrong with `found` in any order; empty if nothing is."""
    have, want = Counter(texts(found)), Counter(texts(expected))
    return _told(want - have, "missing") + _told(have - want, "too many")


def set_difference(found: pa.Table, expected: pa.Table) -> str:
    """What is wrong with `found` where rows may come again; empty if nothing is."""
    have, want = Counter(set(texts(found))), Counter(set(texts(expected)))
    return _told(want - have, "missing") + _told(have - want, "that nobody wrote")


def order_difference(found: pa.Table, expected: pa.Table) -> str:
    """What is wrong with `found`, order included; empty if nothing is."""
    have, want = texts(found), texts(expected)
    if have == want:
        return ""
    row = next(
        (i for i, (one, two) in enumerate(zip(have, want, strict=False)) if one != two), min(map(len, (have, want)))
    )
    shown = [rows[row] if row < len(rows) else "the end" for rows in (have, want)]
    return f"{shown[0]} instead of {shown[1]} (row {row} of {len(want)}); "


def surplus(found: pa.Table, expected: pa.Table) -> str:
    """Which rows of `found` are not in `expected`, or more often; empty if none is."""
    return _told(Counter(texts(found)) - Counter(texts(expected)), "too many")


def _told(rows: Counter[str], what: str) -> str:
    if not rows:
        return ""
    more = ", ..." if len(rows) > _SHOWN else ""
    return f"{rows.total()} rows {what}: {', '.join(list(rows)[:_SHOWN])}{more}; "
