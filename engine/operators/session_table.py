"""Gives rows the sessions that they are in: they wait until the watermark has passed their session.

SQL's SESSION becomes it where rows are not aggregated by the keys of their sessions. Rows of one session lie no further
apart than the gap; rows whose session the watermark had passed when they came are late, counted and dropped. Where rows
change, those that stand make the sessions and are given, so that the batches in which changes come do not matter.

Source: Flink's documentation, "Window TVF" (SESSION); Flink's sessions never split or shrink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.changelog import WITH_BEFORE_IMAGES
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark, concat_record_batches
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import row_codes, weights
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.inputs import conformed, distinct_keys, plain_columns
from penstock.engine.operators.changelog.row_states import waiting_rows, waiting_table
from penstock.engine.operators.joins.join_buffers import TimeSegments
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PENDING: Final = "pending"
_KIND: Final = "__kind"
_TIME: Final = "__time"


@dataclass(frozen=True, slots=True)
class SessionTableSpec(OperatorSpec):
    """Creates the operator.

    Args:
        input: the columns that come; rows carry timestamps.
        partition: the columns by which sessions are told apart; none: all rows are in one subtask.
        gap_ms: how far apart rows of one session are at most.
        bounds: columns behind those that come, for the begin and the end of the session, and its last millisecond.
    """

    input: pa.Schema
    partition: tuple[str, ...]
    gap_ms: int
    bounds: pa.Schema

    def create(self) -> Operator:
        return SessionTable(self)

    def describe(self) -> str:
        return f"sessions(by=[{', '.join(self.partition)}], gap {self.gap_ms} ms)"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return pa.schema([*plain_columns(self.input), *self.bounds])

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(
            keys=(self.partition,), order=RowOrder.WITHIN_INPUTS, accepts=(WITH_BEFORE_IMAGES,), emits=None
        )


class SessionTable(Operator):
    """Keeps the rows of sessions that the watermark has not passed."""

    def __init__(self, spec: SessionTableSpec) -> None:
        self._spec = spec
        self._input = plain_columns(spec.input)
        self._keys = pa.schema([self._input.field(name) for name in spec.partition])
        self._time = free_name(_TIME, self._input.names)
        self._kind = free_name(_KIND, self._input.names)
        self._pending = TimeSegments()
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the binder asks for a time attribute"
        if batch.num_rows:
            kinds = pa.array(np.zeros(batch.num_rows, np.int8)) if batch.kinds is None else batch.kinds
            rows = conformed(batch.data, self._input).append_column(self._kind, kinds)
            self._pending.append(rows, batch.timestamps.to_numpy())

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        first = self._pending.first
        if first is not None and first + self._spec.gap_ms - 1 <= watermark.timestamp:
            self._close(watermark.timestamp, out)
        self._watermark = watermark.timestamp
        return watermark

    def _close(self, watermark: int, out: Collector) -> None:
        """Give the rows of the sessions that end, and keep the others."""
        parts = self._pending.between(MIN_TIMESTAMP, MAX_TIMESTAMP)
        rows = concat_record_batches([part.rows for part in parts])
        times = np.concatenate([part.timestamps for part in parts])
        signs = weights(Batch(rows, kinds=rows.column(self._kind)))
        stands, starts, ends = self._standing(rows, times, signs)
        is_late, is_due = ends - 1 <= self._watermark, ends - 1 <= watermark
        self._context.metrics.late_rows += int((is_late & stands).sum())
        self._pending = TimeSegments()
        if not is_due.all():
            self._pending.append(rows.filter(pa.array(~is_due)), times[~is_due])
        due = np.flatnonzero(is_due & ~is_late & stands)
        if len(due):
            due = due[np.lexsort([times[due], ends[due]])]
            values = (starts[due], ends[due], ends[due] - 1)
            bounds = [pa.array(one).cast(field.type) for one, field in zip(values, self._spec.bounds, strict=True)]
            own = rows.select(self._input.names).take(pa.array(due)).columns
            data = pa.RecordBatch.from_arrays([*own, *bounds], schema=self._spec.schema)
            out.collect(Batch(data, pa.array(ends[due] - 1)))

    def _standing(self, rows: pa.RecordBatch, times: Int64s, signs: Int64s) -> tuple[Mask, Int64s, Int64s]:
        """Which rows stand, and the begin and the end of each row's session; rows that do not stand may have ended.

        A session that the watermark would have passed before it split off from another stays part of that: rows that
        were not late when they came are not late by what is taken back later.
        """
        starts, ends, sessions = self._sessions(rows, times)
        stands = np.ones(len(times), np.bool_)
        if (signs > 0).all():
            return stands, starts, ends
        timed = rows.select(self._input.names).append_column(self._time, pa.array(times))
        is_open = uncancelled(row_codes(timed), signs)
        stands, is_unknown = is_open & (signs > 0), is_open & (signs < 0)
        self._context.metrics.late_rows += int(is_unknown.sum())
        own_starts, own_ends, _ = self._sessions(rows.filter(pa.array(stands)), times[stands])
        is_whole = np.isin(sessions, sessions[stands][own_ends - 1 <= self._watermark])
        splits = ~is_whole[stands]
        places = np.flatnonzero(stands)[splits]
        starts[places], ends[places] = own_starts[splits], own_ends[splits]
        # These hold nothing together any more.
        ends[is_unknown | ~(stands | is_whole)] = MIN_TIMESTAMP + 1
        return stands, starts, ends

    def _sessions(self, rows: pa.RecordBatch, times: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """The begin, the end and the number of each row's session, as far as rows have come."""
        if not len(times):
            return times, times, times
        numbers, _ = distinct_keys([rows.column(name) for name in self._keys.names], len(times))
        order = np.lexsort([times, numbers])
        sorted_times, sorted_numbers = times[order], numbers[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = sorted_numbers[1:] != sorted_numbers[:-1]
        is_new[1:] |= sorted_times[1:] - sorted_times[:-1] > self._spec.gap_ms
        firsts = np.flatnonzero(is_new)
        lasts = np.append(firsts[1:], len(order)) - 1
        session = np.cumsum(is_new) - 1
        starts, ends, sessions = np.empty((3, len(order)), np.int64)
        starts[order] = sorted_times[firsts][session]
        ends[order] = (sorted_times[lasts] + self._spec.gap_ms)[session]
        sessions[order] = session
        return starts, ends, sessions

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        rows, most = self._pending.captured(), self._context.config.max_parallelism
        if rows is None:
            return OperatorCapture({}, self._watermark)

        def table() -> pa.Table:
            parts, times = rows()
            return waiting_table(parts, self._time, times, self._keys, most)

        return OperatorCapture({_PENDING: TableCapture(Redistribution.KEYED, table)}, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        pending = snapshot.tables.get(_PENDING)
        if pending is not None and pending.data.num_rows:
            rows, times = waiting_rows(pending.data, self._time)
            if self._kind not in rows.schema.names:
                # Saved when rows that change could not come here: all were inserted.
                rows = rows.append_column(self._kind, pa.array(np.zeros(rows.num_rows, np.int8)))
            self._pending.append(rows, times)


def uncancelled(codes: Int64s, signs: Int64s) -> Mask:
    """Which changes are left when each row that is taken back cancels one that is equal; of equal ones, the last.

    Args:
        codes: equal where rows are, from 0.
        signs: 1 for each row that comes, -1 for each that goes.

    Example:
        >>> uncancelled(np.array([0, 0, 1, 0, 2]), np.array([1, -1, 1, 1, -1])).tolist()
        [False, False, True, True, True]
    """
    net = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    np.add.at(net, codes, signs)
    is_open = np.zeros(len(codes), np.bool_)
    for sign in (1, -1):
        places = np.flatnonzero(signs == sign)[::-1]
        places = places[np.argsort(codes[places], kind="stable")]
        of = codes[places]
        is_open[places] = np.arange(len(of)) - np.searchsorted(of, of) < sign * net[of]
    return is_open
