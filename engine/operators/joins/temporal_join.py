"""Joins each row with the version of another table that was valid at the row's time.

The right side is a stream of versions: each is valid from its timestamp on, until the next one of its key. A left row
waits until the watermark passes its timestamp, and then meets the latest version of its key at or before it; of two
versions with one timestamp, the one that came last. Results carry the left row's timestamp.

Left rows below the watermark are late: they are counted and dropped, since their versions may be gone. Those exactly at
it meet the version that is still there, as in Flink, at the next watermark. A version that comes late still counts, for
the left rows that come after it. Source: Flink's documentation, "Event Time Temporal Join".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark
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
    EMIT_ROWS,
    KeySegment,
    KeySegments,
    TimeSegments,
    TimeSlice,
    codes_are_keys,
    emit_together,
    key_codes,
    parts,
    superseded,
)
from penstock.engine.operators.joins.join_form import TEMPORAL_FORM, check_form, form_capture
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class TemporalJoinSpec(OperatorSpec):
    """Creates the operator that joins with versions.

    Args:
        columns: the inputs and the columns of the result; the right side's are known if `how` is `"left"`.
        how: `"inner"`, or `"left"` to keep rows that have no version.
    """

    columns: JoinColumns
    how: str = "inner"

    def create(self) -> TemporalJoin:
        return TemporalJoin(self)

    def describe(self) -> str:
        return f"temporal_join({self.columns.describe()}, {self.how})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=self.columns.keys, order=RowOrder.WITHIN_INPUTS)


class TemporalJoin(Operator):
    """Keeps left rows until the watermark passes them, and the versions that a left row may still ask for."""

    def __init__(self, join: TemporalJoinSpec) -> None:
        self._join = join
        self._form_capture = form_capture(TEMPORAL_FORM)
        self._pending = TimeSegments()
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._rows = JoinRows(self._join.columns, context.where, context.config.max_parallelism)
        self._versions = KeySegments(superseded(lambda rows: self._rows.keys(RIGHT, rows)))

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the graph refuses joins without timestamps"
        rows, timestamps = self._rows.take_in(input_index, batch.data), batch.timestamps.to_numpy()
        if input_index == RIGHT:
            self._add_versions(rows, timestamps)
            return
        if timestamps.min() < self._watermark:
            keep = timestamps >= self._watermark
            self._context.metrics.late_rows += int(len(keep) - keep.sum())
            rows, timestamps = rows.filter(pa.array(keep)), timestamps[keep]
        if len(timestamps):
            self._pending.append(rows, timestamps)

    def _add_versions(self, rows: pa.RecordBatch, timestamps: Int64s) -> None:
        codes = key_codes(self._rows.keys(RIGHT, rows))
        self._versions.append(KeySegment.sort(rows, codes, timestamps, self._watermark))

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        behind = min(watermark.timestamp + 1, MAX_TIMESTAMP)
        emit_together((batch for due in self._due(behind) for batch in self._joined(due)), out)
        self._watermark = watermark.timestamp
        self._pending.drop_before(behind)
        self._versions.raise_floor(watermark.timestamp)
        return watermark

    def _due(self, behind: int) -> Iterator[TimeSlice]:
        """The left rows with timestamps below `behind`, in slices of a bounded size."""
        for due in self._pending.between(MIN_TIMESTAMP, behind):
            for first in range(0, len(due.timestamps), EMIT_ROWS):
                yield TimeSlice(due.rows.slice(first, EMIT_ROWS), due.timestamps[first : first + EMIT_ROWS])

    def _joined(self, due: TimeSlice) -> Iterator[Batch]:
        keys = self._rows.keys(LEFT, due.rows)
        codes = key_codes(keys)
        segments = list(self._versions)
        found_in = np.full(len(codes), -1)
        found_at = np.empty(len(codes), np.int64)
        valid_from = np.full(len(codes), MIN_TIMESTAMP)
        for number, segment in enumerate(segments):
            rows, places = self._latest(segment, keys, codes, due.timestamps)
            # Of equal times the later segment's, which came last.
            newer = segment.timestamps[places] >= valid_from[rows]
            rows, places = rows[newer], places[newer]
            found_in[rows], found_at[rows], valid_from[rows] = number, places, segment.timestamps[places]
        for number, segment in enumerate(segments):
            rows = np.flatnonzero(found_in == number)
            if len(rows):
                versions = found_at[rows]
                for part in parts((due.rows, rows), (segment.rows, versions)):
                    pairs = self._rows.pairs(due.rows, rows[part], segment.rows, versions[part])
                    yield Batch(pairs, pa.array(due.timestamps[rows[part]]))
        rows = np.flatnonzero(found_in < 0)
        if self._join.how == "left" and len(rows):
            for part in parts((due.rows, rows)):
                yield Batch(self._rows.alone(LEFT, due.rows, rows[part]), pa.array(due.timestamps[rows[part]]))

    def _latest(self, segment: KeySegment, keys: list[pa.Array], codes: Int64s, times: Int64s) -> tuple[Int64s, Int64s]:
        """The latest versions that the segment has: (left row, place in the segment)."""
        rows, places, firsts = segment.latest(codes, times)
        if codes_are_keys([key.type for key in keys]):
            return rows, places
        found_rows, found_places = [], []
        version_keys = self._rows.keys(RIGHT, segment.rows)
        while len(rows):
            equal = same_keys(keys, rows, version_keys, places).to_numpy(zero_copy_only=False)
            found_rows.append(rows[equal])
            found_places.append(places[equal])
            # Another key has the same code: its versions stand in between.
            further = ~equal & (places > firsts)
            rows, places, firsts = rows[further], places[further] - 1, firsts[further]
        return _joined(found_rows), _joined(found_places)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `Operator.capture`: all rows that are kept, by reference to their segments."""
        kept = [timed_rows(rows.captured()) for rows in (self._pending, self._versions)]
        return OperatorCapture({**self._rows.capture(kept), **self._form_capture}, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        check_form(snapshot.tables, TEMPORAL_FORM, self._context.where)
        self._watermark = snapshot.watermark
        left, right = (self._rows.restore(side, snapshot.tables) for side in (LEFT, RIGHT))
        if left is not None:
            self._pending.append(left[0], left[1][TIMESTAMP])
        if right is not None:
            self._add_versions(right[0], right[1][TIMESTAMP])


def _joined(arrays: list[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
