"""Binds queries: FROM, WITH, set operations, ORDER BY and LIMIT; `select_binder.py` does SELECT itself.

`bind_query` is the way in.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.engine.errors import SqlError
from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.hints import NO_HINTS, Hints
from penstock.tables.bind.joins import bind_join
from penstock.tables.bind.match_binder import bind_match
from penstock.tables.bind.ordering import check_ordered
from penstock.tables.bind.queries import QueryContext
from penstock.tables.bind.scopes import Member, Scope
from penstock.tables.bind.select_binder import SelectBinder
from penstock.tables.bind.syntax import sort_key
from penstock.tables.bind.table_binder import bind_table
from penstock.tables.bind.table_functions import TABLE_FUNCTIONS, TableFunctionBinder
from penstock.tables.building import converted
from penstock.tables.catalog.catalog import CatalogTable, CatalogView, PlannedTable, StreamTable
from penstock.tables.expressions import Constant, Expression, InputColumn
from penstock.tables.functions.common_types import common_type
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import (
    INSERT_ONLY,
    UPSERT,
    Aggregate,
    ChangelogMode,
    Column,
    Columns,
    PlanNode,
    Project,
    Scan,
    SetOperation,
    Sort,
    Union,
    Unnest,
    Values,
    unique_names,
)
from penstock.tables.types import Kind


def bind_query(query: q.Query, context: QueryContext, outer: Scope | None = None) -> PlanNode:
    """The logical plan of a query.

    Args:
        query: its syntax.
        context: what it may refer to.
        outer: the columns of the query around it, for LATERAL.

    Raises:
        SqlError: it does not fit the catalog, or has what is not supported.
    """
    return QueryBinder(context, outer).query(query)


def bind_view(view: CatalogView, context: QueryContext) -> PlanNode:
    """The plan of a view; its names are looked up where it was made.

    Raises:
        SqlError: what it names has changed since.
    """
    own = replace(context, source=view.source, common={}, catalog=context.catalog.within(view.within))
    try:
        node = bind_query(view.query, own)
    except SqlError as error:
        error.problem = f"in view {view.name!r}: {error.problem}"
        raise
    return renamed(node, view.columns, view.source)


class QueryBinder:
    """Binds one query and those in it."""

    def __init__(self, context: QueryContext, outer: Scope | None = None, hints: Hints = NO_HINTS) -> None:
        self.context = context
        self.source = context.source
        self.outer = outer
        self.hints = hints

    def with_hints(self, hints: Hints) -> QueryBinder:
        """The same, for the FROM of a SELECT with these."""
        return QueryBinder(self.context, self.outer, hints)

    def with_table(self, name: str, node: PlanNode) -> QueryBinder:
        """The same, where a table has this name."""
        return QueryBinder(replace(self.context, common={**self.context.common, name: node}), self.outer)

    @property
    def zone(self) -> str:
        """The session's time zone."""
        return self.context.options["table.local-time-zone"]

    def with_common(self, tables: tuple[q.CommonTable, ...]) -> QueryBinder:
        """The same, behind the tables of WITH."""
        inner = self
        for common in tables:
            node = renamed(inner.query(common.query), common.alias.columns, self.source)
            inner = inner.with_table(common.alias.name.name, node)
        return inner

    def query(self, query: q.Query) -> PlanNode:
        """A query with what stands around it."""
        inner = self.with_common(query.ctes)
        if isinstance(query.body, q.Select):
            return SelectBinder(inner, query.body).bind(query.order_by, inner._limits(query))
        node = inner.body(query.body)
        return inner.ordered(node, query.order_by, inner._limits(query))

    def body(self, body: q.QueryBody) -> PlanNode:
        """What stands inside a query."""
        match body:
            case q.Select():
                return SelectBinder(self, body).bind((), (None, 0))
            case q.SetOperation():
                return self._set_operation(body)
            case q.Values():
                return self._values(body)
            case q.TableQuery():
                return self.relation(q.TableName(body.at, body.name))[0]
            case q.Query():
                return self.query(body)

    def _limits(self, query: q.Query) -> tuple[int | None, int]:
        limit = None if query.limit is None else self._count(query.limit, "LIMIT")
        return limit, 0 if query.offset is None else self._count(query.offset, "OFFSET")

    def _count(self, node: n.Node, clause: str) -> int:
        bound = ExpressionBinder(self.source, Scope((), ())).bind(node)
        if not isinstance(bound, Constant) or not isinstance(bound.value, int) or bound.value < 0:
            raise self.source.invalid(node.at, f"{clause} takes a whole number of 0 or more")
        return bound.value

    def ordered(self, node: PlanNode, order_by: tuple[n.OrderItem, ...], limits: tuple[int | None, int]) -> PlanNode:
        """The node in order, and cut; order goes by the names of its columns."""
        limit, offset = limits
        if not order_by and limit is None and not offset:
            return node
        binder = ExpressionBinder(self.source, Scope.of(None, node.columns))
        keys = []
        for item in order_by:
            bound = binder.bind(item.value)
            if not isinstance(bound, InputColumn):
                raise self.source.unsupported(
                    item.at, "ORDER BY takes columns of the result here; compute it in SELECT"
                )
            check_ordered(bound.type, item.at, "ORDER BY", self.source)
            keys.append(sort_key(item, bound.index))
        return Sort(node, tuple(keys), limit, offset)

    # Set operations and VALUES

    def _set_operation(self, operation: q.SetOperation) -> PlanNode:
        left, right = self.body(operation.left), self.body(operation.right)
        if len(left.columns) != len(right.columns):
            raise self.source.invalid(
                operation.at,
                f"both sides of {operation.operator} need as many columns: the left has {len(left.columns)}, the "
                f"right {len(right.columns)}",
            )
        left, right = self._same_types(operation, left, right)
        times = [a.time if a.time is b.time else None for a, b in zip(left.columns, right.columns, strict=True)]
        pairs = zip(left.columns, right.columns, times, strict=True)
        columns = tuple(
            Column(a.name, a.type.with_nullable(a.type.nullable or b.type.nullable), time) for a, b, time in pairs
        )
        if operation.operator == "UNION":
            union = Union((left, right), columns)
            return union if operation.keep_all else Aggregate(union, tuple(range(len(columns))), (), columns)
        plain = tuple(Column(column.name, column.type) for column in columns)
        return SetOperation(operation.operator, operation.keep_all, left, right, plain)

    def _same_types(self, operation: q.SetOperation, left: PlanNode, right: PlanNode) -> tuple[PlanNode, PlanNode]:
        kinds = []
        for place, (a, b) in enumerate(zip(left.columns, right.columns, strict=True)):
            common = common_type((a.type, b.type))
            if common is None:
                raise self.source.invalid(
                    operation.at,
                    f"column {place + 1} is {a.type} on the left of {operation.operator} and {b.type} on the right; "
                    "cast one of them",
                )
            kinds.append(common)
        return cast_to(left, kinds), cast_to(right, kinds)

    def _values(self, values: q.Values) -> PlanNode:
        binder = ExpressionBinder(self.source, Scope((), ()))
        rows = [[binder.bind(value) for value in row] for row in values.rows]
        width = len(rows[0])
        for row, given in zip(rows, values.rows, strict=True):
            if len(row) != width:
                raise self.source.invalid(given[0].at, f"this row has {len(row)} values, the first has {width}")
        kinds = []
        for place in range(width):
            common = common_type([row[place].type for row in rows])
            if common is None:
                raise self.source.invalid(values.at, f"column {place + 1} of VALUES has values of different types")
            kinds.append(common)
        converted_rows = tuple(tuple(converted(v, k) for v, k in zip(row, kinds, strict=True)) for row in rows)
        return Values(converted_rows, tuple(Column(f"EXPR${i}", kind) for i, kind in enumerate(kinds)))

    # FROM

    def relation(self, relation: q.Relation, left: Scope | None = None) -> tuple[PlanNode, Scope]:
        """The plan and the names of what stands in FROM.

        Args:
            left: the columns before it, which LATERAL may use.
        """
        match relation:
            case q.TableName():
                if relation.as_of is not None:
                    raise self.source.invalid(relation.at, "FOR SYSTEM_TIME AS OF stands behind JOIN")
                node = self._table(relation)
                name = relation.name.parts[-1].name
                return self._aliased(node, relation.alias, name)
            case q.DerivedTable():
                if relation.lateral:
                    raise self.source.unsupported(relation.at, "LATERAL (SELECT ...) is not supported; use a join")
                return self._aliased(self.query(relation.query), relation.alias, None)
            case q.FunctionTable():
                return self._function(relation)
            case q.Join():
                return bind_join(self, relation)
            case q.MatchRecognize():
                return self._aliased(bind_match(self, relation), relation.alias, None)

    def _aliased(self, node: PlanNode, alias: q.Alias | None, name: str | None) -> tuple[PlanNode, Scope]:
        if alias is None:
            return node, Scope.of(name, node.columns)
        node = renamed(node, alias.columns, self.source)
        return node, Scope.of(alias.name.name, node.columns)

    def _table(self, relation: q.TableName) -> PlanNode:
        own = relation.name.parts[0].name
        if len(relation.name.parts) == 1 and own in self.context.common:
            return self.context.common[own]
        entry = self.context.catalog.resolve(relation.name, self.source)
        match entry:
            case CatalogTable():
                table = entry.with_options(relation.options)
                mode = self._source_mode(table)
                bounded = self.context.connectors.bounded(table)
                return bind_table(table, mode, tuple(relation.options.items()), bounded)
            case CatalogView():
                return bind_view(entry, self.context)
            case StreamTable():
                return Scan(entry.name, entry.columns, bounded=entry.stream.is_bounded)
            case PlannedTable():
                return entry.plan

    def _source_mode(self, table: CatalogTable) -> ChangelogMode:
        mode = self.context.connectors.source_mode(table)
        duplicates = self.context.options["table.exec.source.cdc-events-duplicate"] == "true"
        # What may come twice is known by its key, like updates without the row before them.
        return UPSERT if duplicates and mode != INSERT_ONLY and table.definition.primary_key else mode

    def _function(self, relation: q.FunctionTable) -> tuple[PlanNode, Scope]:
        call_ = relation.call
        if call_.name == "UNNEST":
            unnested = self.unnested(relation, Values(((),), ()), Scope((), ()), outer=False)
            return self._aliased(unnested, relation.alias, None)
        if call_.name not in TABLE_FUNCTIONS:
            raise self.source.unsupported(
                call_.at,
                f"the table function {call_.name} is not supported; there are {', '.join(sorted(TABLE_FUNCTIONS))}",
            )
        binder = TableFunctionBinder(self.source, call_, self.zone)
        argument = binder.table()
        if isinstance(argument.table, n.Name):
            node, scope = self.relation(q.TableName(argument.at, argument.table))
        else:
            node, scope = self._aliased(self.query(argument.table), None, None)
        return self._aliased(binder.bind(node, scope), relation.alias, None)

    def unnested(self, relation: q.FunctionTable, node: PlanNode, scope: Scope, *, outer: bool) -> Unnest:
        """The rows of `node`, each once an element of a collection of its own."""
        if relation.call.name != "UNNEST" or len(relation.call.arguments) != 1:
            raise self.source.unsupported(
                relation.at, f"{relation.call.name} of the columns before it is not supported; UNNEST(collection) is"
            )
        collection = ExpressionBinder(self.source, scope).bind(relation.call.arguments[0].value)
        kind = collection.type
        if kind.kind not in (Kind.ARRAY, Kind.MAP, Kind.MULTISET):
            raise self.source.invalid(relation.at, f"UNNEST takes an array, a map or a multiset, not {kind}")
        if kind.kind is Kind.MAP:
            found = [Column("KEY", kind.parts[0]), Column("VALUE", kind.parts[1])]
        elif kind.parts[0].kind is Kind.ROW:
            found = [Column(f.name, f.type) for f in kind.parts[0].fields]
        else:
            found = [Column("EXPR$0", kind.parts[0])]
        if outer:
            found = [Column(column.name, column.type.with_nullable(True)) for column in found]
        if relation.ordinality:
            found.append(Column("ORDINALITY", t.INT.with_nullable(outer)))
        if relation.alias is not None and relation.alias.columns:
            found = _named(found, relation.alias.columns, self.source)
        names = unique_names([column.name for column in (*node.columns, *found)])
        every = zip((*node.columns, *found), names, strict=True)
        columns = tuple(Column(name, column.type, column.time) for column, name in every)
        return Unnest(node, collection, outer, relation.ordinality, columns)

    def unnested_scope(self, relation: q.FunctionTable, node: Unnest, scope: Scope) -> Scope:
        """The names behind `unnested`."""
        width = len(scope.columns)
        names = tuple(column.name for column in node.columns[width:])
        if relation.alias is not None and relation.alias.columns:
            names = tuple(column.name for column in relation.alias.columns)
        member = Member(None if relation.alias is None else relation.alias.name.name, width, names)
        return Scope((*scope.members, member), node.columns)


