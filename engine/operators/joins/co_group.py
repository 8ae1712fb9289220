"""Calls a function with all rows that two keyed streams have of one key in one window.

When the watermark passes a window's end, the function gets the rows of each key that has any, on either side. Its
results carry the timestamp `window_end - 1`. Late rows are counted and dropped.

Source: Flink's documentation, "CoGroup".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.elements import Batch, Watermark
from penstock.engine.errors import GraphError
from penstock.engine.functions import Row
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.functions.row_results import checked_rows
from penstock.engine.operators.join_columns import LEFT, RIGHT, Int64s, JoinColumns, JoinRows
from penstock.engine.operators.joins.join_windows import GroupedSide, JoinWindows, WindowGroups, order_within, pairing
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.rows import RowConverter, batch_rows
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.texts import function_name
from penstock.engine.windows.windows import TimeWindow

CoGroupFunction: TypeAlias = Callable[[Any, TimeWindow, list[Row], list[Row]], "Iterable[Mapping[str, Any]] | None"]
"""Called with a key (a value, or a tuple of several), a window, and the rows of each side; gives rows."""

_GROUPS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class CoGroupSpec(OperatorSpec):
    """Creates the operator that calls `function` for each key and window.

    Args:
        windows: tumbling, sliding or session windows.
        columns: the inputs.
        function: called with key, window, left rows and right rows.
        schema: the declared columns of its results, or None to infer them.

    Raises:
        GraphError: `function` cannot be called.
    """

    windows: JoinWindows
    columns: JoinColumns
    function: CoGroupFunction
    schema: SchemaOrUnknown = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise GraphError(
                f"co_group: needs a function(key, window, left_rows, right_rows) that returns rows, not "
                f"{self.function!r:.200}"
            )

    def create(self) -> CoGroup:
        return CoGroup(self)

    def describe(self) -> str:
        return f"co_group({self.windows.describe()}, {self.columns.describe()}, {function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=self.columns.keys, order=order_within(self.windows))


class CoGroup(Operator):
    """Keeps the rows of both inputs until the watermark has passed their windows."""

    def __init__(self, join: CoGroupSpec) -> None:
        self._join = join

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._rows = JoinRows(self._join.columns, context.where, context.config.max_parallelism)
        self._pairing = pairing(self._join.windows, self._rows)
        self._converter = RowConverter(self._join.schema, context.where)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the graph refuses joins without timestamps"
        rows = self._rows.take_in(input_index, batch.data)
        self._context.metrics.late_rows += self._pairing.add(input_index, rows, batch.timestamps.to_numpy())

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        for complete in self._pairing.fire(watermark.timestamp):
            groups = np.unique(np.concatenate([side.groups for side in complete.sides if side is not None]))
            for first in range(0, len(groups), _GROUPS_AT_ONCE):
                self._call_with(complete, groups[first : first + _GROUPS_AT_ONCE], out)
        return watermark

    def _call_with(self, complete: WindowGroups, groups: Int64s, out: Collector) -> None:
        starts, ends = complete.bounds(groups)
        windows = map(TimeWindow, starts.tolist(), ends.tolist())
        results: list[Mapping[str, Any]] = []
        counts = []
        for window, left, right in zip(
            windows, self._by_group(LEFT, complete, groups), self._by_group(RIGHT, complete, groups), strict=True
        ):
            before = len(results)
            results.extend(self._call(window, left, right))
            counts.append(len(results) - before)
        if results:
            out.collect(Batch(self._converter.convert(results), pa.array(np.repeat(ends - 1, counts))))

    def _call(self, window: TimeWindow, left: list[Row], right: list[Row]) -> list[Any]:
        key = self._key(LEFT, left[0]) if left else self._key(RIGHT, right[0])
        try:
            made = self._join.function(key, window, left, right)
            return [] if made is None else list(checked_rows(made, "the function of co_group", self._context.where))
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, (key, window, left, right)) from error

    def _key(self, side: int, row: Row) -> Any:
        values = tuple(row[name] for name in self._rows.key_names(side))
        return values[0] if len(values) == 1 else values

    def _by_group(self, side: int, complete: WindowGroups, groups: Int64s) -> Iterator[list[Row]]:
        """The rows of one side for each of `groups`."""
        grouped: GroupedSide | None = complete.sides[side]
        if grouped is None:
            return iter([[] for _ in groups])
        begins, ends = (np.searchsorted(grouped.groups, groups, end) for end in ("left", "right"))
        taken = grouped.rows.take(pa.array(grouped.order[begins[0] : ends[-1]]))
        rows = batch_rows(taken, self._context.where)
        first = int(begins[0])
        return (rows[begin - first : end - first] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `Operator.capture`: all rows that are kept, by reference."""
        return self._pairing.capture()

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._pairing.restore(snapshot)
