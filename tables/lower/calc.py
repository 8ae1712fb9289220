"""The operator of WHERE and SELECT: filters and computes columns; also what gives rows their event time.

The lowering makes its spec. Timestamps and row kinds stay beside their rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.changelog import ANY_MODE, WITH_BEFORE_IMAGES
from penstock.engine.columns import booleans, picker
from penstock.engine.elements import Batch, Watermark
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.tables.expressions import Expression
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.failing_rows import computed


@dataclass(frozen=True, slots=True)
class CalcSpec(OperatorSpec):
    """Creates the operator that keeps the rows for which `condition` is true, then computes `expressions`.

    Args:
        condition: None keeps all rows.
        expressions: the columns of the result; None keeps them.
        schema: of the result.
        zone: the session's time zone.
    """

    condition: Expression | None
    expressions: tuple[Expression, ...] | None
    schema: pa.Schema
    zone: str

    def create(self) -> Operator:
        return Calc(self)

    def describe(self) -> str:
        verbs = [
            *(["filter"] if self.condition is not None else []),
            *(["project"] if self.expressions is not None else []),
        ]
        return f"{' and '.join(verbs)}({', '.join(self.schema.names)})"

    @property
    def traits(self) -> OperatorTraits:
        # A row that is dropped where it was updated would stay as it was.
        accepts = ANY_MODE if self.condition is None else WITH_BEFORE_IMAGES
        return OperatorTraits(order=RowOrder.NONE, accepts=(accepts,), emits=None)


class Calc(Operator):
    """Computes each batch by itself; keeps nothing but the watermark, for CURRENT_WATERMARK."""

    def __init__(self, spec: CalcSpec) -> None:
        self._spec = spec
        self._watermark: int | None = None
        self._literals: dict[Expression, pa.Array] = {}
        self._sole_columns: dict[int, tuple[Expression, int | None]] = {}

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._watermark = watermark.timestamp
        return watermark

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        session = SessionValues(self._spec.zone, self._context.clock.now_ms(), self._watermark)

        def of_rows(rows: pa.RecordBatch) -> Batch:
            # Of the batch itself all, and of one of its rows what it needs for its error.
            return self._computed(batch if rows is batch.data else Batch(rows), session)

        result = computed(self._context.where, batch.data, of_rows)
        if result.num_rows:
            out.collect(result)

    def _computed(self, batch: Batch, session: SessionValues) -> Batch:
        condition, expressions = self._spec.condition, self._spec.expressions
        rows = Evaluation(batch.data.columns, batch.num_rows, session, self._literals, self._sole_columns)
        if condition is not None:
            mask = rows.mask(condition)
            if not mask.any():
                return batch.slice(0, 0)
            if not mask.all():
                if expressions is None:
                    return batch.filter(booleans(mask))
                rows = rows.where(mask, *expressions)
                timestamps, kinds = (
                    None if beside is None else picker(mask)(beside) for beside in (batch.timestamps, batch.kinds)
                )
                batch = Batch(batch.data, timestamps, kinds, batch.partials)
        if expressions is None:
            return batch
        columns = [rows.value(expression) for expression in expressions]
        return batch.with_data(made(columns, self._spec.schema, rows.rows))


def made(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch of the columns; of none, one that has rows all the same."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
