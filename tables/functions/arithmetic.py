"""Arithmetic: operators and mathematical functions, with Flink's types.

Whole numbers wrap around, as in Java; decimals that overflow are null; a division by 0 of exact numbers fails.
"""

from __future__ import annotations

import decimal
import math
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.tables import types as t
from penstock.tables.functions import decimals
from penstock.tables.functions import signatures as s
from penstock.tables.functions.casts import cast_values
from penstock.tables.functions.common_types import common_type
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always, by_row, kernel
from penstock.tables.types import Kind, SqlType

_PLACES_OF_DAY_MS: Final = 86_400_000
_MOST_DIGITS: Final = 308
_Decimals = Callable[[pa.Array, pa.Array, SqlType], pa.Array]


def _operator(
    name: str,
    decimal_type: Callable[[SqlType, SqlType], SqlType],
    on_decimals: _Decimals,
    on_numbers: Callable[[pa.Array, pa.Array], pa.Array],
    *,
    fallible: bool = False,
) -> ScalarFunction:
    def infer(given: Sequence[SqlType]) -> SqlType:
        one, other = given
        if Kind.NULL in (one.kind, other.kind):
            return one if other.kind is Kind.NULL else other
        common = common_type(given)
        assert common is not None, "both are numbers"
        if common.kind is Kind.DECIMAL:
            return decimal_type(t.as_decimal(one), t.as_decimal(other))
        if common.kind is Kind.DOUBLE and Kind.DECIMAL not in (one.kind, other.kind):
            # As in Calcite: the first of both that is a floating-point number, whole numbers beside it do not count.
            return one if one.kind in t.APPROXIMATE else other
        return common

    def evaluate(call: CallValues) -> pa.Array:
        if Kind.NULL in (call.types[0].kind, call.types[1].kind):
            return pa.nulls(call.rows, t.arrow_type(call.result))
        if call.result.kind is Kind.DECIMAL:
            one, other = (_exact(column, kind) for column, kind in zip(call.columns, call.types, strict=True))
            return on_decimals(one, other, call.result)
        target = t.arrow_type(call.result)
        pairs = zip(call.columns, call.types, strict=True)
        one, other = (cast_values(column, kind, call.result, False, call.session) for column, kind in pairs)
        if 1 in call.literals and pa.types.is_integer(target):
            # By one number all are divided faster.
            other = other[0]
        return on_numbers(one, other).cast(target, safe=False)

    return ScalarFunction(name, (s.NUMBER, s.NUMBER), infer, evaluate, fallible=fallible)


def _remainder(name: str) -> ScalarFunction:
    """Of numbers without digits behind the point it has the type of the second one, as in Calcite."""
    plain = _operator(name, decimals.remainder_of, decimals.remainders, _modulo, fallible=True)

    def infer(given: Sequence[SqlType]) -> SqlType:
        are_whole = all(one.kind in t.EXACT and not one.scale for one in given)
        return given[1] if are_whole else plain.infer(given)

    def evaluate(call: CallValues) -> pa.Array:
        kind = plain.infer(call.types)
        found = plain.evaluate(replace(call, result=kind))
        return found if kind.same_as(call.result) else cast_values(found, kind, call.result, False, call.session)

    return replace(plain, infer=infer, evaluate=evaluate)


def _exact(column: pa.Array, kind: SqlType) -> pa.Array:
    return column if kind.kind is Kind.DECIMAL else column.cast(t.arrow_type(t.as_decimal(kind)))


def _divide(one: pa.Array, other: pa.Array | pa.Scalar) -> pa.Array:
    if pa.types.is_floating(one.type):
        with np.errstate(divide="ignore", invalid="ignore"):
            return pc.divide(one, other)
    # The smallest number by -1 wraps around in Java; Arrow gives 0 for it.
    return pc.if_else(pc.equal(other, -1), pc.negate(one), pc.divide(one, pc.if_else(pc.equal(other, -1), 1, other)))


def _modulo(one: pa.Array, other: pa.Array | pa.Scalar) -> pa.Array:
    if pa.types.is_floating(one.type):
        with np.errstate(invalid="ignore"):
            values = np.fmod(one.to_numpy(zero_copy_only=False), other.to_numpy(zero_copy_only=False))
        nulls = pc.or_(one.is_null(), other.is_null()).to_numpy(zero_copy_only=False)
        return pa.array(values, one.type, mask=nulls)
    if isinstance(other, pa.Scalar) and other.as_py() and not one.null_count and len(one):
        return pa.array(_remainders(one.to_numpy(), other.as_py()))
    safe = pc.if_else(pc.equal(other, -1), 1, other)
    return pc.subtract(one, pc.multiply(pc.divide(one, safe), safe))


