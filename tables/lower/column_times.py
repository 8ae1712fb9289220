"""The operator that gives rows the time of one of their columns as their event time.

Lowering puts it between operators whose results have no event time of their own, such as the last row of each key,
and windows over a column that is a time attribute.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.changelog import WITH_BEFORE_IMAGES
from penstock.engine.elements import Batch
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder


@dataclass(frozen=True, slots=True)
class ColumnTimesSpec(OperatorSpec):
    """Creates the operator.

    Args:
        place: of the column, a timestamp in milliseconds.
    """

    place: int

    def create(self) -> Operator:
        return ColumnTimes(self.place)

    def describe(self) -> str:
        return "times of a column"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


class ColumnTimes(Operator):
    """Keeps nothing; a row without a time is in no window, and is left out."""

    def __init__(self, place: int) -> None:
        self._place = place

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        times = batch.data.column(self._place)
        if times.null_count:
            batch = batch.filter(times.is_valid())
            times = times.drop_null()
        if batch.num_rows:
            out.collect(Batch(batch.data, times.cast(pa.int64()), batch.kinds))
