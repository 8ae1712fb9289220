"""A function of many numbers, called once with those of them that differ.

Window operators look slices and keys up by it: a batch has many rows for each. Where the numbers lie close together,
a row costs two steps in a table; where they do not, they are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.engine.row_numbers import DENSE, dense_numbers

_Int64s: TypeAlias = npt.NDArray[np.int64]


def map_distinct(numbers: _Int64s, function: Callable[[_Int64s], _Int64s]) -> _Int64s:
    """`function` of each number.

    Args:
        numbers: at least one.
        function: is given distinct numbers, ascending, and returns as many.

    Example:
        >>> map_distinct(np.array([7, 5, 7]), lambda distinct: distinct * 10).tolist()
        [70, 50, 70]
    """
    dense = dense_numbers(numbers, DENSE)
    if dense is None:
        distinct, places = np.unique(numbers, return_inverse=True)
        return function(distinct)[places]
    relative, end, low = dense
    table = np.zeros(end, np.int64)
    table[relative] = 1
    present = np.flatnonzero(table)
    table[present] = function(present + low)
    mapped: _Int64s = table[relative]
    return mapped