def _remainders(numbers: npt.NDArray[np.integer[Any]], divisor: int) -> npt.NDArray[np.integer[Any]]:
    """As `_modulo`, by one number other than 0: numpy divides by it three times as fast as Arrow."""
    by = numbers.dtype.type(divisor)
    if divisor == -1:
        return np.zeros_like(numbers)
    found: npt.NDArray[np.integer[Any]] = numbers - numbers // by * by
    if divisor < 0 or numbers.min() < 0:
        # Numpy's has the sign of the divisor, Java's that of what is divided.
        found[(found != 0) & ((numbers < 0) != (divisor < 0))] -= by
    return found


def _negate(call: CallValues) -> pa.Array:
    return pc.negate(call.columns[0])


def _absolute(call: CallValues) -> pa.Array:
    return pc.abs(call.columns[0])


def _doubles(function: Callable[[float], float]) -> s.Evaluate:
    def compute(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return by_row(compute)


def _double(name: str, function: Callable[..., float], parameters: int = 1) -> ScalarFunction:
    return ScalarFunction(name, (s.DOUBLE,) * parameters, always(t.DOUBLE), _doubles(function))


def _rounded_type(given: Sequence[SqlType]) -> SqlType:
    kind = given[0]
    if kind.kind is not Kind.DECIMAL:
        return kind
    return kind if len(given) > 1 else t.decimal(kind.precision - kind.scale + 1, 0)


def _round(mode: str) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        column, kind = call.columns[0], call.types[0]
        digits = [0] * call.rows if len(call.columns) == 1 else call.columns[1].to_pylist()
        if kind.kind is Kind.NULL:
            return pa.nulls(call.rows, t.arrow_type(call.result))
        is_exact = kind.kind is Kind.DECIMAL or kind.kind in t.INTEGERS
        column = decimals.widest(_exact(column, kind)) if is_exact else column.cast(pa.float64())
        parts = []
        for count in sorted({digit for digit in digits if digit is not None}):
            chosen = np.array([digit == count for digit in digits])
            some = column.filter(pa.array(chosen))
            # Plus 0, as nothing is -0 then.
            rounded = (
                decimals.rounded(some, count, mode) if is_exact else pc.add(_rounded_floats(some, count, mode), 0.0)
            )
            parts.append((chosen, rounded))
        found = _scattered(parts, column.type, call.rows)
        if kind.kind is Kind.DECIMAL:
            return decimals.rescaled(found, call.result)
        # Whole numbers wrap around where they overflow, as in sums.
        return found.cast(t.arrow_type(call.result), safe=False)

    return evaluate


def _rounded_floats(values: pa.Array, digits: int, mode: str) -> pa.Array:
    """Those that are so large, or digits so far, that there is nothing behind these, stay as they are."""
    if digits > _MOST_DIGITS:
        return values
    if digits < -_MOST_DIGITS:
        return pc.multiply(values, 0.0)
    has_more = pc.less(pc.abs(values), 2.0**53 / 10.0**digits)
    return pc.if_else(has_more, pc.round(pc.if_else(has_more, values, 0.0), digits, mode), values)


def _scattered(parts: list[tuple[np.ndarray, pa.Array]], kind: pa.DataType, rows: int) -> pa.Array:
    order = np.full(rows, -1)
    place, arrays = 0, []
    for chosen, values in parts:
        order[chosen] = np.arange(place, place + len(values))
        place += len(values)
        arrays.append(values.cast(kind))
    together = pa.concat_arrays(arrays) if arrays else pa.array([], kind)
    return together.take(pa.array(order, mask=order < 0))


def _whole(mode: str) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        kind = call.types[0].kind
        if kind in t.INTEGERS or kind is Kind.NULL:
            return call.columns[0]
        column = call.columns[0]
        if kind is not Kind.DECIMAL:
            return pc.round(column, ndigits=0, round_mode=mode)
        # The result may have a digit more than the number.
        return decimals.rescaled(decimals.rounded(decimals.widest(column), 0, mode), call.result)

    return evaluate


def _whole_type(given: Sequence[SqlType]) -> SqlType:
    kind = given[0]
    return t.decimal(kind.precision, 0) if kind.kind is Kind.DECIMAL else kind


def _sign(call: CallValues) -> pa.Array:
    if call.result.kind is Kind.DECIMAL:
        signs = pc.sign(call.columns[0]).to_pylist()
        return pa.array(
            [None if one is None else decimal.Decimal(int(one)) for one in signs], t.arrow_type(call.result)
        )
    return pc.sign(call.columns[0]).cast(t.arrow_type(call.result), safe=False)


def _random(call: CallValues) -> pa.Array:
    return pa.array([random.random() for _ in range(call.rows)], pa.float64())


def _random_integer(call: CallValues) -> pa.Array:
    bounds = call.columns[-1].to_pylist()
    return pa.array([None if bound is None else random.randrange(bound) for bound in bounds], pa.int32())


def _uuids(call: CallValues) -> pa.Array:
    return pa.array([str(uuid.uuid4()) for _ in range(call.rows)], pa.string())


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    """Of 0 it is -infinity, as in Java; Python knows none."""
    return lambda value: function(value) if value else -math.inf


_ln: Final = _logarithm(math.log)


def _log(one: float, other: float | None = None) -> float:
    return _ln(one) if other is None else _quotient(_ln(other), _ln(one))


def _power(base: float, exponent: float) -> float:
    """As Java's `Math.pow`, which gives infinities where Python gives none."""
    if base == 0 and exponent < 0:
        return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


def _quotient(one: float, other: float) -> float:
    """As Java divides."""
    if other:
        return one / other
    return math.nan if not one or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)


