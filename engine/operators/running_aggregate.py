"""Running aggregates per key: each batch emits one update for every key that it touched.

The update carries the aggregate over all rows of the key so far, and the largest event timestamp among the rows of the
batch. The last update of a key is its final value, however the input was cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.accumulators import one_array
from penstock.engine.aggregation import GroupedAggregation
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.state.slots import KeySlots, SlotColumn

_TIME: Final = "__time"


@dataclass(frozen=True, slots=True)
class RunningAggregateFactory:
    """Creates the operator that keeps `aggregation` up to date."""

    aggregation: GroupedAggregation

    def __call__(self) -> RunningAggregate:
        return RunningAggregate(self.aggregation)


class RunningAggregate(Operator):
    """Keeps accumulators by key for as long as the job runs."""

    def __init__(self, aggregation: GroupedAggregation) -> None:
        self._aggregation = aggregation
        self._keys = list(aggregation.keys)
        self._slots = KeySlots()
        self._columns: dict[str, SlotColumn] = {}

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        partial = self._aggregation.lift(batch.data, batch.timestamps)
        if batch.timestamps is None:
            partial = self._aggregation.combine(partial)
            timestamps = None
        else:
            partial = self._aggregation.combine(partial.append_column(_TIME, batch.timestamps), also=((_TIME, "max"),))
            timestamps = partial.column(_TIME).combine_chunks().cast(pa.int64())
            partial = partial.drop_columns(_TIME)
        updated = self._merge(partial)
        out.collect(Batch(table_to_record_batch(self._aggregation.lower(updated)), timestamps))

    def _merge(self, partial: pa.Table) -> pa.Table:
        """Merge one partial row a key into the state; the merged rows, in the order of `partial`."""
        slots = self._slots.lookup([partial.column(key) for key in self._keys])
        names = [name for name in partial.column_names if name not in self._keys]
        known = partial.select(self._keys)
        for name in names:
            known = known.append_column(name, self._columns.setdefault(name, SlotColumn()).get(slots))
        merged = self._aggregation.combine(pa.concat_tables([known, partial], promote_options="default"))
        for name in names:
            self._columns[name].set(slots, one_array(merged.column(name)))
        return merged
