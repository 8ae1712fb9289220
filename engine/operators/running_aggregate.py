"""Running aggregates per key: each batch emits one update for every key that it touched.

The update carries the aggregate over all rows of the key so far, and the largest event timestamp among the rows of the
batch. The last update of a key is its final value, however the input was cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.keyed_accumulators import KeyedAccumulators
from penstock.engine.state.capture import CaptureRequest, CaptureScope, OperatorCapture, captured_snapshot
from penstock.engine.state.snapshot import OperatorSnapshot


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

    def open(self, context: OperatorContext) -> None:
        self._state = KeyedAccumulators(self._aggregation, context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows = self._state.merge(batch)
        updates = table_to_record_batch(self._state.results(rows.touched))
        timestamps = None if batch.timestamps is None else pa.array(rows.largest(batch.timestamps.to_numpy()))
        out.collect(Batch(updates, timestamps))

    def snapshot(self) -> OperatorSnapshot:
        return captured_snapshot(self.capture(CaptureRequest(0, CaptureScope.COMPLETE)))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._state.capture(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._state.restore(snapshot)
