"""Which rows have equal values: numbers for them, in order of first occurrence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.columns import one_array

_Int64s: TypeAlias = npt.NDArray[np.int64]

DENSE: Final = 4
"""Integers are counted, and not hashed, where there are at most so many between the least and the largest, a row."""
_HEAD: Final = 8
"""Among so many times as many rows as there are numbers, one in three thousand of numbers that are alike is missing."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The group of each row of a table: int64 ids from 0, numbered in order of first occurrence."""

    ids: _Int64s
    count: int


def groups_of(columns: Sequence[pa.ChunkedArray], rows: int) -> Groups:
    """The group of each row by the values of `columns`; null equals null."""
    if not columns:
        return Groups(np.zeros(rows, np.int64), 1)
    ids, distinct = _codes(one_array(columns[0]))
    count = len(distinct)
    for column in columns[1:]:
        if count == rows:
            # All rows differ already, and are numbered one behind the other.
            break
        codes, distinct = _codes(one_array(column))
        ids, distinct = _codes(pa.array(ids * len(distinct) + codes))
        count = len(distinct)
    return Groups(ids, count)


def distinct_of(columns: Sequence[pa.Array]) -> tuple[_Int64s, list[pa.Array]]:
    """The number of each row's values, and the values by number, in order of first occurrence; null is one of them.

    Args:
        columns: at least one.

    Example:
        >>> numbers, (letters,) = distinct_of([pa.array(["b", None, "b"])])
        >>> numbers.tolist(), letters.to_pylist()
        ([0, 1, 0], ['b', None])
    """
    if len(columns) == 1:
        numbers, values = _codes(columns[0])
        return numbers, [values]
    rows = len(columns[0])
    groups = groups_of([pa.chunked_array([column]) for column in columns], rows)
    first = np.empty(groups.count, np.int64)
    # Backwards, so that the first row of each group is written last, and stays.
    first[groups.ids[::-1]] = np.arange(rows - 1, -1, -1)
    return groups.ids, [column.take(pa.array(first)) for column in columns]


def first_places(numbers: _Int64s) -> _Int64s:
    """Where each number comes first, ascending.

    Example:
        >>> first_places(np.array([7, 5, 7, 6])).tolist()
        [0, 1, 3]
    """
    dense = dense_numbers(numbers, DENSE) if len(numbers) else None
    if dense is None:
        return np.sort(np.unique(numbers, return_index=True)[1])
    return _first_rows(*dense[:2])


def dense_integers(column: pa.Array, times: int) -> tuple[_Int64s, int] | None:
    """The values of a column of integers by which a table can be addressed, in the place of hashing them.

    Args:
        column: of any type.
        times: so many places a row the table may have.

    Returns:
        Each value less the smallest, and one that is above all of these; None where the column is of another type, has
        nulls or no rows, or is too sparse.

    Example:
        >>> numbers, end = dense_integers(pa.array([7, 5, 7]), 4)
        >>> numbers.tolist(), end
        ([2, 0, 2], 3)
    """
    kind = column.type
    if not len(column) or column.null_count or not pa.types.is_integer(kind) or pa.types.is_uint64(kind):
        return None
    dense = dense_numbers(column.to_numpy(), times)
    return None if dense is None else dense[:2]


def dense_numbers(numbers: npt.NDArray[np.integer[Any]], times: int) -> tuple[_Int64s, int, int] | None:
    """As `dense_integers`, for at least one number; the smallest of them is given last."""
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= times * len(numbers):
        return None
    return numbers.astype(np.int64, copy=False) - low, high - low + 1, low


def _codes(column: pa.Array) -> tuple[_Int64s, pa.Array]:
    """As `distinct_of`, for one column."""
    dense = dense_integers(column, DENSE)
    if dense is not None:
        codes, first = _counted(*dense)
        return codes, column.take(pa.array(first))
    encoded = column.dictionary_encode("encode")
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary


def _counted(numbers: _Int64s, end: int) -> tuple[_Int64s, _Int64s]:
    """The codes of numbers from 0 to `end` - 1, and the row where each code comes first: without a hash table.

    Where rows are many times the numbers, most of these are among the first rows, and the others need but a look.
    """
    begun = _HEAD * end
    firsts = _first_rows(numbers[:begun], end)
    table = np.empty(end, np.int64)
    table.fill(-1)
    table[numbers[firsts]] = np.arange(len(firsts))
    codes: _Int64s = table.take(numbers)
    if begun < len(numbers) and codes.min() < 0:
        missing = np.flatnonzero(codes < 0)
        others = missing[_first_rows(numbers[missing], end)]
        table[numbers[others]] = np.arange(len(firsts), len(firsts) + len(others))
        codes[missing] = table[numbers[missing]]
        firsts = np.concatenate([firsts, others])
    return codes, firsts


def _first_rows(numbers: _Int64s, end: int) -> _Int64s:
    """The row where each of the numbers comes first, ascending."""
    rows = len(numbers)
    first = np.empty(end, np.int64)
    first.fill(rows)
    # Backwards, so that the first row of each number is written last, and stays.
    first[numbers[::-1]] = np.arange(rows - 1, -1, -1)
    firsts: _Int64s = first[first < rows]
    firsts.sort()
    return firsts
