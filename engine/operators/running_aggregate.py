"""Running aggregates per key: each batch emits one update for every key that it touched.

The update carries the aggregate over all rows of the key so far, and the largest event timestamp among the rows of the
batch. The last update of a key is its final value, however the input was cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.partials import partial_layout
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.keyed_accumulators import HeldAccumulators, KeyedAccumulators
from penstock.engine.operators.relational import KeyTotals
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, Updates
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import HeldState, OperatorSnapshot
from penstock.engine.texts import aggregates_text


@dataclass(frozen=True, slots=True)
class RunningAggregateSpec(OperatorSpec):
    """Creates the operator that keeps `aggregation` up to date."""

    aggregation: GroupedAggregation

    def create(self) -> RunningAggregate:
        return RunningAggregate(self.aggregation)

    def describe(self) -> str:
        return f"aggregate({aggregates_text(self.aggregation.aggregates)})"

    def hold(self, snapshot: OperatorSnapshot) -> HeldState | None:
        return HeldAccumulators.of(self.aggregation, False, snapshot)

    @property
    def traits(self) -> OperatorTraits:
        keys = tuple(self.aggregation.keys)
        return OperatorTraits(
            keys=(keys,),
            updates=Updates(keys, True, KeyTotals(self.aggregation)),
            partial_layout=partial_layout(self.aggregation),
        )


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

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._state.capture(request)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        return self._state.read_state(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._state.restore(snapshot)
