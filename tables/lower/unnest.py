"""The operator of UNNEST: a row for each element of a collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import WITH_BEFORE_IMAGES
from penstock.engine.columns import with_numbers
from penstock.engine.elements import Batch
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.tables.expressions import Expression
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.lower.evaluation import Evaluation
from penstock.tables.lower.failing_rows import computed
from penstock.tables.types import Kind


@dataclass(frozen=True, slots=True)
class UnnestSpec(OperatorSpec):
    """Creates the operator.

    Args:
        collection: an array, map or multiset of each row.
        width: how many columns of the input are kept, the first ones.
        outer: whether rows without elements stay, with nulls.
        ordinality: whether the element's number stands behind it.
        schema: of the result.
        zone: the session's time zone.
    """

    collection: Expression
    width: int
    outer: bool
    ordinality: bool
    schema: pa.Schema
    zone: str

    def create(self) -> Operator:
        return UnnestOperator(self)

    def describe(self) -> str:
        return f"unnest({', '.join(self.schema.names[self.width :])})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


class UnnestOperator(Operator):
    """Works on each batch by itself. Row kinds and timestamps are those of the row."""

    def __init__(self, spec: UnnestSpec) -> None:
        self._spec = spec

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        spec = self._spec
        session = SessionValues(spec.zone, self._context.clock.now_ms())

        def values_of(rows: pa.RecordBatch) -> pa.Array:
            return Evaluation(rows.columns, rows.num_rows, session).value(spec.collection)

        collections = with_numbers(computed(self._context.where, batch.data, values_of)).to_pylist()
        rows: list[int] = []
        elements: list[tuple[object, ...]] = []
        for row, values in enumerate(collections):
            found = self._elements(values or [])
            if not found and spec.outer:
                found = [(None,) * (len(spec.schema) - spec.width)]
            rows.extend([row] * len(found))
            elements.extend(found)
        if not rows:
            return
        taken = batch.take(pa.array(np.array(rows)))
        fields = list(spec.schema)[spec.width :]
        columns = [pa.array([e[i] for e in elements], field.type) for i, field in enumerate(fields)]
        kept = taken.data.columns[: spec.width]
        out.collect(taken.with_data(pa.RecordBatch.from_arrays([*kept, *columns], schema=spec.schema)))

    def _elements(self, values: list[object]) -> list[tuple[object, ...]]:
        kind = self._spec.collection.type
        found: list[tuple[object, ...]]
        if kind.kind is Kind.MAP:
            found = [tuple(pair) for pair in values]  # type: ignore[arg-type]
        else:
            if kind.kind is Kind.MULTISET:
                counted: Any = values
                values = [element for element, count in counted for _ in range(count)]
            if kind.parts[0].kind is Kind.ROW:
                width = len(kind.parts[0].fields)
                found = [(None,) * width if v is None else tuple(v.values()) for v in values]  # type: ignore[attr-defined]
            else:
                found = [(value,) for value in values]
        return [(*e, i) for i, e in enumerate(found, start=1)] if self._spec.ordinality else found
