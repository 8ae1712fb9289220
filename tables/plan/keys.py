"""Which columns tell the rows of a node apart, and by which of them its changes are in order: what sinks write by."""

from __future__ import annotations

from penstock.tables import types as t
from penstock.tables.expressions import Conversion, Expression, InputColumn, columns_in, conjuncts
from penstock.tables.plan import nodes as p
from penstock.tables.plan.join_conditions import equal_columns, equal_expressions
from penstock.tables.plan.nodes import JoinKind, PlanNode

Keys = frozenset[frozenset[int]]
"""Sets of columns, each of which tells rows apart."""
_NONE: Keys = frozenset()


def unique_keys(node: PlanNode) -> Keys:
    """The sets of columns of which no two rows that are there at a time have the same values."""
    match node:
        case p.Scan():
            return frozenset({frozenset(node.primary_key)}) if node.primary_key else _NONE
        case p.Normalize():
            return frozenset({frozenset(node.key)})
        case p.Filter() | p.Watermarks() | p.EventTime() | p.Sort() | p.OverAggregate():
            return unique_keys(node.input)
        case p.Project():
            return _projected(node, unique_keys(node.input))
        case p.Aggregate():
            return frozenset({frozenset(range(len(node.keys)))})
        case p.WindowAggregate():
            parts = (place for place, result in enumerate(node.results) if not result.startswith("call"))
            return frozenset({frozenset(parts)})
        case p.TopN():
            return _ranked(node, unique_keys(node.input))
        case p.Join():
            return _joined(node, unique_keys(node.left), unique_keys(node.right))
    return _NONE


def upsert_keys(node: PlanNode) -> Keys:
    """Those by which changes are in order: what a row becomes never comes before what it was.

    An operator divides rows by columns of its own. A row that changes in these is taken back in one place and comes in
    another, in any order, so that only keys with all of these columns stay.

    Source: Flink's `FlinkRelMdUpsertKeys`.
    """
    match node:
        case p.Filter() | p.Watermarks() | p.EventTime() | p.Sort():
            return upsert_keys(node.input)
        case p.Project():
            return _projected(node, upsert_keys(node.input))
        case p.OverAggregate():
            return _with_all(upsert_keys(node.input), set(node.partition))
        case p.TopN():
            return _ranked(node, _with_all(upsert_keys(node.input), set(node.partition)))
        case p.Join():
            width = len(node.left.columns)
            pairs, _ = equal_expressions([] if node.condition is None else conjuncts(node.condition), width)
            left = {place for one, _ in pairs for place in columns_in(one)}
            right = {place for _, other in pairs for place in columns_in(other)}
            sides = (_with_all(upsert_keys(node.left), left), _with_all(upsert_keys(node.right), right))
            return _joined(node, *sides)
    return unique_keys(node)


def _with_all(keys: Keys, columns: set[int]) -> Keys:
    return frozenset(key for key in keys if columns <= key)


def _ranked(node: p.TopN, own: Keys) -> Keys:
    if node.function != "ROW_NUMBER":
        return own
    ranked = frozenset(node.partition) | {len(node.columns) - 1}
    alone = {frozenset(node.partition)} if node.first == node.last else set()
    return own | frozenset({ranked, *alone})


def _projected(node: p.Project, below: Keys) -> Keys:
    kept = [(_kept_column(expression), place) for place, expression in enumerate(node.expressions)]
    places = {column: place for column, place in reversed(kept) if column is not None}
    keys = (key for key in below if key <= places.keys())
    return frozenset(frozenset(places[column] for column in key) for key in keys)


def _kept_column(expression: Expression) -> int | None:
    """The column whose different values an expression tells apart: itself, or as a wider type."""
    if isinstance(expression, InputColumn):
        return expression.index
    if not isinstance(expression, Conversion) or not isinstance(expression.operand, InputColumn):
        return None
    given, wanted = expression.operand.type, expression.type
    if given.kind in t.INTEGERS and wanted.kind in t.INTEGERS:
        is_wider = t.INTEGERS.index(given.kind) <= t.INTEGERS.index(wanted.kind)
    else:
        is_wider = given.is_text and wanted.kind is t.Kind.VARCHAR and given.precision <= wanted.precision
    return expression.operand.index if is_wider else None


def _joined(node: p.Join, left: Keys, right: Keys) -> Keys:
    if node.kind not in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL):
        return left
    width = len(node.left.columns)
    pairs, _ = equal_columns([] if node.condition is None else conjuncts(node.condition), width)
    found = {one | frozenset(width + place for place in other) for one in left for other in right}
    # A row of one side that meets at most one of the other is told apart by its own key.
    if node.kind in (JoinKind.INNER, JoinKind.LEFT) and any(key <= {other for _, other in pairs} for key in right):
        found |= left
    if node.kind in (JoinKind.INNER, JoinKind.RIGHT) and any(key <= {one for one, _ in pairs} for key in left):
        found |= {frozenset(width + place for place in key) for key in right}
    return frozenset(found)
