"""Numbers for rows of key columns, as `distinct_of` gives them, by the tables of indexes where these are loaded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.row_numbers import distinct_of
from penstock.engine.state.keys.codec import is_word
from penstock.engine.state.keys.hash_tables import MOST_WORDS, WordRowTable
from penstock.engine.state.keys.index import are_loaded


def row_numbers(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """A number for each row, from 0 in order of first occurrence: the same exactly where rows are equal; null is null.

    Args:
        columns: at least one, coded (`coded_columns`).

    Example:
        >>> row_numbers([pa.array([5, 5, None, 5]), pa.array([1, 2, None, 1])]).tolist()
        [0, 1, 2, 0]
    """
    if 1 < len(columns) <= MOST_WORDS and are_loaded() and all(is_word(column.type) for column in columns):
        rows = np.arange(len(columns[0]))
        numbers = np.empty(len(rows), np.int64)
        table = WordRowTable(len(columns))
        table.add(table.encode(list(columns)), rows, rows, numbers)
        return numbers
    return distinct_of(columns)[0]
