"""BITMAP: sets of 32-bit numbers, which count as unsigned, and the functions of them.

A BITMAP is kept as its bytes in the Roaring format, of which each set has one form here: equal sets have equal bytes.
The aggregate functions are computed of the list of a group's values, so rows may be taken back; the parser writes
them so.

Source: Flink's documentation, "System (Built-in) Functions", Bitmap Functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.roaring import Numbers, bitmap_bytes, bitmap_numbers, shown_bitmap
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always, by_row
from penstock.tables.types import Kind, SqlType

_BITMAP: Final = SqlType(Kind.BITMAP)
_Operation = Callable[[Numbers, Numbers], Numbers]


def _built(values: list[int | None]) -> bytes:
    signed = np.array([value for value in values if value is not None], np.int32)
    return bitmap_bytes(np.unique(signed.view(np.uint32)))


def _to_array(data: bytes) -> list[int]:
    return list(bitmap_numbers(data).view(np.int32).tolist())


def _read(data: bytes) -> bytes:
    """The bitmap of bytes, in the form that equal ones have here."""
    try:
        return bitmap_bytes(bitmap_numbers(data))
    except ValueError as error:
        raise ValueError(f"BITMAP_FROM_BYTES: {error}") from None


def _cardinality(data: bytes) -> int:
    return len(bitmap_numbers(data))


def _and(one: Numbers, other: Numbers) -> Numbers:
    return np.intersect1d(one, other, assume_unique=True)


def _and_not(one: Numbers, other: Numbers) -> Numbers:
    return np.setdiff1d(one, other, assume_unique=True)


def _or(one: Numbers, other: Numbers) -> Numbers:
    return np.union1d(one, other)


def _xor(one: Numbers, other: Numbers) -> Numbers:
    return np.setxor1d(one, other, assume_unique=True)


def _of_two(operation: _Operation) -> s.Evaluate:
    return by_row(lambda one, other: bitmap_bytes(operation(bitmap_numbers(one), bitmap_numbers(other))))


def _of_all(operation: _Operation) -> s.Evaluate:
    """Of lists of bitmaps; of no bitmap it is null."""

    def combined(bitmaps: list[bytes | None]) -> bytes | None:
        numbers = [bitmap_numbers(one) for one in bitmaps if one is not None]
        return bitmap_bytes(reduce(operation, numbers)) if numbers else None

    return by_row(combined)


def _built_of_any(call: CallValues) -> pa.Array:
    """Of the list of a group; of no number it is null."""
    rows: list[Any] = call.columns[0].to_pylist()
    there = [row if row is not None and any(value is not None for value in row) else None for row in rows]
    return pa.array([None if row is None else _built(row) for row in there], t.arrow_type(call.result))


def _of_numbers(given: Sequence[SqlType]) -> Sequence[SqlType]:
    element = given[0].parts[0]
    if element.kind not in (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.NULL):
        raise s.MisfitError(0, f" takes INT, not {element}; cast it")
    return [t.array(t.INT.with_nullable(element.nullable)).with_nullable(given[0].nullable)]


def _of_bitmaps(given: Sequence[SqlType]) -> Sequence[SqlType]:
    element = given[0].parts[0]
    if element.kind is not Kind.BITMAP:
        raise s.MisfitError(0, f" takes BITMAP, not {element}; BITMAP_BUILD makes one of an array")
    return given


_OPERATIONS: Final[dict[str, _Operation]] = {"AND": _and, "OR": _or, "XOR": _xor}
_B: Final = s.BITMAP
FUNCTIONS: Final = (
    ScalarFunction("BITMAP_BUILD", (s.ARRAY,), always(_BITMAP), by_row(_built), coerce=_of_numbers),
    ScalarFunction("BITMAP_FROM_BYTES", (s.BINARY,), always(_BITMAP), by_row(_read), fallible=True),
    ScalarFunction("BITMAP_TO_BYTES", (_B,), always(t.BYTES), by_row(lambda data: data)),
    ScalarFunction("BITMAP_TO_ARRAY", (_B,), always(t.array(t.INT)), by_row(_to_array)),
    ScalarFunction("BITMAP_TO_STRING", (_B,), always(t.STRING), by_row(shown_bitmap)),
    ScalarFunction("BITMAP_CARDINALITY", (_B,), always(t.BIGINT), by_row(_cardinality)),
    ScalarFunction("BITMAP_ANDNOT", (_B, _B), always(_BITMAP), _of_two(_and_not)),
    *(ScalarFunction(f"BITMAP_{name}", (_B, _B), always(_BITMAP), _of_two(made)) for name, made in _OPERATIONS.items()),
    ScalarFunction("BITMAP_BUILD_AGG", (s.ARRAY,), always(_BITMAP), _built_of_any, nullable=True, coerce=_of_numbers),
    *(
        ScalarFunction(
            f"BITMAP_{name}_AGG", (s.ARRAY,), always(_BITMAP), _of_all(made), nullable=True, coerce=_of_bitmaps
        )
        for name, made in _OPERATIONS.items()
    ),
)
