"""Partial aggregates on their way: rows of accumulators that stand for rows of one key, and of one slice of event time.

Where an exchange leads to aggregates that can be merged, all of its rows travel like this (`PartialAggregates`): the
sender lifts them, several rows of a key to one where that pays, and the operator behind merges what comes. A mark of
the batch (`Batch.partials`) tells partial aggregates from the user's rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import (
    CountAccumulator,
    FoldAccumulator,
    GroupAccumulator,
)
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import Batch, Partials, Slices, table_to_record_batch

_COUNTS: Final = "__partial rows"
_COUNT: Final = CountAccumulator(None).name
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartialLayout:
    """The columns of partial aggregates: keys, how many rows each stands for (null: one), accumulators but count(*).

    Their timestamps are the largest of the rows; with `slices`, the start of their slice.

    Args:
        aggregation: whose accumulators these are.
        slices: what event time is divided into; None if it does not matter.

    Attributes:
        mark: of the batches.
        names: all columns, in order.

    Example:
        >>> from penstock.engine.aggregates import functions as aggregates
        >>> layout = PartialLayout(GroupedAggregation(["k"], {"n": aggregates.count(), "s": aggregates.sum("v")}))
        >>> layout.names
        ('k', '__partial rows', '__sum(v)')
    """

    aggregation: GroupedAggregation
    slices: Slices | None = None
    mark: Partials = field(init=False, repr=False)
    names: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Once, and not for each batch.
        object.__setattr__(self, "mark", Partials(_COUNTS, self.slices))
        folds = (fold.name for fold in self.folds)
        grouped = (name for accumulator in self.grouped for name in accumulator.names)
        object.__setattr__(self, "names", (*self.aggregation.keys, _COUNTS, *folds, *grouped))

    @property
    def folds(self) -> tuple[FoldAccumulator, ...]:
        """As in the aggregation, but for count(*): the number of rows is the same."""
        return tuple(fold for fold in self.aggregation.folds if fold.name != _COUNT)

    @property
    def grouped(self) -> tuple[GroupAccumulator, ...]:
        """As in the aggregation."""
        return self.aggregation.grouped

    def packed(self, table: pa.Table, rows: pa.Array, timestamps: pa.Int64Array | None) -> Batch:
        """Accumulators as they travel, of rows without changelog kinds.

        Args:
            table: keys and accumulators.
            rows: how many rows each stands for.
            timestamps: of the rows.
        """
        columns = [rows if name == _COUNTS else table.column(name) for name in self.names]
        data = table_to_record_batch(pa.Table.from_arrays(columns, names=list(self.names)))
        return Batch(data, timestamps, partials=self.mark)

    def lifted(self, batch: Batch) -> Batch:
        """Each of the user's rows as a partial aggregate of its own."""
        columns = self.aggregation.lift_columns(batch.data, batch.timestamps)
        columns[_COUNTS] = pa.nulls(batch.num_rows)
        data = pa.RecordBatch.from_arrays([columns[name] for name in self.names], names=list(self.names))
        return Batch(data, batch.timestamps, batch.kinds, self.mark)


def partial_layout(aggregation: GroupedAggregation, slices: Slices | None = None) -> PartialLayout | None:
    """How rows can travel as partial aggregates, with `slices` as in `PartialLayout`; None if they cannot.

    They can if accumulators may be merged in any order, and are no larger for many rows than for one.
    """
    mergeable = all(accumulator.is_mergeable for accumulator in aggregation.grouped)
    return PartialLayout(aggregation, slices) if mergeable else None


def rows_of(batch: Batch) -> int:
    """How many of the user's rows the batch stands for."""
    if batch.partials is None:
        return batch.num_rows
    rows = batch.data.column(batch.partials.counts)
    return len(rows) if pa.types.is_null(rows.type) else int(_filled(rows).sum())


def accumulators_of(aggregation: GroupedAggregation, batch: Batch) -> pa.Table:
    """The accumulators of rows, or those that have come as partial aggregates; keys first, as `lift` gives them.

    Raises:
        MissingColumnError, ColumnTypeError: as for `GroupedAggregation.lift`.
    """
    if batch.partials is None:
        return aggregation.lift(batch.data, batch.timestamps)
    table = pa.Table.from_batches([batch.data]).drop_columns([batch.partials.counts])
    if any(fold.name == _COUNT for fold in aggregation.folds):
        rows = batch.data.column(batch.partials.counts)
        table = table.append_column(_COUNT, pa.array(_filled(rows)))
    return table


def _filled(rows: pa.Array) -> _Int64s:
    """The number of rows that each stands for: one for null."""
    if pa.types.is_null(rows.type):
        return np.ones(len(rows), np.int64)
    filled: _Int64s = (rows.fill_null(1) if rows.null_count else rows).to_numpy()
    return filled
