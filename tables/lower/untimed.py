"""Takes event time off rows, for a UNION of which an input has none: its result has no time attribute then."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.changelog import ANY_MODE
from penstock.engine.elements import Batch
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder


@dataclass(frozen=True, slots=True)
class UntimedSpec(OperatorSpec):
    """Creates the operator."""

    def create(self) -> Operator:
        return Untimed()

    def describe(self) -> str:
        return "without event time"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=None)


class Untimed(Operator):
    """Gives each batch without its timestamps; watermarks pass."""

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        out.collect(Batch(batch.data, None, batch.kinds))
