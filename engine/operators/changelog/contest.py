"""Rows of a batch that only come, and those that are kept, in one order: which of them are the first of a partition.

Top-N asks it, so that rows which are not among the first are never looked for in its state. Where no two rows of a
partition are equal in the order, none is there twice, and their ranks are their places, however ranks are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.operators.changelog.counted_rows import counts_of
from penstock.engine.operators.changelog.ranks import Order, sorted_places, within_runs
from penstock.engine.operators.changelog.row_states import RowState

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Contest:
    """The ranks of rows, from 1, where they are not tied.

    Args:
        tied: by partition, whether it has rows that are equal in the order.
        slots: of the rows that are kept.
        of_held: the partition of each.
        ranks_before: their ranks among themselves.
        held_ranks: their ranks among all rows.
        of_rows: the partition of each row of the batch.
        ranks: its rank among all rows.
    """

    tied: Mask
    slots: Int64s
    of_held: Int64s
    ranks_before: Int64s
    held_ranks: Int64s
    of_rows: Int64s
    ranks: Int64s

    @classmethod
    def of(
        cls,
        state: RowState,
        partitions: list[pa.Array],
        rows: pa.RecordBatch,
        of_rows: Int64s,
        by: Sequence[Order],
    ) -> Contest:
        """The contest of a batch with what is kept.

        Args:
            state: of counted rows; the partitions have been begun.
            partitions: keys of the batch that differ.
            rows: of the batch, of the state's types.
            of_rows: the number of each row's partition.
            by: the order, of one column at least.
        """
        of_held, slots = state.rows.of_keys(partitions)
        held = len(slots)
        kept = state.rows.columns(slots, [one.column for one in by])
        codes = [
            one.codes(pa.concat_arrays([column, rows.column(one.column)])) for one, column in zip(by, kept, strict=True)
        ]
        keys = [np.concatenate([of_held, of_rows]), *codes]
        order = sorted_places(keys)
        of = keys[0][order]
        is_same = np.ones(len(order) - 1, np.bool_)
        for key in keys:
            is_same &= np.diff(key[order]) == 0
        tied = np.zeros(int(of_rows.max()) + 1, np.bool_)
        tied[of[1:][is_same]] = True
        tied[of_held[counts_of(state, slots) > 1]] = True
        ranks = np.empty(len(order), np.int64)
        ranks[order] = within_runs(of) + 1
        is_held = order < held
        before = np.empty(held, np.int64)
        before[order[is_held]] = within_runs(of[is_held]) + 1
        return cls(tied, slots, of_held, before, ranks[:held], of_rows, ranks[held:])
