"""How accumulators are combined row by row, in Python: the forms that they name as their `scalar`.

Each function makes the combination of one accumulator, whose values are those of its columns, by name; null is nothing
seen yet. `scalar.py` calls what they make.

Source: Welford's and Chan, Golub and LeVeque's updating formulas for the moments, as in `accumulators`.
"""

from __future__ import annotations

import decimal
import math
from bisect import bisect_left
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.errors import RecordError

Accumulators: TypeAlias = dict[str, Any]
"""The accumulators of one group by their names; changed in place by a combination."""
Combine: TypeAlias = Callable[[Accumulators, Accumulators], None]
"""Adds the accumulators of later rows, the second, to the first."""

_DECIMALS: Final = decimal.Context(prec=200)
"""Wide enough for sums of any Arrow decimals: Python's own context rounds to 28 digits."""


def counts(name: str) -> Combine:
    """Adds numbers, which are never null."""

    def combine(into: Accumulators, other: Accumulators) -> None:
        into[name] += other[name]

    return combine


def sums(name: str, column: str, kind: pa.DataType, where: str) -> Combine:
    """Adds what is not null, and fails where the sum of `column` does not fit `kind`."""
    add = _DECIMALS.add if pa.types.is_decimal(kind) else None
    bounds = _bounds(kind)

    def combine(into: Accumulators, other: Accumulators) -> None:
        value = other[name]
        if value is None:
            return
        held = into[name]
        if held is not None:
            value = held + value if add is None else add(held, value)
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            remedy = "float64" if add else "float64 or decimal128"
            raise RecordError(
                f"{where}: sum of column {column!r} does not fit {kind}; cast the column to {remedy} first"
            )
        into[name] = value

    return combine


def _bounds(kind: pa.DataType) -> tuple[Any, Any] | None:
    """The smallest and the largest value of a type of sums; None for floats, which have none."""
    if pa.types.is_decimal(kind):
        largest = Decimal((0, (9,) * kind.precision, -kind.scale))
        return largest.copy_negate(), largest
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**64 - 1
    return (-(2**63), 2**63 - 1) if pa.types.is_integer(kind) else None


def extremes(name: str, smallest: bool) -> Combine:
    """Keeps the smallest or the largest value."""

    def combine(into: Accumulators, other: Accumulators) -> None:
        value = other[name]
        if value is None:
            return
        held = into[name]
        if held is None or (value < held if smallest else value > held):
            into[name] = value

    return combine


def moments(mean_name: str, m2_name: str, count_name: str) -> Combine:
    """Updates mean and squared deviations by the numbers of values on both sides."""

    def combine(into: Accumulators, other: Accumulators) -> None:
        added = other[count_name]
        if not added:
            return
        held, mean, m2 = into[count_name], other[mean_name], other[m2_name]
        if not math.isfinite(mean):
            # As on whole batches: infinite values have no deviation.
            into[mean_name] = into[m2_name] = math.nan
        elif not held:
            into[mean_name], into[m2_name] = mean, m2
        else:
            share = added / (held + added)
            deviation = mean - into[mean_name]
            into[mean_name] += deviation * share
            into[m2_name] += m2 + deviation * deviation * held * share

    return combine


def edges(name: str, at_name: str, is_first: bool) -> Combine:
    """Keeps the first or the last value that is not null, by its time; among equal ones by arrival."""

    def combine(into: Accumulators, other: Accumulators) -> None:
        if other[name] is None:
            return
        at, held_at = other[at_name], into[at_name]
        if into[name] is None or (at < held_at if is_first else at >= held_at):
            into[name], into[at_name] = other[name], at

    return combine


def all_values(name: str) -> Combine:
    """Keeps every value, in order of arrival."""

    def combine(into: Accumulators, other: Accumulators) -> None:
        values = other[name]
        if values:
            if into[name] is None:
                into[name] = []
            into[name].extend(values)

    return combine


def distinct_values(name: str) -> Combine:
    """Keeps the distinct values sorted, NaN last: an Arrow list that is searched in logarithmic time."""

    def combine(into: Accumulators, other: Accumulators) -> None:
        values = other[name]
        if not values:
            return
        held = into[name]
        if held is None:
            held = into[name] = []
        has_nan = bool(held) and _is_nan(held[-1])
        for value in values:
            if _is_nan(value):
                if not has_nan:
                    held.append(value)
                    has_nan = True
                continue
            end = len(held) - has_nan
            place = bisect_left(held, value, 0, end)
            if place == end or held[place] != value:
                held.insert(place, value)

    return combine


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value
