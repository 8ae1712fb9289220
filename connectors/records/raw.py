"""The raw format: a record's bytes as they are, in one column.

Connectors call it. Binary columns take any bytes; text columns refuse bytes that are no UTF-8.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.connectors.records.batches import decode_whole, error_text, fit_rows, utf8_reason
from penstock.connectors.records.format import Decoded, RecordFormat
from penstock.engine.errors import ConfigurationError
from penstock.engine.schemas import TypeLike, parse_type


class RawFormat(RecordFormat):
    """One column with the bytes of each record.

    A null value (a tombstone) is a null, and a null is written as a null value.

    Args:
        column: name of the column.
        kind: `"binary"`, or `"string"` for text in UTF-8 (also `"large_binary"` and `"large_string"`, for batches of
            more than 2 GB).

    Raises:
        ConfigurationError: `kind` is neither bytes nor text.

    Example:
        >>> import pyarrow as pa
        >>> RawFormat("line", "string").decode(pa.array([b"to be"], pa.large_binary())).rows.to_pylist()
        [{'line': 'to be'}]
    """

    def __init__(self, column: str = "value", kind: TypeLike = "binary") -> None:
        self._type = parse_type(kind, f"raw records: column {column!r}")
        if self._type not in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string()):
            raise ConfigurationError(
                f"raw records: column {column!r} cannot be {self._type}; give 'binary', or 'string' for text in UTF-8"
            )
        self._schema = pa.schema([(column, self._type)])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        return decode_whole(values, self._schema, self._parse, self._surely_bad, _reason)

    def _parse(self, values: pa.LargeBinaryArray) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([values.cast(self._type)], schema=self._schema)

    def _surely_bad(self, value: bytes) -> str | None:
        return None if "binary" in str(self._type) else utf8_reason(value)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        column = fit_rows(rows, self._schema, "raw records").column(0)
        return column.cast(pa.large_binary())

    def describe(self) -> str:
        return f"raw {self._type}"


def _reason(value: bytes, error: Exception) -> str:
    return error_text(error)
