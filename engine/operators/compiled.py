"""The operators of compiled functions: `map`, `flat_map` and `filter` over columns.

The stream API makes their specs. Rows, order and errors are those of `operators/rows.py`, whose operators take the
batches that do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

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
from penstock.engine.operators.rows import RowFilterOperator, RowFlatMapOperator, RowMapOperator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.texts import function_name

_NO_MOMENT: Final = Moment(0, 0)


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
        return CompiledMapOperator(self.function, self.schema)

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
        return CompiledFilterOperator(self.function)

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
        return CompiledFlatMapOperator(self.function, self.schema)

    def describe(self) -> str:
        return f"flat_map({function_name(self.function)}, compiled)"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


def map_spec(
    function: CompiledFunction[Mapping[str, Any]], given: pa.Schema | None, made: pa.Schema | None
) -> CompiledMapSpec:
    """The spec of a `map`, checked where the columns of its input are known.

    Raises:
        GraphError: `made` is not declared, or as `translate_map` says.
    """
    if made is None:
        raise GraphError(f"compiled: map({function_name(function)}) needs `returns`: declare the columns of its result")
    if given is not None:
        translate_map(function, given, made)
    return CompiledMapSpec(function, made)


def filter_spec(function: CompiledFunction[object], given: pa.Schema | None) -> CompiledFilterSpec:
    """The spec of a `filter`, checked where the columns of its input are known.

    Raises:
        GraphError: as `translate_filter` says.
    """
    if given is not None:
        translate_filter(function, given)
    return CompiledFilterSpec(function)


def flat_map_spec(
    function: CompiledFunction[Any], given: pa.Schema | None, made: pa.Schema | None
) -> CompiledFlatMapSpec:
    """The spec of a `flat_map`, checked where the columns of its input are known.

    Raises:
        GraphError: `made` is not declared, or as `checked_flat_map` says.
    """
    if made is None:
        raise GraphError(f"compiled: flat_map({function_name(function)}) needs `returns`: declare its columns")
    if given is not None:
        checked_flat_map(function, given, made)
    return CompiledFlatMapSpec(function, made)


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


class CompiledMapOperator(Operator):
    """One row for each row."""

    def __init__(self, function: CompiledFunction[Mapping[str, Any]], schema: pa.Schema) -> None:
        self._function = function
        self._schema = schema
        self._plain = RowMapOperator(function.function, schema)
        self._program: Program | None = None
        self._given: pa.Schema | None = None

    def open(self, context: OperatorContext) -> None:
        self._plain.open(context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._program is None or self._given != batch.data.schema:
            self._given = batch.data.schema
            self._program = Program(translate_map(self._function, self._given, self._schema), self._given)
        data = as_declared(self._program.run(batch.data), self._schema)
        if data is None:
            self._plain.process_batch(batch, input_index, out)
        else:
            out.collect(batch.with_data(data))


class CompiledFlatMapOperator(Operator):
    """Any number of rows for each row, with its timestamp and row kind."""

    def __init__(self, function: CompiledFunction[Any], schema: pa.Schema) -> None:
        self._function = function
        self._schema = schema
        self._plain = RowFlatMapOperator(function.function, schema)
        self._program: EmittingProgram | None = None
        self._given: pa.Schema | None = None

    def open(self, context: OperatorContext) -> None:
        self._plain.open(context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._program is None or self._given != batch.data.schema:
            self._given = batch.data.schema
            translation = checked_flat_map(self._function, self._given, self._schema)
            self._program = EmittingProgram(translation, self._given)
        processed = self._program.run(batch.data, None, _NO_MOMENT)
        results = None if processed is None else processed.outputs[0]
        if results is not None and not len(results.origin):
            return
        data = None if results is None else as_declared(results.columns, self._schema)
        if results is None or data is None:
            self._plain.process_batch(batch, input_index, out)
            return
        origin = pa.array(results.origin)
        times = None if batch.timestamps is None else batch.timestamps.take(origin)
        out.collect(Batch(data, times, None if batch.kinds is None else batch.kinds.take(origin)))


class CompiledFilterOperator(Operator):
    """The rows for which the function is true."""

    def __init__(self, function: CompiledFunction[object]) -> None:
        self._function = function
        self._plain = RowFilterOperator(function.function)
        self._program: Program | None = None
        self._given: pa.Schema | None = None

    def open(self, context: OperatorContext) -> None:
        self._plain.open(context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._program is None or self._given != batch.data.schema:
            self._given = batch.data.schema
            self._program = Program(translate_filter(self._function, self._given), self._given)
        found = self._program.run(batch.data)
        if found is None:
            self._plain.process_batch(batch, input_index, out)
            return
        kept = found[""]
        if kept.false_count == 0:
            out.collect(batch)
        elif kept.true_count:
            out.collect(batch.filter(kept))
