"""ORDER BY PROCTIME and other columns: rows that come at one time, which are those of a batch, are sorted by these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import APPEND_ONLY
from penstock.engine.elements import Batch
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.changelog.ranks import Order, sorted_places
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits


@dataclass(frozen=True, slots=True)
class ClockSortSpec(OperatorSpec):
    """Creates the operator; it has one subtask.

    Args:
        order: by what rows of a batch are ordered; of equal ones the first to come is the first.
    """

    order: tuple[Order, ...]

    def create(self) -> Operator:
        return ClockSort(self.order)

    def describe(self) -> str:
        return f"clock_sort({', '.join(['proctime', *(one.describe() for one in self.order)])})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=((),), accepts=(APPEND_ONLY,))


class ClockSort(Operator):
    """Keeps no row."""

    def __init__(self, order: tuple[Order, ...]) -> None:
        self._order = order

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        codes = [one.codes(batch.data.column(one.column)) for one in self._order]
        places = sorted_places([*codes, np.arange(batch.num_rows)])
        out.collect(batch.take(pa.array(places, pa.int64())))
