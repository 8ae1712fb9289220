"""The exchange in front of aggregates that can be merged: the sender merges rows of a key before they travel.

A rewrite (`graph/rewrite.py`) puts it in the place of a plain exchange. Whether merging pays is a matter of how many
rows a batch has for each key, so it is looked at while the job runs: where few are saved, rows go as they are, and now
and then it is looked again. The results are the same, but for the rounding of floats.

Sources: "Local-Global Aggregation", Flink's documentation, "Performance Tuning" of SQL; Larson, "Data Reduction by
Partial Preaggregation", ICDE 2002.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.partials import PartialLayout
from penstock.engine.cells.accumulator_cells import AccumulatorCells
from penstock.engine.columns import beside, one_array
from penstock.engine.elements import MIN_TIMESTAMP, Batch
from penstock.engine.errors import RecordError
from penstock.engine.exchange.partitioners import Hash, KeyColumns, Partitioner, Splitter, SplitterContext
from penstock.engine.row_numbers import dense_integers, groups_of

_Int64s = npt.NDArray[np.int64]

_MIN_ROWS: Final = 1_024
"""Of fewer rows not enough can be saved to make up for the time that it takes."""
_MOST_LEFT: Final = 0.5
"""Merging pays where it leaves less than this share of the rows: it costs half as much as to send and to merge them."""
_LONGEST_REST: Final = 64
"""Where it does not pay, it is tried again after 1, 2, 4 and at last so many batches."""
_SPARSE: Final = 4
"""A table of keys and slices may have this many places a row."""


@dataclass(frozen=True, slots=True)
class PartialAggregates:
    """Rows travel as partial aggregates, and are spread as `inner` says.

    Args:
        inner: by the keys of the aggregation, or to a single subtask.
        layout: how they travel.
    """

    inner: Partitioner
    layout: PartialLayout

    def targets(self, subtask: int, upstream: int, downstream: int) -> range:
        return self.inner.targets(subtask, upstream, downstream)

    def splitter(self, context: SplitterContext) -> Splitter:
        spread, merge = self.inner.splitter(context), PartialMerger(self.layout)
        # Before they are aggregated, so that an error names a row of the user's.
        check = KeyColumns(self.inner.keys if isinstance(self.inner, Hash) else (), context.where)

        def split(batch: Batch) -> Iterable[tuple[int, Batch]]:
            if batch.partials is not None:
                # They were under way when a checkpoint was taken: see `fits`.
                return spread(batch)
            check(batch)
            try:
                merged = merge(batch)
            except RecordError as error:
                raise error if error.placed else error.at(context.where) from error
            return spread(merged)

        return split

    def describe(self) -> str:
        return f"{self.inner.describe()}, partial aggregates"


def fits(batch: Batch, partitioner: Partitioner) -> bool:
    """Whether rows that were under way on an exchange, in a program that may have been another, can go this way.

    The user's rows always can. Partial aggregates only where they look as they do now: with other aggregates or windows
    they would be merged wrongly, or not at all.
    """
    if batch.partials is None:
        return True
    if not isinstance(partitioner, PartialAggregates):
        return False
    layout = partitioner.layout
    return batch.partials == layout.mark and tuple(batch.data.schema.names) == layout.names


class PartialMerger:
    """Makes partial aggregates of batches of the user's rows.

    Args:
        layout: how they are to look.
        min_rows: batches of fewer rows are not worth the try.
    """

    def __init__(self, layout: PartialLayout, min_rows: int = _MIN_ROWS) -> None:
        self._layout = layout
        self._min_rows = min_rows
        self._rest = 0
        self._next_rest = 1

    def __call__(self, batch: Batch) -> Batch:
        if batch.num_rows < self._min_rows or batch.kinds is not None:
            return self._layout.lifted(batch)
        if self._rest:
            self._rest -= 1
            return self._layout.lifted(batch)
        merged = self._merged(batch)
        if merged is None:
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, _LONGEST_REST)
            return self._layout.lifted(batch)
        self._next_rest = 1
        return merged

    def _merged(self, batch: Batch) -> Batch | None:
        """One row for each key and slice; None where too many would be left."""
        aggregation, slices = self._layout.aggregation, self._layout.slices
        table = aggregation.lift(batch.data, batch.timestamps)
        keys = [one_array(table.column(name)) for name in aggregation.keys]
        times = None if batch.timestamps is None else batch.timestamps.to_numpy()
        numbers, end = _key_numbers(keys, batch.num_rows)
        if slices is not None:
            assert times is not None, "the graph refuses windows without timestamps"
            numbers, end = _with_slices(numbers, end, (times - slices.offset_ms) // slices.length_ms)
        if end > _SPARSE * batch.num_rows:
            return None
        rows = np.bincount(numbers, minlength=end)
        found = np.flatnonzero(rows)
        if len(found) > _MOST_LEFT * batch.num_rows:
            return None
        some_row = np.empty(end, np.int64)
        some_row[numbers] = np.arange(batch.num_rows)
        key_table = table.select(aggregation.keys)
        cells = AccumulatorCells(self._layout)
        cells.create(np.arange(end))
        cells.fold(numbers, table, lambda those: key_table.take(pa.array(some_row[those])))
        merged = beside(key_table.take(pa.array(some_row[found])), cells.read(found))
        return self._layout.packed(merged, pa.array(rows[found]), self._times(times, numbers, some_row, found))

    def _times(
        self, times: _Int64s | None, numbers: _Int64s, some_row: _Int64s, found: _Int64s
    ) -> pa.Int64Array | None:
        if times is None:
            return None
        if self._layout.slices is not None:
            return pa.array(self._layout.slices.starts(times[some_row[found]]))
        largest = np.full(len(some_row), MIN_TIMESTAMP)
        np.maximum.at(largest, numbers, times)
        return pa.array(largest[found])


def _key_numbers(keys: list[pa.Array], rows: int) -> tuple[_Int64s, int]:
    """A number for each row that is that of its key, and one that is above them all."""
    dense = dense_integers(keys[0], 1) if len(keys) == 1 else None
    if dense is not None:
        return dense
    groups = groups_of([pa.chunked_array([key]) for key in keys], rows)
    return groups.ids.astype(np.int64, copy=False), groups.count


def _with_slices(numbers: _Int64s, count: int, slices: _Int64s) -> tuple[_Int64s, int]:
    """Numbers of keys and slices, and one that is above them all."""
    low, high = int(slices.min()), int(slices.max())
    if low == high:
        return numbers, count
    slices -= low
    # In Python's numbers: the bound may be beyond those of 64 bits, and is not used then.
    return slices * count + numbers, (high - low + 1) * count
