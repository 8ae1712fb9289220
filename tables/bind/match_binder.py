"""Binds MATCH_RECOGNIZE: what orders rows, when a row is one of a variable, and what is made of a match."""

from __future__ import annotations

from dataclasses import replace

from penstock.engine.errors import PatternError, nearest
from penstock.engine.patterns.rows.automaton import compiled
from penstock.engine.patterns.rows.syntax import variables_of
from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.ordering import check_ordered
from penstock.tables.bind.queries import Queries
from penstock.tables.bind.row_references import RowReferences
from penstock.tables.bind.scopes import Scope
from penstock.tables.building import converted
from penstock.tables.expressions import (
    Conversion,
    Expression,
    FunctionCall,
    InputColumn,
    columns_in,
    on_columns,
    rewritten,
    walk,
)
from penstock.tables.functions.casts import castable
from penstock.tables.parse import match_nodes as m
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.query_parser import parse_match
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.expression_traits import may_call_fail
from penstock.tables.plan.nodes import Column, Columns, MatchRecognize, PlanNode, Scan, SortKey, TimeAttribute
from penstock.tables.plan.row_references import Reference, ReferenceKind, RowDefinition, RowMatch
from penstock.tables.plan.time_columns import chosen
from penstock.tables.types import Kind


def bind_match(binder: Queries, clause: q.MatchRecognize) -> MatchRecognize:
    """The plan of the clause over its table.

    Raises:
        SqlError: it does not fit the table, or has what is not supported.
    """
    node, scope = binder.relation(clause.input)
    return _MatchBinder(binder.source, clause, node, scope).bound()


def bind_pattern(
    text: str, columns: Columns, partition: tuple[int, ...], time: int, measures: Columns
) -> MatchRecognize:
    """The plan of clauses that come while a job runs, over rows whose partitions and order are known.

    Args:
        text: `MEASURES ... PATTERN ... DEFINE ...`.
        columns: of the rows.
        partition, time: places of columns.
        measures: what MEASURES must give, in any order.

    Raises:
        SqlError: the text does not fit the rows or the measures.
    """
    source = SqlText(text)
    name = n.Identifier(0, "rows")
    clause = parse_match(source, q.TableName(0, n.Name(0, (name,))))
    if clause.partition_by or clause.order_by or clause.all_rows:
        raise source.unsupported(
            0, "PARTITION BY and ORDER BY are those of match_patterns, and there is one row a match"
        )

    def column(place: int) -> n.Name:
        return n.Name(0, (n.Identifier(0, columns[place].name),))

    order = (n.OrderItem(0, column(time), False, None),)
    whole = replace(clause, partition_by=tuple(column(place) for place in partition), order_by=order)
    found = _MatchBinder(source, whole, Scan("rows", columns), Scope.of(None, columns)).bound()
    return _with_measures(found, len(partition), measures, source)


def _with_measures(found: MatchRecognize, before: int, wanted: Columns, source: SqlText) -> MatchRecognize:
    given = {column.name: place for place, column in enumerate(found.columns) if place >= before}
    if given.keys() != {column.name for column in wanted}:
        raise source.invalid(0, f"MEASURES must give {_listed(wanted)}, and gives {', '.join(given) or 'nothing'}")
    results = list(found.match.results[:before])
    for column in wanted:
        result = found.match.results[given[column.name]]
        if not castable(result.type, column.type):
            raise source.invalid(0, f"measure {column.name!r} is {result.type}, and must be {column.type}")
        results.append(converted(result, column.type.with_nullable(True)))
    return replace(
        found, match=replace(found.match, results=tuple(results)), columns=(*found.columns[:before], *wanted)
    )


def _listed(columns: Columns) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)


