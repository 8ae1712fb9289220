"""What the general window operator keeps of a window's rows where not all of them: one accumulator, row after row.

`WindowedStream.reduce` and `.aggregate` make these descriptions; the operator creates a fold of its own from each. All
folds take lifted rows (`items`), so that an evictor can keep those and fold them when the window fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.scalar import ScalarAggregation
from penstock.engine.aggregates.scalar_forms import Accumulators
from penstock.engine.elements import Batch, join_schemas
from penstock.engine.errors import RecordError
from penstock.engine.functions import Row
from penstock.engine.operators.base import OperatorContext, SchemaOrUnknown
from penstock.engine.operators.functions.keyed_reduce import check_reduced
from penstock.engine.state.descriptors import AggregateFunction, Serializer, ValueStateDescriptor
from penstock.engine.windows.row_serializer import RowSerializer

CONTENTS: Final = "window-contents"
"""The name of the state that holds windows."""


class Fold(Protocol):
    """Makes one accumulator of rows."""

    @property
    def reads_rows(self) -> bool:
        """Whether `items` needs the rows as dicts."""
        ...

    @property
    def item_type(self) -> pa.DataType | None:
        """The Arrow type of an item that is kept beside its row, if it is known; pa.null() where it is the row."""
        ...

    def descriptor(self) -> ValueStateDescriptor:
        """Declares the state of an accumulator."""
        ...

    def items(self, batch: Batch, rows: Sequence[Row]) -> Sequence[Any]:
        """What is added for each row."""
        ...

    def first(self, item: Any) -> Any:
        """The accumulator of one item."""
        ...

    def add(self, accumulator: Any, item: Any) -> Any:
        """The accumulator with one more item; the given one may be changed."""
        ...

    def merge(self, one: Any, other: Any) -> Any:
        """The accumulator of both; the given ones may be changed."""
        ...

    def result(self, accumulator: Any) -> Any:
        """The result, as a row."""
        ...


class FoldSpec(Protocol):
    """The picklable description of a fold."""

    def create(self, context: OperatorContext, schema: SchemaOrUnknown) -> Fold:
        """The fold of one subtask.

        Args:
            context: where it runs.
            schema: the columns of the rows, if they are known before the job runs.
        """
        ...


def row_struct(schema: SchemaOrUnknown) -> pa.DataType | None:
    """The Arrow type of rows of a schema, or None where a type is not known."""
    if schema is None or any(pa.types.is_null(kind) for kind in schema.types):
        return None
    return pa.struct([(field.name, plain_type(field.type)) for field in schema])


def typed_or_serialized(name: str, kind: pa.DataType | None) -> ValueStateDescriptor:
    """A value state of a type, or of any rows where it is not known."""
    return ValueStateDescriptor(name, kind) if kind else ValueStateDescriptor(name, serializer=RowSerializer())


@dataclass(frozen=True, slots=True)
class Reduce:
    """Reduces rows to one row.

    Args:
        function: takes two rows and returns one.
        keeps_columns: whether its results have the columns of the rows, as far as is known.
    """

    function: Callable[[Row, Row], Mapping[str, Any]]
    keeps_columns: bool

    def create(self, context: OperatorContext, schema: SchemaOrUnknown) -> Fold:
        return _ReduceFold(self.function, row_struct(schema) if self.keeps_columns else None, context.where)


class _ReduceFold:
    reads_rows = True
    item_type: pa.DataType | None = pa.null()

    def __init__(self, function: Callable[[Row, Row], Any], kind: pa.DataType | None, where: str) -> None:
        self._function = function
        self._kind = kind
        self._where = where

    def descriptor(self) -> ValueStateDescriptor:
        return typed_or_serialized(CONTENTS, self._kind)

    def items(self, batch: Batch, rows: Sequence[Row]) -> Sequence[Any]:
        return rows

    def first(self, item: Any) -> Any:
        return dict(item)

    def add(self, accumulator: Any, item: Any) -> Any:
        # The function may change the columns of what it is given, and the row may be in several windows.
        reduced = self._function(accumulator, dict(item))
        if not isinstance(reduced, Mapping):
            raise RecordError(
                f"{self._where}: the reduce function returned {reduced!r:.200} ({type(reduced).__name__}), not a row; "
                "return a dict of the same columns as the rows that it is given"
            )
        check_reduced(reduced, item.keys())
        return reduced

    def merge(self, one: Any, other: Any) -> Any:
        return self.add(one, other)

    def result(self, accumulator: Any) -> Any:
        return accumulator


@dataclass(frozen=True, slots=True)
class AggregateWith:
    """Aggregates rows by a function of the user's.

    Args:
        function: an `AggregateFunction`.
        accumulator: the Arrow type of accumulators, or a serializer.
    """

    function: AggregateFunction
    accumulator: pa.DataType | Serializer

    def create(self, context: OperatorContext, schema: SchemaOrUnknown) -> Fold:
        return _AggregateFold(self.function, self.accumulator, context.where)


class _AggregateFold:
    reads_rows = True
    item_type: pa.DataType | None = pa.null()

    def __init__(self, function: AggregateFunction, accumulator: pa.DataType | Serializer, where: str) -> None:
        self._function = function
        self._accumulator = accumulator
        self._where = where
        self.merge = function.merge
        self.result = function.get_result

    def descriptor(self) -> ValueStateDescriptor:
        if isinstance(self._accumulator, pa.DataType):
            return ValueStateDescriptor(CONTENTS, self._accumulator)
        return ValueStateDescriptor(CONTENTS, serializer=self._accumulator)

    def items(self, batch: Batch, rows: Sequence[Row]) -> Sequence[Any]:
        return rows

    def first(self, item: Any) -> Any:
        return self.add(self._function.create_accumulator(), item)

    def add(self, accumulator: Any, item: Any) -> Any:
        added = self._function.add(item, accumulator)
        if added is None:
            raise RecordError(
                f"{self._where}: {type(self._function).__name__}.add returned None; return the accumulator"
            )
        return added


@dataclass(frozen=True, slots=True)
class NamedAggregates:
    """Computes named aggregates."""

    aggregation: GroupedAggregation

    def create(self, context: OperatorContext, schema: SchemaOrUnknown) -> NamedFold:
        return NamedFold(self.aggregation, schema, context.where)


class NamedFold:
    """Named aggregates, bound to the columns once these are known.

    Args:
        aggregation: what to compute.
        schema: the columns of the rows, or None where they come with the first batch.
        where: operator and subtask, for messages.
    """

    reads_rows = False

    def __init__(self, aggregation: GroupedAggregation, schema: SchemaOrUnknown, where: str) -> None:
        self._aggregation = aggregation
        self._where = where
        self._is_declared = row_struct(schema) is not None
        self._scalar: ScalarAggregation | None = None
        self._came: pa.Schema | None = None
        self.schema: pa.Schema | None = None
        """The columns of the rows so far."""
        if schema is not None:
            self.bind(schema)

    def bind(self, schema: pa.Schema) -> None:
        """Take the columns of a batch, or of a snapshot.

        Raises:
            RecordError: they differ from those before.
        """
        if schema is self._came:
            return
        self._came = schema
        joined = schema if self.schema is None else join_schemas(self.schema, schema, self._where)
        if self.schema is None or joined != self.schema:
            self.schema = joined
            self._scalar = ScalarAggregation(self._aggregation, joined, self._where)

    @property
    def accumulators(self) -> tuple[str, ...]:
        """The names of the accumulators."""
        grouped = (name for accumulator in self._aggregation.grouped for name in accumulator.names)
        return (*(fold.name for fold in self._aggregation.folds), *grouped)

    @property
    def is_declared(self) -> bool:
        """Whether the columns were known before the job ran."""
        return self._is_declared

    @property
    def scalar(self) -> ScalarAggregation:
        """The aggregates, bound to the columns."""
        assert self._scalar is not None, "columns come with the first batch, or with the snapshot"
        return self._scalar

    @property
    def item_type(self) -> pa.DataType | None:
        return self.scalar.state_type if self._is_declared else None

    def descriptor(self) -> ValueStateDescriptor:
        return typed_or_serialized(CONTENTS, self.item_type)

    def items(self, batch: Batch, rows: Sequence[Row]) -> Sequence[Accumulators]:
        self.bind(batch.data.schema)
        return self.scalar.lift(batch.data, batch.timestamps)

    def first(self, item: Accumulators) -> Accumulators:
        return self.scalar.combine(self.scalar.empty(), item)

    def add(self, accumulator: Accumulators, item: Accumulators) -> Accumulators:
        return self.scalar.combine(accumulator, item)

    def merge(self, one: Accumulators, other: Accumulators) -> Accumulators:
        return self.scalar.combine(one, other)

    def result(self, accumulator: Accumulators) -> Row:
        return self.scalar.row(accumulator)
