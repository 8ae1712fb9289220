"""The slot of each row's key, where a batch has many rows for each: the index is then given each key once.

Window operators and running aggregates number the keys of whole batches by it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.cells.distinct import map_distinct
from penstock.engine.row_numbers import distinct_of
from penstock.engine.state.keys.codec import is_word
from penstock.engine.state.keys.index import KeyIndex

_Int64s = npt.NDArray[np.int64]

_MANY_ROWS: Final = 1024
_MANY_A_KEY: Final = 4
_FEW_KEYS: Final = 4096
"""Above this, numbers are looked up in a compiled hash table."""


def slots_of_rows(index: KeyIndex, columns: list[pa.Array]) -> _Int64s:
    """What `index.lookup(columns)` gives, sooner.

    Args:
        columns: the key columns, at least one.
    """
    if len(columns) == 1 and _is_narrow(columns[0]):
        kind = columns[0].type
        return map_distinct(
            columns[0].to_numpy().astype(np.int64, copy=False),
            lambda distinct: index.lookup([pa.array(distinct, kind)]),
        )
    if not _repeat(columns, len(index)):
        return index.lookup(columns)
    numbers, distinct = distinct_of(columns)
    slots: _Int64s = index.lookup(distinct)[numbers]
    return slots


def _repeat(columns: list[pa.Array], keys: int) -> bool:
    """Whether a batch has so many rows for each key that Arrow numbers them faster than the index does."""
    rows = len(columns[0])
    if rows < _MANY_ROWS or keys * _MANY_A_KEY > rows:
        return False
    return len(columns) > 1 or keys <= _FEW_KEYS or not is_word(columns[0].type)


def _is_narrow(column: pa.Array) -> bool:
    """Whether the keys are integers that lie closer together than there are rows."""
    if len(column) < _MANY_ROWS or column.null_count:
        return False
    if not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return False
    numbers = column.to_numpy()
    return int(numbers.max()) - int(numbers.min()) < len(numbers)
