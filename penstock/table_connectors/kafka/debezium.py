"""Rows of tables of Debezium's envelopes, and envelopes of rows.

`sources.py` and `sinks.py` put these operators between the connector and the table. Each handles a record by itself.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.changelog import ANY_MODE, APPEND_ONLY, ChangelogMode, RowKind
from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.table_connectors.kafka.formats import DELETED, OP, THERE
from penstock.table_connectors.kafka.rows import BadRecords, shown_place

ENVELOPE: Final = ("before", "after", "op")
"""The fields of a record."""
_CREATE, _READ, _UPDATE, _DELETE = "c", "r", "u", "d"
_COME: Final = (_CREATE, _READ, _UPDATE)
"""The operations of records that are a row after."""
_GO: Final = (_UPDATE, _DELETE)
"""Those of records that are a row before."""
_Bools: TypeAlias = "npt.NDArray[np.bool_]"


@dataclass(frozen=True, slots=True)
class DebeziumRowsSpec(OperatorSpec):
    """Creates the operator that gives the rows of envelopes: one for an insert or a delete, two for an update.

    Its input has what `TombstoneFormat` makes of them.

    Args:
        schema: of the result: the columns of the images, those beside the envelope, and `OP`.
        payload: the column that has the envelope's fields; None: they are columns.
        place: the columns of the source that have the metadata of `PLACE`, for messages.
        bad: what becomes of a record that is no envelope.
    """

    schema: pa.Schema
    payload: str | None
    place: tuple[str, ...]
    bad: BadRecords = "fail"

    def create(self) -> Operator:
        return DebeziumRows(self)

    def describe(self) -> str:
        return "rows of Debezium's records"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(APPEND_ONLY,))


class DebeziumRows(Operator):
    """Gives the images of each envelope in turn; records without a value are left out."""

    def __init__(self, spec: DebeziumRowsSpec) -> None:
        self._spec = spec

    def open(self, context: OperatorContext) -> None:
        self._where = context.where

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        before, after, op = self._envelope(batch.data)
        comes, goes = _is_in(op, _COME), _is_in(op, _GO)
        no_before, no_after = goes & _flags(before.is_null()), comes & _flags(after.is_null())
        bad = no_before | no_after | (_is_in(batch.data.column(OP), (THERE,)) & ~comes & ~goes)
        if bad.any():
            if self._spec.bad == "fail":
                row = int(bad.argmax())
                image = "before" if no_before[row] else "after" if no_after[row] else None
                raise self._refused(batch.data, row, op[row].as_py(), image)
            comes, goes = comes & ~bad, goes & ~bad
        taken = np.repeat(np.arange(len(op)), comes.astype(np.int64) + goes)
        if not len(taken):
            return
        of_before = goes[taken] & (np.diff(taken, prepend=-1) != 0)
        updates = (comes & goes)[taken]
        kinds = np.where(of_before, np.where(updates, "-U", DELETED), np.where(updates, "+U", "+I"))
        places = pa.array(np.where(of_before, taken, taken + len(op)))
        columns = []
        for field in self._spec.schema:
            if field.name == OP:
                columns.append(pa.array(kinds, pa.string()))
            elif before.type.get_field_index(field.name) >= 0:
                both = [pc.struct_field(images, field.name) for images in (before, after)]
                columns.append(pa.concat_arrays(both).take(places))
            else:
                columns.append(batch.data.column(field.name).take(pa.array(taken)))
        times = None if batch.timestamps is None else batch.timestamps.take(pa.array(taken))
        out.collect(Batch(pa.RecordBatch.from_arrays(columns, schema=self._spec.schema), times))

    def _envelope(self, rows: pa.RecordBatch) -> list[pa.Array]:
        if self._spec.payload is None:
            return [rows.column(name) for name in ENVELOPE]
        payload = rows.column(self._spec.payload)
        return [pc.struct_field(payload, name) for name in ENVELOPE]

    def _refused(self, records: pa.RecordBatch, row: int, op: str | None, image: str | None) -> RecordError:
        """The error for a record that is no envelope, or has not the `image` that its operation needs."""
        if image is not None:
            problem = (
                f"{image!r} is null in a record of operation {op!r}; have the database log whole rows (PostgreSQL: "
                "ALTER TABLE ... REPLICA IDENTITY FULL)"
            )
        elif op is None:
            problem = (
                "the record has no 'op', so it is none of Debezium's; where its fields stand in `payload`, set the "
                "format's option 'schema-include' to 'true', else set it to 'false'"
            )
        else:
            problem = f"{op!r} is no operation of Debezium; there are {', '.join((*_COME, _DELETE))}"
        return RecordError(f"{self._where}: {shown_place(records, self._spec.place, row)}: {problem}")


def _is_in(values: pa.Array, known: tuple[str, ...]) -> _Bools:
    return _flags(pc.is_in(values, pa.array(known, values.type)))


def _flags(mask: pa.BooleanArray) -> _Bools:
    flags: _Bools = mask.to_numpy(zero_copy_only=False)
    return flags


@dataclass(frozen=True, slots=True)
class EnvelopeSpec(OperatorSpec):
    """Creates the operator that makes an envelope of each change: `c` for rows that come, `d` for those that go.

    Args:
        schema: of the result: `before`, `after`, `op`, and the columns beside them.
    """

    schema: pa.Schema

    def create(self) -> Operator:
        return Envelope(self.schema)

    def describe(self) -> str:
        return "Debezium's records"

    @property
    def traits(self) -> OperatorTraits:
        accepts: AbstractSet[ChangelogMode] = ANY_MODE
        return OperatorTraits(order=RowOrder.NONE, accepts=(accepts,))


class Envelope(Operator):
    """As Flink does, an update is a record for the row before, and one for the row after."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        kinds = np.zeros(batch.num_rows, np.int8) if batch.kinds is None else batch.kinds.to_numpy()
        goes = np.isin(kinds, (RowKind.UPDATE_BEFORE, RowKind.DELETE))
        image = self._schema.field("after").type
        parts = [batch.data.column(field.name) for field in image]
        columns: dict[str, pa.Array] = {
            "before": pa.StructArray.from_arrays(parts, fields=list(image), mask=pa.array(~goes)),
            "after": pa.StructArray.from_arrays(parts, fields=list(image), mask=pa.array(goes)),
            "op": pa.array(np.where(goes, _DELETE, _CREATE), pa.string()),
        }
        beside = [name for name in self._schema.names if name not in columns]
        columns.update({name: batch.data.column(name) for name in beside})
        data = pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)
        out.collect(Batch(data, batch.timestamps))
