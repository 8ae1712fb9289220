"""Rows of tables of Kafka's records: keys, metadata and tombstones.

`sources.py` puts the operator between the connector and the table. It handles each record by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.records.format import RecordFormat
from penstock.engine.changelog import APPEND_ONLY
from penstock.engine.elements import Batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.table_connectors.kafka.formats import DELETED, OP
from penstock.table_connectors.typed_columns import as_type

KEY: Final = "$key"
"""The column with the bytes of the record's key."""
PLACE: Final = ("topic", "partition", "offset")
"""The metadata that tells where a record is."""
BadRecords: TypeAlias = Literal["fail", "leave out"]
"""What becomes of a record that is no row: the job fails, or continues without it."""


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
            is_missing = pc.equal(batch.data.column(OP), DELETED)
            batch = batch.filter(pc.invert(is_missing.fill_null(False)))
        found: dict[str, pa.Array] = {}
        if self._spec.keys is not None:
            batch, read = self._with_keys(batch, self._spec.keys)
            found = dict(zip(read.schema.names, read.columns, strict=True))
        if not batch.num_rows:
            return
        columns = [
            as_type(found[name] if name in found else batch.data.column(name), field.type)
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
                f"{self._where}: {shown_place(batch.data, keys.place, row)}: the record's key cannot be read as "
                f"{keys.format.describe()}: {bad.get(row, 'it has none')}; mend the producer, or the options of "
                "'key.format'"
            )
        can_be_read = np.ones(len(values), np.bool_)
        can_be_read[list(bad)] = False
        is_there = values.is_valid()
        rows = decoded.rows.filter(is_there.filter(pa.array(can_be_read)))
        return batch.filter(pc.and_(is_there, pa.array(can_be_read))), rows


def shown_place(records: pa.RecordBatch, place: Sequence[str], row: int) -> str:
    """Where a record is, by its columns with the metadata of `PLACE`."""
    topic, partition, offset = (records.column(name)[row].as_py() for name in place)
    return f"topic {topic!r}, partition {partition}, offset {offset}"
