"""GROUP BY and the aggregates of a SELECT: what is grouped by, what is computed, and what SELECT may still name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.engine.errors import SqlError
from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.group_windows import GroupWindow
from penstock.tables.bind.syntax import conjunction_of
from penstock.tables.building import call, converted
from penstock.tables.expressions import Conditional, Constant, Expression, InputColumn
from penstock.tables.functions import signatures as s
from penstock.tables.functions.aggregates import AGGREGATES
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import (
    Aggregate,
    AggregateCall,
    Column,
    PlanNode,
    Project,
    TimeAttribute,
    Union,
    unique_names,
)
from penstock.tables.types import Kind

_GROUPING: Final = ("GROUPING", "GROUPING_ID", "GROUP_ID")
_SET: Final = t.INT.with_nullable(False)


class Grouping:
    """Collects the keys and aggregates of one SELECT; `hook` gives their columns to the expression binder.

    Args:
        source: the text, for errors.
        inner: binds over the rows that are grouped.
        node: these rows.
        group_by: the items of GROUP BY.
        window: the window among them, if there is one.
    """

    def __init__(
        self,
        source: SqlText,
        inner: ExpressionBinder,
        node: PlanNode,
        group_by: Sequence[n.Node],
        window: GroupWindow | None,
    ) -> None:
        self._source = source
        self._inner = inner
        self._node = node
        self._window = window
        self._keys: list[Expression] = []
        sets: list[frozenset[int]] = [frozenset()]
        for item in group_by:
            if window is not None and item is window.call:
                choices = [[self._added(bound) for bound in window.bounds]]
            elif isinstance(item, q.GroupingSets):
                choices = [[self._added(inner.bind(part)) for part in chosen] for chosen in item.sets]
            else:
                choices = [[self._added(inner.bind(item))]]
            sets = [one | frozenset(choice) for one in sets for choice in choices]
        self._sets = tuple(sets)
        """The places of the keys that are grouped by together; one set, but for GROUPING SETS."""
        self._calls: list[tuple[AggregateCall, tuple[Expression, ...], Expression | None]] = []

    def _added(self, key: Expression) -> int:
        if key not in self._keys:
            self._keys.append(key)
        return self._keys.index(key)

    def hook(self, node: n.Node) -> Expression | None:
        """The column of a key or an aggregate; None for what is made of others.

        Raises:
            SqlValidationError: a column that is no key, outside an aggregate.
        """
        if self._window is not None:
            window_bound = self._window.bound_of(node)
            if window_bound is not None:
                return self._key(self._keys.index(window_bound))
        if isinstance(node, n.Call) and node.name in AGGREGATES and node.over is None:
            return self._aggregate(node)
        if isinstance(node, n.Call) and node.name in _GROUPING:
            return self._grouping(node)
        if isinstance(
            node, n.NumberLiteral | n.StringLiteral | n.BytesLiteral | n.NullLiteral | n.BooleanLiteral | n.Keyword
        ):
            return None
        bound = self._bound(node)
        if bound in self._keys:
            return self._key(self._keys.index(bound))
        if isinstance(node, n.Name):
            known = self._inner.bind(node)
            raise self._source.invalid(
                node.at, f"column {node.text!r} ({known.type}) is neither in GROUP BY nor in an aggregate; add it there"
            )
        return None

    def _bound(self, node: n.Node) -> Expression | None:
        try:
            return self._inner.bind(node)
        except SqlError:
            return None

    def _key(self, place: int) -> InputColumn:
        kind = self._keys[place].type
        return InputColumn(kind if self._is_in_all(place) else kind.with_nullable(True), place)

    def _is_in_all(self, place: int) -> bool:
        return all(place in chosen for chosen in self._sets)

    @property
    def _width(self) -> int:
        """How many columns stand before the aggregates: the keys, and which set a row is of where there are several."""
        return len(self._keys) + (len(self._sets) > 1)

    def _grouping(self, node: n.Call) -> Expression:
        """GROUPING(a, b): a bit for each key, 1 where the row is not grouped by it. GROUP_ID(): how many equal sets of
        keys stand before that of the row."""
        places = []
        for argument in node.arguments:
            bound = self._bound(argument.value)
            if bound not in self._keys:
                raise self._source.invalid(argument.value.at, f"{node.name} takes what stands in GROUP BY")
            places.append(self._keys.index(bound))
        kind = t.BIGINT.with_nullable(False)
        numbers = []
        for number, chosen in enumerate(self._sets):
            bits = "".join("0" if place in chosen else "1" for place in places)
            before = self._sets[:number].count(chosen)
            numbers.append(Constant(kind, before if node.name == "GROUP_ID" else int(bits or "0", 2)))
        if len(self._sets) == 1:
            return numbers[0]
        of = InputColumn(_SET, len(self._keys))
        tests = [call("=", of, Constant(_SET, number)) for number in range(len(numbers))]
        return Conditional(kind, tuple(zip(tests[:-1], numbers[:-1], strict=True)), numbers[-1])

    def _aggregate(self, node: n.Call) -> InputColumn:
        call, arguments, condition = bound_aggregate(node, self._inner, self._source)
        if not self._keys and not AGGREGATES[node.name].never_null:
            # Without groups there is a result also for no rows.
            call = replace(call, type=call.type.with_nullable(True))
        entry = (call, arguments, condition)
        if entry not in self._calls:
            self._calls.append(entry)
        return InputColumn(call.type, self._width + self._calls.index(entry))

    def plan(self) -> Aggregate:
        """The aggregation over the rows, with the columns that the hook has promised."""
        if len(self._sets) > 1:
            return self._plan_of_sets()
        values = list(self._keys)
        calls = []
        for call_, arguments, condition in self._calls:
            places = tuple(_placed(values, argument) for argument in arguments)
            filter_place = None if condition is None else _placed(values, condition)
            calls.append(replace(call_, arguments=places, filter=filter_place))
        names = unique_names([_name(value, self._node, place) for place, value in enumerate(values)])
        columns = tuple(
            Column(name, value.type, _time(value, self._node)) for name, value in zip(names, values, strict=True)
        )
        projected = Project(self._node, tuple(values), columns)
        keys = columns[: len(self._keys)]
        results = [Column(f"EXPR${len(keys) + place}", call_.type) for place, call_ in enumerate(calls)]
        taken = unique_names([column.name for column in (*keys, *results)])
        every = tuple(
            Column(name, column.type, column.time) for name, column in zip(taken, (*keys, *results), strict=True)
        )
        return Aggregate(projected, tuple(range(len(keys))), tuple(calls), every)

    def _plan_of_sets(self) -> Aggregate:
        """Each row once a set, with null in place of the keys that are not in it, and the number of the set."""
        width = len(self._keys)
        arguments: list[Expression] = []
        calls = []
        for call_, given, condition in self._calls:
            places = tuple(self._width + _placed(arguments, argument) for argument in given)
            filter_place = None if condition is None else self._width + _placed(arguments, condition)
            calls.append(replace(call_, arguments=places, filter=filter_place))
        kinds = [self._key(place).type for place in range(width)]
        names = unique_names([*(_name(key, self._node, i) for i, key in enumerate(self._keys)), "grouping set"])
        times = [_time(key, self._node) if self._is_in_all(i) else None for i, key in enumerate(self._keys)]
        own = [Column(*one) for one in zip(names, [*kinds, _SET], [*times, None], strict=True)]
        extra = [Column(f"argument${place}", value.type) for place, value in enumerate(arguments)]
        columns = (*own, *extra)
        inputs = []
        for number, chosen in enumerate(self._sets):
            keys = (
                converted(key, kind) if place in chosen else Constant(kind, None)
                for place, (key, kind) in enumerate(zip(self._keys, kinds, strict=True))
            )
            inputs.append(Project(self._node, (*keys, Constant(_SET, number), *arguments), columns))
        results = [Column(f"EXPR${self._width + place}", call_.type) for place, call_ in enumerate(calls)]
        taken = unique_names([column.name for column in (*own, *results)])
        every = tuple(Column(name, c.type, c.time) for name, c in zip(taken, (*own, *results), strict=True))
        return Aggregate(Union(tuple(inputs), columns), tuple(range(self._width)), tuple(calls), every)


def bound_aggregate(
    node: n.Call, binder: ExpressionBinder, source: SqlText
) -> tuple[AggregateCall, tuple[Expression, ...], Expression | None]:
    """An aggregate with its arguments and its filter, bound over the rows that are aggregated.

    Raises:
        SqlError: wrong arguments, or what is not supported.
    """
    function = AGGREGATES[node.name]
    values = [argument.value for argument in node.arguments]
    if node.star and node.name != "COUNT":
        raise source.invalid(node.at, f"{node.shown} takes an argument, not *")
    if node.within:
        raise source.unsupported(node.at, f"{node.shown} with ORDER BY is not supported")
    if node.name == "COUNT" and len(values) > 1:
        # Rows count in which none of them is null.
        every = conjunction_of([n.IsTest(value.at, value, "NULL", True) for value in values])
        assert every is not None, "there are several"
        values = [n.Case(node.at, None, ((every, n.Constructor(node.at, "ROW", tuple(values))),), None)]
    if not node.star and not len(function.parameters) - function.optional <= len(values) <= len(function.parameters):
        raise source.invalid(node.at, f"{node.shown} takes {len(function.parameters)} arguments, not {len(values)}")
    bound: list[Expression] = []
    constants: list[object] = []
    for place, value in enumerate(values):
        argument = binder.bind(value)
        wanted = s.accepts(function.parameters[place], argument.type)
        if wanted is None or (wanted.kind is Kind.NULL and place == 0):
            raise source.invalid(
                value.at, f"{node.shown} takes {function.parameters[place]}, not {argument.type}; cast it"
            )
        if place:
            if not isinstance(argument, Constant):
                raise source.unsupported(value.at, f"this argument of {node.shown} must be a literal")
            constants.append(argument.value)
            continue
        if isinstance(argument, Constant) and argument.value is None:
            raise source.invalid(value.at, f"{node.shown} of NULL has no type; cast it")
        bound.append(converted(argument, wanted))
    condition = None if node.filter is None else binder.condition(node.filter, "FILTER")
    infer = [argument.type for argument in bound]
    nullable = not function.never_null and (any(kind.nullable for kind in infer) or condition is not None)
    kind = t.BIGINT.with_nullable(False) if node.star else function.infer(infer).with_nullable(nullable)
    # COUNT of what is never null counts rows.
    arguments = (
        () if node.name == "COUNT" and not node.distinct and not any(k.nullable for k in infer) else tuple(bound)
    )
    distinct = node.distinct and node.name not in ("MIN", "MAX")
    return AggregateCall(node.name, (), kind, distinct, None, tuple(constants), node.shown), arguments, condition


def _placed(values: list[Expression], value: Expression) -> int:
    if value not in values:
        values.append(value)
    return values.index(value)


def _name(value: Expression, node: PlanNode, place: int) -> str:
    return node.columns[value.index].name if isinstance(value, InputColumn) else f"EXPR${place}"


def _time(value: Expression, node: PlanNode) -> TimeAttribute | None:
    return node.columns[value.index].time if isinstance(value, InputColumn) else None
