"""Joins and first rows keep the columns alone that something above them reads.

Their state holds whole rows, which so are shorter. Rows that become alike are counted, so the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.tables.expressions import Expression, InputColumn, columns_in, on_columns
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode
from penstock.tables.plan.keys import unique_keys
from penstock.tables.plan.nodes import INSERT_ONLY, Filter, Join, PlanNode, Project, TopN, inputs_of, with_inputs

Places = list[int]
"""Of columns, ascending."""


def without_unread_columns(node: PlanNode) -> PlanNode:
    """The plan with projections in front of such nodes; all columns of the plan itself are read."""
    return _narrowed(node, _all(node))


def _narrowed(node: PlanNode, read: Places) -> PlanNode:
    """The node with the columns at `read` alone, at least one."""
    match node:
        case Project():
            return _project(node, read)
        case Filter():
            return _filter(node, read)
        case Join():
            return _join(node, read)
        case TopN():
            return _top_n(node, read)
    children = inputs_of(node)
    return _selected(_over(node, [_narrowed(child, _all(child)) for child in children]), read)


def _project(node: Project, read: Places) -> PlanNode:
    expressions = [node.expressions[place] for place in read]
    below = _read(node.input, *map(columns_in, expressions))
    values = tuple(_moved(expression, below) for expression in expressions)
    return Project(_narrowed(node.input, below), values, _at(node.columns, read))


def _filter(node: Filter, read: Places) -> PlanNode:
    below = _read(node.input, read, columns_in(node.condition))
    inner = _narrowed(node.input, below)
    if isinstance(inner, Project) and inner.input is node.input:
        # Nothing below keeps rows, and a projection behind the filter is computed together with it.
        return _selected(node, read)
    places = list(range(len(below)))
    if isinstance(inner, Project) and isinstance(inner.input, Join):
        # A condition stays with its join: what it says of the clock is looked for there.
        places = [one.index for one in inner.expressions if isinstance(one, InputColumn)]
        inner = inner.input
    kept = Filter(inner, on_columns(node.condition, lambda place: places[below.index(place)]))
    return _selected(kept, [places[below.index(place)] for place in read])


def _join(node: Join, read: Places) -> PlanNode:
    width = len(node.left.columns)
    tested = set() if node.condition is None else columns_in(node.condition)
    both = {*read, *tested}
    left = _read(node.left, (place for place in both if place < width))
    right = _read(node.right, (place - width for place in both if place >= width))
    below = [*left, *(width + place for place in right)]
    made = replace(
        node,
        left=_narrowed(node.left, left),
        right=_narrowed(node.right, right),
        condition=None if node.condition is None else _moved(node.condition, below),
        columns=_at(node.columns, [place for place in below if place < len(node.columns)]),
    )
    return _selected(made, [below.index(place) for place in read])


def _top_n(node: TopN, read: Places) -> PlanNode:
    rank = len(node.columns) - 1
    ordered = {*node.partition, *(key.column for key in node.order)}
    below = _read(node.input, (place for place in read if place != rank), ordered)
    if not _may_be_alike(node, below, ordered):
        below = _all(node.input)
    made = replace(
        node,
        input=_narrowed(node.input, below),
        partition=tuple(below.index(place) for place in node.partition),
        order=tuple(replace(key, column=below.index(key.column)) for key in node.order),
        columns=_at(node.columns, [*below, rank]),
    )
    return _selected(made, [len(below) if place == rank else below.index(place) for place in read])


def _may_be_alike(node: TopN, kept: Places, ordered: set[int]) -> bool:
    """Whether the result is the same where rows have the columns `kept` alone, so that different ones may be alike.

    Rows that are alike have one place in the order of arrival, by which ROW_NUMBER tells rows apart that are equal in
    the order. It must be that of the row itself, or make no difference.
    """
    is_first = node.last == 1 and changelog_mode(node.input) == INSERT_ONLY
    has_key = any(key <= set(kept) for key in unique_keys(node.input))
    return node.function != "ROW_NUMBER" or set(kept) <= ordered or is_first or has_key


def _over(node: PlanNode, children: Sequence[PlanNode]) -> PlanNode:
    same = all(one is other for one, other in zip(inputs_of(node), children, strict=True))
    return node if same else with_inputs(node, children)


def _selected(node: PlanNode, read: Places) -> PlanNode:
    """The columns at `read` of a node."""
    if read == _all(node):
        return node
    values = tuple(InputColumn(node.columns[place].type, place) for place in read)
    return Project(node, values, _at(node.columns, read))


def _read(node: PlanNode, *places: Iterable[int]) -> Places:
    """The columns of a node that are read; one of them where none is, as rows without columns cannot be told apart."""
    return sorted(set().union(*places)) or _all(node)[:1]


def _moved(expression: Expression, below: Places) -> Expression:
    """The expression over the columns at `below` alone."""
    return on_columns(expression, below.index)


def _at(columns: p.Columns, places: Places) -> p.Columns:
    return tuple(columns[place] for place in places)


def _all(node: PlanNode) -> Places:
    return list(range(len(node.columns)))
