"""Bound expressions over references as Python functions, for definitions that are asked row by row.

Comparisons, logic and plain arithmetic are functions of Python; whatever else stands in a definition is computed by
`Evaluation`, on one row. Both give the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import pyarrow as pa

from penstock.engine.columns import with_numbers
from penstock.engine.patterns.rows.search import PartitionRows
from penstock.engine.patterns.rows.trail import Trail
from penstock.tables.expressions import Constant, Conversion, Expression, FunctionCall, InputColumn, columns_in, walk
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.matching.readers import Reader
from penstock.tables.types import INTEGERS, Kind, arrow_type

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_BITS: Final[Mapping[Kind, int]] = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
_COMPARABLE: Final = frozenset(
    {*INTEGERS, Kind.DOUBLE, Kind.DECIMAL, Kind.VARCHAR, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ}
)

_PLAIN: Final = frozenset({*INTEGERS, Kind.DOUBLE, Kind.BOOLEAN, Kind.VARCHAR})
"""Constants of these types are values of Python as they are."""


class Closures:
    """Makes functions of expressions.

    Args:
        readers: of the references that they read, by place.
        session: gives what functions may know at the time.
    """

    def __init__(self, readers: Mapping[int, Reader], session: Callable[[], SessionValues]) -> None:
        self._readers = readers
        self._session = session

    def made(self, expression: Expression) -> Reader:
        """The function that gives the expression's value."""
        match expression:
            case InputColumn():
                return self._readers[expression.index]
            case Constant() if expression.value is None or expression.type.kind in _PLAIN:
                value = expression.value
                return lambda trail, rows, start: value
            case Conversion():
                found = self._conversion(expression)
            case FunctionCall():
                found = self._call(expression)
            case _:
                found = None
        return self._by_arrow(expression) if found is None else found

    def _conversion(self, conversion: Conversion) -> Reader | None:
        given, wanted = conversion.operand.type.kind, conversion.type.kind
        if given not in INTEGERS or wanted not in (Kind.BIGINT, Kind.DOUBLE):
            return None
        return self.made(conversion.operand) if wanted is Kind.BIGINT else self._double(conversion.operand)

    def _call(self, call: FunctionCall) -> Reader | None:
        kinds = {argument.type.kind for argument in call.arguments}
        if call.name in ("AND", "OR"):
            return self._logical(call)
        if call.name in ("IS_NULL", "IS_NOT_NULL", "NOT"):
            return self._of_one(call)
        if call.name in _COMPARISONS and kinds <= _COMPARABLE:
            return self._of_two(_COMPARISONS[call.name], call)
        return self._arithmetic(call, kinds) if call.name in _ARITHMETIC else None

    def _arithmetic(self, call: FunctionCall, kinds: AbstractSet[Kind]) -> Reader | None:
        function = _ARITHMETIC[call.name]
        if call.type.kind is Kind.DOUBLE and kinds <= {*INTEGERS, Kind.DOUBLE}:
            return _of_both(function, *map(self._double, call.arguments))
        bits = _BITS.get(call.type.kind)
        if bits is None or not kinds <= set(INTEGERS):
            return None
        word, sign = 1 << bits, 1 << bits - 1
        # Whole numbers wrap around, as in columns.
        return self._of_two(lambda one, other: (function(one, other) + sign) % word - sign, call)

    def _double(self, expression: Expression) -> Reader:
        """A number as a DOUBLE."""
        operand = self.made(expression)
        if expression.type.kind is Kind.DOUBLE:
            return operand
        if isinstance(expression, Constant):
            number: Any = expression.value
            value = None if number is None else float(number)
            return lambda trail, rows, start: value

        def converted(trail: Trail, rows: PartitionRows, start: int) -> Any:
            whole = operand(trail, rows, start)
            return None if whole is None else float(whole)

        return converted

    def _of_one(self, call: FunctionCall) -> Reader:
        operand = self.made(call.arguments[0])
        match call.name:
            case "IS_NULL":
                return lambda trail, rows, start: operand(trail, rows, start) is None
            case "IS_NOT_NULL":
                return lambda trail, rows, start: operand(trail, rows, start) is not None

        def negated(trail: Trail, rows: PartitionRows, start: int) -> Any:
            value = operand(trail, rows, start)
            return None if value is None else not value

        return negated

    def _of_two(self, function: Callable[[Any, Any], Any], call: FunctionCall) -> Reader:
        return _of_both(function, *map(self.made, call.arguments))

    def _logical(self, call: FunctionCall) -> Reader:
        left, right = (self.made(argument) for argument in call.arguments)
        decides = call.name == "OR"

        def joined(trail: Trail, rows: PartitionRows, start: int) -> Any:
            one = left(trail, rows, start)
            if one is decides:
                return decides
            other = right(trail, rows, start)
            return decides if other is decides else None if one is None or other is None else not decides

        return joined

    def _by_arrow(self, expression: Expression) -> Reader:
        read = sorted(columns_in(expression))
        kinds = _types_of(expression)
        width = max(read, default=-1) + 1

        def computed(trail: Trail, rows: PartitionRows, start: int) -> Any:
            columns: list[pa.Array | None] = [None] * width
            for place in read:
                columns[place] = pa.array([self._readers[place](trail, rows, start)], kinds[place])
            return with_numbers(Evaluation(columns, 1, self._session()).value(expression))[0].as_py()

        return computed


def _of_both(function: Callable[[Any, Any], Any], left: Reader, right: Reader) -> Reader:
    """The function of two values; null where one of them is."""

    def computed(trail: Trail, rows: PartitionRows, start: int) -> Any:
        one = left(trail, rows, start)
        if one is None:
            return None
        other = right(trail, rows, start)
        return None if other is None else function(one, other)

    return computed


def _types_of(expression: Expression) -> dict[int, pa.DataType]:
    return {part.index: arrow_type(part.type) for part in walk(expression) if isinstance(part, InputColumn)}
