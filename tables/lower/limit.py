"""The operator of LIMIT and OFFSET: passes on some rows, counted as they come, and drops the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.changelog import APPEND_ONLY
from penstock.engine.elements import Batch
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution

_COUNT: Final = "count"


@dataclass(frozen=True, slots=True)
class LimitSpec(OperatorSpec):
    """Creates the operator; it has one subtask.

    Args:
        offset: how many rows are dropped first.
        limit: how many are then passed on; None: all.
    """

    offset: int
    limit: int | None

    def create(self) -> Operator:
        return Limit(self)

    def describe(self) -> str:
        return f"limit({'all' if self.limit is None else self.limit}, offset {self.offset})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=((),), accepts=(APPEND_ONLY,))


class Limit(Operator):
    """Knows how many rows have come."""

    def __init__(self, spec: LimitSpec) -> None:
        self._first = spec.offset
        self._end = None if spec.limit is None else spec.offset + spec.limit
        self._count = 0

    def open(self, context: OperatorContext) -> None:
        """Nothing to take from the context."""

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        begin = max(self._first - self._count, 0)
        end = batch.num_rows if self._end is None else min(self._end - self._count, batch.num_rows)
        self._count += batch.num_rows
        if begin < end:
            out.collect(batch.slice(begin, end - begin))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        rows = pa.table({_COUNT: pa.array([self._count], pa.int64())})
        return OperatorCapture({_COUNT: TableCapture(Redistribution.WHOLE, lambda: rows)})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        if _COUNT in snapshot.tables:
            self._count = snapshot.tables[_COUNT].data.column(_COUNT)[0].as_py()
