"""Calls with OVER in a SELECT: collected while its expressions are bound, and planned together.

Calls over the same window make one node. What they are over, and their arguments, is computed before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.grouping import bound_aggregate
from penstock.tables.bind.ordering import check_ordered
from penstock.tables.building import call, converted
from penstock.tables.expressions import Conditional, Constant, Expression, InputColumn, on_columns
from penstock.tables.functions.aggregates import AGGREGATES, OVER_ONLY, RANKS
from penstock.tables.functions.common_types import common_type
from penstock.tables.parse import nodes as n
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import (
    AggregateCall,
    Column,
    FrameSpec,
    OverAggregate,
    PlanNode,
    Project,
    SortKey,
    unique_names,
)
from penstock.tables.types import Kind

_WHOLE: Final = FrameSpec(rows=False, preceding=None)


@dataclass(frozen=True, slots=True)
class _Window:
    """What is in OVER, bound."""

    partition: tuple[Expression, ...]
    order: tuple[tuple[Expression, bool, bool], ...]
    frame: FrameSpec


@dataclass(frozen=True, slots=True)
class _OverCall:
    """A call, its arguments bound."""

    window: _Window
    call: AggregateCall
    arguments: tuple[Expression, ...]
    filter: Expression | None


class OverCalls:
    """Collects the calls of one SELECT.

    Args:
        source: the text, for errors.
        inner: binds what the calls are over.
        node: the rows that they are over.
        windows: of the clause WINDOW, by name.
    """

    def __init__(self, source: SqlText, inner: ExpressionBinder, node: PlanNode, windows: Mapping[str, n.Over]) -> None:
        self._source = source
        self._inner = inner
        self._node = node
        self._width = len(node.columns)
        self._windows = windows
        self._calls: list[_OverCall] = []
        self._places: dict[int, int] = {}

    def hook(self, node: n.Node) -> Expression | None:
        """The promised column of a call with OVER; of others what the inner hook says."""
        if isinstance(node, n.Call) and node.over is not None:
            entry = self._bound(node, node.over)
            return self._with_default(entry, node) if node.name == "LAG" else self._added(entry)
        if isinstance(node, n.Call) and node.name in (*RANKS, *OVER_ONLY):
            raise self._source.invalid(node.at, f"{node.name} needs OVER (...)")
        return None if self._inner.hook is None else self._inner.hook(node)

    def _added(self, entry: _OverCall) -> InputColumn:
        """The promised column of a call."""
        if entry not in self._calls:
            self._calls.append(entry)
        return InputColumn(entry.call.type, self._width + self._calls.index(entry))

    def _bound(self, node: n.Call, over: n.Over) -> _OverCall:
        if over.reference is not None:
            named = self._windows.get(over.reference.name)
            if named is None:
                raise self._source.invalid(over.at, f"there is no window {over.reference.name!r} in WINDOW")
            over = named
        partition = tuple(self._inner.bind(part) for part in over.partition_by)
        order = tuple((self._inner.bind(i.value), i.descending, self._nulls_first(i)) for i in over.order_by)
        for item, (key, _, _) in zip(over.order_by, order, strict=True):
            check_ordered(key.type, item.at, "ORDER BY", self._source)
        if node.name in (*RANKS, *OVER_ONLY):
            return self._ranked(node, _Window(partition, order, _WHOLE))
        if node.name not in AGGREGATES:
            raise self._source.invalid(node.at, f"{node.name} is no aggregate and takes no OVER")
        made, arguments, condition = bound_aggregate(node, self._inner, self._source)
        window = _Window(partition, order, self._frame(over.frame, order))
        return _OverCall(window, made, arguments, condition)

    @staticmethod
    def _nulls_first(item: n.OrderItem) -> bool:
        return not item.descending if item.nulls_first is None else item.nulls_first

    def _ranked(self, node: n.Call, window: _Window) -> _OverCall:
        if not window.order and node.name != "ROW_NUMBER":
            raise self._source.invalid(node.at, f"{node.name} needs ORDER BY in OVER")
        arguments = [self._inner.bind(argument.value) for argument in node.arguments]
        if node.name in ("LAG", "LEAD"):
            return self._shifted(node, window, arguments)
        if node.name not in RANKS:
            raise self._source.unsupported(node.at, f"{node.name} is not supported")
        if arguments:
            raise self._source.invalid(node.at, f"{node.name} takes no arguments")
        return _OverCall(window, AggregateCall(node.name, (), t.BIGINT.with_nullable(False)), (), None)

    def _shifted(self, node: n.Call, window: _Window, arguments: list[Expression]) -> _OverCall:
        if node.name == "LEAD":
            raise self._source.unsupported(node.at, "LEAD would have to wait for rows to come; use LAG")
        if not 1 <= len(arguments) <= 3:
            raise self._source.invalid(node.at, f"LAG takes 1 to 3 arguments, not {len(arguments)}")
        constants = []
        for bound, argument in zip(arguments[1:2], node.arguments[1:2], strict=True):
            if not isinstance(bound, Constant):
                raise self._source.unsupported(argument.at, "the distance of LAG must be a literal")
            constants.append(bound.value)
        kind = arguments[0].type.with_nullable(True)
        lag = AggregateCall("LAG", (), kind, constants=tuple(constants))
        return _OverCall(window, lag, (arguments[0],), None)

    def _with_default(self, entry: _OverCall, node: n.Call) -> Expression:
        """LAG with its default where there is no such row before, and, as in Flink 2.3, where its value is null."""
        value = self._added(entry)
        if len(node.arguments) < 3:
            return value
        default = self._inner.bind(node.arguments[2].value)
        common = common_type([value.type, default.type])
        if common is None:
            raise self._source.invalid(
                node.arguments[2].at, f"the default of LAG is {default.type}, and its values are {value.type}; cast it"
            )
        is_missing = call("IS_NULL", value)
        kind = common.with_nullable(True)
        return Conditional(kind, ((is_missing, converted(default, kind)),), converted(value, kind))

    def _frame(self, frame: n.Frame | None, order: tuple[tuple[Expression, bool, bool], ...]) -> FrameSpec:
        if frame is None:
            return _WHOLE
        rows = frame.unit == "ROWS"
        if frame.end.direction != "CURRENT":
            raise self._source.unsupported(
                frame.end.at, "a frame ends with CURRENT ROW; rows to come are not known yet"
            )
        if frame.begin.direction == "FOLLOWING":
            raise self._source.unsupported(frame.begin.at, "a frame begins with PRECEDING or CURRENT ROW")
        if frame.begin.unbounded:
            return FrameSpec(rows, None)
        if frame.begin.value is None:
            return FrameSpec(rows, 0)
        value = self._inner.bind(frame.begin.value)
        wanted = "a whole number" if rows else "an interval"
        fits = value.type.kind in t.INTEGERS if rows else value.type.kind is Kind.INTERVAL_MILLIS
        if not isinstance(value, Constant) or not isinstance(value.value, int) or not fits:
            raise self._source.invalid(frame.begin.at, f"the bound of {frame.unit} is {wanted}")
        return FrameSpec(rows, value.value)

    def plan(self) -> PlanNode:
        """The rows with the results of all calls behind their columns."""
        if not self._calls:
            return self._node
        values: list[Expression] = [InputColumn(c.type, i) for i, c in enumerate(self._node.columns)]
        for entry in self._calls:
            window = entry.window
            condition = [] if entry.filter is None else [entry.filter]
            for value in (*window.partition, *(key for key, _, _ in window.order), *entry.arguments, *condition):
                if value not in values:
                    values.append(value)
        node = self._computed(values)
        for window in dict.fromkeys(entry.window for entry in self._calls):
            node = self._over(node, window, values)
        return node

    def _computed(self, values: list[Expression]) -> PlanNode:
        if len(values) == self._width:
            return self._node
        extra = [f"over${place}" for place in range(len(values) - self._width)]
        names = unique_names([*(column.name for column in self._node.columns), *extra])
        times = [*(column.time for column in self._node.columns), *([None] * len(extra))]
        columns = tuple(Column(a, v.type, time) for a, v, time in zip(names, values, times, strict=True))
        return Project(self._node, tuple(values), columns)

    def _over(self, node: PlanNode, window: _Window, values: list[Expression]) -> PlanNode:
        calls: list[AggregateCall] = []
        for place, entry in enumerate(self._calls):
            if entry.window == window:
                self._places[self._width + place] = len(node.columns) + len(calls)
                arguments = tuple(values.index(argument) for argument in entry.arguments)
                condition = None if entry.filter is None else values.index(entry.filter)
                calls.append(replace(entry.call, arguments=arguments, filter=condition))
        order = tuple(SortKey(values.index(key), descending, first) for key, descending, first in window.order)
        names = unique_names(
            [*(c.name for c in node.columns), *(f"w{len(node.columns)}${i}" for i in range(len(calls)))]
        )
        added = [Column(name, call.type) for name, call in zip(names[len(node.columns) :], calls, strict=True)]
        partition = tuple(values.index(key) for key in window.partition)
        return OverAggregate(node, partition, order, window.frame, tuple(calls), (*node.columns, *added))

    def places(self, expression: Expression) -> Expression:
        """The expression with the columns where `plan` has put them."""
        return on_columns(expression, lambda place: self._places.get(place, place))
