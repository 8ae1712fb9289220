"""The operator of `KeyedStream.reduce`: for each row, what the rows of its key up to it are reduced to.

The stream API makes its spec. A process function over one value state, the reduced row; the columns of the stream,
where they were not known before the job ran, become known with the first batch, or with the snapshot that is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.elements import Batch, Watermark
from penstock.engine.errors import GraphError, ResultError
from penstock.engine.functions import Context, KeyedProcessFunction, Row, Rows, RuntimeContext
from penstock.engine.operators.base import Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator
from penstock.engine.operators.saved_aggregates import refuse_strangers
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, Updates
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.state.state_tables import VALUE, StateTables
from penstock.engine.texts import function_name

_REDUCED: Final = "reduced"


@dataclass(frozen=True, slots=True)
class KeyedReduceSpec(OperatorSpec):
    """Creates the operator that reduces the rows of each key.

    Args:
        function: takes the row so far and the next one, and returns the new one.
        keys: the key columns.
        schema: the columns of all three, or None where they are not known yet.
        timed: whether the stream has event timestamps.

    Raises:
        GraphError: `function` cannot be called.

    Example:
        `KeyedReduceSpec(lambda a, b: max(a, b, key=lambda row: row["n"]), ("user",))`
    """

    function: Callable[[Row, Row], Row]
    keys: tuple[str, ...]
    schema: SchemaOrUnknown = None
    timed: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise GraphError(
                f"reduce: needs a function of two rows (dicts) that returns a row, not {self.function!r:.200}"
            )

    def create(self) -> Operator:
        return KeyedReduceOperator(self)

    def describe(self) -> str:
        return f"reduce({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.keys,), updates=Updates(self.keys, False))


def reduced_schema(schema: SchemaOrUnknown) -> SchemaOrUnknown:
    """The columns of reduced rows for rows of `schema`: what Python gives back is in plain types."""
    return None if schema is None else pa.schema([(field.name, plain_type(field.type)) for field in schema])


def check_reduced(row: Mapping[str, Any], names: AbstractSet[str]) -> None:
    """Make sure that a reduced row has the columns of the rows that it was made of.

    Raises:
        ResultError: it lacks some, or has others.
    """
    if row.keys() != names:
        wrong = sorted(names ^ row.keys())
        raise ResultError(
            f"reduce: the function returned {row!r:.300}, whose columns differ from those of its rows in "
            f"{', '.join(map(repr, wrong))}; return all columns of the rows, as in "
            "{**one, 'v': one['v'] + other['v']}"
        )


class KeyedReduceOperator(Operator):
    """A process function that is made once the columns are known."""

    def __init__(self, plan: KeyedReduceSpec) -> None:
        self._plan = plan
        self._inner: KeyedProcessOperator | None = None
        self._watermark = OperatorSnapshot().watermark

    def open(self, context: OperatorContext) -> None:
        self._context = context
        if self._plan.schema is not None:
            self._inner = self._create(self._plan.schema)

    def _create(self, schema: pa.Schema) -> KeyedProcessOperator:
        inner = self._made(schema)
        inner.open(self._context)
        return inner

    def _made(self, schema: pa.Schema) -> KeyedProcessOperator:
        function = RunningReduce(self._plan.function, schema)
        return KeyedProcessOperator(function, self._plan.keys, schema, self._plan.timed)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._inner is None:
            schema = reduced_schema(batch.data.schema)
            assert schema is not None
            self._inner = self._create(schema)
        self._inner.process_batch(batch, input_index, out)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._watermark = watermark.timestamp
        return watermark

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        if self._inner is None:
            return OperatorCapture(watermark=self._watermark)
        return replace(self._inner.capture(request), watermark=self._watermark)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        return {} if self._inner is None else self._inner.read_state(request)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        refuse_strangers(snapshot.tables, {_REDUCED}, "reduce", self._context.where)
        table = snapshot.tables.get(_REDUCED)
        if table is not None:
            if self._inner is None:
                # Key columns may be called as the state's own column is by default.
                column = StateTables(self._plan.keys, 1, self._context.where).column_name(VALUE)
                self._inner = self._create(pa.schema(list(table.data.schema.field(column).type)))
            self._inner.restore(snapshot)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


class RunningReduce(KeyedProcessFunction):
    """Keeps what the rows of each key were reduced to, in the state `reduced`."""

    def __init__(self, function: Callable[[Row, Row], Row], schema: pa.Schema) -> None:
        self._function = function
        self._type = pa.struct(list(schema))
        self._names = frozenset(schema.names)

    def open(self, context: RuntimeContext) -> None:
        self.reduced = context.get_state(ValueStateDescriptor(_REDUCED, self._type))

    def process_element(self, row: Row, ctx: Context) -> Rows:
        before = self.reduced.value()
        reduced = row if before is None else self._function(before, row)
        if isinstance(reduced, Mapping):
            check_reduced(reduced, self._names)
        self.reduced.update(reduced)
        return [reduced]
