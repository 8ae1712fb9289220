"""What the changelog operators take: modes of changelogs, and columns of the declared types, without dictionaries."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.changelog import APPEND_ONLY, WITH_BEFORE_IMAGES, ChangelogMode
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


def accepted(takes: ChangelogMode) -> AbstractSet[ChangelogMode]:
    """The modes that an input accepts of which the plan says that it comes in the mode `takes`."""
    return APPEND_ONLY if takes is ChangelogMode.APPEND else WITH_BEFORE_IMAGES
