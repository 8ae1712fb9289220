"""Gives rows the time of the clock as their event time, with watermarks that follow the clock.

What is made for event time then goes by processing time as well: SQL puts it before windows, and joins, of PROCTIME.
Watermarks come also where no rows do, so that what waits for the clock is never held up by a subtask without rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import ANY_MODE
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark, WatermarkStatus
from penstock.engine.errors import StateError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class ClockTimeSpec(OperatorSpec):
    """Creates the operator.

    Args:
        period_ms: between two watermarks; these come at its multiples.
        offset_ms: by which they all come later.
    """

    period_ms: int
    offset_ms: int = 0

    def create(self) -> ClockTime:
        return ClockTime(self)

    def describe(self) -> str:
        return f"time of the clock (watermark every {self.period_ms} ms)"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=None, waits_for_clock=True)


class ClockTime(Operator):
    """Keeps nothing but the last watermark, also in snapshots: the end of the input makes no time pass."""

    def __init__(self, spec: ClockTimeSpec) -> None:
        self._spec = spec
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._where, self._clock = context.where, context.clock
        # At once: behind a savepoint there may be rows whose time has come meanwhile.
        self._due: int | None = self._clock.now_ms()

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        # A clock that is set back, or behind that of the run before, makes no row late.
        now = max(self._clock.now_ms(), self._watermark + 1)
        out.collect(Batch(batch.data, pa.array(np.full(batch.num_rows, now, np.int64)), batch.kinds))

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        if watermark.timestamp == MAX_TIMESTAMP:
            self._due = None
        return None

    def on_watermark_status(self, status: WatermarkStatus, out: Collector) -> WatermarkStatus | None:
        return None

    @property
    def next_processing_time(self) -> int | None:
        return self._due

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        period, offset = self._spec.period_ms, self._spec.offset_ms
        self._due = ((now_ms - offset) // period + 1) * period + offset
        if now_ms - 1 > self._watermark:
            self._watermark = now_ms - 1
            out.broadcast(Watermark(self._watermark))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return OperatorCapture({}, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Go on from the watermark of the subtask that had come furthest.

        Raises:
            StateError: the state is that of a window of PROCTIME, which had the operator's place in earlier versions.
        """
        if snapshot.tables:
            raise StateError(
                f"{self._where}: the saved state ({', '.join(sorted(snapshot.tables))}) is that of windows of PROCTIME "
                "as an earlier version kept them; run that version until they have fired, or drop the rows of windows "
                "that were open by savepoints.modify(...).remove_operator(uid)"
            )
        # Rows of any subtask may come here, and those behind have seen its watermarks.
        self._watermark = snapshot.furthest
