"""Rows of tables of Kafka's records, and records of rows: keys, metadata, tombstones, and Debezium's envelopes.

`kafka_tables.py` puts these operators between the connector and the table. Each handles a record by itself.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.kafka.source import ERROR_COLUMN, RAW_COLUMN
from penstock.connectors.records.format import Decoded, RecordFormat
from penstock.engine.changelog import ANY_MODE, APPEND_ONLY, ChangelogMode, RowKind
from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder

OP: Final = "$op"
"""The column that says what a row does: +I, -U, +U or -D."""
KEY: Final = "$key"
"""The column with the bytes of the record's key."""
PLACE: Final = ("topic", "partition", "offset")
"""The metadata that tells where a record is."""
_DELETED: Final = "-D"
_ENVELOPE: Final = ("before", "after", "op")
_IMAGES: Final = {"c": ("+I",), "r": ("+I",), "u": ("-U", "+U"), "d": (_DELETED,)}
"""The rows that a record of each operation is; those of kinds with - are the image before."""
_CREATE, _DELETE = "c", "d"


class TombstoneFormat(RecordFormat):
    """Values of another format that may be missing: the column `OP` is -D then, and the others are null.

    Args:
        format: of the values that are there.
    """

    def __init__(self, format: RecordFormat) -> None:  # noqa: A002 - the word users look for
        self._format = format
        self._schema = format.schema.append(pa.field(OP, pa.string()))

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        decoded = self._format.decode(values)
        missing = values.is_null()
        if decoded.bad:
            good = np.ones(len(values), np.bool_)
            good[[bad.index for bad in decoded.bad]] = False
            missing = missing.filter(pa.array(good))
        op = pc.if_else(missing, _DELETED, "+U")
        return Decoded(pa.RecordBatch.from_arrays([*decoded.rows.columns, op], schema=self._schema), decoded.bad)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        values = self._format.encode(rows.select(self._format.schema.names))
        return pc.if_else(pc.equal(rows.column(OP), _DELETED), pa.scalar(None, values.type), values)

    def describe(self) -> str:
        return self._format.describe()


class RenamedFormat(RecordFormat):
    """Another format, whose columns have other names than in the record.

    Args:
        format: by the record's names.
        names: for its columns, in their order.
    """

    def __init__(self, format: RecordFormat, names: tuple[str, ...]) -> None:  # noqa: A002 - the word users look for
        self._format, self._names = format, names

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([f.with_name(name) for f, name in zip(self._format.schema, self._names, strict=True)])

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        found = self._format.decode(values)
        return Decoded(pa.RecordBatch.from_arrays(found.rows.columns, schema=self.schema), found.bad)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        columns = rows.select(list(self._names)).columns
        return self._format.encode(pa.RecordBatch.from_arrays(columns, self._format.schema.names))

    def describe(self) -> str:
        return self._format.describe()


@dataclass(frozen=True, slots=True)
class RecordRowsSpec(OperatorSpec):
    """Creates the operator that gives the columns of a table, of what the source gives.

    Args:
        schema: the table's columns, and `OP` behind them where the source has it.
        names: for each of them, the column of the source or of the key that it is.
        key: makes columns of the source's `KEY`; None: none is asked for.
        place: the columns of the source that have the metadata of `PLACE`, for messages.
    """

    schema: pa.Schema
    names: tuple[str, ...]
    key: RecordFormat | None
    place: tuple[str, ...]

    def create(self) -> Operator:
        return RecordRows(self)

    def describe(self) -> str:
        return "rows of records"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(APPEND_ONLY,))


class RecordRows(Operator):
    """Picks and casts columns; leaves records out that could not be read."""

    def __init__(self, spec: RecordRowsSpec) -> None:
        self._spec = spec

    def open(self, context: OperatorContext) -> None:
        self._where = context.where

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if ERROR_COLUMN in batch.data.schema.names and RAW_COLUMN in batch.data.schema.names:
            batch = batch.filter(pc.is_null(batch.data.column(ERROR_COLUMN)))
            if not batch.num_rows:
                return
        found = {name: batch.data.column(name) for name in batch.data.schema.names}
        if self._spec.key is not None:
            keys = self._keys(batch.data, self._spec.key)
            found.update(zip(keys.schema.names, keys.columns, strict=True))
        columns = [
            _as_type(found[name], field.type) for name, field in zip(self._spec.names, self._spec.schema, strict=True)
        ]
        out.collect(Batch(pa.RecordBatch.from_arrays(columns, schema=self._spec.schema), batch.timestamps))

    def _keys(self, rows: pa.RecordBatch, key: RecordFormat) -> pa.RecordBatch:
        values = rows.column(KEY)
        decoded = key.decode(values.cast(pa.large_binary()))
        if decoded.bad or values.null_count:
            bad = decoded.bad[0] if decoded.bad else None
            row = pc.index(values.is_null(), True).as_py() if bad is None else bad.index
            topic, partition, offset = (rows.column(name)[row] for name in self._spec.place)
            reason = "it has none" if bad is None else bad.reason
            raise RecordError(
                f"{self._where}: topic {topic.as_py()!r}, partition {partition}, offset {offset}: the record's key "
                f"cannot be read as {key.describe()}: {reason}; mend the producer, or the options of 'key.format'"
            )
        return decoded.rows


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind) and pa.types.is_list(column.type):
        # The headers of a record, which are pairs.
        entries = column.values
        keys, values = entries.field(0).cast(kind.key_type), entries.field(1).cast(kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, values).cast(kind)
    return column if column.type == kind else column.cast(kind)


@dataclass(frozen=True, slots=True)
class DebeziumRowsSpec(OperatorSpec):
    """Creates the operator that gives the rows of envelopes: one for an insert or a delete, two for an update.

    Args:
        schema: of the result: the columns of the images, those beside the envelope, and `OP`.
        payload: the column that has the envelope's fields; None: they are columns.
    """

    schema: pa.Schema
    payload: str | None

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
        names = op.to_pylist()
        rows: list[int] = []
        kinds: list[str] = []
        for row, name in enumerate(names):
            for kind in self._images(name):
                rows.append(row)
                kinds.append(kind)
        if not rows:
            return
        of_before = np.array([kind.startswith("-") for kind in kinds])
        taken = np.array(rows)
        for images, wanted, called in ((before, of_before, "before"), (after, ~of_before, "after")):
            missing = images.is_null().to_numpy(zero_copy_only=False)[taken] & wanted
            if missing.any():
                raise RecordError(
                    f"{self._where}: {called!r} is null in a record of operation {names[taken[missing.argmax()]]!r}; "
                    "have the database log whole rows (PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL)"
                )
        places = pa.array(np.where(of_before, taken, taken + len(names)))
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
            return [rows.column(name) for name in _ENVELOPE]
        payload = rows.column(self._spec.payload)
        return [pc.struct_field(payload, name) for name in _ENVELOPE]

    def _images(self, op: str | None) -> tuple[str, ...]:
        if op is None:
            return ()
        if op not in _IMAGES:
            raise RecordError(f"{self._where}: {op!r} is no operation of Debezium; there are {', '.join(_IMAGES)}")
        return _IMAGES[op]


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