def _named(columns: list[Column], names: tuple[n.Identifier, ...], source: SqlText) -> list[Column]:
    if len(names) != len(columns):
        raise source.invalid(names[0].at, f"there are {len(columns)} columns, and {len(names)} names for them")
    return [Column(name.name, column.type, column.time) for column, name in zip(columns, names, strict=True)]


def renamed(node: PlanNode, names: tuple[n.Identifier, ...], source: SqlText) -> PlanNode:
    """The node with other names for its columns; none keeps them.

    Raises:
        SqlValidationError: not as many names as columns.
    """
    if not names:
        return node
    columns = tuple(_named(list(node.columns), names, source))
    return Project(node, identity(node.columns), columns)


def identity(columns: Columns) -> tuple[Expression, ...]:
    """The columns as they are."""
    return tuple(InputColumn(column.type, place) for place, column in enumerate(columns))


def cast_to(node: PlanNode, kinds: list[t.SqlType]) -> PlanNode:
    """The node with columns of these types."""
    if all(column.type.same_as(kind) for column, kind in zip(node.columns, kinds, strict=True)):
        return node
    expressions = tuple(converted(e, kind) for e, kind in zip(identity(node.columns), kinds, strict=True))
    columns = tuple(
        Column(c.name, e.type, c.time if isinstance(e, InputColumn) else None)
        for c, e in zip(node.columns, expressions, strict=True)
    )
    return Project(node, expressions, columns)
