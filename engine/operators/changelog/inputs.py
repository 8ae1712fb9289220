"""Columns as the changelog operators keep them: of the declared types, without dictionaries."""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.elements import with_types


def plain_columns(schema: pa.Schema) -> pa.Schema:
    """The columns with plain types, all nullable, without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` in its order and of its types, which differ from those of `rows` by form alone."""
    chosen = rows if rows.schema.names == schema.names else rows.select(schema.names)
    if chosen.schema.equals(schema):
        return chosen
    return with_types(chosen, schema)
