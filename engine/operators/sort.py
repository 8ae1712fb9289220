"""Sorts bounded input: keeps all rows as state, and emits them in order when the last one has come.

`DataStream.sort` makes it. All rows come to one subtask (the others of the operator have none), so its memory is the
limit, unless Spark sorts in its place. Rows leave without event time, whose order is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.elements import Batch, join_schemas, with_types
from penstock.engine.operators.at_end import EmitsAtEnd
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.joins.row_log import RowLog
from penstock.engine.operators.relational import Ordered
from penstock.engine.operators.saved_aggregates import refuse_strangers
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.ordering import SortKey, check_sort_keys, row_order
from penstock.engine.state.capture import (
    DELETED,
    CaptureRequest,
    CaptureScope,
    OperatorCapture,
    TableCapture,
)
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution

_STATE: Final = "rows"
_PLACE: Final = "__place of row"
"""Tells rows apart in the state, as they came: int64, from 0."""
_EMIT_BYTES: Final = 1 << 26
"""About how much is emitted at once."""


@dataclass(frozen=True, slots=True)
class SortSpec(OperatorSpec):
    """Creates the operator that sorts by `keys`, the first one first."""

    keys: tuple[SortKey, ...]

    def create(self) -> Operator:
        return Sort(self.keys)

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(emits_at_end=True, relational=Ordered(self.keys))

    def describe(self) -> str:
        return f"sort({', '.join(key.describe() for key in self.keys)})"


class Sort(EmitsAtEnd):
    """Keeps rows until the last watermark, or the end of the input, has come."""

    def __init__(self, keys: Sequence[SortKey]) -> None:
        self._keys = keys
        self._rows = RowLog()
        self._schema: pa.Schema | None = None
        self._captured: int | None = None

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._add(batch.data)

    def _add(self, rows: pa.RecordBatch) -> None:
        if self._schema is None or not rows.schema.equals(self._schema):
            check_sort_keys(rows.schema, self._keys, f"{self._context.where}: sort")
            held = rows.schema if self._schema is None else self._schema
            self._schema = join_schemas(held, rows.schema, self._context.where)
        self._rows.append(rows)

    def emit(self, out: Collector) -> None:
        for rows in self._in_order():
            out.collect(Batch(rows))
        self._rows, self._captured = RowLog(), None

    def _in_order(self) -> Iterator[pa.RecordBatch]:
        if self._schema is None or not len(self._rows):
            return
        order = row_order([self._column(key.column) for key in self._keys], self._keys)
        width = max(1, self._rows.nbytes // len(order))
        at_once = max(1, min(self._context.config.max_batch_rows, _EMIT_BYTES // width))
        for begin in range(0, len(order), at_once):
            places = order[begin : begin + at_once]
            ascending = np.argsort(places)
            back = np.empty_like(ascending)
            back[ascending] = np.arange(len(ascending))
            rows = self._rows.take(places[ascending]).take(pa.array(back))
            # Columns of nothing but nulls may have got a type later.
            yield rows if rows.schema.equals(self._schema) else with_types(rows, self._schema)

    def _column(self, name: str) -> pa.ChunkedArray:
        assert self._schema is not None
        kind = self._schema.field(name).type
        parts = [part.column(name) for part in self._rows.parts]
        return pa.chunked_array([part if part.type == kind else pa.nulls(len(part), kind) for part in parts], kind)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        if self._schema is None or not len(self._rows):
            return OperatorCapture()
        first = self._captured if request.scope.takes_changes else None
        if request.scope is not CaptureScope.COMPLETE:
            self._captured = len(self._rows)
        parts, schema = list(_behind(self._rows.parts, first or 0)), self._schema

        def rows() -> pa.Table:
            table = pa.concat_tables(
                [schema.empty_table(), *(pa.Table.from_batches([part]) for part in parts)], promote_options="default"
            )
            places = np.arange(table.num_rows) + (first or 0)
            table = table.append_column(_PLACE, pa.array(places))
            return table if first is None else table.append_column(DELETED, pa.array(np.zeros(len(places), np.bool_)))

        # All rows are those of one subtask, and must be again.
        return OperatorCapture({_STATE: TableCapture(Redistribution.WHOLE, rows, (_PLACE,), first is not None)})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        if not snapshot.tables:
            return
        refuse_strangers(snapshot.tables, {_STATE}, "a sort", self._context.where)
        for rows in snapshot.tables[_STATE].data.drop_columns(_PLACE).to_batches():
            if rows.num_rows:
                self._add(rows)
        self._captured = len(self._rows)


def _behind(parts: Sequence[pa.RecordBatch], first: int) -> Iterator[pa.RecordBatch]:
    """What the parts have from row `first` on."""
    for part in parts:
        if first < part.num_rows:
            yield part.slice(first)
        first = max(0, first - part.num_rows)
