"""The operators of compiled functions: `map`, `flat_map` and `filter` over columns.

The stream API makes their specs. Rows, order and errors are those of `operators/rows.py`, whose operators take the
batches that do not fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.changelog import ANY_MODE, WITH_BEFORE_IMAGES
from penstock.engine.compiled.emitting import EmittingTranslation, translate_flat_map
from penstock.engine.compiled.emitting_program import EmittingProgram, Moment
from penstock.engine.compiled.functions import CompiledFunction
from penstock.engine.compiled.kinds import BOOL, check_declared
from penstock.engine.compiled.program import Program, as_declared
from penstock.engine.compiled.translation import Translation, translate
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.rows import (
    RowFilterOperator,
    RowFilterSpec,
    RowFlatMapOperator,
    RowFlatMapSpec,
    RowMapOperator,
    RowMapSpec,
)
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.texts import function_name

FEW_ROWS: Final = 64
"""Batches of fewer rows cost less row by row."""
_NO_MOMENT: Final = Moment(0, 0)
_Computed: TypeAlias = Callable[[Batch], Batch | None]


@dataclass(frozen=True, slots=True)
class CompiledMapSpec(OperatorSpec):
    """Creates the operator that makes one row of each row by a compiled function.

    Args:
        function: returns a dict with all columns of `schema`.
        schema: the declared columns of its result.

    Example:
        `CompiledMapSpec(compiled(double), pa.schema([("n", pa.int64())]))`
    """

    function: CompiledFunction[Mapping[str, Any]]
    schema: pa.Schema

    def create(self) -> Operator:
        plain = RowMapOperator(self.function.function, self.schema)
        return CompiledOperator(self.function, plain, functools.partial(_map, self.function, self.schema))

    def describe(self) -> str:
        return f"map({function_name(self.function)}, compiled)"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=None)


@dataclass(frozen=True, slots=True)
class CompiledFilterSpec(OperatorSpec):
    """Creates the operator that keeps the rows for which a compiled function is true.

    Example:
        `CompiledFilterSpec(compiled(late))`
    """

    function: CompiledFunction[object]

    def create(self) -> Operator:
        plain = RowFilterOperator(self.function.function)
        return CompiledOperator(self.function, plain, functools.partial(_filter, self.function))

    def describe(self) -> str:
        return f"filter({function_name(self.function)}, compiled)"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


@dataclass(frozen=True, slots=True)
class CompiledFlatMapSpec(OperatorSpec):
    """Creates the operator that makes any number of rows of each row by a compiled function.

    Args:
        function: yields dicts with all columns of `schema`, or returns a list of them.
        schema: the declared columns of its results.

    Example:
        `CompiledFlatMapSpec(compiled(halves), pa.schema([("n", pa.int64())]))`
    """

    function: CompiledFunction[Any]
    schema: pa.Schema

    def create(self) -> Operator:
        plain = RowFlatMapOperator(self.function.function, self.schema)
        return CompiledOperator(self.function, plain, functools.partial(_flat_map, self.function, self.schema))

    def describe(self) -> str:
        return f"flat_map({function_name(self.function)}, compiled)"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


def map_spec(
    function: CompiledFunction[Mapping[str, Any]], given: pa.Schema | None, made: pa.Schema | None
) -> OperatorSpec:
    """The spec of a `map`, checked where the columns of its input are known.

    Raises:
        GraphError: `made` is not declared, or as `translate_map` says; not with `fallback`.
    """

    def spec() -> OperatorSpec:
        declared = _declared("map", function, made)
        if given is not None:
            translate_map(function, given, declared)
        return CompiledMapSpec(function, declared)

    return function.unless_refused(spec) or RowMapSpec(function.function, made)


def filter_spec(function: CompiledFunction[object], given: pa.Schema | None) -> OperatorSpec:
    """The spec of a `filter`, checked where the columns of its input are known.

    Raises:
        GraphError: as `translate_filter` says; not with `fallback`.
    """

    def spec() -> OperatorSpec:
        if given is not None:
            translate_filter(function, given)
        return CompiledFilterSpec(function)

    return function.unless_refused(spec) or RowFilterSpec(function.function)


def flat_map_spec(function: CompiledFunction[Any], given: pa.Schema | None, made: pa.Schema | None) -> OperatorSpec:
    """The spec of a `flat_map`, checked where the columns of its input are known.

    Raises:
        GraphError: `made` is not declared, or as `checked_flat_map` says; not with `fallback`.
    """

    def spec() -> OperatorSpec:
        declared = _declared("flat_map", function, made)
        if given is not None:
            checked_flat_map(function, given, declared)
        return CompiledFlatMapSpec(function, declared)

    return function.unless_refused(spec) or RowFlatMapSpec(function.function, made)


def _declared(verb: str, function: CompiledFunction[Any], made: pa.Schema | None) -> pa.Schema:
    if made is None:
        raise GraphError(
            f"compiled: {verb}({function_name(function)}) needs `returns`: declare the columns of its result"
        )
    return made


def checked_flat_map(function: CompiledFunction[Any], given: pa.Schema, made: pa.Schema) -> EmittingTranslation:
    """The function of a `flat_map` from rows of the schema `given` to rows of the schema `made`.

    Raises:
        GraphError: it cannot be compiled, or does not give the columns of `made`.
    """
    translation = translate_flat_map(function.function, given)
    if translation.results.places:
        check_declared(function_name(function), translation.results.kinds, given, made)
    return translation


def translate_map(function: CompiledFunction[Any], given: pa.Schema, made: pa.Schema) -> Translation:
    """The function of a `map` from rows of the schema `given` to rows of the schema `made`.

    Raises:
        GraphError: it cannot be compiled, or does not give the columns of `made`.
    """
    translation = translate(function.function, given)
    check_declared(function_name(function), translation.results, given, made)
    return translation


def translate_filter(function: CompiledFunction[Any], given: pa.Schema) -> Translation:
    """The function of a `filter` on rows of the schema `given`.

    Raises:
        GraphError: it cannot be compiled, or returns no bool.
    """
    translation = translate(function.function, given)
    if translation.results != {"": BOOL}:
        raise GraphError(
            f"compiled: {function_name(function)} must return a bool for filter; compare what it returns, such as "
            "`x != 0`"
        )
    return translation


class CompiledOperator(Operator):
    """Computes batches by compiled code; what that does not take, and small batches, by the plain operator.

    Args:
        function: the function.
        plain: the operator that calls it row by row.
        compute: makes what computes batches of a schema: it gives the rows of a batch, or None where `plain` must run.
    """

    def __init__(
        self, function: CompiledFunction[Any], plain: Operator, compute: Callable[[pa.Schema], _Computed]
    ) -> None:
        self._function = function
        self._plain = plain
        self._compute = compute
        self._computed: _Computed | None = None
        self._given: pa.Schema | None = None

    def open(self, context: OperatorContext) -> None:
        self._plain.open(context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._given != batch.data.schema:
            self._given = batch.data.schema
            self._computed = self._function.unless_refused(lambda: self._compute(batch.data.schema))
        made = None if self._computed is None or batch.num_rows < FEW_ROWS else self._computed(batch)
        if made is None:
            self._plain.process_batch(batch, input_index, out)
        elif made.num_rows:
            out.collect(made)


def _map(function: CompiledFunction[Any], made: pa.Schema, given: pa.Schema) -> _Computed:
    """One row for each row."""
    program = Program(translate_map(function, given, made), given)

    def computed(batch: Batch) -> Batch | None:
        data = as_declared(program.run(batch.data), made)
        return None if data is None else batch.with_data(data)

    return computed


def _flat_map(function: CompiledFunction[Any], made: pa.Schema, given: pa.Schema) -> _Computed:
    """Any number of rows for each row, with its timestamp and row kind."""
    program = EmittingProgram(checked_flat_map(function, given, made), given)

    def computed(batch: Batch) -> Batch | None:
        processed = program.run(batch.data, None, _NO_MOMENT)
        if processed is None:
            return None
        results = processed.outputs[0]
        # A function without a place that emits has no columns either.
        data = as_declared(results.columns, made) if results.columns else pa.RecordBatch.from_pylist([], made)
        if data is None:
            return None
        origin = pa.array(results.origin)
        times = None if batch.timestamps is None else batch.timestamps.take(origin)
        return Batch(data, times, None if batch.kinds is None else batch.kinds.take(origin))

    return computed


def _filter(function: CompiledFunction[Any], given: pa.Schema) -> _Computed:
    """The rows for which the function is true."""
    program = Program(translate_filter(function, given), given)

    def computed(batch: Batch) -> Batch | None:
        found = program.run(batch.data)
        if found is None:
            return None
        kept = found[""]
        return batch if kept.false_count == 0 else batch.filter(kept)

    return computed
