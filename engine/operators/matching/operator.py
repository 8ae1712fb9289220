"""The operator of `KeyedStream.match`: finds a pattern in the rows of each key, in order of time.

The API makes its spec. In event time rows wait for the watermark, and all that is due is looked at together. It follows
Flink's `CepOperator` in what is late, and which time a result carries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.join_columns import conformed, plain_schema
from penstock.engine.operators.matching.column_finder import ColumnFinder
from penstock.engine.operators.matching.keyed_finder import KeyedFinder
from penstock.engine.operators.matching.match_results import MatchResults
from penstock.engine.operators.matching.match_spec import Finder, MatchPlan
from penstock.engine.operators.matching.waiting_rows import WAITING, TimedRows, WaitingRows
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot


@dataclass(frozen=True, slots=True)
class MatchSpec(OperatorSpec):
    """Creates the operator that finds a pattern."""

    plan: MatchPlan

    def create(self) -> MatchOperator:
        return MatchOperator(self.plan)

    def describe(self) -> str:
        return f"match({' '.join(self.plan.pattern.variables)})"

    @property
    def traits(self) -> OperatorTraits:
        plan = self.plan
        order = RowOrder.WITHIN_INPUTS if plan.is_event_time else RowOrder.ACROSS_INPUTS
        waits = not plan.is_event_time and (plan.pattern.has_bounds or plan.limits.ttl_ms is not None)
        return OperatorTraits(keys=(plan.keys,), order=order, waits_for_clock=waits)


class MatchOperator(Operator):
    """Keeps the rows whose time has not come, and gives the others to a finder, which keeps the partial matches."""

    def __init__(self, plan: MatchPlan) -> None:
        self._plan = plan
        self._schema = plan.rows
        self._waiting = WaitingRows(self._schema, plan.keys)
        self._watermark = MIN_TIMESTAMP
        self._finder: Finder | None = None
        self._results: MatchResults | None = None

    # Life

    def open(self, context: OperatorContext) -> None:
        plan = self._plan
        self._context = context
        self._results = MatchResults(plan.function, plan.result, plan.is_event_time, context)
        kind = ColumnFinder if plan.runs_on_columns(context.config.state_backend) else KeyedFinder
        self._finder = kind(plan, context, self._results)

    def close(self) -> None:
        try:
            if self._results is not None:
                self._results.close()
        finally:
            if self._finder is not None:
                self._finder.close()

    @property
    def finder(self) -> Finder:
        """What finds the pattern; there is one from `open` on."""
        assert self._finder is not None, "open comes first"
        return self._finder

    # Rows

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._plan.is_event_time:
            batch = self._punctual(batch)
            if not batch.num_rows:
                return
        columns = [plain(column) for column in batch.data.columns]
        taken = pa.RecordBatch.from_arrays(columns, schema=plain_schema(batch.data.schema))
        rows = conformed(taken, self._schema)
        self.finder.bind(rows.schema)
        if self._plan.is_event_time:
            assert batch.timestamps is not None, "the graph refuses streams without timestamps"
            self._waiting.add(rows, batch.timestamps.to_numpy())
            return
        times = np.full(rows.num_rows, self._context.clock.now_ms())
        self.finder.find(TimedRows(rows, times, np.arange(rows.num_rows)), None, out)

    def _punctual(self, batch: Batch) -> Batch:
        """The rows that are not late; those that are go to their side output, or are counted."""
        assert batch.timestamps is not None, "the graph refuses streams without timestamps"
        late = batch.timestamps.to_numpy() <= self._watermark
        if not late.any():
            return batch
        dropped = batch.filter(pa.array(late))
        if self._plan.late_tag is None:
            self._context.metrics.late_rows += dropped.num_rows
        else:
            self._context.emit_side(self._plan.late_tag.name, dropped)
        return batch.filter(pa.array(~late))

    # Time

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._watermark = watermark.timestamp
        if self._plan.is_event_time:
            self.finder.find(self._waiting.take(watermark.timestamp), watermark.timestamp, out)
        return watermark

    @property
    def next_processing_time(self) -> int | None:
        return self.finder.next_processing_time

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        self.finder.find(None, now_ms, out)

    # State

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        capture = self.finder.capture(request)
        waiting = self._waiting.capture(self._context.config.max_parallelism)
        return replace(capture, tables={**capture.tables, **waiting}, watermark=self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        tables = dict(snapshot.tables)
        waiting = tables.pop(WAITING, None)
        self._watermark = snapshot.watermark
        self.finder.restore(OperatorSnapshot(tables, snapshot.watermark))
        if waiting is not None:
            self.finder.bind(self._schema)
            self._waiting.restore(waiting, self._context.config.max_parallelism, self._context.where)
