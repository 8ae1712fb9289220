"""The operator that gives rows the time of one of their columns as their event time.

Lowering puts it in front of what goes by a column whose times are not those of the rows: those of results that have no
event time of their own, such as the last row of each key, and of joins within an interval, whose rows go by the later
time of both sides. There it holds the watermark back, too, so that no row is late by the earlier one.

Source: Flink's `KeyedCoProcessOperatorWithWatermarkDelay` for the watermarks behind such joins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.engine.changelog import WITH_BEFORE_IMAGES
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.operators.timestamp_assigners import event_times


@dataclass(frozen=True, slots=True)
class ColumnTimesSpec(OperatorSpec):
    """Creates the operator.

    Args:
        place: of the column, a timestamp.
        delay_ms: by which watermarks are held back, in milliseconds.
    """

    place: int
    delay_ms: int

    def create(self) -> Operator:
        return ColumnTimes(self.place, self.delay_ms)

    def describe(self) -> str:
        return "times of a column"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


class ColumnTimes(Operator):
    """Keeps nothing; a row without a time is in no window, and is left out."""

    def __init__(self, place: int, delay_ms: int) -> None:
        self._place = place
        self._delay_ms = delay_ms

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        times = batch.data.column(self._place)
        if times.null_count:
            batch = batch.filter(times.is_valid())
            times = times.drop_null()
        if batch.num_rows:
            out.collect(Batch(batch.data, event_times(times), batch.kinds))

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        if watermark.timestamp >= MAX_TIMESTAMP:
            return watermark
        return replace(watermark, timestamp=max(watermark.timestamp - self._delay_ms, MIN_TIMESTAMP))
