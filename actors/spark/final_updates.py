"""Running aggregates and reductions in batch mode: one row a key, the last update, when the input has ended.

A job that ends with a savepoint emits them too, before the barrier; their state is that of the operators inside.

Whoever reads the updates of a stream without end wants each; of input that ends, only the last one is the result. The
source of the rule: Flink's documentation, "Execution Mode (Batch/Streaming)".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Watermark, concat_batches
from penstock.engine.graph.physical import OperatorPlan, PhysicalGraph
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.gathered import Gathered
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, Updates
from penstock.engine.state.capture import CaptureRequest, OperatorCapture

_ROW: Final = "row"
_LEAST_ROWS: Final = 65_536


def with_final_updates(graph: PhysicalGraph) -> PhysicalGraph:
    """The job with operators that emit only the last update of each key."""
    tasks = (replace(task, operators=tuple(map(_final, task.operators))) for task in graph.tasks)
    return replace(graph, tasks=tuple(tasks))


def _final(plan: OperatorPlan) -> OperatorPlan:
    updates = plan.spec.traits.updates
    return plan if updates is None else replace(plan, spec=FinalUpdatesSpec(plan.spec, updates))


@dataclass(frozen=True, slots=True)
class FinalUpdatesSpec(OperatorSpec):
    """Creates the operator that emits the last updates of another.

    Args:
        updating: the other operator.
        updates: what it says of its updates.
    """

    updating: OperatorSpec
    updates: Updates

    def create(self) -> Operator:
        return FinalUpdates(self.updating.create(), self.updates)

    def describe(self) -> str:
        return self.updating.describe()

    @property
    def traits(self) -> OperatorTraits:
        return replace(self.updating.traits, updates=None, emits_at_end=True, relational=self.updates.final)


class LastRows:
    """The last row of each key among those that came.

    Args:
        least_rows: from how many rows on it is worth looking for those that a later one has replaced.
    """

    def __init__(self, least_rows: int = _LEAST_ROWS) -> None:
        self._least_rows = least_rows
        self._enough = least_rows
        self._keys: list[pa.Table] = []
        self._batches: list[Batch] = []
        self._rows = 0

    def add(self, keys: Sequence[pa.Array], batch: Batch) -> None:
        """Take rows with their keys."""
        names = [f"key{number}" for number in range(len(keys))]
        self._keys.append(pa.Table.from_arrays([plain(key) for key in keys], names=names))
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= self._enough:
            self._compact()
            self._enough = max(self._least_rows, 2 * self._rows)

    def take(self) -> Batch | None:
        """The last rows, in the order in which they came; None if there are none."""
        if not self._batches:
            return None
        self._compact()
        rows = self._batches[0]
        self._keys, self._batches, self._rows = [], [], 0
        return rows

    def _compact(self) -> None:
        keys = pa.concat_tables(self._keys, promote_options="default")
        numbered = keys.append_column(_ROW, pa.array(np.arange(keys.num_rows)))
        last = numbered.group_by(keys.column_names, use_threads=False).aggregate([(_ROW, "max")])
        kept = pa.array(np.sort(last.column(f"{_ROW}_max").to_numpy()))
        self._keys = [keys.take(kept)]
        self._batches = [concat_batches(self._batches).take(kept)]
        self._rows = len(kept)


class FinalUpdates(Operator):
    """An operator of which only the last updates are passed on.

    An update may have other key columns than the row that caused it: then the rows say whose updates they are.
    """

    def __init__(self, updating: Operator, updates: Updates) -> None:
        self._updating = updating
        self._updates = updates
        self._last = LastRows()

    def open(self, context: OperatorContext) -> None:
        self._updating.open(context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        gathered = Gathered()
        self._updating.process_batch(batch, input_index, gathered)
        if not gathered.batches:
            return
        updates = concat_batches(gathered.batches)
        keyed = updates if self._updates.in_results else batch
        assert updates.num_rows == keyed.num_rows, "where updates lack the keys, there is one a row, in order"
        self._last.add([keyed.data.column(key) for key in self._updates.keys], updates)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark:
        self._updating.on_watermark(watermark, out)
        if watermark.timestamp == MAX_TIMESTAMP:
            self._emit(out)
        return watermark

    def before_suspend(self, out: Collector) -> None:
        self._emit(out)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        return self._updating.capture(request)

    def close(self) -> None:
        self._updating.close()

    def _emit(self, out: Collector) -> None:
        if (rows := self._last.take()) is not None:
            out.collect(rows)
