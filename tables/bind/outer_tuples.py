"""Joins a query with the different values that it meets outside: each of them has the rows of its own then.

`correlated.py` asks for it where outer columns are compared otherwise than by `=`, and the rows that an outer row meets
belong together: as a group, in order, or in a window of OVER. The tables of the outer query are read for it once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.queries import Outer, Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import conjunction_of, nodes_in
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.rewriting import rewritten
from penstock.tables.plan.nodes import Aggregate, Column, PlanNode, Project

_TABLE: Final = "outer$"
_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_ARITHMETIC: Final = frozenset({*_COMPARISONS, "+", "-", "*", "/", "%"})


@dataclass(frozen=True, slots=True)
class OuterTuples:
    """A query joined with the tuples.

    Args:
        queries: knows their table.
        select: the query.
        names: what a tuple is of, in the outer query.
        columns: the same in this one.
    """

    queries: Queries
    select: q.Select
    names: tuple[n.Name, ...]
    columns: tuple[n.Name, ...]


def of_outer_tuples(
    queries: Queries, select: q.Select, about: tuple[Sequence[n.Node], Scope], outer: Outer
) -> OuterTuples:
    """A query without outer columns.

    Args:
        select: without the conditions that name some.
        about: these conditions, and the columns of FROM.

    Raises:
        SqlUnsupportedError: `*` beside a table in FROM that has no name.
    """
    conditions, inner = about
    found = [part for one in conditions for part in nodes_in(one) if isinstance(part, n.Name)]
    names = tuple(dict.fromkeys(name for name in found if inner.find(name, queries.source) is None))
    columns = tuple(_column(select.at, place) for place in range(len(names)))

    def change(part: Any) -> Any:
        if isinstance(part, n.Name) and part in names:
            return columns[names.index(part)]
        return part if isinstance(part, q.Query) else None

    assert select.source is not None, "the caller has looked"
    table = q.TableName(select.at, n.Name(select.at, (n.Identifier(select.at, _TABLE),)))
    where = conjunction_of([*filter(None, [select.where]), *(rewritten(one, change) for one in conditions)])
    items = tuple(named for item in select.items for named in _named(queries, item, inner))
    joined = replace(select, items=items, where=where, source=q.Join(select.at, "CROSS", select.source, table))
    return OuterTuples(queries.with_table(_TABLE, _tuples(queries, names, outer)), joined, names, columns)


def _column(at: int, place: int) -> n.Name:
    return n.Name(at, (n.Identifier(at, _TABLE), n.Identifier(at, f"{_TABLE}{place}")))


def _tuples(queries: Queries, names: tuple[n.Name, ...], outer: Outer) -> PlanNode:
    binder = ExpressionBinder(queries.source, outer.scope)
    values = tuple(binder.bind(name) for name in names)
    columns = tuple(Column(f"{_TABLE}{place}", value.type) for place, value in enumerate(values))
    return Aggregate(Project(outer.node, values, columns), tuple(range(len(columns))), (), columns)


def _named(queries: Queries, item: q.SelectItem, inner: Scope) -> list[q.SelectItem]:
    """`*` without the columns of the tuples."""
    if not isinstance(item.value, n.Star) or item.value.qualifier is not None:
        return [item]
    tables = [member.name for member in inner.members]
    if None in tables:
        raise queries.source.unsupported(item.at, "name the columns of a query that compares outer columns")
    return [
        replace(item, value=n.Star(item.at, n.Name(item.at, (n.Identifier(item.at, str(table)),)))) for table in tables
    ]


def meets_no_null(conditions: Sequence[n.Node]) -> set[n.Name]:
    """Names of which no row meets a null, since a comparison of plain arithmetic with it must hold."""
    return {
        part
        for one in conditions
        if isinstance(one, n.Binary) and one.operator in _COMPARISONS
        if all(map(_gives_null_of_null, nodes_in(one)))
        for part in nodes_in(one)
        if isinstance(part, n.Name)
    }


def _gives_null_of_null(part: n.Node) -> bool:
    if isinstance(part, n.Binary):
        return part.operator in _ARITHMETIC
    if isinstance(part, n.Unary):
        return part.operator in ("-", "+")
    return isinstance(part, n.Name | n.Identifier | n.NumberLiteral | n.StringLiteral)
