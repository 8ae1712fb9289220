"""The rows of a query once all of its changes have come."""

from __future__ import annotations

from typing import Any

from penstock import StreamEnvironment


def held_rows(env: StreamEnvironment, query: str) -> list[tuple[Any, ...]]:
    """What is there behind the last change, ordered by its repr; a row that is taken back must be there."""
    table = env.sql(query)
    assert table is not None
    held: list[tuple[Any, ...]] = []
    for op, *values in (row.values() for row in table.to_changelog().collect()):
        held.append(tuple(values)) if op in ("+I", "+U") else held.remove(tuple(values))
    return sorted(held, key=repr)
