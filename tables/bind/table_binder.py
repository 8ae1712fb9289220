"""Binds what stands under a table's name: its columns, computed columns, event time and key."""

from __future__ import annotations

from collections import Counter
from typing import Final

from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.scopes import Scope
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.expressions import Expression, FunctionCall, InputColumn
from penstock.tables.parse import nodes as n
from penstock.tables.parse.table_statements import ComputedColumn
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import (
    Change,
    ChangelogMode,
    Column,
    PlanNode,
    Project,
    Scan,
    TimeAttribute,
    Watermarks,
)

_PROCTIME: Final = t.timestamp_ltz(3).with_nullable(False)


def physical_columns(table: CatalogTable) -> tuple[Column, ...]:
    """The columns that the connector gives or takes: those that are declared with a type."""
    return tuple(
        Column(column.name, column.type)
        for column in table.definition.columns
        if not isinstance(column, ComputedColumn)
    )


def bind_table(
    table: CatalogTable, mode: ChangelogMode, options: tuple[tuple[str, str], ...], bounded: bool
) -> PlanNode:
    """The plan of a table's rows.

    Args:
        table: the table.
        mode: the changes that its connector gives.
        options: of the hint.
        bounded: whether they end.

    Raises:
        SqlError: the definition does not fit together.
    """
    physical = physical_columns(table)
    key = primary_key(table)
    places = tuple(_place(physical, name) for name in key)
    node: PlanNode = Scan(table.name, physical, mode, places, options, bounded=bounded)
    node = _with_computed(table, node)
    return _with_watermark(table, node)


def primary_key(table: CatalogTable) -> tuple[str, ...]:
    """The columns of the primary key.

    Raises:
        SqlValidationError: it names what is no physical column.
    """
    names = [column.name for column in physical_columns(table)]
    for key in table.definition.primary_key:
        if key.name not in names:
            raise table.source.invalid(key.at, f"the primary key names {key.name!r}, which is no physical column")
    return tuple(key.name for key in table.definition.primary_key)


def check_table(table: CatalogTable) -> None:
    """Check a definition when it is made.

    Raises:
        SqlError: as for `bind_table`, or a column twice, or none.
    """
    columns = table.definition.columns
    twice = [name for name, count in Counter(column.name for column in columns).items() if count > 1]
    if twice:
        at = [column.at for column in columns if column.name == twice[0]][1]
        raise table.source.invalid(at, f"column {twice[0]!r} is there twice; rename one")
    bind_table(table, frozenset({Change.INSERT}), (), bounded=True)


def _place(columns: tuple[Column, ...], name: str) -> int:
    return next(place for place, column in enumerate(columns) if column.name == name)


def _with_computed(table: CatalogTable, node: PlanNode) -> PlanNode:
    declared = table.definition.columns
    if not any(isinstance(column, ComputedColumn) for column in declared):
        return node
    binder = ExpressionBinder(table.source, Scope.of(table.name, node.columns))
    expressions: list[Expression] = []
    columns: list[Column] = []
    for column in declared:
        if isinstance(column, ComputedColumn):
            bound = binder.bind(column.value)
            is_proctime = isinstance(bound, FunctionCall) and bound.name == "PROCTIME"
            columns.append(Column(column.name, bound.type, TimeAttribute.PROCTIME if is_proctime else None))
            expressions.append(bound)
        else:
            place = _place(node.columns, column.name)
            columns.append(node.columns[place])
            expressions.append(InputColumn(node.columns[place].type, place))
    return Project(node, tuple(expressions), tuple(columns))


def _check_watermark(given: t.SqlType, time: t.SqlType, at: int, source: SqlText) -> None:
    if given.kind is not time.kind:
        raise source.invalid(at, f"the watermark must be of type {time}, as its column is, not {given}")
    if given.precision > 3:
        raise source.invalid(at, f"the watermark must have 3 digits behind the second at most, and is {given}; cast it")


def _is_of_source(value: n.Node) -> bool:
    return isinstance(value, n.Call) and value.name == "SOURCE_WATERMARK" and not value.arguments


def _with_watermark(table: CatalogTable, node: PlanNode) -> PlanNode:
    definition, source = table.definition.watermark, table.source
    if definition is None:
        return node
    scope = Scope.of(table.name, node.columns)
    binder = ExpressionBinder(source, scope)
    column = binder.bind(definition.column)
    if not isinstance(column, InputColumn):
        raise source.unsupported(definition.column.at, "a field of a row as event time; make a computed column of it")
    if column.type.kind not in t.TIMESTAMPS or column.type.precision > 3:
        raise source.invalid(
            definition.column.at,
            f"event time needs TIMESTAMP(3) or TIMESTAMP_LTZ(3), not {column.type}; add a computed column, such as "
            "`ts AS TO_TIMESTAMP_LTZ(millis, 3)`",
        )
    if node.columns[column.index].time is TimeAttribute.PROCTIME:
        raise source.invalid(
            definition.column.at, "PROCTIME is the time of the clock, and takes no WATERMARK; leave it out"
        )
    watermark = None if _is_of_source(definition.value) else binder.bind(definition.value)
    if watermark is not None:
        _check_watermark(watermark.type, column.type, definition.value.at, source)
    columns = tuple(
        Column(c.name, c.type, TimeAttribute.ROWTIME if place == column.index else c.time)
        for place, c in enumerate(node.columns)
    )
    return Watermarks(node, column.index, watermark, columns)
