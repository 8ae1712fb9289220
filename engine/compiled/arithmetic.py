"""Arithmetic of compiled functions: Python's result, or an `OverflowError` where 64 bits may not hold it.

Generated modules import it, compiled by numba. The error sends the batch to the plain function, so that a check may
object too early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., object])

_EXACT: Final = 2**53
"""Up to here each int is a float."""
_PRODUCT: Final = 9e18
_SMALLEST: Final = -(2**63)


def _compile(function: _F) -> _F:
    return cast(_F, numba.njit(function))


@_compile
def add(left: int, right: int) -> int:
    total = left + right
    if ((left ^ total) & (right ^ total)) < 0:
        raise OverflowError
    return total


@_compile
def subtract(left: int, right: int) -> int:
    rest = left - right
    if ((left ^ right) & (left ^ rest)) < 0:
        raise OverflowError
    return rest


@_compile
def multiply(left: int, right: int) -> int:
    if abs(float(left) * float(right)) > _PRODUCT:
        raise OverflowError
    return left * right


@_compile
def negate(value: int) -> int:
    if value == _SMALLEST:
        raise OverflowError
    return -value


@_compile
def absolute(value: int) -> int:
    if value == _SMALLEST:
        raise OverflowError
    return abs(value)


@_compile
def floor_divide(left: int, right: int) -> int:
    if left == _SMALLEST:
        raise OverflowError
    return left // right


@_compile
def modulo(left: int, right: int) -> int:
    if left == _SMALLEST:
        raise OverflowError
    return left % right


@_compile
def to_float(value: int) -> float:
    if value > _EXACT or value < -_EXACT:
        raise OverflowError
    return float(value)


@_compile
def to_int(value: float) -> int:
    if not (-_PRODUCT < value < _PRODUCT):
        raise OverflowError
    return int(value)
