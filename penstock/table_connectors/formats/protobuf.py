"""Messages of Protobuf as rows of a table: some of a message's fields, in the table's order, with its types.

`options.py` makes it for the format `protobuf` of CREATE TABLE.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.records.format import BadRecord, Decoded, RecordFormat
from penstock.engine.elements import table_to_record_batch
from penstock.engine.errors import ConfigurationError, RecordError, nearest
from penstock.table_connectors.options import TableOptions

if TYPE_CHECKING:
    from penstock.connectors.records.protobuf_format import ProtobufFormat


class ProtobufColumns(RecordFormat):
    """The fields of messages that a table has columns for; others are left out when read, and not set when written.

    Args:
        format: of whole messages.
        schema: the table's columns.
    """

    def __init__(self, format: ProtobufFormat, schema: pa.Schema) -> None:  # noqa: A002 - the word users look for
        self._format, self._schema = format, schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        found = self._format.decode(values)
        try:
            return Decoded(self._typed(found.rows), found.bad)
        except pa.ArrowInvalid:
            return self._typed_each(found, len(values))

    def _typed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as the table's types: times lose digits, and a number that does not fit is an error."""
        columns = [
            rows.column(field.name).cast(options=pc.CastOptions(field.type, allow_time_truncate=True))
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _typed_each(self, found: Decoded, count: int) -> Decoded:
        """The same row by row: those that do not fit are bad records."""
        bad = {one.index: one for one in found.bad}
        rows: list[pa.RecordBatch] = []
        good = [index for index in range(count) if index not in bad]
        for place, index in enumerate(good):
            try:
                rows.append(self._typed(found.rows.slice(place, 1)))
            except pa.ArrowInvalid as error:
                bad[index] = BadRecord(index, f"a field does not fit its column: {error}")
        whole = pa.Table.from_batches(rows, self._schema)
        return Decoded(table_to_record_batch(whole), [bad[index] for index in sorted(bad)])

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        columns = []
        for field in self._format.schema:
            if field.name not in self._schema.names:
                columns.append(pa.nulls(rows.num_rows, field.type))
                continue
            try:
                columns.append(rows.column(field.name).cast(field.type))
            except pa.ArrowInvalid as error:
                raise RecordError(f"column {field.name!r} does not fit the message's field: {error}") from None
        return self._format.encode(pa.RecordBatch.from_arrays(columns, schema=self._format.schema))

    def describe(self) -> str:
        return self._format.describe()


def protobuf_columns(options: TableOptions, prefix: str, schema: pa.Schema) -> ProtobufColumns:
    """The format that the options of a table name.

    Args:
        options: of the table; those of the format begin with `prefix` and `protobuf.`.
        prefix: nothing, `value.` or `key.`.
        schema: the columns.

    Raises:
        SqlValidationError: the file cannot be read, there is no such message, or it has no such field.
    """
    from penstock.connectors.records.protobuf_format import ProtobufFormat

    named, file = f"{prefix}protobuf.message-class-name", f"{prefix}protobuf.descriptor-file"
    message = options.required(named, "the format 'protobuf'")
    path = options.required(file, "the format 'protobuf'")
    try:
        descriptors = Path(path).read_bytes()
    except OSError as error:
        raise options.invalid(
            file,
            f"{path!r} cannot be read ({error.strerror}); write it by protoc --include_imports --descriptor_set_out",
        ) from None
    try:
        found = ProtobufFormat(descriptors, message)
    except ConfigurationError as error:
        raise options.invalid(named, str(error)) from None
    for field in schema:
        if field.name not in found.schema.names:
            hint = nearest(field.name, found.schema.names)
            raise options.invalid(
                named, f"the message {message} has no field {field.name!r}{hint}: {', '.join(found.schema.names)}"
            )
        own = found.schema.field(field.name).type
        try:
            pa.nulls(0, own).cast(field.type)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise options.invalid(named, f"the field {field.name!r} of {message} is {own}, not {field.type}") from None
    return ProtobufColumns(found, schema)
