"""Ranges of sorted rows: which partition a row belongs to, by bounds that a sample of the keys gives.

Spark's own range partitioning runs all that is behind the rows once more for its sample, with all of their columns.
Where rows come from Parquet files one by one, the columns of the keys are enough.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, element_at, expr, lit, when

from penstock.actors.spark.murmur import routes
from penstock.actors.spark.native.relations import ParquetRead
from penstock.engine.ordering import SortKey, row_order

_MOST_RANGES: Final = 16
"""A row is compared with all bounds, one after another."""
_SAMPLED_ROWS: Final = 1000
"""About how many rows of the sample each range has: the ranges then differ by about 3 %."""
_FEWEST_ROWS: Final = 25
"""Of the sample, for each range: with them the ranges differ by about a fifth."""
_FOOTERS: Final = 100
"""The most files whose footers are read."""
_COMPARABLE: Final[Mapping[pa.DataType, str]] = MappingProxyType(
    # In the same order, and Python has all their values.
    {pa.string(): "cast({} as binary)", pa.date32(): "unix_date({})"}
)


def route_by_range(
    rows: DataFrame,
    files: ParquetRead,
    columns: Sequence[tuple[str, pa.DataType]],
    keys: Sequence[SortKey],
    ranges: int,
) -> Column | None:
    """What to partition rows by, so that partition i has the i-th of `ranges`; rows of equal keys are in the same.

    Runs a job of Spark's, for the sample.

    Args:
        rows: which come one by one from `files`.
        columns: of the keys: what they are called in `rows`, and their Arrow types.
        keys: what the order is by.
        ranges: how many.

    Returns:
        None where Spark does better by its own means: for many ranges, or if few of the rows that are read are left.
    """
    if ranges > _MOST_RANGES:
        return None
    comparable = [expr(_COMPARABLE.get(kind, "{}").format(name)) for name, kind in columns]
    bounds: Sequence[Sequence[Any]] = ()
    if ranges > 1:
        share = min(1.0, _SAMPLED_ROWS * ranges / max(1, about_rows(files.paths)))
        sample = rows.select(*comparable).sample(share).collect()
        if share < 1.0 and len(sample) < _FEWEST_ROWS * ranges:
            return None
        bounds = quantiles(sample, keys, ranges)
    steps = (when(_is_behind(comparable, keys, bound), 1).otherwise(0) for bound in bounds)
    return element_at(array(*map(lit, routes(ranges))), reduce(Column.__add__, steps, lit(1)))


def quantiles(rows: Sequence[Sequence[Any]], keys: Sequence[SortKey], ranges: int) -> Sequence[Sequence[Any]]:
    """The last row of each range but the last one, if `rows` are divided into ranges as large as each other.

    Args:
        rows: the values of the keys of each, in any order. Without rows there are no bounds.
        keys: what the order is by.
        ranges: how many.

    Example:
        >>> quantiles([(4,), (None,), (2,), (3,)], [SortKey("n")], 2)
        [(2,)]
    """
    if not rows:
        return []
    order = row_order([pa.chunked_array([pa.array(values)]) for values in zip(*rows, strict=True)], keys)
    return [rows[order[max(0, len(rows) * number // ranges - 1)]] for number in range(1, ranges)]


def _is_behind(columns: Sequence[Column], keys: Sequence[SortKey], bound: Sequence[Any]) -> Column:
    """Whether a row comes behind the bound: null first, or last where the order is descending."""
    behind = lit(False)
    for column, key, value in reversed(list(zip(columns, keys, bound, strict=True))):
        if value is None:
            is_more, is_equal = (lit(False) if key.descending else column.isNotNull()), column.isNull()
        else:
            more = column < lit(value) if key.descending else column > lit(value)
            is_more, is_equal = when(column.isNull(), key.descending).otherwise(more), column.eqNullSafe(lit(value))
        behind = is_more | (is_equal & behind)
    return behind


def about_rows(paths: Sequence[str]) -> int:
    """How many rows the files have; of many files about, as if all had as many in a byte as those that are asked."""
    if not paths:
        return 0
    asked = paths[:: -(-len(paths) // _FOOTERS)]
    rows: int = sum(pq.read_metadata(path).num_rows for path in asked)
    return rows * sum(map(os.path.getsize, paths)) // sum(map(os.path.getsize, asked))
