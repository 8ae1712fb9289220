"""Walks over the syntax of expressions, for all that bind: conjunctions, aggregates, keys of ORDER BY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from penstock.tables.functions.aggregates import AGGREGATES
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import SortKey


def conjuncts_of(node: n.Node) -> list[n.Node]:
    """The conditions that AND joins."""
    found: list[n.Node] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, n.Binary) and part.operator == "AND":
            waiting += [part.right, part.left]
        else:
            found.append(part)
    return found


def conjunction_of(parts: Sequence[n.Node]) -> n.Node | None:
    """Conditions joined by AND; None of none."""
    found: n.Node | None = None
    for part in parts:
        found = part if found is None else n.Binary(part.at, "AND", found, part)
    return found


def is_aggregate(node: n.Node) -> bool:
    """Whether it is a call of an aggregate that is not over a window of rows."""
    return isinstance(node, n.Call) and node.name in AGGREGATES and node.over is None


def nodes_in(node: object) -> list[n.Node]:
    """The node and all below it, but for queries in it and what is below an aggregate."""
    found: list[n.Node] = []
    _gather(node, found)
    return found


def _gather(node: object, found: list[n.Node]) -> None:
    if isinstance(node, tuple):
        for part in node:
            _gather(part, found)
    elif isinstance(node, n.Node) and not isinstance(node, q.Query):
        found.append(node)
        if not is_aggregate(node):
            for field in fields(node):
                _gather(getattr(node, field.name), found)


def sort_key(item: n.OrderItem, column: int) -> SortKey:
    """The key of one item of ORDER BY; null is the smallest value, as in Flink."""
    nulls_first = not item.descending if item.nulls_first is None else item.nulls_first
    return SortKey(column, item.descending, nulls_first)
