"""Joins the rows of two keyed streams that are in the same window.

When the watermark passes a window's end, every row of the left side is paired with every row of the right side that has
its key; outer joins give rows without a partner too, filled with nulls. Results carry the timestamp `window_end - 1`.

Late rows are counted and dropped. Source: Flink's documentation, "Joining" (window join).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.elements import Batch, Watermark
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.join_columns import LEFT, RIGHT, Int64s, JoinColumns, JoinRows
from penstock.engine.operators.joins.join_buffers import EMIT_ROWS, parts, spread
from penstock.engine.operators.joins.join_windows import GroupedSide, JoinWindows, WindowGroups, order_within, pairing
from penstock.engine.operators.relational import WindowPairs
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.operators.windows.window_aggregate import WINDOW_END, WINDOW_START, WINDOW_TYPE
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot

BOUNDS: Final = (
    pa.field(WINDOW_START, WINDOW_TYPE, nullable=False),
    pa.field(WINDOW_END, WINDOW_TYPE, nullable=False),
)
"""The columns between those of the left and of the right side."""
OUTER_SIDES: Final = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}
"""The sides of which rows without a partner are kept, by the name of the join."""


@dataclass(frozen=True, slots=True)
class WindowJoinSpec(OperatorSpec):
    """Creates the operator that joins within `windows`.

    Args:
        windows: tumbling, sliding or session windows.
        columns: the inputs and the columns of the result; those of a side that may be filled with nulls are known.
        how: a key of `OUTER_SIDES`.
    """

    windows: JoinWindows
    columns: JoinColumns
    how: str = "inner"

    def create(self) -> WindowJoin:
        return WindowJoin(self)

    def describe(self) -> str:
        return f"window_join({self.windows.describe()}, {self.columns.describe()}, {self.how})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(
            keys=self.columns.keys,
            order=order_within(self.windows),
            relational=WindowPairs(self.windows, self.columns, self.how),
        )


class WindowJoin(Operator):
    """Keeps the rows of both inputs until the watermark has passed their windows."""

    def __init__(self, join: WindowJoinSpec) -> None:
        self._join = join
        self._outer = OUTER_SIDES[join.how]

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._rows = JoinRows(self._join.columns, context.where, context.config.max_parallelism)
        self._pairing = pairing(self._join.windows, self._rows)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the graph refuses joins without timestamps"
        rows = self._rows.take_in(input_index, batch.data)
        self._context.metrics.late_rows += self._pairing.add(input_index, rows, batch.timestamps.to_numpy())

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        for complete in self._pairing.fire(watermark.timestamp):
            for batch in self._joined(complete):
                out.collect(batch)
        return watermark

    def _joined(self, complete: WindowGroups) -> Iterator[Batch]:
        left, right = complete.sides
        if left is not None and right is not None:
            begins, ends = np.searchsorted(right.groups, left.groups), _behind(right, left)
            for of, places in spread(begins, ends):
                left_rows, right_rows = left.order[of], right.order[places]
                for part in parts((left.rows, left_rows), (right.rows, right_rows)):
                    bounds = complete.bounds(left.groups[of[part]])
                    columns = _columns(*bounds)
                    pairs = self._rows.pairs(left.rows, left_rows[part], right.rows, right_rows[part], columns)
                    yield Batch(pairs, pa.array(bounds[1] - 1))
        for side in self._outer:
            own, other = complete.sides[side], complete.sides[1 - side]
            if own is not None:
                yield from self._alone(side, own, other, complete)

    def _alone(self, side: int, own: GroupedSide, other: GroupedSide | None, complete: WindowGroups) -> Iterator[Batch]:
        """The rows of one side without a partner."""
        if other is None:
            lonely = np.arange(len(own.groups))
        else:
            lonely = np.flatnonzero(np.searchsorted(other.groups, own.groups) == _behind(other, own))
        for first in range(0, len(lonely), EMIT_ROWS):
            share = lonely[first : first + EMIT_ROWS]
            rows = own.order[share]
            for part in parts((own.rows, rows)):
                bounds = complete.bounds(own.groups[share[part]])
                alone = self._rows.alone(side, own.rows, rows[part], _columns(*bounds))
                yield Batch(alone, pa.array(bounds[1] - 1))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `Operator.capture`: all rows that are kept, by reference."""
        return self._pairing.capture()

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._pairing.restore(snapshot)


def _behind(searched: GroupedSide, probing: GroupedSide) -> Int64s:
    """For each row of `probing`, the place in `searched` behind the rows of the same group."""
    return np.searchsorted(searched.groups, probing.groups, "right")


def _columns(starts: Int64s, ends: Int64s) -> list[pa.Array]:
    return [pa.array(bound).cast(WINDOW_TYPE) for bound in (starts, ends)]
