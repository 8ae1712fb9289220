"""Comparisons, tests and the logical operators that need no laziness.

AND and OR are here for their types; the evaluation computes them itself, the right side only where it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.columns import with_numbers
from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.common_types import common_type
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always, kernel
from penstock.tables.types import Kind, SqlType


def _compare(
    name: str, function: Callable[[pa.Array, pa.Array], pa.Array], by_value: Callable[..., bool]
) -> ScalarFunction:
    def evaluate(call: CallValues) -> pa.Array:
        if Kind.NULL in (call.types[0].kind, call.types[1].kind):
            return pa.nulls(call.rows, pa.bool_())
        if call.types[0].kind in s.NESTED:
            return s.by_row(by_value)(call.with_numbers())
        return function(*call.columns)

    return ScalarFunction(name, (s.ANY, s.ANY), always(t.BOOLEAN), evaluate)


def _is_distinct(call: CallValues) -> pa.Array:
    one, other = call.columns
    if call.types[0].kind in s.NESTED or call.types[1].kind in s.NESTED:
        pairs = zip(with_numbers(one).to_pylist(), with_numbers(other).to_pylist(), strict=True)
        return pa.array([a != b for a, b in pairs], pa.bool_())
    if Kind.NULL in (call.types[0].kind, call.types[1].kind):
        return pc.xor(one.is_null(), other.is_null())
    differs = pc.fill_null(pc.not_equal(one, other), False)
    return pc.or_(differs, pc.xor(one.is_null(), other.is_null()))


def _not_distinct(call: CallValues) -> pa.Array:
    return pc.invert(_is_distinct(call))


def _is_null(call: CallValues) -> pa.Array:
    return call.columns[0].is_null()


def _is_not_null(call: CallValues) -> pa.Array:
    return call.columns[0].is_valid()


def _is(value: bool) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        column = call.columns[0].cast(pa.bool_())
        return pc.fill_null(column if value else pc.invert(column), False)

    return evaluate


def _extreme(function: Callable[..., pa.Array]) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        target = t.arrow_type(call.result)
        # Of moments Arrow knows no extremes, but of their numbers.
        plain = pa.int64() if call.result.kind is Kind.TIMESTAMP_LTZ else target
        columns = [column.cast(target, safe=False).cast(plain) for column in call.columns]
        return function(*columns, skip_nulls=False).cast(target)

    return evaluate


def _extreme_text(pick: Callable[..., object], function: Callable[..., pa.Array]) -> s.Evaluate:
    plain = _extreme(function)

    def evaluate(call: CallValues) -> pa.Array:
        if call.result.kind in (*t.CHARACTERS, *t.BYTES_KINDS, Kind.BOOLEAN):
            return s.by_row(lambda *values: pick(values))(call)
        return plain(call)

    return evaluate


def _common(given: Sequence[SqlType]) -> SqlType:
    found = common_type(given)
    if found is None or found.kind is Kind.NULL:
        raise TypeError("the values have no type in common; cast them to one")
    return found


def _all_common(given: Sequence[SqlType]) -> Sequence[SqlType]:
    return [_common(given)] * len(given)


def _test(name: str, evaluate: s.Evaluate, parameter: str = s.ANY) -> ScalarFunction:
    """A test that is never null."""
    return ScalarFunction(name, (parameter,), always(t.BOOLEAN), evaluate, keeps_null=True)


FUNCTIONS: Final = (
    _compare("=", pc.equal, lambda a, b: a == b),
    _compare("<>", pc.not_equal, lambda a, b: a != b),
    _compare("<", pc.less, lambda a, b: a < b),
    _compare("<=", pc.less_equal, lambda a, b: a <= b),
    _compare(">", pc.greater, lambda a, b: a > b),
    _compare(">=", pc.greater_equal, lambda a, b: a >= b),
    ScalarFunction("IS_DISTINCT", (s.ANY, s.ANY), always(t.BOOLEAN), _is_distinct, keeps_null=True),
    ScalarFunction("IS_NOT_DISTINCT", (s.ANY, s.ANY), always(t.BOOLEAN), _not_distinct, keeps_null=True),
    _test("IS_NULL", _is_null),
    _test("IS_NOT_NULL", _is_not_null),
    _test("IS_TRUE", _is(True), s.BOOLEAN),
    _test("IS_FALSE", _is(False), s.BOOLEAN),
    ScalarFunction("NOT", (s.BOOLEAN,), always(t.BOOLEAN), kernel(lambda x: pc.invert(x.cast(pa.bool_())))),
    ScalarFunction("AND", (s.BOOLEAN, s.BOOLEAN), always(t.BOOLEAN), kernel(pc.and_kleene)),
    ScalarFunction("OR", (s.BOOLEAN, s.BOOLEAN), always(t.BOOLEAN), kernel(pc.or_kleene)),
    ScalarFunction(
        "GREATEST", (s.ORDERED,), _common, _extreme_text(max, pc.max_element_wise), variadic=True, coerce=_all_common
    ),
    ScalarFunction(
        "LEAST", (s.ORDERED,), _common, _extreme_text(min, pc.min_element_wise), variadic=True, coerce=_all_common
    ),
)
