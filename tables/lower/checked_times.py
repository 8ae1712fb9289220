"""The operator that refuses rows whose event time is not that of the column which is said to hold it.

Lowering puts it behind a stream with a `rowtime` that the stream was not given by this very column right before: else
what goes by the column would go by other times than it shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.changelog import WITH_BEFORE_IMAGES
from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.operators.timestamp_assigners import event_times


@dataclass(frozen=True, slots=True)
class CheckedTimesSpec(OperatorSpec):
    """Creates the operator.

    Args:
        column: a timestamp.
    """

    column: str

    def create(self) -> Operator:
        return CheckedTimes(self.column)

    def describe(self) -> str:
        return f"rowtime {self.column}"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


class CheckedTimes(Operator):
    """Keeps nothing."""

    def __init__(self, column: str) -> None:
        self._column = column

    def open(self, context: OperatorContext) -> None:
        self._where = context.where

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "a rowtime is refused where there is no event time"
        shown = batch.data.column(self._column)
        times = event_times(shown.fill_null(pa.scalar(0, shown.type)))
        differs = pc.or_(pc.is_null(shown), pc.not_equal(times, batch.timestamps))
        row = pc.index(differs, True).as_py()
        if row >= 0:
            at = np.datetime64(batch.timestamps[row].as_py(), "ms")
            raise RecordError(
                f"{self._where}: the rowtime {self._column!r} is {shown[row].as_py()} in a row whose event time is "
                f"{at}; call assign_timestamps({self._column!r}, ...) behind whatever changed either, or name the "
                "column that holds the event time"
            )
        out.collect(batch)
