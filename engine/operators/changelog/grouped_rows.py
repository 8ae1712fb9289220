"""The rows of one batch by group, as accumulators take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.operators.changelog.calls import AggregateCall

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows with their groups.

    Args:
        rows: with the operator's input columns.
        signs: int64, 1 for each row that comes and -1 for each that goes.
        of: int64, the number of each row's group.
        keys: the key columns, a row for each group.
        slots: int64, where the state of each group lies.
    """

    rows: pa.RecordBatch
    signs: Int64s
    of: Int64s
    keys: list[pa.Array]
    slots: Int64s

    def values(self, call: AggregateCall) -> Values:
        """The rows that count for a call: those that pass its filter and, but for `array_agg`, are not null."""
        column = None if call.argument is None else self.rows.column(call.argument)
        chosen = np.ones(self.rows.num_rows, np.bool_)
        if call.filter is not None:
            chosen &= self.rows.column(call.filter).fill_null(False).to_numpy(zero_copy_only=False)
        if column is not None and column.null_count and call.function != "array_agg":
            chosen &= column.is_valid().to_numpy(zero_copy_only=False)
        if chosen.all():
            return Values(self.of, column, self.signs)
        return Values(self.of[chosen], None if column is None else column.filter(pa.array(chosen)), self.signs[chosen])


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one column by group.

    Args:
        of: int64, the number of each value's group.
        column: the values; None where rows are counted.
        signs: int64, 1 for what comes and -1 for what goes.
    """

    of: Int64s
    column: pa.Array | None
    signs: Int64s

    @property
    def array(self) -> pa.Array:
        """The values."""
        assert self.column is not None, "only count takes rows without a column"
        return self.column

    def filter(self, mask: npt.NDArray[np.bool_]) -> Values:
        """Those where `mask` is true."""
        column = None if self.column is None else self.column.filter(pa.array(mask))
        return Values(self.of[mask], column, self.signs[mask])
