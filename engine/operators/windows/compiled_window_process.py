"""The general window operator with a compiled `ProcessWindowFunction`: all windows that fire together at once.

`WindowedStream.process` makes its spec. Rows are kept as `window.py` keeps them; what compiled code cannot take is
given to the plain function, window by window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.compiled.emitting import EmittingTranslation
from penstock.engine.compiled.emitting_program import EmittingProgram, Moment
from penstock.engine.compiled.functions import may_fall_back, unless_refused
from penstock.engine.compiled.kinds import check_declared
from penstock.engine.compiled.program import as_declared
from penstock.engine.compiled.window_translation import translate_process, window_schema
from penstock.engine.elements import Batch, Watermark
from penstock.engine.errors import GraphError
from penstock.engine.functions import OutputTag, ProcessWindowFunction, Row
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.operators.windows.grouped_window import Grouped, GroupedWindowOperator, check_windows
from penstock.engine.operators.windows.window import FiredTimer, WindowOperatorSpec
from penstock.engine.operators.windows.window_contents import RowContents
from penstock.engine.python_values import fits
from penstock.engine.rows import batch_rows
from penstock.engine.state.backend import Key
from penstock.engine.texts import function_name
from penstock.engine.windows.windows import TimeWindow

FEW_ROWS: Final = 2048
"""Batches of fewer rows, and fewer rows of windows that fire, cost less one by one (`python -m perf.compiled`)."""
_MOST_ROWS: Final = 1 << 18
"""So many rows of windows that fire are enough; the windows behind them go on apart."""


@dataclass(frozen=True, slots=True)
class CompiledWindowProcessSpec(OperatorSpec):
    """Creates the operator of a compiled `ProcessWindowFunction`.

    Args:
        plan: of the same without compiling.

    Example:
        `CompiledWindowProcessSpec(plan)`
    """

    plan: WindowOperatorSpec

    def create(self) -> Operator:
        return CompiledWindowProcessOperator(self.plan)

    def describe(self) -> str:
        return self.plan.describe()

    @property
    def traits(self) -> OperatorTraits:
        return self.plan.traits


def process_window_spec(plan: WindowOperatorSpec) -> OperatorSpec:
    """The spec of a compiled function of `process`, checked where the columns are known.

    Args:
        plan: of the same without compiling.

    Raises:
        GraphError: the function, or how its windows behave, is not compiled; not with `fallback`.
    """

    def checked() -> OperatorSpec:
        check_windows(plan)
        assert plan.function is not None, "it is to be compiled"
        if plan.result is None:
            raise GraphError(f"compiled: process({function_name(plan.function)}) needs `returns`: declare its columns")
        kind = plan.function if isinstance(plan.function, type) else type(plan.function)
        if kind.clear is not ProcessWindowFunction.clear:
            raise GraphError(
                f"compiled: {function_name(plan.function)} has a `clear`, which would be called before `process` of "
                "the same window; drop @compiled"
            )
        if plan.schema is not None:
            _translated(plan, plan.schema)
        return CompiledWindowProcessSpec(plan)

    return unless_refused(checked, may_fall_back(plan.function)) or plan


def _translated(plan: WindowOperatorSpec, schema: pa.Schema) -> EmittingTranslation:
    """The translation, if it emits what is declared."""
    assert plan.function is not None, "it is to be compiled"
    assert plan.result is not None, "that was checked"
    translation = translate_process(plan.function, plan.keys, schema)
    name, windows = function_name(plan.function), window_schema(plan.keys, schema)
    if translation.results.places:
        check_declared(name, translation.results.kinds, windows, plan.result)
    for tag, side in translation.sides.items():
        assert tag.schema is not None, "others are refused"
        check_declared(f"{name}, side output {tag.name!r}", side.kinds, windows, tag.schema)
    return translation


@dataclass(frozen=True, slots=True)
class _Fired:
    """A window that has fired, its rows, and the timestamp of its results."""

    key: Key
    window: TimeWindow
    rows: Sequence[Row]
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Windows and the rows of all of them, as `EmittingProgram` takes them."""

    windows: pa.RecordBatch
    elements: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.windows)

    def column(self, name: str, /) -> pa.Array:
        return (self.windows if name in self.windows.schema.names else self.elements).column(name)


def _kept(column: pa.DataType) -> pa.DataType:
    """The type of the values of a column in rows: times of Python have microseconds."""
    return pa.timestamp("us", column.tz) if pa.types.is_timestamp(column) else plain_type(column)


