"""Aggregate calls as the engine's aggregates: what to compute before, what to aggregate, and what to make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.aggregates import functions as engine
from penstock.engine.aggregates.functions import Aggregate
from penstock.engine.errors import GraphError
from penstock.tables import types as t
from penstock.tables.building import call, converted
from penstock.tables.expressions import Conditional, Constant, Conversion, Expression, InputColumn
from penstock.tables.plan.nodes import AggregateCall, Column
from penstock.tables.types import Kind, SqlType

_PLAIN: Final = {"MIN": engine.min, "MAX": engine.max}
_SPREADS: Final = {"STDDEV_POP": 0, "STDDEV_SAMP": 1, "STDDEV": 1}
_DIGITS_OF_COUNTS: Final = 19
_BIGINT: Final = t.BIGINT.with_nullable(False)


@dataclass(slots=True)
class EngineAggregates:
    """The aggregates of one aggregation, as the engine computes them.

    Args:
        columns: of the rows that are aggregated.
    """

    columns: Sequence[Column]
    names: list[str] = field(default_factory=list)
    expressions: list[Expression] = field(default_factory=list)
    types: list[SqlType] = field(default_factory=list)
    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    result_types: list[SqlType] = field(default_factory=list)

    def add(self, aggregate: AggregateCall) -> _Result:
        """Add what a call needs; returns how its result is made.

        Raises:
            GraphError: the engine has no such aggregate.
        """
        if aggregate.name == "COUNT":
            return self._count(aggregate)
        if aggregate.distinct:
            raise GraphError(
                f"{aggregate.shown}(DISTINCT ...) is not supported in windows; COUNT(DISTINCT ...) is, and MIN and MAX "
                "need no DISTINCT"
            )
        column = self._column(aggregate)
        given = self.columns[aggregate.arguments[0]].type
        if aggregate.name == "SUM":
            return _Result(aggregate.type, (self._sum(column, given),))
        if aggregate.name in _PLAIN:
            return _Result(aggregate.type, (self._aggregate(_PLAIN[aggregate.name](column), given),))
        if aggregate.name == "AVG":
            total = self._sum(column, given)
            count = self._aggregate(engine.count(column), _BIGINT)
            return _Result(aggregate.type, (total, count))
        if aggregate.name in _SPREADS and given.kind is not Kind.DECIMAL:
            place = self._aggregate(engine.stddev(column, _SPREADS[aggregate.name]), t.DOUBLE)
            return _Result(aggregate.type, (place,))
        raise GraphError(f"{aggregate.shown} is not supported in windows; there are COUNT, SUM, AVG, MIN, MAX, STDDEV")

    def result(self, result: _Result, first: int) -> Expression:
        """A call's result over rows whose columns from `first` on are the engine's results."""
        columns = [self._read(place, first) for place in result.places]
        if len(columns) == 1:
            return converted(columns[0], result.type)
        total, count = columns
        # Where nothing is counted, the sum is null.
        divisor = Conditional(_BIGINT, ((call("=", count, Constant(_BIGINT, 0)), Constant(_BIGINT, 1)),), count)
        return converted(call("/", total, divisor), result.type)

    def _sum(self, column: str, given: SqlType) -> int:
        made = engine.wide_sum(column) if _may_overflow(given) else engine.sum(column)
        return self._aggregate(made, _sum_type(given))

    def _read(self, place: int, first: int) -> Expression:
        column = InputColumn(self.result_types[place], first + place)
        # The engine's wide sums become DECIMAL, or null, by that.
        is_wide = self.aggregates[f"r{place}"].function == "wide_sum"
        return Conversion(column.type, column) if is_wide else column

    def _count(self, aggregate: AggregateCall) -> _Result:
        if aggregate.arguments:
            column = self._column(aggregate)
            made = engine.count_distinct(column) if aggregate.distinct else engine.count(column)
            return _Result(aggregate.type, (self._aggregate(made, _BIGINT),))
        if aggregate.filter is None:
            return _Result(aggregate.type, (self._aggregate(engine.count(), _BIGINT),))
        one = Constant(t.INT.with_nullable(False), 1)
        return _Result(
            aggregate.type, (self._aggregate(engine.count(self._named(self._filtered(one, aggregate))), _BIGINT),)
        )

    def _column(self, aggregate: AggregateCall) -> str:
        place = aggregate.arguments[0]
        return self._named(self._filtered(InputColumn(self.columns[place].type, place), aggregate))

    def _filtered(self, value: Expression, aggregate: AggregateCall) -> Expression:
        if aggregate.filter is None:
            return value
        nullable = value.type.with_nullable(True)
        condition = InputColumn(t.BOOLEAN, aggregate.filter)
        return Conditional(nullable, ((condition, value),), Constant(nullable, None))

    def _named(self, expression: Expression) -> str:
        if expression not in self.expressions:
            self.names.append(f"a{len(self.names)}")
            self.expressions.append(expression)
            self.types.append(expression.type)
        return self.names[self.expressions.index(expression)]

    def _aggregate(self, aggregate: Aggregate, kind: SqlType) -> int:
        for place, known in enumerate(self.aggregates.values()):
            if known == aggregate:
                return place
        self.aggregates[f"r{len(self.aggregates)}"] = aggregate
        self.result_types.append(kind.with_nullable(True))
        return len(self.aggregates) - 1


@dataclass(frozen=True, slots=True)
class _Result:
    """How a call's result is made: of the engine's results at `places`; of two, the first divided by the second."""

    type: SqlType
    places: tuple[int, ...]


def _may_overflow(given: SqlType) -> bool:
    """Whether a sum of fewer rows than 2^63 may have more digits than there are."""
    return given.kind is Kind.DECIMAL and given.precision > t.MAX_PRECISION - _DIGITS_OF_COUNTS


def _sum_type(given: SqlType) -> SqlType:
    if given.kind in t.INTEGERS:
        return t.BIGINT
    return t.DOUBLE if given.kind in t.APPROXIMATE else t.decimal(t.MAX_PRECISION, given.scale)
