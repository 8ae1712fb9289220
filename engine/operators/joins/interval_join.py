"""Joins rows of two keyed streams whose timestamps are near each other.

A left row meets the right rows of its key with `left + lower <= right <= left + upper`, as soon as both have come.
Results carry the later of both timestamps. Rows are kept until the watermark says that nothing can meet them any more;
an outer join then gives those that have met nothing, with nulls and their own timestamp, and holds the watermark back
by as much as they have waited. Rows of the other side are kept until none needs to be asked any more whether it has met
them.
By processing time a row's time is that of the clock when it comes, and results carry none.

A row with a timestamp at or below the watermark is late, by the promise that a watermark makes. Flink drops those below
it, and of those exactly at it lets some meet their partners and loses others without a word: here all are counted.

Source: Flink's documentation, "Joining" (interval join), and its `IntervalJoinOperator` for the times at which rows are
forgotten.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.join_columns import (
    LEFT,
    RIGHT,
    SIDES,
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
    TimeSegments,
    codes_are_keys,
    emit_together,
    expired,
    key_codes,
    parts,
    spread,
)
from penstock.engine.operators.joins.join_form import check_form, form_capture, interval_form
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.operators.windows.group_watermarks import GroupWatermarks
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot


class JoinTime(enum.Enum):
    """What is near."""

    EVENT = "event time"
    PROCESSING = "processing time"


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class IntervalJoinSpec(OperatorSpec):
    """Creates the operator that joins within an interval.

    Args:
        columns: the inputs and the columns of the result.
        lower_ms, upper_ms: bounds of right minus left timestamp, both included; at most 2**60 in either direction.
        late_tags: names of the side outputs for late rows of the left and the right side, or None to drop them.
        outer: the sides whose rows come with nulls when they have met nothing.
        condition: says of pairs, with the columns of the result, which meet; null counts as false. None: all do.
        time: by which rows are near; outer joins go by event time.
    """

    columns: JoinColumns
    lower_ms: int
    upper_ms: int
    late_tags: tuple[str | None, str | None] = (None, None)
    outer: tuple[int, ...] = ()
    condition: Callable[[pa.RecordBatch], pa.BooleanArray] | None = None
    time: JoinTime = JoinTime.EVENT

    def create(self) -> IntervalJoin:
        return IntervalJoin(self)

    def describe(self) -> str:
        outer = "".join(f", {SIDES[side]} outer" for side in self.outer)
        return f"interval_join([{self.lower_ms} ms, {self.upper_ms} ms], {self.columns.describe()}{outer})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=self.columns.keys, order=RowOrder.WITHIN_INPUTS)


class IntervalJoin(Operator):
    """Keeps the rows of each side, sorted by key and time, for the rows of the other side that are still to come."""

    def __init__(self, join: IntervalJoinSpec) -> None:
        self._join = join
        # What to add to a row's timestamp for the first and last timestamp that it meets on the other side.
        self._reach = ((join.lower_ms, join.upper_ms), (-join.upper_ms, -join.lower_ms))
        self._form = interval_form(join.lower_ms, join.upper_ms, join.outer)
        self._form_capture = form_capture(self._form)
        self._kept = (KeySegments(expired), KeySegments(expired))
        self._alone = {side: TimeSegments() for side in join.outer}
        self._waits = tuple(max(last, 0) for _, last in self._reach)
        """How long behind its time a row of each side may meet another."""
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._rows = JoinRows(self._join.columns, context.where, context.config.max_parallelism)
        self._group_watermarks = GroupWatermarks((), context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._join.time is JoinTime.PROCESSING:
            now = self._context.clock.now_ms()
            self._forget(now - 1)
            self._take_in(batch, np.full(batch.num_rows, now), input_index, out)
            return
        assert batch.timestamps is not None, "the graph refuses joins without timestamps"
        timestamps = batch.timestamps.to_numpy()
        late = timestamps <= self._judged_by(input_index, batch.data)
        if late.any():
            self._drop(batch.filter(pa.array(late)), input_index)
            batch, timestamps = batch.filter(pa.array(~late)), timestamps[~late]
            if not batch.num_rows:
                return
        self._take_in(batch, timestamps, input_index, out)

    def _judged_by(self, side: int, rows: pa.RecordBatch) -> Int64s | int:
        """The watermark that each row of a side is judged by: further than the operator's behind some restores."""
        if not self._group_watermarks.differ:
            return self._watermark
        return self._group_watermarks.of(rows, self._watermark, self._rows.key_names(side))

    def _take_in(self, batch: Batch, timestamps: Int64s, side: int, out: Collector) -> None:
        rows = self._rows.take_in(side, batch.data)
        segment = self._segment(side, rows, timestamps)
        emit_together(self._meet(side, segment), out)
        self._kept[side].append(segment)
        if side in self._alone:
            self._alone[side].append(rows, timestamps)

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
        for left, right, left_rows, right_rows in self._near(side, segment):
            later = np.maximum(left.timestamps[left_rows], right.timestamps[right_rows])
            for part in parts((left.rows, left_rows), (right.rows, right_rows)):
                data = self._rows.pairs(left.rows, left_rows[part], right.rows, right_rows[part])
                yield Batch(data, pa.array(later[part]) if self._join.time is JoinTime.EVENT else None)

    def _near(self, side: int, segment: KeySegment) -> Iterator[tuple[KeySegment, KeySegment, Int64s, Int64s]]:
        """What the rows of `segment` meet: segments of the left and the right side, and pairs of places in them."""
        first, last = self._reach[side]
        low, high = segment.timestamps + first, segment.timestamps + last
        for other in self._kept[1 - side]:
            probes, begins, ends = other.ranges(segment.codes, low, high)
            for of, places in spread(begins, ends):
                left, right = (segment, other) if side == LEFT else (other, segment)
                left_rows, right_rows = (probes[of], places) if side == LEFT else (places, probes[of])
                meets = self._meets(left, right, left_rows, right_rows)
                if meets is not None:
                    left_rows, right_rows = left_rows[meets], right_rows[meets]
                if len(left_rows):
                    yield left, right, left_rows, right_rows

    def _meets(self, left: KeySegment, right: KeySegment, left_rows: Int64s, right_rows: Int64s) -> Mask | None:
        """Which pairs of near rows do; None for all."""
        keys = self._rows.keys(LEFT, left.rows), self._rows.keys(RIGHT, right.rows)
        meets: Mask | None = None
        if not codes_are_keys([key.type for key in keys[LEFT]]):
            meets = same_keys(keys[LEFT], left_rows, keys[RIGHT], right_rows).to_numpy(zero_copy_only=False)
        if self._join.condition is None:
            return meets
        true = self._join.condition(self._rows.pairs(left.rows, left_rows, right.rows, right_rows)).fill_null(False)
        mask: Mask = true.to_numpy(zero_copy_only=False)
        return mask if meets is None else meets & mask

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._watermark = watermark.timestamp
        for side in self._alone:
            emit_together(self._met_nothing(side), out)
        self._forget(watermark.timestamp)
        self._group_watermarks.advance(watermark.timestamp)
        if not self._alone or watermark.timestamp >= MAX_TIMESTAMP:
            return watermark
        delay = max(self._waits[side] for side in self._alone)
        return replace(watermark, timestamp=max(watermark.timestamp - delay, MIN_TIMESTAMP))

    def _met_nothing(self, side: int) -> Iterator[Batch]:
        """The rows of a side that nothing can meet any more, and that have met nothing."""
        behind = int(self._waiting_from(side, np.array([self._watermark]))[0])
        for due in self._alone[side].between(MIN_TIMESTAMP, behind):
            segment = self._segment(side, due.rows, due.timestamps)
            is_alone = np.ones(len(segment.timestamps), np.bool_)
            for _, _, left_rows, right_rows in self._near(side, segment):
                is_alone[left_rows if side == LEFT else right_rows] = False
            rows = np.flatnonzero(is_alone)
            rows = rows[np.argsort(segment.timestamps[rows], kind="stable")]
            for part in parts((segment.rows, rows)):
                alone = self._rows.alone(side, segment.rows, rows[part])
                yield Batch(alone, pa.array(segment.timestamps[rows[part]]))
        self._alone[side].drop_before(behind)

    def _waiting_from(self, side: int, watermarks: Int64s) -> Int64s:
        """At these watermarks, rows of a side with this timestamp or a later one may still meet others."""
        reached: Int64s = np.maximum(watermarks, MIN_TIMESTAMP + self._waits[side]) - self._waits[side] + 1
        return np.where(watermarks >= MAX_TIMESTAMP, MAX_TIMESTAMP, reached)

    def _forget(self, time: int) -> None:
        for side, kept in enumerate(self._kept):
            reach = self._waits[side]
            if 1 - side in self._alone:
                # It is asked again whether a row of the other side, which waits for others, has met it.
                reach = max(reach, self._waits[1 - side] - self._reach[1 - side][0])
            kept.raise_floor(max(time - reach, MIN_TIMESTAMP))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `Operator.capture`: all rows that are kept, by reference to their segments."""
        kept = [timed_rows(segments.captured()) for segments in self._kept]
        tables = {**self._rows.capture(kept), **self._form_capture}
        return OperatorCapture({**tables, **self._group_watermarks.capture()}, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        check_form(snapshot.tables, self._form, self._context.where)
        self._watermark = snapshot.watermark
        self._group_watermarks.restore(snapshot)
        for side, segments in enumerate(self._kept):
            restored = self._rows.restore(side, snapshot.tables)
            if restored is not None:
                rows, beside = restored
                times = beside[TIMESTAMP]
                segments.append(self._segment(side, rows, times))
                # Subtasks that had come further have given those that met nothing until there.
                watermarks = self._group_watermarks.of(rows, self._watermark, self._rows.key_names(side))
                waiting = times >= self._waiting_from(side, watermarks)
                if side in self._alone and waiting.any():
                    self._alone[side].append(rows.filter(pa.array(waiting)), times[waiting])
