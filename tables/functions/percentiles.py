"""PERCENTILE: exact, of the list of a group's values, or of pairs of a value and how often it counts.

Source: Flink's documentation, "System (Built-in) Functions", PERCENTILE: interpolated linearly between neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.signatures import CallValues, ScalarFunction
from penstock.tables.types import Kind, SqlType

_Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
_Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def _type(given: Sequence[SqlType]) -> SqlType:
    values, wanted = given[0].parts[0], given[1]
    kinds = [field.type.kind for field in values.fields] if values.kind is Kind.ROW else [values.kind]
    if kinds[0] not in t.NUMERIC or any(kind not in t.INTEGERS for kind in kinds[1:]):
        raise TypeError("it takes numbers, and how often they count as whole numbers")
    if wanted.kind in t.NUMERIC:
        return t.DOUBLE
    if wanted.kind is Kind.ARRAY and wanted.parts[0].kind in t.NUMERIC:
        return t.array(t.DOUBLE)
    raise TypeError(f"the percentage is a number between 0 and 1, or an array of such, not {wanted}")


def _percentiles(call: CallValues) -> pa.Array:
    pairs = zip(call.columns[0].to_pylist(), call.columns[1].to_pylist(), strict=True)
    found = [None if values is None or wanted is None else _of(values, wanted) for values, wanted in pairs]
    return pa.array(found, t.arrow_type(call.result))


def _of(values: list[Any], wanted: Any) -> Any:
    numbers, ends = _in_order(values)
    if not len(numbers):
        return None
    return [_at(numbers, ends, one) for one in wanted] if isinstance(wanted, list) else _at(numbers, ends, wanted)


def _in_order(values: list[Any]) -> tuple[_Floats, _Ints]:
    """The values that count, sorted, and how many there are up to each, as often as it counts."""
    pairs = [tuple(value.values()) if isinstance(value, dict) else (value, 1) for value in values if value is not None]
    kept = [(value, times) for value, times in pairs if value is not None and times is not None and times > 0]
    numbers = np.array([value for value, _ in kept], np.float64)
    order = np.argsort(numbers)
    return numbers[order], np.cumsum(np.array([times for _, times in kept], np.int64)[order])


def _at(numbers: _Floats, ends: _Ints, wanted: Any) -> float:
    share = float(wanted)
    if not 0 <= share <= 1:
        raise ValueError(f"PERCENTILE: {share} is not between 0 and 1")
    # Places count from 1, and both neighbours have a weight: rounded as Flink's result is.
    place = (int(ends[-1]) - 1) * share + 1
    floor, ceil = np.floor(place), np.ceil(place)
    low, high = numbers[np.searchsorted(ends, [floor, ceil], side="left")]
    return float(low if low == high else (ceil - place) * low + (place - floor) * high)


FUNCTIONS: Final = (ScalarFunction("PERCENTILE", (s.ARRAY, s.ANY), _type, _percentiles, nullable=True, fallible=True),)
