"""Groups, joins and first rows within windows: computed once, when the watermark has passed, and then forgotten.

SQL lowers onto it what goes by `window_start` and `window_end` of rows that carry them. Rows wait with their window, so
that the state is that of the windows which are open, and each result is inserted once.

Source: Flink's documentation, "Window Join", "Window Top-N", "Window Deduplication" and "Window Aggregation".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.changelog import ChangelogMode
from penstock.engine.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Batch,
    Watermark,
    concat_record_batches,
)
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.changes import changelog_of, summed, weights
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.group_aggregate import GroupAggregateSpec
from penstock.engine.operators.changelog.inputs import conformed, plain_columns
from penstock.engine.operators.changelog.join import ChangelogJoinSpec
from penstock.engine.operators.changelog.row_states import waiting_rows, waiting_table
from penstock.engine.operators.changelog.top_n import TopNSpec
from penstock.engine.operators.gathered import Gathered
from penstock.engine.operators.joins.join_buffers import TimeSegments
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution

WindowedSpec: TypeAlias = GroupAggregateSpec | ChangelogJoinSpec | TopNSpec
Int64s = npt.NDArray[np.int64]

_KIND: Final = "__kind"
_TIME: Final = "__time"


@dataclass(frozen=True, slots=True)
class CompleteWindowsSpec(OperatorSpec):
    """Creates the operator.

    Args:
        each: what is computed of the rows of one window. The bounds of the window are among its keys.
        inputs: the columns of each input; rows carry the last millisecond of their window as timestamp.
        schema: of the result, `each.schema`.

    Example:
        >>> CompleteWindowsSpec(ranked, (rows,), ranked.schema).describe()  # doctest: +SKIP
        'in_windows(top_n(...))'
    """

    each: WindowedSpec
    inputs: tuple[pa.Schema, ...]
    schema: pa.Schema

    def create(self) -> Operator:
        return CompleteWindows(self)

    def describe(self) -> str:
        return f"in_windows({self.each.describe()})"

    @property
    def traits(self) -> OperatorTraits:
        of_each = self.each.traits
        return OperatorTraits(
            keys=of_each.keys,
            order=RowOrder.WITHIN_INPUTS,
            accepts=of_each.accepts,
            emits=ChangelogMode.APPEND,
        )


class CompleteWindows(Operator):
    """Keeps the rows of windows that the watermark has not passed; those that come behind it are late, and dropped."""

    def __init__(self, spec: CompleteWindowsSpec) -> None:
        self._spec = spec
        self._inputs = [plain_columns(schema) for schema in spec.inputs]
        self._keys = [
            pa.schema([schema.field(name) for name in names])
            for schema, names in zip(self._inputs, spec.traits.keys, strict=True)
        ]
        self._times = [free_name(_TIME, schema.names) for schema in self._inputs]
        self._kinds = [free_name(_KIND, schema.names) for schema in self._inputs]
        self._pending = [TimeSegments() for _ in self._inputs]
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context
        # A window's own state lives no longer than its computation.
        self._within = replace(context, config=replace(context.config, state_backend="heap"), restored=None)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "rows of windows carry the end of their window"
        rows, times = conformed(batch.data, self._inputs[input_index]), batch.timestamps.to_numpy()
        kinds = pa.array(np.zeros(len(times), np.int8)) if batch.kinds is None else batch.kinds
        rows = rows.append_column(self._kinds[input_index], kinds)
        late = times <= self._watermark
        if late.any():
            self._context.metrics.late_rows += int(late.sum())
            rows, times = rows.filter(pa.array(~late)), times[~late]
        if len(times):
            self._pending[input_index].append(rows, times)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        behind = min(watermark.timestamp + 1, MAX_TIMESTAMP)
        due = [pending.between(MIN_TIMESTAMP, behind) for pending in self._pending]
        ends = {int(end) for parts in due for part in parts for end in np.unique(part.timestamps)}
        for time in sorted(ends):
            inputs = [[part.rows for one in parts for part in [one.between(time, time + 1)]] for parts in due]
            self._complete(inputs, time, out)
        for pending in self._pending:
            pending.drop_before(behind)
        self._watermark = watermark.timestamp
        return watermark

    def _complete(self, inputs: Sequence[Sequence[pa.RecordBatch]], time: int, out: Collector) -> None:
        """Give the results of the windows that end behind `time`."""
        operator, found = self._spec.each.create(), Gathered()
        operator.open(self._within)
        # The right side first: rows of an outer side then seldom come alone before they meet others.
        for index in reversed(range(len(inputs))):
            given = [part for part in inputs[index] if part.num_rows]
            if given:
                together = concat_record_batches(given)
                kinds = together.column(self._kinds[index])
                data = together.select(self._inputs[index].names)
                operator.process_batch(Batch(data, kinds=kinds), index, found)
        operator.close()
        if not found.batches:
            return
        rows = concat_record_batches([batch.data for batch in found.batches])
        signs = np.concatenate([weights(batch) for batch in found.batches])
        changes = changelog_of(summed(rows, signs), None, ChangelogMode.RETRACT)
        if changes is not None:
            out.collect(Batch(changes.data, pa.array(np.full(changes.num_rows, time))))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        most = self._context.config.max_parallelism
        tables = {}
        for index, (pending, keys) in enumerate(zip(self._pending, self._keys, strict=True)):
            made = _table(pending, keys, self._times[index], most)
            if made is not None:
                tables[f"rows {index}"] = made
        return OperatorCapture(tables, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        for index, (pending, time) in enumerate(zip(self._pending, self._times, strict=True)):
            kept = snapshot.tables.get(f"rows {index}")
            if kept is not None and kept.data.num_rows:
                pending.append(*waiting_rows(kept.data, time))


def _table(pending: TimeSegments, keys: pa.Schema, time: str, max_parallelism: int) -> TableCapture | None:
    rows = pending.captured()
    if rows is None:
        return None

    def table() -> pa.Table:
        parts, times = rows()
        return waiting_table(parts, time, times, keys, max_parallelism)

    return TableCapture(Redistribution.KEYED, table)
