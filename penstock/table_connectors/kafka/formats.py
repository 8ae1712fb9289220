"""What Kafka adds to formats of records: values that may be missing, and columns of other names than the record's.

The sources and sinks of the tables wrap the table's formats in them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.records.format import Decoded, RecordFormat

OP: Final = "$op"
"""The column that says what a row does: +I, -U, +U or -D."""
DELETED: Final = "-D"
THERE: Final = "+U"
"""What it says of a record without a value, and of one with a value."""


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
        op = pc.if_else(missing, DELETED, THERE)
        return Decoded(pa.RecordBatch.from_arrays([*decoded.rows.columns, op], schema=self._schema), decoded.bad)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        values = self._format.encode(rows.select(self._format.schema.names))
        return pc.if_else(pc.equal(rows.column(OP), DELETED), pa.scalar(None, values.type), values)

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
