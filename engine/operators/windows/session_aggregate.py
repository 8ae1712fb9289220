"""Vectorised aggregates over event-time sessions.

Rows are put into the open sessions of their keys and folded into accumulators by session; a session is emitted when
the watermark passes its end. Emitted rows carry the timestamp `window_end - 1`.

A row is late if the watermark, as of the start of the batch, has come to the last millisecond of its session, as it is
with this row, plus the allowed lateness: late rows are counted, and go to the side output where there is one. A session
that the watermark has passed is emitted again, with what it holds then, behind each batch with rows for it.

Source of the rules: Flink's documentation, "Session Windows" and "Allowed Lateness", and its MergingWindowSet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.cells.accumulator_cells import AccumulatorCells
from penstock.engine.cells.captured_sessions import CapturedSessions
from penstock.engine.cells.key_slots import CountedKeys
from penstock.engine.cells.session_cells import Placed, SessionCells
from penstock.engine.cells.session_rules import NONE
from penstock.engine.columns import beside
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.free_memory import free_memory
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.saved_aggregates import check_types
from penstock.engine.operators.spec import OperatorTraits
from penstock.engine.operators.windows.aggregate_spec import AggregateSpec
from penstock.engine.operators.windows.aggregate_state import (
    SESSION_END,
    SESSION_START,
    WINDOW_STATE,
    changed_table,
    kept_table,
    put_aside,
    restored_parts,
    restored_schema,
)
from penstock.engine.operators.windows.group_watermarks import GroupWatermarks
from penstock.engine.operators.windows.window_aggregate import window_batch
from penstock.engine.operators.windows.window_form import WINDOW_FORM, WindowForm
from penstock.engine.state.capture import CaptureRequest, CaptureScope, Expiry, OperatorCapture
from penstock.engine.state.segments import concat_tables
from penstock.engine.state.snapshot import OperatorSnapshot, parts_of
from penstock.engine.windows.assigners import SessionWindows

_EMIT_ROWS: Final = 65_536
_ROOMY: Final = 8
_SMALL: Final = 2**20
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SessionAggregateSpec(AggregateSpec[SessionWindows]):
    """Creates the operator that aggregates over sessions."""

    def create(self) -> SessionAggregate:
        return SessionAggregate(self)

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(tuple(self.aggregation.keys),))


class SessionAggregate(Operator):
    """Keeps accumulators for each session of each key until it takes no more rows in."""

    def __init__(self, spec: SessionAggregateSpec) -> None:
        self._gap = spec.windows.gap_ms
        self._aggregation = spec.aggregation
        self._form = WindowForm(spec.windows, spec.allowed_lateness_ms)
        self._late_tag = spec.late_tag
        self._watermark = MIN_TIMESTAMP
        self._saved: pa.Schema | None = None
        self._reset()

    def _reset(self) -> None:
        self._keys = CountedKeys(self._aggregation.keys)
        self._sessions = SessionCells()
        self._accumulators = AccumulatorCells(self._aggregation)
        self._captured = CapturedSessions(self._sessions)
        # No session ends before these; they spare most watermarks a look at all sessions.
        self._first_due = MAX_TIMESTAMP
        self._first_closed = MAX_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._group_watermarks = GroupWatermarks(self._aggregation.keys, context)
        context.metrics.count_keys(WINDOW_STATE, self, lambda held: held._keys.count())

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        for part, watermark in self._group_watermarks.parts(batch, self._watermark):
            self._take_in(part, watermark, out)

    def _take_in(self, batch: Batch, watermark: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the graph refuses windows without timestamps"
        starts = batch.timestamps.to_numpy()
        lifted = self._aggregation.lift(batch.data, batch.timestamps)
        if self._saved is not None:
            self._saved = check_types(self._saved, lifted.schema, self._context.where)
        first_end = int(starts.min()) + self._gap
        placed = self._place(lifted, starts, starts + self._gap, self._form.horizon(watermark))
        late = placed.sessions == NONE
        if late.any():
            placed, lifted = replace(placed, sessions=placed.sessions[~late]), lifted.filter(pa.array(~late))
            put_aside(batch.filter(pa.array(late)), self._late_tag, self._context)
        self._fold(placed, lifted)
        if first_end - 1 <= watermark:
            self._emit_again(placed.sessions, watermark, out)

    def _place(self, table: pa.Table, starts: _Int64s, ends: _Int64s, horizon: int = MIN_TIMESTAMP) -> Placed:
        slots = self._keys.lookup(table)
        placed = self._sessions.place(slots, starts, ends, self._keys.end, horizon)
        self._keys.use(self._sessions.slots[placed.opened])
        self._keys.leave(self._sessions.slots[placed.merged])
        self._keys.pass_over(slots[placed.sessions == NONE])
        self._captured.merge(placed.merged, placed.into)
        first_end = int(ends.min())
        self._first_due, self._first_closed = min(self._first_due, first_end), min(self._first_closed, first_end)
        return placed

    def _fold(self, placed: Placed, table: pa.Table) -> None:
        """Fold rows, and sessions that became part of others, into accumulators."""
        self._accumulators.create(placed.opened)
        sessions = placed.sessions
        if len(placed.merged):
            merged = self._accumulators.read(placed.merged)
            self._accumulators.release(placed.merged)
            sessions = np.concatenate([placed.into, sessions])
            table = concat_tables([merged, table.select(merged.column_names)])
        if len(sessions):
            self._accumulators.fold(sessions, table, self._keys_of)
            self._captured.touch(sessions)

    def _emit_again(self, sessions: _Int64s, watermark: int, out: Collector) -> None:
        """Emit the sessions among these that the watermark has passed."""
        passed = np.unique(sessions[self._sessions.ends[sessions] - 1 <= watermark])
        self._emit(passed[np.argsort(self._sessions.ends[passed], kind="stable")], out)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        above, self._watermark = self._watermark + 1, watermark.timestamp
        if self._first_due - 1 <= self._watermark:
            self._emit(self._not_emitted(self._sessions.ending(above, self._upto(self._watermark))), out)
            self._first_due = self._sessions.first_end(self._upto(self._watermark))
        horizon = self._form.horizon(self._watermark)
        if self._first_closed - 1 <= horizon:
            closed = self._sessions.ending(MIN_TIMESTAMP, self._upto(horizon))
            self._accumulators.release(closed)
            self._forget(closed)
            self._first_closed = self._sessions.first_end(self._upto(horizon))
            self._shrink()
        self._group_watermarks.advance(self._watermark)
        return watermark

    def _not_emitted(self, sessions: _Int64s) -> _Int64s:
        mask = self._group_watermarks.not_emitted(lambda: self._keys_of(sessions), self._sessions.ends[sessions])
        return sessions if mask is None else sessions[mask]

    def _upto(self, watermark: int) -> int:
        """The latest end of sessions that `watermark` has passed."""
        return min(watermark, MAX_TIMESTAMP - 2) + 1

    def _emit(self, sessions: _Int64s, out: Collector) -> None:
        for begin in range(0, len(sessions), _EMIT_ROWS):
            share = sessions[begin : begin + _EMIT_ROWS]
            table = beside(self._keys_of(share), self._accumulators.read(share))
            out.collect(window_batch(self._aggregation, table, *self._bounds(share)))

    def _bounds(self, sessions: _Int64s) -> tuple[_Int64s, _Int64s]:
        return self._sessions.starts[sessions], self._sessions.ends[sessions]

    def _forget(self, sessions: _Int64s) -> None:
        self._captured.forget(sessions)
        self._keys.leave(self._sessions.slots[sessions])
        self._sessions.close(sessions)

    def _keys_of(self, sessions: _Int64s) -> pa.Table:
        return self._keys.table(self._sessions.slots[sessions])

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `Operator.capture`; costs some 10 ns a session that is given, and nothing a session that is not."""
        beside_them = {WINDOW_FORM: self._form.captured(), **self._group_watermarks.capture()}
        if not len(self._sessions):
            if request.scope is not CaptureScope.COMPLETE:
                self._captured.settle(self._sessions.open_sessions())
            return OperatorCapture(beside_them, self._watermark)
        changes = self._captured.changes(request.scope)
        keys, max_parallelism = self._aggregation.keys, self._context.config.max_parallelism
        # Sessions that end before this are closed; what they were part of, or part of them, ended no later.
        expiry = Expiry(SESSION_END, self._upto(self._form.horizon(self._watermark)) + 1)
        if changes is None:
            sessions = self._sessions.open_sessions()
            table = kept_table(self._rows(sessions), keys, SESSION_START, expiry, max_parallelism)
        else:
            sessions, slots, moved = changes
            held = self._keys.are_held(slots)
            gone = beside(self._keys.table(slots[held]), pa.table({SESSION_START: moved[held]}))
            table = changed_table(self._rows(sessions), gone, keys, SESSION_START, expiry, max_parallelism)
        if request.scope is not CaptureScope.COMPLETE:
            self._captured.settle(sessions)
        return OperatorCapture({WINDOW_STATE: table, **beside_them}, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._form = self._form.restored(snapshot, self._aggregation, self._context.where)
        self._watermark = snapshot.watermark
        self._group_watermarks.restore(snapshot)
        self._saved = restored_schema(snapshot, self._aggregation)
        self._load(restored_parts(snapshot, self._aggregation))
        self._captured.settle(self._sessions.open_sessions())

    def _shrink(self) -> None:
        """Move to smaller arrays where most of them is unused."""
        if self._sessions.end > max(_ROOMY * len(self._sessions), _SMALL):
            table = self._rows(self._sessions.open_sessions())() if len(self._sessions) else None
            # All that is loaded counts as changed, so that the next capture holds it.
            self._reset()
            if table is not None:
                self._load(parts_of(table))
            free_memory()

    def _rows(self, sessions: _Int64s) -> Callable[[], pa.Table]:
        """What sessions hold now: keys, start and end (int64 ms), accumulators."""
        keys, accumulators = self._keys_of(sessions), self._accumulators.captured(sessions)
        starts, ends = self._bounds(sessions)
        return lambda: beside(keys, pa.table({SESSION_START: starts, SESSION_END: ends}), accumulators())

    def _load(self, parts: Iterable[pa.Table]) -> None:
        """Take in what tables hold."""
        for rows in parts:
            starts, ends = (rows.column(name).to_numpy() for name in (SESSION_START, SESSION_END))
            self._fold(self._place(rows, starts, ends), rows)
