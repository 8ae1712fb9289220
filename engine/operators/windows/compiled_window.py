"""The general window operator with a compiled fold: the rows of a batch are added window by window, not one by one.

`WindowedStream.reduce` and `.aggregate` make its spec. State, timers and firing are those of `window.py`, so that a job
may go from one to the other by a savepoint; batches that compiled code cannot take are added row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.compiled.folding import FoldTranslation, first_accumulator, translate_add, translate_reduce
from penstock.engine.compiled.folding_program import FoldProgram
from penstock.engine.compiled.functions import CompiledFunction, may_fall_back, unless_refused
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.functions.function_operator import key_values
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.operators.windows.window import WindowOperator, WindowOperatorSpec
from penstock.engine.operators.windows.window_contents import FoldContents
from penstock.engine.operators.windows.window_folds import AggregateWith, Reduce, row_struct
from penstock.engine.row_numbers import distinct_of
from penstock.engine.rows import batch_rows
from penstock.engine.windows.assigners import AlignedWindows
from penstock.engine.windows.triggers import EventTimeTrigger
from penstock.engine.windows.windows import TimeWindow

FEW_ROWS: Final = 768
"""Batches of fewer rows cost less one by one (`python -m perf.compiled`)."""


@dataclass(frozen=True, slots=True)
class CompiledWindowSpec(OperatorSpec):
    """Creates the operator that folds the rows of windows by a compiled function.

    Args:
        plan: of the same without compiling.
        fallback: whether the function may run as plain Python where it cannot be compiled.

    Example:
        `CompiledWindowSpec(plan, False)`
    """

    plan: WindowOperatorSpec
    fallback: bool

    def create(self) -> Operator:
        return CompiledWindowOperator(self.plan, self.fallback)

    def describe(self) -> str:
        return self.plan.describe()

    @property
    def traits(self) -> OperatorTraits:
        return self.plan.traits


def window_spec(function: object, plan: WindowOperatorSpec) -> OperatorSpec:
    """The spec of a compiled function of `reduce` or `aggregate`, checked where the columns are known.

    Args:
        function: as it was given.
        plan: of the same without compiling.

    Raises:
        GraphError: the function, or how its windows behave, is not compiled; not with `fallback`.
    """
    fallback = function.fallback if isinstance(function, CompiledFunction) else may_fall_back(function)

    def checked() -> OperatorSpec:
        _check_windows(plan)
        if plan.schema is not None:
            _translated(plan, plan.schema)
        return CompiledWindowSpec(plan, fallback)

    return unless_refused(checked, fallback) or plan


def _check_windows(plan: WindowOperatorSpec) -> None:
    windows, is_plain = plan.windows, plan.evictor is None and plan.trigger in (None, EventTimeTrigger())
    is_aligned = isinstance(windows, AlignedWindows) and windows.is_event_time and not windows.has_gaps
    if not (is_aligned and is_plain and plan.keys):
        raise GraphError(
            f"compiled: functions of {plan.windows.describe()} windows are compiled by key, for tumbling and sliding "
            "windows of event time without a trigger or an evictor alone; drop @compiled"
        )


def _translated(plan: WindowOperatorSpec, schema: pa.Schema) -> FoldTranslation:
    kind = _accumulator(plan, schema)
    if isinstance(plan.fold, Reduce):
        return translate_reduce(plan.fold.function, schema, pa.schema(list(kind)))
    assert isinstance(plan.fold, AggregateWith)
    return translate_add(plan.fold.function, schema, kind)


def _accumulator(plan: WindowOperatorSpec, schema: pa.Schema) -> pa.DataType:
    """The type of accumulators."""
    match plan.fold:
        case Reduce(keeps_columns=True) if plan.schema is not None and (kind := row_struct(schema)) is not None:
            return kind
        case AggregateWith(accumulator=pa.DataType() as kind):
            return kind
    raise GraphError(
        "compiled: accumulators of windows are rows of the stream (reduce without process= and returns=, its columns "
        "declared) or have a type (accumulator='float64', or columns of a dict); drop @compiled"
    )


class CompiledWindowOperator(WindowOperator):
    """Adds the rows of a batch to each window at once; `WindowOperator` is its way row by row.

    Args:
        plan: of the windows.
        fallback: whether the function may run as plain Python.
    """

    def __init__(self, plan: WindowOperatorSpec, fallback: bool) -> None:
        super().__init__(plan)
        self._fallback = fallback
        self._given_schema: pa.Schema | None = None
        self._program: FoldProgram | None = None

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        schema = batch.data.schema
        if self._given_schema != schema:
            self._given_schema = schema
            translation = unless_refused(lambda: _translated(self._plan, schema), self._fallback)
            self._program = None if translation is None else FoldProgram(translation, schema)
        program = self._program
        if program is None or len(batch.data) < FEW_ROWS or not self._folded(program, batch):
            super().process_batch(batch, input_index, out)

    def _folded(self, program: FoldProgram, batch: Batch) -> bool:
        """Add all rows; False, and nothing has changed, where they must be added one by one."""
        windows = self._plan.windows
        assert isinstance(windows, AlignedWindows)
        if batch.timestamps is None or batch.timestamps.null_count:
            return False
        rows, starts = _assigned(windows, batch.timestamps.to_numpy())
        # A window that has fired fires again for each row.
        if not len(rows) or starts.min() + windows.size_ms - 1 <= self._keyed.watermark:
            return False
        self._keyed.bind(batch.data.schema)
        data = batch.data if len(rows) == len(batch.data) else batch.data.take(pa.array(rows))
        names = self._plan.keys
        ids, distinct = distinct_of([*(plain(data.column(name)) for name in names), pa.array(starts)])
        keys = pa.RecordBatch.from_arrays(distinct[:-1], names=list(names))
        places = [
            (key, TimeWindow(start, start + windows.size_ms))
            for key, start in zip(
                key_values(batch_rows(keys, self._context.where), names), distinct[-1].to_pylist(), strict=True
            )
        ]
        folded = program.run(data, ids, self._held(places, batch.data.schema))
        if folded is None:
            return False
        made = pa.RecordBatch.from_arrays([folded.accumulators], names=["made"])
        self._hold(places, [row["made"] for row in batch_rows(made, self._context.where)])
        return True

    def _held(self, places: list[tuple[Any, TimeWindow]], schema: pa.Schema) -> pa.Array:
        """The accumulators of windows so far."""
        held = []
        for key, window in places:
            self._backend.set_current_key(key, window)
            held.append(self._contents.get())
        kind = _accumulator(self._plan, schema)
        found = pa.array(held, kind)
        if found.null_count and isinstance(self._plan.fold, AggregateWith):
            first = first_accumulator(self._plan.fold.function, kind)
            is_there = found.is_valid().to_numpy(zero_copy_only=False)
            found = pa.concat_arrays([found, first]).take(
                pa.array(np.where(is_there, np.arange(len(found)), len(found)))
            )
        return found

    def _hold(self, places: list[tuple[Any, TimeWindow]], accumulators: list[Any]) -> None:
        """Keep the accumulators of windows, and have these fire and end in time."""
        contents, timers = self._contents, self._timers
        assert isinstance(contents, FoldContents), "there is no evictor"
        for (key, window), accumulator in zip(places, accumulators, strict=True):
            self._backend.set_current_key(key, window)
            contents.replace(accumulator)
            timers.key, timers.window = key, window
            self._act_on_row({}, None, window, window, self._cleanup_time(window))


def _assigned(
    windows: AlignedWindows, times: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The windows of rows, row by row and for each the latest first: the rows and the starts of the windows."""
    last = times - (times - windows.offset_ms) % windows.slide_ms
    steps = np.arange(-(-windows.size_ms // windows.slide_ms)) * windows.slide_ms
    starts = last[:, None] - steps
    is_in = starts > (times - windows.size_ms)[:, None]
    return np.nonzero(is_in)[0], starts[is_in]
