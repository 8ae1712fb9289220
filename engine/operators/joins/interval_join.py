"""Joins rows of two keyed streams whose timestamps are near each other.

A left row meets the right rows of its key with `left + lower <= right <= left + upper`, as soon as both have come.
Results carry the later of both timestamps. Rows are kept until the watermark says that nothing can meet them any more.

A row with a timestamp at or below the watermark is late, by the promise that a watermark makes. Flink drops those below
it, and of those exactly at it lets some meet their partners and loses others without a word: here all are counted.

Source: Flink's documentation, "Joining" (interval join), and its `IntervalJoinOperator` for the times at which rows are
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.join_columns import (
    LEFT,
    RIGHT,
    TIMESTAMP,
    Int64s,
    JoinColumns,
    JoinRows,
    same_keys,
    timed_rows,
)
from penstock.engine.operators.joins.join_buffers import (
    KeySegment,
    KeySegments,
    codes_are_keys,
    emit_together,
    expired,
    key_codes,
    parts,
    spread,
)
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class IntervalJoinSpec(OperatorSpec):
    """Creates the operator that joins within an interval.

    Args:
        columns: the inputs and the columns of the result.
        lower_ms, upper_ms: bounds of right minus left timestamp, both included; at most 2**60 in either direction.
        late_tags: names of the side outputs for late rows of the left and the right side, or None to drop them.
    """

    columns: JoinColumns
    lower_ms: int
    upper_ms: int
    late_tags: tuple[str | None, str | None] = (None, None)

    def create(self) -> IntervalJoin:
        return IntervalJoin(self)

    def describe(self) -> str:
        return f"interval_join([{self.lower_ms} ms, {self.upper_ms} ms], {self.columns.describe()})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=self.columns.keys, order=RowOrder.WITHIN_INPUTS)


class IntervalJoin(Operator):
    """Keeps the rows of each side, sorted by key and time, for the rows of the other side that are still to come."""

    def __init__(self, join: IntervalJoinSpec) -> None:
        self._join = join
        # What to add to a row's timestamp for the first and last timestamp that it meets on the other side.
        self._reach = ((join.lower_ms, join.upper_ms), (-join.upper_ms, -join.lower_ms))
        self._kept = (KeySegments(expired), KeySegments(expired))
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._rows = JoinRows(self._join.columns, context.where)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the graph refuses joins without timestamps"
        timestamps = batch.timestamps.to_numpy()
        if timestamps.min() <= self._watermark:
            late = timestamps <= self._watermark
            self._drop(batch.filter(pa.array(late)), input_index)
            batch, timestamps = batch.filter(pa.array(~late)), timestamps[~late]
            if not batch.num_rows:
                return
        segment = self._segment(input_index, self._rows.take_in(input_index, batch.data), timestamps)
        emit_together(self._meet(input_index, segment), out)
        self._kept[input_index].append(segment)

    def _drop(self, late: Batch, side: int) -> None:
        tag = self._join.late_tags[side]
        if tag is None:
            self._context.metrics.late_rows += late.num_rows
        else:
            self._context.emit_side(tag, late)

    def _segment(self, side: int, rows: pa.RecordBatch, timestamps: Int64s) -> KeySegment:
        return KeySegment.sort(rows, key_codes(self._rows.keys(side, rows)), timestamps)

    def _meet(self, side: int, segment: KeySegment) -> Iterator[Batch]:
        """The pairs of rows of `segment`, which came on input `side`, with those kept of the other side."""
        first, last = self._reach[side]
        low, high = segment.timestamps + first, segment.timestamps + last
        for other in self._kept[1 - side]:
            probes, begins, ends = other.ranges(segment.codes, low, high)
            for of, places in spread(begins, ends):
                sides = (segment, other) if side == LEFT else (other, segment)
                indices = (probes[of], places) if side == LEFT else (places, probes[of])
                yield from self._pairs(*sides, *indices)

    def _pairs(self, left: KeySegment, right: KeySegment, left_rows: Int64s, right_rows: Int64s) -> Iterator[Batch]:
        keys = self._rows.keys(LEFT, left.rows), self._rows.keys(RIGHT, right.rows)
        if not codes_are_keys([key.type for key in keys[LEFT]]):
            equal = same_keys(keys[LEFT], left_rows, keys[RIGHT], right_rows).to_numpy(zero_copy_only=False)
            if not equal.all():
                left_rows, right_rows = left_rows[equal], right_rows[equal]
        if not len(left_rows):
            return
        later = np.maximum(left.timestamps[left_rows], right.timestamps[right_rows])
        for part in parts((left.rows, left_rows), (right.rows, right_rows)):
            data = self._rows.pairs(left.rows, left_rows[part], right.rows, right_rows[part])
            yield Batch(data, pa.array(later[part]))

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._watermark = watermark.timestamp
        for side, kept in enumerate(self._kept):
            kept.raise_floor(max(watermark.timestamp - max(self._reach[side][1], 0), MIN_TIMESTAMP))
        return watermark

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `Operator.capture`: all rows that are kept, by reference to their segments."""
        kept = [timed_rows(segments.captured()) for segments in self._kept]
        return OperatorCapture(self._rows.capture(kept, self._context.config.max_parallelism), self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        for side, segments in enumerate(self._kept):
            restored = self._rows.restore(side, snapshot.tables)
            if restored is not None:
                rows, beside = restored
                segments.append(self._segment(side, rows, beside[TIMESTAMP]))
