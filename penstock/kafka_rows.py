"""Rows of tables of Kafka's records, and records of rows: keys, metadata, tombstones, and Debezium's envelopes.

`kafka_tables.py` puts these operators between the connector and the table. Each handles a record by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
_DELETED, _THERE = "-D", "+U"
_ENVELOPE: Final = ("before", "after", "op")
_CREATE, _READ, _UPDATE, _DELETE = "c", "r", "u", "d"
_COME: Final = (_CREATE, _READ, _UPDATE)
"""The operations of records that are a row after."""
_GO: Final = (_UPDATE, _DELETE)
"""Those of records that are a row before."""
BadRecords: TypeAlias = Literal["fail", "leave out"]
"""What becomes of a record that is no row: the job fails, or goes on without it."""
_Bools: TypeAlias = "npt.NDArray[np.bool_]"


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
        op = pc.if_else(missing, _DELETED, _THERE)
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
class RecordKeys:
    """How columns are made of the source's `KEY`.

    Args:
        format: makes them.
        place: the columns of the source that have the metadata of `PLACE`, for messages.
        bad: what becomes of a record whose key cannot be read.
    """

    format: RecordFormat
    place: tuple[str, ...]
    bad: BadRecords = "fail"


@dataclass(frozen=True, slots=True)
class RecordRowsSpec(OperatorSpec):
    """Creates the operator that gives the columns of a table, of what the source gives.

    Args:
        schema: the table's columns, and `OP` behind them where the source has it.
        names: for each of them, the column of the source or of the key that it is.
        keys: how the key's columns are read; None: none is asked for.
        error: the column of the source that says why a record could not be read; None: it has none.
    """

    schema: pa.Schema
    names: tuple[str, ...]
    keys: RecordKeys | None = None
    error: str | None = None

    def create(self) -> Operator:
        return RecordRows(self)

    def describe(self) -> str:
        return "rows of records"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(APPEND_ONLY,))


class RecordRows(Operator):
    """Picks and casts columns; leaves records out that could not be read, and those without a value that are no row."""

    def __init__(self, spec: RecordRowsSpec) -> None:
        self._spec = spec

    def open(self, context: OperatorContext) -> None:
        self._where = context.where

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._spec.error is not None:
            batch = batch.filter(pc.is_null(batch.data.column(self._spec.error)))
        if OP in batch.data.schema.names and OP not in self._spec.names:
            is_missing = pc.equal(batch.data.column(OP), _DELETED)
            batch = batch.filter(pc.invert(is_missing.fill_null(False)))
        found: dict[str, pa.Array] = {}
        if self._spec.keys is not None:
            batch, read = self._with_keys(batch, self._spec.keys)
            found = dict(zip(read.schema.names, read.columns, strict=True))
        if not batch.num_rows:
            return
        columns = [
            _as_type(found[name] if name in found else batch.data.column(name), field.type)
            for name, field in zip(self._spec.names, self._spec.schema, strict=True)
        ]
        out.collect(Batch(pa.RecordBatch.from_arrays(columns, schema=self._spec.schema), batch.timestamps))

    def _with_keys(self, batch: Batch, keys: RecordKeys) -> tuple[Batch, pa.RecordBatch]:
        """The records whose keys can be read, and the columns of these."""
        values = batch.data.column(KEY).cast(pa.large_binary())
        decoded = keys.format.decode(values)
        if not decoded.bad and not values.null_count:
            return batch, decoded.rows
        bad = {one.index: one.reason for one in decoded.bad}
        if keys.bad == "fail":
            row = min((*bad, *np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist()))
            raise RecordError(
                f"{self._where}: {_shown_place(batch.data, keys.place, row)}: the record's key cannot be read as "
                f"{keys.format.describe()}: {bad.get(row, 'it has none')}; mend the producer, or the options of "
                "'key.format'"
            )
        can_be_read = np.ones(len(values), np.bool_)
        can_be_read[list(bad)] = False
        is_there = values.is_valid()
        rows = decoded.rows.filter(is_there.filter(pa.array(can_be_read)))
        return batch.filter(pc.and_(is_there, pa.array(can_be_read))), rows


def _shown_place(records: pa.RecordBatch, place: Sequence[str], row: int) -> str:
    topic, partition, offset = (records.column(name)[row].as_py() for name in place)
    return f"topic {topic!r}, partition {partition}, offset {offset}"


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
        bad = no_before | no_after | (_is_in(batch.data.column(OP), (_THERE,)) & ~comes & ~goes)
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
        kinds = np.where(of_before, np.where(updates, "-U", _DELETED), np.where(updates, "+U", "+I"))
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
            return [rows.column(name) for name in _ENVELOPE]
        payload = rows.column(self._spec.payload)
        return [pc.struct_field(payload, name) for name in _ENVELOPE]

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
        return RecordError(f"{self._where}: {_shown_place(records, self._spec.place, row)}: {problem}")


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
