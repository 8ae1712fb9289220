"""The Avro format: a record is one datum in Avro's binary encoding, without a file header.

Connectors call it, and the schema registry's format for the datum behind its own header. The columns follow from the
schema, times included.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.connectors.records.avro_types import avro_types, missing, nullable, physical
from penstock.connectors.records.batches import (
    Row,
    as_values,
    decode_each,
    encode_failure,
    error_text,
    fit_rows,
    load_library,
)
from penstock.connectors.records.format import Decoded, RecordFormat
from penstock.engine.errors import ConfigurationError

_FORM: Final = "Avro records"
_EXTRA: Final = "avro"

AvroSchemaLike: TypeAlias = "str | Mapping[str, Any]"
"""An Avro record schema: JSON text, or what that text parses to."""


class AvroCodec:
    """Reads and writes single datums of one Avro record schema.

    Args:
        schema: the schema.

    Raises:
        ConfigurationError: no valid Avro schema, no record, a type without a column type, or fastavro is missing.
    """

    def __init__(self, schema: AvroSchemaLike) -> None:
        fastavro = load_library("fastavro", _EXTRA, _FORM)
        try:
            self.text = schema if isinstance(schema, str) else json.dumps(schema)
            node = json.loads(self.text)
            fastavro.parse_schema(node)
        except Exception as error:  # fastavro raises KeyError, TypeError and errors of its own
            raise ConfigurationError(
                f"{_FORM}: no valid Avro schema: {error_text(error)}; give that of a record, such as "
                '{"type": "record", "name": "Visit", "fields": [{"name": "id", "type": "long"}]}'
            ) from error
        types = avro_types(node, _FORM)
        self._columns = types.columns
        self._parsed = fastavro.parse_schema(types.physical)
        self._fastavro = fastavro
        self.schema = pa.schema([(field.name, nullable(field.type)) for field in types.columns])

    def __reduce__(self) -> tuple[type[AvroCodec], tuple[str]]:
        return AvroCodec, (self.text,)

    def read(self, value: bytes, start: int = 0, writer: AvroCodec | None = None) -> Row:
        """The row of the datum that begins at byte `start`; `writer` has the schema that it was written by.

        Raises:
            Exception: whatever fastavro raises on bytes that are no such datum; ValueError on bytes left over.
        """
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            if writer is None:
                row: Row = self._fastavro.schemaless_reader(stream, self._parsed)
            else:
                row = self._fastavro.schemaless_reader(stream, writer._parsed, self._parsed)
        except EOFError as error:
            raise ValueError(f"the record ends within a value, after {len(value)} bytes") from error
        if rest := len(value) - stream.tell():
            raise ValueError(f"{rest} bytes are left over behind the record; was it written by another schema?")
        return row

    def write_all(self, rows: pa.RecordBatch, prefix: bytes = b"") -> pa.LargeBinaryArray:
        """A datum for each row, behind `prefix`.

        Raises:
            RecordError: a null where the schema has none, or a value that does not fit.
        """
        rows = fit_rows(rows, self.schema, _FORM)
        try:
            self._check_nulls(rows)
            stored = [column.cast(physical(column.type)) for column in rows.columns]
            datums = pa.RecordBatch.from_arrays(stored, names=rows.schema.names).to_pylist(maps_as_pydicts="strict")
            return as_values([self._write(datum, self._parsed, prefix) for datum in datums])
        except Exception as error:  # fastavro raises all kinds of errors on values that do not fit
            raise encode_failure(rows, self._write_field, _FORM, error) from error

    def _check_nulls(self, rows: pa.RecordBatch) -> None:
        for name in rows.schema.names:
            if path := missing(rows.column(name), self._columns.field(name)):
                raise ValueError(f"{path!r} is null, which the Avro schema does not allow")

    def _write_field(self, cell: pa.RecordBatch) -> None:
        self._check_nulls(cell)
        name = cell.schema.names[0]
        stored = cell.column(0).cast(physical(cell.schema.types[0]))
        datum = stored.to_pylist(maps_as_pydicts="strict")[0]
        field = next(part for part in self._parsed["fields"] if part["name"] == name)
        self._write({name: datum}, self._parsed | {"fields": [field]}, b"")

    def _write(self, datum: Row, schema: Any, prefix: bytes) -> bytes:
        stream = io.BytesIO()
        stream.write(prefix)
        self._fastavro.schemaless_writer(stream, schema, datum)
        return stream.getvalue()


class AvroFormat(RecordFormat):
    """One datum of a record schema, in Avro's binary encoding.

    Columns are the fields: a union of null and one type is nullable, an enum text, a record a struct, an array a list,
    a map a map; the logical types date, time, timestamp, local timestamp (milli-, micro- and nanoseconds) and decimal
    are Arrow's; `uuid` is text. A record that is cut off, or has bytes left over, is bad. A null value (a tombstone) is
    a row of nulls, and a row whose columns are all null is written as a record, never as a tombstone.

    Args:
        schema: the schema that all records are written by, as JSON text or parsed.

    Raises:
        ConfigurationError: no Avro record schema, a union of several types, or fastavro is missing.

    Example:
        >>> schema = {"type": "record", "name": "Visit", "fields": [{"name": "id", "type": "long"}]}
        >>> AvroFormat(schema).schema.field("id").type
        DataType(int64)
    """

    def __init__(self, schema: AvroSchemaLike) -> None:
        self._codec = AvroCodec(schema)

    @property
    def schema(self) -> pa.Schema:
        return self._codec.schema

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        return decode_each(values, self.schema, self._codec.read)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        return self._codec.write_all(rows)

    def describe(self) -> str:
        return "avro"
