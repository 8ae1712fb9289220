"""Records of JSON that must have a field for each column: what `json.fail-on-missing-field` means in Flink.

`options.py` wraps the JSON of tables in it. A field that is there may be null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.records.format import BadRecord, Decoded
from penstock.table_connectors.formats.mending import ReadingFormat


class RequiredFields(ReadingFormat):
    """A format of JSON in which a record without one of the fields is bad, also where it is one of a row's.

    What has no null lacks nothing; so only the others are looked at again, one by one.

    Args:
        format: reads and writes the records.
    """

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        found = self._format.decode(values)
        refused = {one.index for one in found.bad}
        places = [place for place in range(len(values)) if place not in refused]
        lacking = {}
        suspects = _may_lack(found.rows.to_struct_array())
        for row in pc.indices_nonzero(suspects).to_pylist():
            record = values[places[row]].as_py()
            # A tombstone is no object that lacks something.
            missing = None if record is None else _missing_in(record, self.schema)
            if missing is not None:
                lacking[row] = BadRecord(
                    places[row], f"there is no field {missing!r}; it may be null, but must be there"
                )
        if not lacking:
            return found
        kept = [row for row in range(found.rows.num_rows) if row not in lacking]
        bad = sorted([*found.bad, *lacking.values()], key=lambda one: one.index)
        return Decoded(found.rows.take(pa.array(kept, pa.int64())), bad)


def missing_field(value: Any, kind: pa.DataType | pa.Schema) -> str | None:
    """The path of the first field that a value of JSON lacks, such as `user.name`; None: all are there.

    Args:
        value: of JSON.
        kind: what it becomes; rows stand also within arrays and maps.

    Example:
        >>> missing_field({"user": {}}, pa.schema({"user": pa.struct({"name": pa.string()})}))
        'user.name'
    """
    if value is None:
        return None
    if isinstance(kind, (pa.Schema, pa.StructType)):
        for field in kind:
            if field.name not in value:
                return str(field.name)
            if missing := missing_field(value[field.name], field.type):
                return f"{field.name}.{missing}"
        return None
    parts: Iterable[Any] = ()
    if pa.types.is_map(kind):
        parts, kind = value.values(), kind.item_type
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts, kind = value, kind.value_type
    return next((missing for part in parts if (missing := missing_field(part, kind))), None)


def _missing_in(record: bytes, schema: pa.Schema) -> str | None:
    try:
        return missing_field(json.loads(record), schema)
    except (
        ValueError,
        RecursionError,
    ):  # Arrow's parser has taken it: it knows a second spelling of Infinity, and deeper nesting
        return None


def _may_lack(column: pa.Array) -> pa.BooleanArray:
    """Of each value, whether it is null or has a null within."""
    kind, found = column.type, column.is_null()
    if pa.types.is_struct(kind):
        for part in column.flatten():
            found = pc.or_(found, _may_lack(part))
    elif pa.types.is_nested(kind) and pa.types.is_nested(kind.item_type if pa.types.is_map(kind) else kind.value_type):
        found = pa.repeat(pa.scalar(True), len(column))
    return found
