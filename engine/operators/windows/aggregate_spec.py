"""What the operators that aggregate over windows on whole batches are made from: sessions, and all other windows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells.key_slots import CountedKeys
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.operators.windows.aggregate_state import restored_parts
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.texts import aggregates_text
from penstock.engine.windows.base import WindowAssigner

Windows = TypeVar("Windows", bound=WindowAssigner)


@dataclass(frozen=True, slots=True)
class AggregateSpec(OperatorSpec, Generic[Windows]):
    """Creates an operator that aggregates over windows of one family.

    Args:
        windows, aggregation: what is computed; without keys, all rows are one group.
        allowed_lateness_ms: how long a window that was emitted takes rows in.
        late_tag: the side output for rows that come later still; None drops them.
    """

    windows: Windows
    aggregation: GroupedAggregation
    allowed_lateness_ms: int = 0
    late_tag: str | None = None

    def warm(self, snapshot: OperatorSnapshot) -> None:
        for part in itertools.islice(restored_parts(snapshot, self.aggregation), 1):
            CountedKeys(self.aggregation.keys).lookup(part)

    def describe(self) -> str:
        return f"window({self.windows.describe()}, {aggregates_text(self.aggregation.aggregates)})"
