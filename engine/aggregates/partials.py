"""Partial aggregates on their way: rows of accumulators that stand for rows of one key, and of one slice of event time.

Where an exchange leads to aggregates that can be merged, all of its rows travel like this (`PartialAggregates`): the
sender lifts them, several rows of a key to one where that pays, and the operator behind merges what comes. The column
`__partial rows...` tells partial aggregates from the user's rows.
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
from penstock.engine.elements import Batch, table_to_record_batch

_ROWS: Final = "__partial rows"
_COUNT: Final = CountAccumulator(None).name
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slices:
    """Stretches of event time, `length_ms` each, of which one starts at `offset_ms`: rows of two are never merged."""

    length_ms: int
    offset_ms: int

    def starts(self, timestamps: _Int64s) -> _Int64s:
        """Where the slice of each timestamp starts."""
        return timestamps - (timestamps - self.offset_ms) % self.length_ms


@dataclass(frozen=True, slots=True)
class PartialLayout:
    """The columns of partial aggregates: keys, how many rows each stands for (null: one), accumulators but count(*).

    Their timestamps are the largest of the rows; with `slices`, the start of their slice.

    Args:
        aggregation: whose accumulators these are.
        slices: what event time is divided into; None if it does not matter.

    Attributes:
        rows: the name of the column with the number of rows. It tells the slices, which nothing else does.
        names: all columns, in order.

    Example:
        >>> from penstock.engine.aggregates import functions as aggregates
        >>> layout = PartialLayout(GroupedAggregation(["k"], {"n": aggregates.count(), "s": aggregates.sum("v")}))
        >>> layout.names
        ('k', '__partial rows', '__sum(v)')
    """

    aggregation: GroupedAggregation
    slices: Slices | None = None
    rows: str = field(init=False, repr=False)
    names: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Once, and not for each batch.
        object.__setattr__(self, "rows", _rows_name(self.slices))
        folds = (fold.name for fold in self.folds)
        grouped = (name for accumulator in self.grouped for name in accumulator.names)
        object.__setattr__(self, "names", (*self.aggregation.keys, self.rows, *folds, *grouped))

    @property
    def folds(self) -> tuple[FoldAccumulator, ...]:
        """As in the aggregation, but for count(*): the number of rows is the same."""
        return tuple(fold for fold in self.aggregation.folds if fold.name != _COUNT)

    @property
    def grouped(self) -> tuple[GroupAccumulator, ...]:
        """As in the aggregation."""
        return self.aggregation.grouped

    def packed(self, table: pa.Table, rows: pa.Array, like: Batch, timestamps: pa.Int64Array | None) -> Batch:
        """Accumulators as they travel.

        Args:
            table: keys and accumulators.
            rows: how many rows each stands for.
            like: has the changelog kinds of the rows, where each stands for itself.
            timestamps: of the rows.
        """
        columns = [rows if name == self.rows else table.column(name) for name in self.names]
        data = table_to_record_batch(pa.Table.from_arrays(columns, names=list(self.names)))
        return Batch(data, timestamps, like.kinds)

    def lifted(self, batch: Batch) -> Batch:
        """Each of the user's rows as a partial aggregate of its own."""
        table = self.aggregation.lift(batch.data, batch.timestamps)
        return self.packed(table, pa.nulls(batch.num_rows), batch, batch.timestamps)


def _rows_name(slices: Slices | None) -> str:
    return _ROWS if slices is None else f"{_ROWS}({slices.length_ms} ms from {slices.offset_ms % slices.length_ms})"


def partial_layout(aggregation: GroupedAggregation, slices: Slices | None = None) -> PartialLayout | None:
    """How rows can travel as partial aggregates, with `slices` as in `PartialLayout`; None if they cannot.

    They can if accumulators may be merged in any order, and are no larger for many rows than for one.
    """
    mergeable = all(accumulator.is_mergeable for accumulator in aggregation.grouped)
    return PartialLayout(aggregation, slices) if mergeable else None


def rows_column(batch: Batch) -> str | None:
    """The name of the column with the number of rows, by which partial aggregates are told; None for user's rows."""
    return next((name for name in batch.data.schema.names if name.startswith(_ROWS)), None)


def rows_of(batch: Batch) -> int:
    """How many of the user's rows the batch stands for."""
    name = rows_column(batch)
    if name is None:
        return batch.num_rows
    rows = batch.data.column(name)
    return len(rows) if pa.types.is_null(rows.type) else int(_filled(rows).sum())


def accumulators_of(aggregation: GroupedAggregation, batch: Batch) -> pa.Table:
    """The accumulators of rows, or those that have come as partial aggregates; keys first, as `lift` gives them.

    Raises:
        MissingColumnError, ColumnTypeError: as for `GroupedAggregation.lift`.
    """
    name = rows_column(batch)
    if name is None:
        return aggregation.lift(batch.data, batch.timestamps)
    columns = {key: batch.data.column(key) for key in aggregation.keys}
    for fold in aggregation.folds:
        columns[fold.name] = (
            pa.array(_filled(batch.data.column(name))) if fold.name == _COUNT else batch.data.column(fold.name)
        )
    for accumulator in aggregation.grouped:
        columns.update((each, batch.data.column(each)) for each in accumulator.names)
    return pa.table(columns)


def _filled(rows: pa.Array) -> _Int64s:
    """The number of rows that each stands for: one for null."""
    if pa.types.is_null(rows.type):
        return np.ones(len(rows), np.int64)
    filled: _Int64s = (rows.fill_null(1) if rows.null_count else rows).to_numpy()
    return filled