class CompiledWindowProcessOperator(GroupedWindowOperator):
    """Calls the function for all windows that fire at one watermark, or time of the clock, at once."""

    _least_rows = 4

    def __init__(self, plan: WindowOperatorSpec) -> None:
        super().__init__(plan)
        self._fired: list[_Fired] = []
        self._fired_rows = 0
        self._out: Collector | None = None
        self._are_kept = False
        self._given_schema: pa.Schema | None = None
        self._program: EmittingProgram | None = None
        if plan.schema is not None:
            self._see(plan.schema)

    def _see(self, schema: pa.Schema) -> None:
        """From now on rows have these columns."""
        self._given_schema = schema
        types = pa.schema([*window_schema(self._plan.keys, schema), *((f.name, _kept(f.type)) for f in schema)])
        self._program = unless_refused(
            lambda: EmittingProgram(_translated(self._plan, schema), types), may_fall_back(self._plan.function)
        )

    # Rows

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._given_schema is None:
            self._see(batch.data.schema)
        if len(batch.data) < FEW_ROWS or not self._add_batch(batch, out):
            super().process_batch(batch, input_index, out)

    def _contents_of(self, data: pa.RecordBatch, grouped: Grouped) -> list[list[Row]]:
        """The rows of each window."""
        self._are_kept = self._row_contents.are_kept(data.schema)
        order = np.argsort(grouped.ids, kind="stable")
        rows = batch_rows(data.take(pa.array(order)), self._context.where)
        ends = np.cumsum(np.bincount(grouped.ids)).tolist()
        return [rows[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def _put(self, contents: Any) -> None:
        if self._are_kept:
            self._row_contents.add_kept(contents)
        else:
            self._row_contents.put(contents)

    @property
    def _row_contents(self) -> RowContents:
        assert isinstance(self._contents, RowContents), "there is no fold and no evictor"
        return self._contents

    # Windows that fire

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._out = out
        return super().on_watermark(watermark, out)

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        self._out = out
        super().on_processing_time(now_ms, out)

    def _fire(self, place: TimeWindow) -> None:
        if self._out is None or self._program is None:
            # A late row, with whose window no other fires; or a function that may have states, and these go.
            super()._fire(place)
            return
        key, window = self._timers.key, self._timers.window
        self._backend.set_current_key(key, place)
        rows = self._row_contents.rows()
        if rows:
            self._fired.append(_Fired(key, window, rows, self._result_timestamp(window)))
            self._fired_rows += len(rows)
            if self._fired_rows >= _MOST_ROWS:
                self._call(self._out)

    def _flush(self, out: Collector) -> None:
        self._call(out)
        self._out = None
        super()._flush(out)

    def _call(self, out: Collector) -> None:
        """Call the function for the windows that have fired."""
        fired, self._fired = self._fired, []
        rows, self._fired_rows = self._fired_rows, 0
        if rows and (rows < FEW_ROWS or not self._compute(fired, out)):
            self._call_one_by_one(fired)
            super()._flush(out)

    def _call_one_by_one(self, fired: Iterable[_Fired]) -> None:
        timers = self._timers
        for one in fired:
            timers.key, timers.window = one.key, one.window
            try:
                self._emitter.emit(one.key, one.window, [row.copy() for row in one.rows], one.timestamp)
            except USER_FAILURES as error:
                at = FiredTimer(one.window.max_timestamp, one.key, one.window)
                raise self._context.user_code_error(error, at) from error

    def _compute(self, fired: Sequence[_Fired], out: Collector) -> bool:
        """Emit the results of compiled code; False, and nothing was emitted, where the plain function must run."""
        program, made = self._program, self._plan.result
        if program is None or made is None or (given := self._given(program.translation.columns, fired)) is None:
            return False
        processed = program.run(given, None, Moment(self._context.clock.now_ms(), self._keyed.watermark))
        if processed is None:
            return False
        results, _, *sides = processed.outputs
        outputs: list[tuple[OutputTag | None, pa.RecordBatch, pa.Array]] = []
        for tag, schema, output in zip(
            [None, *program.translation.sides],
            [made, *(tag.schema for tag in program.translation.sides)],
            [results, *sides],
            strict=True,
        ):
            assert schema is not None, "others are refused"
            data = as_declared(output.columns, schema) if output.columns else pa.RecordBatch.from_pylist([], schema)
            if data is None:
                return False
            outputs.append((tag, data, pa.array(output.origin)))
        times = pa.array([one.timestamp for one in fired], pa.int64()) if self._plan.timed else None
        for tag, data, origin in outputs:
            of_rows = None if times is None else times.take(origin)
            if tag is not None:
                self._sides.emit(tag, data, of_rows)
            elif len(data):
                out.collect(Batch(data, of_rows))
        return True

    def _given(self, names: Sequence[str], fired: Sequence[_Fired]) -> _Rows | None:
        """The windows, and their rows as columns; None where rows do not have these."""
        schema = self._given_schema
        assert schema is not None, "there is a program"
        kinds = window_schema(self._plan.keys, schema)
        keys = [[one.key] for one in fired] if len(self._plan.keys) == 1 else [one.key for one in fired]
        behind = np.cumsum([len(one.rows) for one in fired])
        bounds = [[one.window.start for one in fired], [one.window.end for one in fired]]
        first = behind - [len(one.rows) for one in fired]
        needed = [name for name in names if name not in kinds.names]
        rows = list(chain.from_iterable(one.rows for one in fired))
        types = [_kept(schema.field(name).type) for name in needed]
        try:
            of_windows = [*zip(*keys, strict=True), *bounds, first, behind]
            windows = [pa.array(values, kind.type) for values, kind in zip(of_windows, kinds, strict=True)]
            values = [[row[name] for row in rows] for name in needed]
            if not all(map(fits, values, types)):
                return None
            columns = list(map(pa.array, values, types))
        except (KeyError, pa.ArrowException, OverflowError):
            return None
        return _Rows(
            pa.RecordBatch.from_arrays(windows, schema=kinds), pa.RecordBatch.from_arrays(columns, names=needed)
        )
