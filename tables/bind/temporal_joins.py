"""Binds joins with FOR SYSTEM_TIME AS OF: lookups of a table as it is now, and of a table's versions by event time."""

from __future__ import annotations

from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.queries import Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.expressions import Expression, InputColumn, on_columns, rewritten
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import (
    Columns,
    JoinKind,
    LookupJoin,
    PlanNode,
    Project,
    Scan,
    TemporalJoin,
    TimeAttribute,
    Watermarks,
)
from penstock.tables.plan.time_columns import chosen


def as_of_join(
    binder: Queries,
    join: q.Join,
    right: q.TableName,
    sides: tuple[PlanNode, PlanNode],
    scope: Scope,
    condition: Expression | None,
    columns: Columns,
) -> PlanNode:
    """The plan of such a join.

    Args:
        binder: of the query.
        join, right: their syntax.
        sides: the plans of both.
        scope: the names of the left side.
        condition: over the columns of both.
        columns: of the result.

    Raises:
        SqlError: another kind of join or time, or a table that cannot be looked up.
    """
    source = binder.source
    assert right.as_of is not None, "the caller has looked"
    if join.kind not in ("INNER", "LEFT"):
        raise source.invalid(
            join.at, f"{join.kind} JOIN with FOR SYSTEM_TIME AS OF has no meaning; INNER and LEFT have"
        )
    if condition is None:
        raise source.invalid(join.at, "a join with FOR SYSTEM_TIME AS OF needs ON with an equality of the right's key")
    kind, (left, node) = JoinKind(join.kind), sides
    time = ExpressionBinder(source, scope).bind(right.as_of)
    attribute = left.columns[time.index].time if isinstance(time, InputColumn) else None
    if isinstance(time, InputColumn) and attribute is TimeAttribute.ROWTIME:
        return TemporalJoin(kind, chosen(left, time.index), node, condition, columns)
    if attribute is not TimeAttribute.PROCTIME:
        raise source.invalid(
            right.as_of.at,
            "FOR SYSTEM_TIME AS OF takes a time attribute of the left side: its event time, or PROCTIME()",
        )
    entry = binder.context.catalog.resolve(right.name, source)
    if not isinstance(entry, CatalogTable):
        raise source.unsupported(
            right.at, f"{entry.name!r} is no table with a connector; a join AS OF PROCTIME looks rows up in one"
        )
    physical, values = _parts(node)
    width = len(left.columns)

    def below(part: Expression) -> Expression | None:
        if not isinstance(part, InputColumn) or part.index < width:
            return None
        return on_columns(values[part.index - width], lambda place: place + width)

    options = tuple(right.options.items())
    name = right.name.parts[-1].name if right.alias is None else right.alias.name.name
    retry = binder.hints.lookups.get(name)
    return LookupJoin(kind, left, entry.name, options, physical, values, rewritten(condition, below), columns, retry)


def _parts(node: PlanNode) -> tuple[Columns, tuple[Expression, ...]]:
    """The columns that a table's connector gives, and what its columns are over these."""
    if isinstance(node, Watermarks):
        return _parts(node.input)
    if isinstance(node, Project):
        physical, values = _parts(node.input)
        return physical, tuple(rewritten(e, lambda part: _value(part, values)) for e in node.expressions)
    assert isinstance(node, Scan), "a table is nothing more"
    return node.columns, tuple(InputColumn(column.type, place) for place, column in enumerate(node.columns))


def _value(part: Expression, values: tuple[Expression, ...]) -> Expression | None:
    return values[part.index] if isinstance(part, InputColumn) else None
