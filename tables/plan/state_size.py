"""Estimates what a row of an operator's state takes, for EXPLAIN: from types alone, before there is any data.

Text and bytes count up to 24 of what they may have, collections as four elements; each row has 16 bytes of index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import state_bound
from penstock.tables.plan.nodes import PlanNode, inputs_of
from penstock.tables.types import Kind, SqlType

_INDEX: Final = 16
_CALL: Final = 16
_TEXT: Final = 24
_ELEMENTS: Final = 4
_OFFSET: Final = 4
_FIXED: Final = {
    Kind.BOOLEAN: 1,
    Kind.TINYINT: 1,
    Kind.SMALLINT: 2,
    Kind.INT: 4,
    Kind.FLOAT: 4,
    Kind.DATE: 4,
    Kind.TIME: 4,
    Kind.DECIMAL: 16,
}
_TEXTS: Final = (Kind.CHAR, Kind.VARCHAR, Kind.BINARY, Kind.VARBINARY)


def state_bytes(node: PlanNode) -> int | None:
    """About how many bytes a row of the node's state takes: a group, or a row of its widest input; None without state.

    Example:
        >>> state_bytes(p.Values((), ())) is None
        True
    """
    if state_bound(node) is None:
        return None
    match node:
        case p.Aggregate() | p.WindowAggregate():
            window = 16 if isinstance(node, p.WindowAggregate) else 0
            keys = sum(type_bytes(node.input.columns[key].type) for key in node.keys)
            return _INDEX + window + keys + sum(_of_call(call, node.input) for call in node.calls)
        case p.Scan():
            return _row(node.columns)
    return max(_row(child.columns) for child in inputs_of(node))


def _row(columns: Iterable[p.Column]) -> int:
    return _INDEX + sum(type_bytes(column.type) for column in columns)


def _of_call(call: p.AggregateCall, node: PlanNode) -> int:
    values = sum(type_bytes(node.columns[place].type) for place in call.arguments)
    return max(_CALL, values)


def type_bytes(kind: SqlType) -> int:
    """About how many bytes a value takes."""
    if kind.kind in _TEXTS:
        return _OFFSET + min(kind.precision, _TEXT)
    if kind.kind is Kind.ROW:
        return sum(type_bytes(field.type) for field in kind.fields)
    if kind.parts:
        return _OFFSET + _ELEMENTS * sum(map(type_bytes, kind.parts))
    return _FIXED.get(kind.kind, 8)
