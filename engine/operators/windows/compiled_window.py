"""The general window operator with a compiled fold: the rows of a batch are added window by window, not one by one.

`WindowedStream.reduce` and `.aggregate` make its spec. State, timers and firing are those of `window.py`, so that a job
may go from one to the other by a savepoint; rows and batches that compiled code cannot take are added row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.compiled.folding import FoldTranslation, first_accumulator, translate_add, translate_reduce
from penstock.engine.compiled.folding_program import FoldProgram
from penstock.engine.compiled.functions import CompiledFunction, is_compiled, may_fall_back, unless_refused
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.operators.windows.grouped_window import Grouped, GroupedWindowOperator, Place, check_windows
from penstock.engine.operators.windows.window import WindowOperatorSpec
from penstock.engine.operators.windows.window_contents import FoldContents
from penstock.engine.operators.windows.window_folds import AggregateWith, Reduce, row_struct
from penstock.engine.rows import batch_rows
from penstock.engine.texts import function_name

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
        check_windows(plan)
        if plan.function is not None and is_compiled(plan.function):
            raise GraphError(
                f"compiled: process={function_name(plan.function)} is called once a window; drop its @compiled"
            )
        if plan.schema is not None:
            _translated(plan, plan.schema)
        return CompiledWindowSpec(plan, fallback)

    return unless_refused(checked, fallback) or plan


def _translated(plan: WindowOperatorSpec, schema: pa.Schema) -> FoldTranslation:
    kind = _accumulator(plan, schema)
    if isinstance(plan.fold, Reduce):
        return translate_reduce(plan.fold.function, schema, pa.schema(list(kind)))
    assert isinstance(plan.fold, AggregateWith)
    return translate_add(plan.fold.function, schema, kind)


def _accumulator(plan: WindowOperatorSpec, schema: pa.Schema) -> pa.DataType:
    """The type of accumulators."""
    match plan.fold:
        case Reduce() if plan.schema is not None and (kind := row_struct(schema)) is not None:
            return kind
        case AggregateWith(accumulator=pa.DataType() as kind):
            return kind
    raise GraphError(
        "compiled: accumulators of windows are rows of the stream (reduce, its columns declared) or have a type "
        "(accumulator='float64', or columns of a dict); drop @compiled"
    )


class CompiledWindowOperator(GroupedWindowOperator):
    """Folds the rows of each window of a batch.

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
        if self._program is None or len(batch.data) < FEW_ROWS or not self._add_batch(batch, out):
            super().process_batch(batch, input_index, out)

    def _contents_of(self, data: pa.RecordBatch, grouped: Grouped) -> list[Any] | None:
        """The accumulators."""
        assert self._program is not None, "this is asked where there is one"
        held = self._held(grouped.places, data.schema)
        folded = None if held is None else self._program.run(data, grouped.ids, held)
        if folded is None:
            return None
        made = pa.RecordBatch.from_arrays([folded.accumulators], names=["made"])
        return [row["made"] for row in batch_rows(made, self._context.where)]

    def _held(self, places: list[Place], schema: pa.Schema) -> pa.Array | None:
        """The accumulators of windows so far; None where plain Python made one that does not fit."""
        held = []
        for place in places:
            self._backend.set_current_key(place.key, place.contents)
            held.append(self._contents.get())
        kind = _accumulator(self._plan, schema)
        try:
            found = pa.array(held, kind)
        except (pa.ArrowInvalid, OverflowError):
            return None
        if found.null_count and isinstance(self._plan.fold, AggregateWith):
            first = first_accumulator(self._plan.fold.function, kind)
            is_there = found.is_valid().to_numpy(zero_copy_only=False)
            found = pa.concat_arrays([found, first]).take(
                pa.array(np.where(is_there, np.arange(len(found)), len(found)))
            )
        return found

    def _put(self, contents: Any) -> None:
        assert isinstance(self._contents, FoldContents), "there is no evictor"
        self._contents.replace(contents)
