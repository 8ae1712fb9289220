"""The order of rows by their columns, the same one in every runtime.

Null comes before all values and NaN behind them, -0.0 is 0.0, false comes before true, texts and bytes go by their
bytes (of UTF-8, so by code point). A descending column has exactly the reverse.

Source: Spark SQL's documentation, "NaN Semantics" and "ORDER BY Clause", which say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates.accumulators import INTERNAL, plain, plain_type
from penstock.engine.errors import ColumnTypeError, missing_column

_NULL: Final = 0
_VALUE: Final = 1
_NAN: Final = 2


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by.

    Args:
        column: its name.
        descending: whether its largest value comes first.
    """

    column: str
    descending: bool = False

    def describe(self) -> str:
        """As `explain()` shows it."""
        return f"{self.column} descending" if self.descending else self.column


def check_sort_keys(schema: pa.Schema, keys: Sequence[SortKey], where: str) -> None:
    """Make sure that rows of `schema` can be kept, and sorted by `keys`.

    Raises:
        MissingColumnError: there is no such column.
        ColumnTypeError: its values have no order; or Arrow can take no single rows of a column, as of views and of
            lists of them, or the column has a name as internal columns of saved rows do.
    """
    for field in schema:
        if field.name.startswith(INTERNAL):
            raise ColumnTypeError(
                f"{where}: the name {field.name!r} begins with {INTERNAL!r}, as only internal columns may; rename it"
            )
        if not _can_be_taken(field.type):
            raise ColumnTypeError(
                f"{where}: column {field.name!r} is {field.type}, whose rows Arrow cannot put in another order; cast "
                "it to a type of plain texts or bytes before, without views or run-end encoding"
            )
    for key in keys:
        if key.column not in schema.names:
            raise missing_column(key.column, schema.names, where)
        kind = schema.field(key.column).type
        if not _has_order(plain_type(kind)):
            raise ColumnTypeError(
                f"{where}: column {key.column!r} is {kind}, whose values have no order; sort by numbers, texts, bytes, "
                "booleans or times, such as one that with_columns(...) makes of it"
            )


def _can_be_taken(kind: pa.DataType) -> bool:
    try:
        # The obvious question: types of views have several spellings, and may stand anywhere inside of others.
        pa.nulls(1, kind).take(pa.array([0]))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _has_order(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        (types.is_primitive(kind) and not types.is_interval(kind))
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_null(kind)
    )


def row_order(columns: Sequence[pa.ChunkedArray], keys: Sequence[SortKey]) -> npt.NDArray[np.int64]:
    """The positions of rows in their order; rows that are equal stay in theirs.

    Args:
        columns: that of each key, of a type that `check_sort_keys` lets pass.
        keys: what to sort by, the first one first.

    Example:
        >>> row_order([pa.chunked_array([[2.0, None, float("nan"), -1.0]])], [SortKey("x", descending=True)]).tolist()
        [2, 0, 3, 1]
    """
    arrays: list[pa.ChunkedArray] = []
    directions: list[str] = []
    for column, key in zip(columns, keys, strict=True):
        values = pa.chunked_array([plain(chunk) for chunk in column.chunks], plain_type(column.type))
        ranks = _ranks(values)
        for each in [values] if ranks is None else [ranks, values]:
            arrays.append(each)
            directions.append("descending" if key.descending else "ascending")
    names = [str(number) for number in range(len(arrays))]
    indices = pc.sort_indices(
        pa.Table.from_arrays(arrays, names=names), sort_keys=list(zip(names, directions, strict=True))
    )
    order: npt.NDArray[np.int64] = indices.to_numpy().astype(np.int64, copy=False)
    return order


def _ranks(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Where nulls, values and NaNs go; None if there are only values, which Arrow puts in order alone."""
    is_nan = pc.is_nan(values) if pa.types.is_floating(values.type) else None
    has_nan = is_nan is not None and bool(pc.any(is_nan).as_py())
    if not values.null_count and not has_nan:
        return None
    ranks = pc.if_else(is_nan, _NAN, _VALUE) if has_nan else pc.if_else(values.is_valid(), _VALUE, _NULL)
    return pc.fill_null(ranks, _NULL).cast(pa.int8())
