"""Functions that need the values of a frame one by one: those of distinct values, and those that give lists.

`FrameFunction` uses it. What a row adds is a list with its value; a frame reduces to the lists of its rows put
together, so that the row which stands for all that came before holds all their values.
"""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.columns import with_numbers
from penstock.engine.operators.changelog.calls import COUNTS
from penstock.engine.operators.changelog.finishing import finished, sum_type

Int64s = npt.NDArray[np.int64]


def single_lists(column: pa.Array, kept: pa.BooleanArray | None) -> pa.Array:
    """A list with each row's value; without one where it is not kept. None: all are."""
    counts = np.ones(len(column), np.int64) if kept is None else kept.cast(pa.int64()).to_numpy()
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts).astype(np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), column if kept is None else column.filter(kept))


def joined_lists(lists: pa.Array, lows: Int64s, highs: Int64s, *, distinct: bool) -> pa.Array:
    """For each row the lists from its low to its high put together; of equal values the first, if `distinct`."""
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(pc.list_value_length(lists).to_numpy())])
    begins, ends = bounds[lows], bounds[highs + 1]
    values = pc.list_flatten(lists)
    lengths = ends - begins
    rows = np.repeat(np.arange(len(lows)), lengths)
    places = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths) + begins[rows]
    if distinct:
        first = _first_of_equal(rows, _codes(values)[places])
        rows, places = rows[first], places[first]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(rows, minlength=len(lows)))])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values.take(pa.array(places)))


def _codes(values: pa.Array) -> Int64s:
    """A number for each value, the same exactly where values are."""
    if pa.types.is_nested(values.type):
        numbers: dict[str, int] = {}
        return np.array(
            [numbers.setdefault(repr(one), len(numbers)) for one in with_numbers(values).to_pylist()], np.int64
        )
    encoded = values.dictionary_encode(null_encoding="encode")
    codes: Int64s = encoded.indices.to_numpy().astype(np.int64)
    return codes


def _first_of_equal(rows: Int64s, codes: Int64s) -> Int64s:
    """The places at which a row has a value for the first time, in order."""
    order = np.lexsort([codes, rows])
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (rows[order][1:] != rows[order][:-1]) | (codes[order][1:] != codes[order][:-1])
    return np.sort(order[starts])


def finished_lists(function: str, kind: pa.DataType, lists: pa.Array, separator: str) -> pa.Array:
    """The results of a function, of the values of each frame."""
    rows = with_numbers(lists).to_pylist()
    if function == "array_agg":
        return pa.array([row or None for row in rows], kind)
    if function == "listagg":
        return pa.array([separator.join(row) if row else None for row in rows], kind)
    if function == "collect":
        return pa.array([list(Counter(row).items()) for row in rows], kind)
    if function in COUNTS:
        return pc.list_value_length(lists).cast(kind)
    counts = np.array([len(row) for row in rows], np.int64)
    sums = _sums(rows, sum_type(lists.type.value_type, function))
    squares = np.array([float(sum(value * value for value in row)) for row in rows], np.float64)
    return finished(function, kind, counts, sums, squares)


def _sums(rows: Sequence[Sequence[Any]], kind: pa.DataType) -> npt.NDArray[Any]:
    if pa.types.is_decimal(kind):
        found = np.empty(len(rows), np.object_)
        found[:] = [sum(row, decimal.Decimal(0)) for row in rows]
        return found
    if pa.types.is_floating(kind):
        return np.array([sum(row, 0.0) for row in rows], np.float64)
    # Sums of whole numbers wrap around.
    return np.array([(sum(row) + 2**63) % 2**64 - 2**63 for row in rows], np.int64)
