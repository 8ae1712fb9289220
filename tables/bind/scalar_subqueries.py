"""Binds queries inside of expressions, such as `price > (SELECT AVG(price) FROM bids)`: outer joins with their rows.

`SelectBinder` calls it before WHERE is bound. A query as a value gives one row at most for each outer row; EXISTS and
IN become a mark that is null where nothing is met, ANY and ALL a comparison with the ends of what the query gives; all
of them a comparison with the one row of a query of aggregates without GROUP BY.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from penstock.tables.bind.aggregate_values import aggregate_values, is_of_aggregates, zero_for_null
from penstock.tables.bind.correlated import Correlated, correlated, equal
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.joins import joined_columns
from penstock.tables.bind.queries import Outer, Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import conjunction_of, nodes_in
from penstock.tables.building import chain
from penstock.tables.expressions import Expression, InputColumn
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.rewriting import rewritten
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.keys import unique_keys
from penstock.tables.plan.nodes import Aggregate, Filter, Join, JoinKind, PlanNode, Project, Sort, Values
from penstock.tables.plan.rules.apply import rewritten_plan

_VALUE: Final = "value$"
_OPPOSITE: Final = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "<>": "="}
"""ANY of a comparison is false where ALL of its opposite is true; = ANY is IN."""
_Tree = TypeVar("_Tree")


@dataclass(slots=True)
class ScalarSubqueries:
    """Joins the rows of FROM with the value of each query in an expression.

    Args:
        queries: binds the inner queries.
        node: the rows.
        scope: their names, and behind these the values, which have none.
    """

    queries: Queries
    node: PlanNode
    scope: Scope
    _around: Outer = field(init=False)
    _known: list[tuple[n.Node, n.Node]] = field(default_factory=list)
    _outer: dict[int, tuple[n.Node, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._around = Outer(self.scope, self.node)

    def replaced(self, tree: _Tree) -> _Tree:
        """An expression, or what holds some, with columns of the joins in place of each query.

        Raises:
            SqlError: a query with several columns, or perhaps several rows.
        """

        def change(part: Any) -> Any:
            if isinstance(part, q.Subquery | q.Exists | q.InQuery | q.Compared):
                return self._value_of(part)
            return part if isinstance(part, q.Query) else None

        return rewritten(tree, change)

    def replaced_test(self, node: n.Node) -> n.Node:
        """A condition about a query, perhaps negated, with the values of queries in what is sought or compared.

        Where the query has one row whatever FROM gives, the condition is about the values of that.
        """
        if isinstance(node, n.Unary):
            return replace(node, operand=self.replaced_test(node.operand))
        if isinstance(node, q.Exists | q.InQuery | q.Compared) and is_of_aggregates(node.query):
            return self.replaced(node)
        if isinstance(node, q.InQuery | q.Compared):
            return replace(node, operand=self.replaced(node.operand))
        return node

    def decided_by(self, value: n.ValueColumn) -> tuple[n.Node, ...]:
        """What of an outer row decides a value; nothing where all rows have the same."""
        return self._outer[value.place]

    def _value_of(self, node: q.Subquery | q.Exists | q.InQuery | q.Compared) -> n.Node:
        for known, value in self._known:
            if known == node:
                return value
        made = self._scalar(node) if isinstance(node, q.Subquery) else self._condition(node)
        self._known.append((node, made))
        return made

    def _condition(self, node: q.Exists | q.InQuery | q.Compared) -> n.Node:
        if isinstance(node, q.InQuery | q.Compared):
            node = replace(node, operand=self.replaced(node.operand))
        if is_of_aggregates(node.query):
            return self._of_one_row(node)
        match node:
            case q.Exists():
                return self._exists(node)
            case q.InQuery():
                return self._is_in(node)
            case q.Compared():
                return self._compared(node)

    # A query as a value

    def _scalar(self, subquery: q.Subquery) -> n.Node:
        source = self.queries.source
        parts = aggregate_values(self.queries, subquery.query)
        query = subquery.query if parts is None else parts.query
        found = correlated(self.queries, query, self._around)
        if found is None and parts is not None and (parts.are_calls or parts.are_null_of_no_rows):
            # State is found by the names of columns, which are those of the query where it may stay whole.
            query, parts = subquery.query, parts if parts.are_calls else None
        inner = self.queries.query(query) if found is None else found.node
        width = len(parts.items) if parts is not None else len(inner.columns) if found is None else found.width
        if width != 1:
            raise source.invalid(subquery.at, f"a query as a value has one column, not {width}")
        if not (_is_one_row(inner) if found is None else _is_one_row_each(found)):
            raise source.unsupported(
                subquery.at,
                "a query as a value gives one row: aggregate without GROUP BY, or write LIMIT 1; or use a join",
            )
        place = self._join(inner, (), []) if found is None else self._join_correlated(found)
        return n.ValueColumn(subquery.at, place) if parts is None else self.replaced(parts.values(place)[0])

    # EXISTS, IN, ANY and ALL as values

    def _of_one_row(self, node: q.Exists | q.InQuery | q.Compared) -> n.Node:
        """What is said of a query of aggregates without GROUP BY: of its one row, or of none by HAVING."""
        source, at = self.queries.source, node.at
        parts = aggregate_values(self.queries, node.query)
        if parts is None:
            raise source.unsupported(
                at,
                "EXISTS, IN, ANY and ALL take of a query of aggregates without GROUP BY these alone, without columns "
                "beside them, OVER, QUALIFY, OFFSET and LIMIT 0; use it in FROM of a query of its own",
            )
        found = correlated(self.queries, parts.query, self._around)
        inner = self.queries.query(parts.query) if found is None else found.node
        true, false = n.BooleanLiteral(at, True), n.BooleanLiteral(at, False)
        if isinstance(node, q.Exists) and parts.having is None:
            return true
        items, having = parts.over(self._join(inner, (), []) if found is None else self._join_correlated(found))
        holds = true if isinstance(node, q.Exists) else _with_one_row(node, self.replaced(tuple(items)), source)
        if having is not None:
            of_none = true if isinstance(node, q.Compared) and node.every else false
            holds = n.Case(at, None, ((self.replaced(having), holds),), of_none)
        return n.Unary(at, "NOT", holds) if isinstance(node, q.InQuery) and node.negated else holds

    def _exists(self, node: q.Exists) -> n.Node:
        marked = _marked(node.query)
        found = None if marked is None else correlated(self.queries, marked, self._around)
        if found is None:
            count = self._scalar(q.Subquery(node.at, _counting(node.query, node.at, ())))
            return n.Binary(node.at, ">", count, n.NumberLiteral(node.at, "0"))
        return n.IsTest(node.at, n.ValueColumn(node.at, self._join_correlated(found)), "NULL", True)

    def _is_in(self, node: q.InQuery) -> n.Node:
        source = self.queries.source
        is_row = isinstance(node.operand, n.Constructor) and node.operand.kind == "ROW"
        if correlated(self.queries, node.query, self._around) is not None:
            if is_row:
                raise source.unsupported(
                    node.at,
                    "IN of rows with a query that names outer columns stands in WHERE, joined by AND; use EXISTS",
                )
            return self._is_in_own(node)
        if isinstance(node.operand, n.Constructor) and is_row:
            return self._are_in(node, node.operand.items)
        inner = self.queries.query(_distinct(node.query, node.at))
        if len(inner.columns) != 2:
            raise source.invalid(
                node.at, f"the query of IN has {len(inner.columns) - 1} columns, and 1 value is sought"
            )
        operand = ExpressionBinder(source, self.scope).bind(node.operand)
        column = InputColumn(inner.columns[0].type, self._width)
        test = equal(self.queries, operand, column, node.at)
        place = self._join(inner, (node.operand,), [test])
        mark = n.IsTest(node.at, n.ValueColumn(node.at, place + 1), "NULL", True)
        known = self._unless_null(node, mark) if operand.type.nullable or column.type.nullable else mark
        return n.Unary(node.at, "NOT", known) if node.negated else known

    def _are_in(self, node: q.InQuery, values: tuple[n.Node, ...]) -> n.Node:
        """IN of a row: whether one of the query is equal, or null where one may be."""
        at, inner = node.at, self.queries.query(node.query)
        if len(inner.columns) != len(values):
            raise self.queries.source.invalid(
                at, f"the query of IN has {len(inner.columns)} columns, and {len(values)} values are sought"
            )
        names = tuple(n.Identifier(at, f"{_VALUE}{place}") for place in range(len(values)))
        table = q.DerivedTable(at, node.query, q.Alias(n.Identifier(at, "query$"), names))
        same = conjunction_of(
            [n.Binary(at, "=", n.Name(at, (name,)), value) for name, value in zip(names, values, strict=True)]
        )
        assert same is not None, "a row has values"

        def met(condition: n.Node) -> n.Node:
            one = q.SelectItem(at, n.NumberLiteral(at, "1"))
            return self._exists(q.Exists(at, q.Query(at, q.Select(at, (one,), table, condition))))

        true, false, unknown = (n.BooleanLiteral(at, value) for value in (True, False, None))
        branches: tuple[tuple[n.Node, n.Node], ...] = ((met(same), true),)
        binder = ExpressionBinder(self.queries.source, self._around.scope)
        types = (*(binder.bind(value).type for value in values), *(column.type for column in inner.columns))
        if any(kind.nullable for kind in types):
            branches = (*branches, (met(n.IsTest(at, same, "FALSE", True)), unknown))
        known = n.Case(at, None, branches, false)
        return n.Unary(at, "NOT", known) if node.negated else known

    def _is_in_own(self, node: q.InQuery) -> n.Node:
        """IN with a query that names outer columns: whether there is a row of it with the value."""
        source, at = self.queries.source, node.at
        body, value = _only_column(node, source)
        assert body.source is not None, "it names outer columns"
        _, inner = self.queries.relation(body.source)
        operand = rewritten(node.operand, lambda part: self._qualified(part, inner))
        same = n.Binary(at, "=", value, operand)
        where = same if body.where is None else n.Binary(at, "AND", body.where, same)
        mark = self._exists(q.Exists(at, replace(node.query, body=replace(body, where=where))))
        counts = tuple(map(zero_for_null, self._summed(node, ("COUNT",))))
        known = _null_if_open(node, mark, (counts[0], counts[1]))
        return n.Unary(at, "NOT", known) if node.negated else known

    def _qualified(self, part: object, inner: Scope) -> n.Name | None:
        """A name of the outer query as one that the inner query does not take for its own."""
        source = self.queries.source
        if not isinstance(part, n.Name) or inner.find(part, source) is None:
            return None
        for member in self.scope.members:
            if member.name is not None and part.parts[0].name in member.names:
                found = n.Name(part.at, (n.Identifier(part.at, member.name), *part.parts))
                if inner.find(found, source) is None:
                    return found
        raise source.unsupported(part.at, f"{part.text!r} is a column of the query of IN, too; rename one of them")

    def _summed(self, node: q.InQuery | q.Compared, names: tuple[str, ...]) -> list[n.Node]:
        """How many rows a query that names outer columns has, and aggregates of its only column."""
        at, (body, value) = node.at, _only_column(node, self.queries.source)
        calls = (
            n.Call(at, "COUNT", (), star=True),
            *(n.Call(at, name, (n.Argument(at, value),)) for name in names),
        )
        items = tuple(q.SelectItem(at, one) for one in calls)
        found = correlated(
            self.queries,
            replace(node.query, body=replace(body, items=items, distinct=False), order_by=()),
            self._around,
        )
        assert found is not None, "it names outer columns"
        place = self._join_correlated(found)
        return [n.ValueColumn(at, place + offset) for offset in range(len(calls))]

    def _unless_null(self, node: q.InQuery, mark: n.Node) -> n.Node:
        """IN by whether a value was met: null where it was not, and something that it was compared with is null."""
        at = node.at
        rows, values = (
            self._scalar(q.Subquery(at, _counting(node.query, at, counted)))
            for counted in ((), (n.Argument(at, n.Name(at, (n.Identifier(at, _VALUE),))),))
        )
        return _null_if_open(node, mark, (rows, values))

    def _compared(self, node: q.Compared) -> n.Node:
        """ANY is NOT ALL of the opposite, and ALL is true of no rows, and null where a null may decide."""
        source, at = self.queries.source, node.at
        if correlated(self.queries, node.query, self._around) is not None:
            rows, values, least, greatest = self._summed(node, ("COUNT", "MIN", "MAX"))
        else:
            width = len(self.queries.query(node.query).columns)
            if width != 1:
                raise source.invalid(at, f"the query has {width} columns, and 1 value is compared with those of it")
            place = self._join(self.queries.query(_summary(node.query, at)), (), [])
            rows, values, least, greatest = (n.ValueColumn(at, place + offset) for offset in range(4))
        rows, values = zero_for_null(rows), zero_for_null(values)
        operator = node.operator if node.every else _OPPOSITE[node.operator]
        ends = {"=": (least, greatest), "<": (least,), "<=": (least,)}.get(operator, (greatest,))
        fails = [n.Unary(at, "NOT", n.Binary(at, operator, node.operand, end)) for end in ends]
        is_open = n.Binary(at, "OR", n.IsTest(at, node.operand, "NULL", False), n.Binary(at, ">", rows, values))
        true, false, unknown = (n.BooleanLiteral(at, value) for value in (True, False, None))
        none = n.Binary(at, "=", rows, n.NumberLiteral(at, "0"))
        branches = ((none, true), *((fail, false) for fail in fails), (is_open, unknown))
        holds = n.Case(at, None, branches, true)
        return holds if node.every else n.Unary(at, "NOT", holds)

    # Joins

    @property
    def _width(self) -> int:
        return len(self.node.columns)

    def _join_correlated(self, found: Correlated) -> int:
        """As `_join`."""
        return self._join(found.node, found.decisive, found.tests(self.queries, self.scope, self._width))

    def _join(self, inner: PlanNode, outer: tuple[n.Node, ...], tests: list[Expression]) -> int:
        """Join the rows with those of a query, which `outer` is compared with; the place of its first column."""
        first = self._width
        columns = joined_columns(self.node.columns, inner.columns, JoinKind.LEFT)
        self.node = Join(JoinKind.LEFT, self.node, inner, chain("AND", tests) if tests else None, columns)
        self.scope = Scope(self.scope.members, columns)
        self._outer.update(dict.fromkeys(range(first, self._width), outer))
        return first


def _with_one_row(node: q.InQuery | q.Compared, values: tuple[n.Node, ...], source: SqlText) -> n.Node:
    """A comparison with the only row of a query; for IN, whether it is equal.

    Raises:
        SqlValidationError: it has more columns, or fewer, than are compared.
    """
    at, operand = node.at, node.operand
    is_row = isinstance(node, q.InQuery) and isinstance(operand, n.Constructor) and operand.kind == "ROW"
    operands = operand.items if is_row and isinstance(operand, n.Constructor) else (operand,)
    if len(operands) != len(values):
        raise source.invalid(at, f"the query has {len(values)} columns, and {len(operands)} values are compared")
    operator = node.operator if isinstance(node, q.Compared) else "="
    pairs = zip(operands, values, strict=True)
    compared = conjunction_of([n.Binary(at, operator, one, other) for one, other in pairs])
    assert compared is not None, "a query has columns"
    return compared


def _null_if_open(node: q.InQuery, mark: n.Node, counts: tuple[n.Node, n.Node]) -> n.Node:
    """Whether there is a mark; null without one, where the operand is null or there are more rows than values."""
    at, (rows, values) = node.at, counts
    none = n.Binary(at, "=", rows, n.NumberLiteral(at, "0"))
    is_open = n.Binary(at, "OR", n.IsTest(at, node.operand, "NULL", False), n.Binary(at, ">", rows, values))
    true, false, unknown = (n.BooleanLiteral(at, value) for value in (True, False, None))
    return n.Case(at, None, ((mark, true), (none, false), (is_open, unknown)), false)


def _only_column(node: q.InQuery | q.Compared, source: SqlText) -> tuple[q.Select, n.Node]:
    """The query of IN, ANY or ALL that names outer columns, and what it gives.

    Raises:
        SqlError: it gives several columns, or is no plain SELECT.
    """
    query, body = node.query, node.query.body
    assert isinstance(body, q.Select), "it names outer columns"
    value = body.items[0].value
    clauses = (body.group_by, body.having, body.qualify, query.limit, query.offset)
    if any(clause is not None for clause in clauses) or any(isinstance(part, n.Star) for part in nodes_in(value)):
        raise source.unsupported(
            node.at, "IN, ANY and ALL here take a plain SELECT of one column, when it names outer columns; use EXISTS"
        )
    if len(body.items) != 1:
        raise source.invalid(
            node.at, f"the query has {len(body.items)} columns, and 1 value is compared with those of it"
        )
    return body, value


def _marked(query: q.Query) -> q.Query | None:
    """A query of which each different row is 1; None where it is no plain SELECT."""
    body = query.body
    if not isinstance(body, q.Select) or body.group_by is not None or query.limit is not None or query.ctes:
        return None
    one = q.SelectItem(query.at, n.NumberLiteral(query.at, "1"))
    return replace(query, body=replace(body, items=(one,), distinct=True), order_by=())


def _counting(query: q.Query, at: int, counted: tuple[n.Argument, ...]) -> q.Query:
    """How many rows a query has, or values in its only column."""
    count = n.Call(at, "COUNT", counted, star=not counted)
    columns = (n.Identifier(at, _VALUE),) if counted else ()
    table = q.DerivedTable(at, query, q.Alias(n.Identifier(at, "query$"), columns))
    return q.Query(at, q.Select(at, (q.SelectItem(at, count),), table))


def _summary(query: q.Query, at: int) -> q.Query:
    """How many rows and values the only column of a query has, its least and its greatest value."""
    value = n.Argument(at, n.Name(at, (n.Identifier(at, _VALUE),)))
    calls = (
        n.Call(at, "COUNT", (), star=True),
        *(n.Call(at, name, (value,)) for name in ("COUNT", "MIN", "MAX")),
    )
    table = q.DerivedTable(at, query, q.Alias(n.Identifier(at, "query$"), (n.Identifier(at, _VALUE),)))
    return q.Query(at, q.Select(at, tuple(q.SelectItem(at, call) for call in calls), table))


def _distinct(query: q.Query, at: int) -> q.Query:
    """The different rows of a query, and 1 behind each."""
    table = q.DerivedTable(at, query, q.Alias(n.Identifier(at, "query$"), ()))
    items = (q.SelectItem(at, n.Star(at, None)), q.SelectItem(at, n.NumberLiteral(at, "1")))
    return q.Query(at, q.Select(at, items, table, distinct=True))


def _is_one_row(node: PlanNode) -> bool:
    """Whether a query gives one row at most, whatever its input is."""
    match node:
        case Project() | Filter():
            return _is_one_row(node.input)
        case Aggregate():
            return not node.keys
        case Sort():
            return node.limit == 1 or _is_one_row(node.input)
        case Values():
            return len(node.rows) <= 1
    return False


def _is_one_row_each(found: Correlated) -> bool:
    """Whether there is one row at most for each outer row."""
    return any(key <= set(found.compared) for key in unique_keys(rewritten_plan(found.node)))
