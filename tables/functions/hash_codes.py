"""HASH_CODE: the hash of a value in Java; of a text without its sign, but for the smallest number.

Source: what Flink 2.3 answers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always
from penstock.tables.types import Kind, SqlType

_MASK: Final = 2**32 - 1
_TRUE, _FALSE = 1231, 1237
_MILLIS_OF: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def _signed(value: int) -> int:
    low = value & _MASK
    return low - 2**32 if low >= 2**31 else low


def _of_long(value: int) -> int:
    return value ^ (value >> 32)


def _of_text(text: str) -> int:
    code, units = 0, text.encode("utf-16-be")
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        code = 31 * code + unit & _MASK
    signed = _signed(code)
    return signed if signed == -(2**31) else abs(signed)


def _of_decimal(number: Decimal) -> int:
    sign, digits, exponent = number.as_tuple()
    whole, code = int("".join(map(str, digits)) or "0"), 0
    for shift in reversed(range(0, max(whole.bit_length(), 1), 32)):
        code = 31 * code + (whole >> shift & _MASK) & _MASK
    if whole.bit_length() < 64:
        # Java keeps such a number as a long, whose halves it takes without the sign.
        code = 31 * (whole >> 32) + (whole & _MASK)
    return 31 * (-code if sign else code) - int(exponent)


def _of_timestamp(unit: str) -> Callable[[int], int]:
    per_milli = _MILLIS_OF[unit]
    return lambda value: 31 * _of_long(value // per_milli) + (value % per_milli) * (1_000_000 // per_milli)


def _hash_of(kind: SqlType) -> tuple[pa.DataType, Callable[[Any], int]]:
    """As what the values are read, and the hash of one."""
    stored = t.arrow_type(kind)
    match kind.kind:
        case Kind.BOOLEAN:
            return stored, lambda value: _TRUE if value else _FALSE
        case Kind.CHAR | Kind.VARCHAR:
            return stored, _of_text
        case Kind.DECIMAL:
            return stored, _of_decimal
        case Kind.DOUBLE:
            return stored, lambda value: _of_long(struct.unpack(">q", struct.pack(">d", value))[0])
        case Kind.FLOAT:
            return stored, lambda value: struct.unpack(">i", struct.pack(">f", value))[0]
        case Kind.TIMESTAMP | Kind.TIMESTAMP_LTZ:
            return pa.int64(), _of_timestamp(stored.unit)
        case Kind.BIGINT:
            return stored, _of_long
        case Kind.DATE | Kind.TIME:
            return pa.int32(), lambda value: value
    return stored, lambda value: value


def _hash_codes(call: CallValues) -> pa.Array:
    kind = call.types[0]
    stored, of = _hash_of(kind)
    column = call.columns[0]
    if kind.kind is Kind.TIME:
        column = column.cast(pa.time32("ms"), safe=False)
    values = column.cast(stored).to_pylist()
    return pa.array([None if value is None else _signed(of(value)) for value in values], pa.int32())


FUNCTIONS: Final = (ScalarFunction("HASH_CODE", (s.HASHED,), always(t.INT), _hash_codes),)