def _hex(value: int | str | bytes) -> str:
    if isinstance(value, str):
        return value.encode().hex().upper()
    return value.hex().upper() if isinstance(value, bytes) else f"{value & (2**64 - 1):X}"


FUNCTIONS: Final = (
    _operator("+", decimals.sum_of, decimals.added, pc.add),
    _operator("-", decimals.sum_of, decimals.subtracted, pc.subtract),
    _operator("*", decimals.product_of, decimals.multiplied, pc.multiply),
    _operator("/", decimals.quotient_of, decimals.divided, _divide, fallible=True),
    _remainder("%"),
    _remainder("MOD"),
    ScalarFunction("NEGATE", (s.NUMBER,), s.like_first, _negate),
    ScalarFunction("ABS", (s.NUMBER,), s.like_first, _absolute),
    ScalarFunction("SIGN", (s.NUMBER,), s.like_first, _sign),
    ScalarFunction("FLOOR", (s.NUMBER,), _whole_type, _whole("down")),
    ScalarFunction("CEIL", (s.NUMBER,), _whole_type, _whole("up")),
    ScalarFunction("CEILING", (s.NUMBER,), _whole_type, _whole("up")),
    ScalarFunction("ROUND", (s.NUMBER, s.INTEGER), _rounded_type, _round("half_towards_infinity"), optional=1),
    ScalarFunction("TRUNCATE", (s.NUMBER, s.INTEGER), _rounded_type, _round("towards_zero"), optional=1),
    _double("POWER", _power, 2),
    _double("SQRT", math.sqrt),
    _double("CBRT", lambda x: math.copysign(abs(x) ** (1 / 3), x)),
    _double("EXP", math.exp),
    _double("LN", _logarithm(math.log)),
    _double("LOG10", _logarithm(math.log10)),
    _double("LOG2", lambda value: _log(2.0, value)),
    ScalarFunction("LOG", (s.DOUBLE, s.DOUBLE), always(t.DOUBLE), _doubles(_log), optional=1),
    *(_double(name.upper(), getattr(math, name)) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")),
    *(_double(name.upper(), getattr(math, name)) for name in ("asin", "acos", "atan", "degrees", "radians")),
    _double("ATAN2", math.atan2, 2),
    _double("COT", lambda x: _quotient(1.0, math.tan(x))),
    ScalarFunction("PI", (), always(t.DOUBLE), lambda call: pa.array([math.pi] * call.rows)),
    ScalarFunction("E", (), always(t.DOUBLE), lambda call: pa.array([math.e] * call.rows)),
    ScalarFunction("RAND", (s.INTEGER,), always(t.DOUBLE), _random, optional=1, deterministic=False),
    ScalarFunction(
        "RAND_INTEGER",
        (s.INTEGER, s.INTEGER),
        always(t.INT),
        _random_integer,
        optional=1,
        deterministic=False,
        fallible=True,
    ),
    ScalarFunction("UUID", (), always(SqlType(t.Kind.CHAR, precision=36)), _uuids, deterministic=False),
    ScalarFunction("BIN", (s.INTEGER,), always(t.STRING), by_row(lambda n: f"{n & (2**64 - 1):b}")),
    ScalarFunction("HEX", (s.HEXADECIMAL,), always(t.STRING), by_row(_hex)),
    ScalarFunction("BITWISE_NOT", (s.INTEGER,), s.like_first, kernel(pc.bit_wise_not)),
)
