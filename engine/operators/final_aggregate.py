"""Aggregates of bounded input: one row a key, when all rows have come.

The batch view of a stream: `DataStream.group_by` makes it. Event time ends here and begins anew: the operator holds
watermarks back until the last one, since rows of any time may be among its results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.partials import partial_layout
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.operators.at_end import EmitsAtEnd
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.keyed_accumulators import HeldAccumulators, KeyedAccumulators
from penstock.engine.operators.relational import KeyTotals
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import HeldState, OperatorSnapshot
from penstock.engine.texts import aggregates_text


@dataclass(frozen=True, slots=True)
class FinalAggregateSpec(OperatorSpec):
    """Creates the operator that emits the results of `aggregation` at the end of its input.

    Args:
        aggregation: keys and aggregates.
        timed: whether rows have event timestamps; results then carry the largest of their key.
    """

    aggregation: GroupedAggregation
    timed: bool

    def create(self) -> Operator:
        return FinalAggregate(self.aggregation, self.timed)

    def describe(self) -> str:
        return f"group_by({', '.join(self.aggregation.keys)}, {aggregates_text(self.aggregation.aggregates)})"

    def hold(self, snapshot: OperatorSnapshot) -> HeldState | None:
        return HeldAccumulators.of(self.aggregation, self.timed, snapshot)

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(
            keys=(tuple(self.aggregation.keys),),
            emits_at_end=True,
            partial_layout=partial_layout(self.aggregation),
            relational=KeyTotals(self.aggregation),
        )


class FinalAggregate(EmitsAtEnd):
    """Keeps accumulators by key until the last watermark, or the end of the input, has come."""

    def __init__(self, aggregation: GroupedAggregation, timed: bool) -> None:
        self._aggregation = aggregation
        self._timed = timed

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._state = KeyedAccumulators(self._aggregation, context, self._timed)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._state.merge(batch)

    def emit(self, out: Collector) -> None:
        for results, times in self._state.take_all(self._context.config.max_batch_rows):
            out.collect(Batch(table_to_record_batch(results), times))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._state.capture(request)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        return self._state.read_state(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._state.restore(snapshot)
