"""Vectorised aggregates over event-time sessions.

Each batch is reduced to one row a key and session, and appended to the state. Sessions that touch are merged by one
sort and one scan, when the watermark may have closed one of them.

A row is late when the session that it belongs to, after merging with those still open, ends at or below the watermark;
late rows are counted and dropped. Source of the rules: Flink's documentation, "Session Windows" and "Allowed Lateness".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregation import GroupedAggregation, groups_of
from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.window_aggregate import window_batch
from penstock.engine.state.segments import SegmentedTable
from penstock.engine.windows.assigners import SessionWindows

_START: Final = "__start"
_END: Final = "__end"
_ROWS: Final = "__rows"
_SESSION: Final = "__session"
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SessionAggregateFactory:
    """Creates the operator that aggregates over sessions."""

    windows: SessionWindows
    aggregation: GroupedAggregation

    def __call__(self) -> SessionAggregate:
        return SessionAggregate(self.windows, self.aggregation)


class SessionAggregate(Operator):
    """Keeps one row of accumulators for each open session of each key."""

    def __init__(self, windows: SessionWindows, aggregation: GroupedAggregation) -> None:
        self._gap = windows.gap_ms
        self._aggregation = aggregation
        self._sessions = SegmentedTable(self._merge)
        self._watermark = MIN_TIMESTAMP
        self._next_end: int | None = None

    def open(self, context: OperatorContext) -> None:
        self._metrics = context.metrics

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the graph refuses windows without timestamps"
        timestamps = batch.timestamps.to_numpy()
        ends = timestamps + self._gap
        lifted = self._aggregation.lift(batch.data, batch.timestamps)
        self._sessions.append(self._merge(_with_bounds(lifted, timestamps, ends, np.ones(len(ends), np.int64))))
        first_end = int(ends.min())
        self._next_end = first_end if self._next_end is None else min(self._next_end, first_end)
        if first_end - 1 <= self._watermark:
            late = self._take_ended()
            self._metrics.late_rows += int(late.column(_ROWS).to_numpy().sum())

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._watermark = watermark.timestamp
        if self._next_end is not None and self._next_end - 1 <= self._watermark:
            ended = self._take_ended()
            if ended.num_rows:
                starts, ends = ended.column(_START).to_numpy(), ended.column(_END).to_numpy()
                plain = ended.drop_columns([_START, _END, _ROWS])
                out.collect(window_batch(self._aggregation, plain, starts, ends))
        return watermark

    def _take_ended(self) -> pa.Table:
        """Remove the sessions that end at or below the watermark, and return them."""
        sessions = self._sessions.compact()
        ends = sessions.column(_END).to_numpy()
        ended = ends - 1 <= self._watermark
        open_sessions = sessions.filter(pa.array(~ended))
        self._sessions.replace(open_sessions)
        self._next_end = int(ends[~ended].min()) if open_sessions.num_rows else None
        return sessions.filter(pa.array(ended))

    def _merge(self, table: pa.Table) -> pa.Table:
        """One row for each group of touching sessions of a key, in order of arrival."""
        if not table.num_rows:
            return table
        keys = list(self._aggregation.keys)
        ids = groups_of([table.column(key) for key in keys], table.num_rows).ids
        starts, ends = table.column(_START).to_numpy(), table.column(_END).to_numpy()
        order = np.lexsort((starts, ids))
        ids, starts, ends = ids[order], starts[order], ends[order]
        reached = _running_maximum(ids, ends)
        opens = np.ones(len(ids), np.bool_)
        opens[1:] = (ids[1:] != ids[:-1]) | (starts[1:] > reached[:-1])
        begins = np.flatnonzero(opens)
        # The rows themselves stay in order of arrival: last() and collect_list() depend on it.
        session_of_row = np.empty(len(ids), np.int64)
        session_of_row[order] = np.cumsum(opens) - 1
        plain = table.drop_columns([_START, _END, _ROWS])
        merged = self._aggregation.combine(plain.append_column(_SESSION, pa.array(session_of_row)), by=[_SESSION])
        sessions = merged.column(_SESSION).to_numpy()
        merged = merged.drop_columns(_SESSION)
        for index, key in enumerate(keys):
            merged = merged.add_column(index, key, plain.column(key).take(pa.array(order[begins][sessions])))
        rows = table.column(_ROWS).to_numpy()[order]
        return _with_bounds(
            merged,
            starts[begins][sessions],
            np.maximum.reduceat(ends, begins)[sessions],
            np.add.reduceat(rows, begins)[sessions],
        )


def _with_bounds(table: pa.Table, starts: _Int64s, ends: _Int64s, rows: _Int64s) -> pa.Table:
    for name, values in ((_START, starts), (_END, ends), (_ROWS, rows)):
        table = table.append_column(name, pa.array(values))
    return table


def _running_maximum(ids: _Int64s, values: _Int64s) -> _Int64s:
    """The largest value so far among the rows of the same id; rows of one id stand together, ids ascend."""
    distinct, ranks = np.unique(values, return_inverse=True)
    running: _Int64s = np.maximum.accumulate(ids * len(distinct) + ranks)
    reached: _Int64s = distinct[running - ids * len(distinct)]
    return reached
