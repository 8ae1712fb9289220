"""The operator that gives rows the time of one of their columns as their event time.

Lowering puts it in front of what goes by a column whose times are not those of the rows: those of results that have no
event time of their own, such as the last row of each key, and of joins within an interval, whose rows go by the later
time of both sides. There it holds the watermark back, too, so that no row is late by the earlier one.

Source: Flink's `KeyedCoProcessOperatorWithWatermarkDelay` for the watermarks behind such joins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

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
        drops_null: whether rows without that time are left out; else they keep the event time that they have.
    """

    place: int
    delay_ms: int
    drops_null: bool

    def create(self) -> Operator:
        return ColumnTimes(self)

    def describe(self) -> str:
        return "times of a column"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


class ColumnTimes(Operator):
    """Keeps nothing."""

    def __init__(self, spec: ColumnTimesSpec) -> None:
        self._place = spec.place
        self._delay_ms = spec.delay_ms
        self._drops_null = spec.drops_null

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        shown = batch.data.column(self._place)
        if shown.null_count and self._drops_null:
            batch, shown = batch.filter(shown.is_valid()), shown.drop_null()
        if not batch.num_rows:
            return
        times = event_times(shown.fill_null(pa.scalar(0, shown.type)))
        if shown.null_count:
            assert batch.timestamps is not None, "rows that are only inserted have event time"
            times = pc.if_else(shown.is_valid(), times, batch.timestamps)
        out.collect(Batch(batch.data, times, batch.kinds))

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        if watermark.timestamp >= MAX_TIMESTAMP:
            return watermark
        return replace(watermark, timestamp=max(watermark.timestamp - self._delay_ms, MIN_TIMESTAMP))
