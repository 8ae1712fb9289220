"""The order of values as numbers, so that rows can be sorted by several columns, each in its own direction."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]


class Nulls(enum.Enum):
    """Where nulls come in an order."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Order:
    """A column to order by.

    Args:
        column: its name.
        descending: whether its largest value comes first.
        nulls: where nulls come. Flink's default is first where ascending, and last where descending.
    """

    column: str
    descending: bool = False
    nulls: Nulls = Nulls.FIRST

    def codes(self, rows: pa.RecordBatch) -> Int64s:
        """A number for each row, ascending as rows are ordered."""
        column = rows.column(self.column)
        codes = rank_codes(column)
        missing = codes == 0
        codes = -codes if self.descending else codes
        codes[missing] = -len(codes) - 1 if self.nulls is Nulls.FIRST else len(codes) + 1
        return codes

    def describe(self) -> str:
        """As `explain()` shows it."""
        direction = " desc" if self.descending else ""
        return f"{self.column}{direction}"


def rank_codes(column: pa.Array) -> Int64s:
    """Numbers from 1 that are ordered as the values are, the same for equal ones; 0 for null.

    Example:
        >>> rank_codes(pa.array(["b", None, "a", "b"])).tolist()
        [2, 0, 1, 2]
    """
    codes = np.zeros(len(column), np.int64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.filter(pa.array(valid)) if column.null_count else column
    if len(values):
        codes[valid] = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy()
    return codes
