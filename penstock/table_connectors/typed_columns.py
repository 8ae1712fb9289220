"""The columns of a table, of what its source gives: picked by name, in the table's order, with its types.

Connectors put the operator between a source and its table, where the source gives other types or another order.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.changelog import APPEND_ONLY
from penstock.engine.elements import Batch
from penstock.engine.operators.base import Collector, Operator
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder


@dataclass(frozen=True, slots=True)
class TypedColumnsSpec(OperatorSpec):
    """Creates the operator that gives these columns.

    Args:
        schema: the table's columns, by the names that they have in the source.
    """

    schema: pa.Schema

    def create(self) -> Operator:
        return TypedColumns(self.schema)

    def describe(self) -> str:
        return "columns of the table"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(APPEND_ONLY,))


class TypedColumns(Operator):
    """Picks and casts columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        columns = [as_type(batch.data.column(field.name), field.type) for field in self._schema]
        out.collect(Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema), batch.timestamps))


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as a table's type; a map may be a list of pairs."""
    if pa.types.is_map(kind) and pa.types.is_list(column.type):
        # The headers of a record, which are pairs.
        entries = column.values
        keys, values = entries.field(0).cast(kind.key_type), entries.field(1).cast(kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, values).cast(kind)
    return column if column.type == kind else column.cast(kind)