class _MatchBinder:
    def __init__(self, source: SqlText, clause: q.MatchRecognize, node: PlanNode, scope: Scope) -> None:
        self._source = source
        self._clause = clause
        self._node = node
        # Columns are told apart by variables here, and no longer by tables.
        self._scope = Scope.of(None, node.columns)
        self._plain = ExpressionBinder(source, scope)
        self._names = variables_of(clause.pattern)
        try:
            self._automaton = compiled(clause.pattern)
        except PatternError as error:
            raise source.invalid(clause.pattern_at, str(error)) from None

    def bound(self) -> MatchRecognize:
        partition = tuple(self._column(item, "PARTITION BY") for item in self._clause.partition_by)
        time, order = self._order()
        local = self._node.columns[order[0].column].type.kind is Kind.TIMESTAMP_LTZ
        rowtime = (t.timestamp_ltz(3) if local else t.timestamp(3)).with_nullable(False)
        references = RowReferences(
            self._source, self._scope, self._variables(), rowtime if time is TimeAttribute.ROWTIME else None
        )
        definitions = self._definitions(references)
        results, columns = self._results(references, partition, order)
        after = self._clause.after
        skip = m.SkipTo.NEXT_ROW if after is None else after.skip
        match = RowMatch(
            self._clause.pattern,
            tuple(definitions.items()),
            tuple(references.values),
            tuple(references.references),
            results,
            self._clause.all_rows,
            skip,
            self._skip_variables(references),
            self._within(),
        )
        rows = chosen(self._node, order[0].column)
        return MatchRecognize(rows, partition, time, order[1:], _pruned(match), columns)

    # Partitions and order

    def _column(self, item: n.Node, clause: str) -> int:
        bound = self._plain.bind(item)
        if not isinstance(bound, InputColumn):
            raise self._source.unsupported(item.at, f"{clause} takes columns here; compute it in a query below")
        return bound.index

    def _order(self) -> tuple[TimeAttribute, tuple[SortKey, ...]]:
        items = self._clause.order_by
        if not items:
            raise self._source.invalid(
                self._clause.at,
                "MATCH_RECOGNIZE needs ORDER BY a time attribute, so that rows of a stream are in order",
            )
        keys = []
        for item in items:
            nulls_first = not item.descending if item.nulls_first is None else item.nulls_first
            keys.append(SortKey(self._column(item.value, "ORDER BY"), item.descending, nulls_first))
            check_ordered(self._node.columns[keys[-1].column].type, item.at, "ORDER BY", self._source)
        first = self._node.columns[keys[0].column]
        if first.time not in (TimeAttribute.ROWTIME, TimeAttribute.PROCTIME):
            raise self._source.invalid(
                items[0].at,
                f"ORDER BY of MATCH_RECOGNIZE begins with a time attribute, and {first.name!r} is none; declare "
                "WATERMARK FOR it in CREATE TABLE, or take a column of PROCTIME()",
            )
        if keys[0].descending:
            raise self._source.unsupported(items[0].at, "time goes forward; leave DESC out")
        if first.time is TimeAttribute.PROCTIME and len(keys) > 1:
            raise self._source.unsupported(
                items[1].at, "rows come one by one by PROCTIME, so nothing else can order them; leave it out"
            )
        return first.time, tuple(keys)

    # Variables

    def _variables(self) -> dict[str, frozenset[str]]:
        known = {name: frozenset({name}) for name in self._names}
        for subset in self._clause.subsets:
            if subset.name.name in known:
                raise self._source.invalid(subset.at, f"{subset.name.name!r} is a variable already; rename the subset")
            for variable in subset.variables:
                self._check_variable(variable)
            known[subset.name.name] = frozenset(variable.name for variable in subset.variables)
        return known

    def _check_variable(self, variable: n.Identifier) -> None:
        if variable.name not in self._names:
            raise self._source.invalid(
                variable.at,
                f"{variable.name!r} is not in PATTERN{nearest(variable.name, list(self._names))}; it has "
                f"{', '.join(self._names)}",
            )

    def _definitions(self, references: RowReferences) -> dict[str, RowDefinition]:
        found = dict.fromkeys(self._names, RowDefinition())
        defined: set[str] = set()
        for definition in self._clause.definitions:
            name = definition.variable.name
            self._check_variable(definition.variable)
            if name in defined:
                raise self._source.invalid(definition.at, f"{name!r} is defined twice; join both by AND")
            defined.add(name)
            found[name] = self._definition(name, definition.condition, references)
        return found

    def _definition(self, variable: str, condition: n.Node, references: RowReferences) -> RowDefinition:
        binder = references.binder(is_final=False)
        own: list[Expression] = []
        rest: list[Expression] = []
        for part in _conjuncts(condition):
            bound = binder.condition(part, f"the definition of {variable}")
            read = [references.references[place] for place in columns_in(bound)]
            if any(reference.kind is ReferenceKind.ROWTIME for reference in read):
                raise self._source.invalid(part.at, "MATCH_ROWTIME is known when there is a match; use it in MEASURES")
            # What may fail is asked only of rows that what stands before it lets through.
            if all(reference.is_own(variable) for reference in read) and not (rest and _is_fallible(bound)):
                own.append(_over_input(bound, references))
            else:
                rest.append(bound)
        return RowDefinition(_joined(own), _joined(rest))

    # What is made of matches

    def _results(
        self, references: RowReferences, partition: tuple[int, ...], order: tuple[SortKey, ...]
    ) -> tuple[tuple[Expression, ...], Columns]:
        given = self._node.columns
        all_rows = self._clause.all_rows
        before = [*partition, *(key.column for key in order if key.column not in partition)] if all_rows else partition
        results: list[Expression] = [references.column(references.of_input(place)) for place in before]
        columns = [Column(given[place].name, given[place].type) for place in before]
        for measure in self._clause.measures:
            is_final = not all_rows if measure.is_final is None else measure.is_final
            if not (is_final or all_rows):
                raise self._source.invalid(measure.at, "RUNNING has a meaning with ALL ROWS PER MATCH; leave it out")
            bound = references.binder(is_final=is_final).bind(measure.value)
            results.append(bound)
            columns.append(Column(measure.name.name, bound.type, self._time_of(bound, references)))
        if all_rows:
            others = [place for place in range(len(given)) if place not in before]
            results += [references.column(references.of_input(place)) for place in others]
            columns += [Column(given[place].name, given[place].type) for place in others]
        names = [column.name for column in columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise self._source.invalid(self._clause.at, f"the result has two columns {twice!r}; rename the measure")
        if not names:
            raise self._source.invalid(self._clause.at, "the result has no columns; give MEASURES")
        return tuple(results), tuple(columns)

    def _time_of(self, bound: Expression, references: RowReferences) -> TimeAttribute | None:
        if isinstance(bound, InputColumn) and references.references[bound.index].kind is ReferenceKind.ROWTIME:
            return TimeAttribute.ROWTIME
        return TimeAttribute.PROCTIME if isinstance(bound, FunctionCall) and bound.name == "PROCTIME" else None

    def _skip_variables(self, references: RowReferences) -> frozenset[str]:
        after = self._clause.after
        if after is None or after.variable is None:
            return frozenset()
        if after.variable.name not in references.variables:
            self._check_variable(after.variable)
        found = references.variables[after.variable.name]
        first = {self._automaton.variables[number] for number in self._automaton.first_variables}
        if after.skip is m.SkipTo.FIRST and first <= found:
            raise self._source.invalid(
                after.at,
                f"a match begins with {after.variable.name!r}, so the search would find it again for ever; skip to "
                "another variable, or TO NEXT ROW",
            )
        return found

    def _within(self) -> int | None:
        if self._clause.within is None:
            return None
        bound = self._plain.bind(self._clause.within)
        value = getattr(bound, "value", None)
        if bound.type.kind is not Kind.INTERVAL_MILLIS or not isinstance(value, int) or value <= 0:
            raise self._source.invalid(
                self._clause.within.at, "WITHIN takes an interval of days or less that is longer than 0"
            )
        return value


def _conjuncts(node: n.Node) -> list[n.Node]:
    if isinstance(node, n.Binary) and node.operator == "AND":
        return [*_conjuncts(node.left), *_conjuncts(node.right)]
    return [node]


def _joined(parts: list[Expression]) -> Expression | None:
    found: Expression | None = None
    for part in parts:
        found = part if found is None else FunctionCall(t.BOOLEAN, "AND", (found, part))
    return found


def _is_fallible(expression: Expression) -> bool:
    return any(
        (isinstance(part, FunctionCall) and may_call_fail(part)) or (isinstance(part, Conversion) and not part.safe)
        for part in walk(expression)
    )


def _over_input(expression: Expression, references: RowReferences) -> Expression:
    """The expression over the columns of the row, which is all that it reads."""

    def substitute(part: Expression) -> Expression | None:
        if not isinstance(part, InputColumn):
            return None
        value = references.references[part.index].value
        assert value is not None, "a row's own reference has a value"
        return references.values[value]

    return rewritten(expression, substitute)


def _pruned(match: RowMatch) -> RowMatch:
    """The match with the references and values that are read, and no others."""
    read = [*(d.rest for _, d in match.definitions if d.rest is not None), *match.results]
    kept = sorted({place for expression in read for place in columns_in(expression)})
    chosen = [match.references[place] for place in kept]
    values = sorted({reference.value for reference in chosen if reference.value is not None})

    def moved(expression: Expression) -> Expression:
        return on_columns(expression, kept.index)

    def placed(reference: Reference) -> Reference:
        return reference if reference.value is None else replace(reference, value=values.index(reference.value))

    definitions = tuple(
        (name, replace(d, rest=None if d.rest is None else moved(d.rest))) for name, d in match.definitions
    )
    return replace(
        match,
        definitions=definitions,
        values=tuple(match.values[value] for value in values),
        references=tuple(placed(reference) for reference in chosen),
        results=tuple(moved(result) for result in match.results),
    )
