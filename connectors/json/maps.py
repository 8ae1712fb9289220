"""Maps in JSON: objects whose fields are the entries. Arrow's parser knows none, so they reach it as lists of entries.

The JSON format and the reader of JSON files call it for columns that are, or hold, maps; all other text stays as it is.
The writers get rows from it whose maps are dicts. Of keys that occur twice the last counts, read and written, as in
Flink.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa


class _Number(str):
    """A number as it is written, which no float has to hold."""


class _Object(list[tuple[str, Any]]):
    """The fields of an object, also those that occur twice."""


class MapTexts:
    """Writes objects that are to be maps as lists of entries: `{"a": 1}` becomes `[{"key": "a", "value": 1}]`.

    Args:
        schema: the columns.

    Example:
        >>> MapTexts(pa.schema([("m", pa.map_(pa.string(), pa.int64()))])).as_entries('{"m": {"a": 1}}')
        '{"m":[{"key":"a","value":1}]}'
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._row = pa.struct(list(schema))
        self.are_there = _holds_maps(self._row)
        """Whether a column is a map, or holds one."""

    def as_entries(self, text: str) -> str:
        """The text of an object with entries in the place of maps.

        Raises:
            ValueError: no JSON, or a map that is no object.
        """
        try:
            value = json.loads(
                text, parse_float=_Number, parse_int=_Number, parse_constant=_Number, object_pairs_hook=_Object
            )
            return _written(value, self._row)
        except RecursionError:
            raise ValueError("values are within each other too often") from None


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, with dicts for maps. Arrow would warn of each key that occurs twice."""
    as_dicts = _as_dicts(pa.struct(list(batch.schema)))
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows if as_dicts is None else list(map(as_dicts, rows))


def _as_dicts(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes dicts of the maps in a value of this type; None: it holds none."""
    if not _holds_maps(kind):
        return None
    if pa.types.is_struct(kind):
        parts = {field.name: part for field in kind if (part := _as_dicts(field.type)) is not None}
        return lambda row: row and {**row, **{name: part(row[name]) for name, part in parts.items()}}
    if pa.types.is_map(kind):
        of_value = _as_dicts(kind.item_type) or _same
        return lambda entries: None if entries is None else {key: of_value(value) for key, value in entries}
    of_item = _as_dicts(kind.value_type) or _same
    return lambda items: None if items is None else list(map(of_item, items))


def _same(value: Any) -> Any:
    return value


def _holds_maps(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_holds_maps(kind.field(i).type) for i in range(kind.num_fields))


def _written(value: Any, kind: pa.DataType | None) -> str:
    """The value as JSON; `kind` is what it is to become, None where nobody wants it."""
    if isinstance(value, _Number):
        return value
    if kind is not None and pa.types.is_map(kind):
        if isinstance(value, list) and not isinstance(value, _Object):
            raise ValueError("a list is no map; a map is an object, whose fields are its entries")
        return _entries(value, kind.item_type) if isinstance(value, _Object) else json.dumps(value)
    if isinstance(value, _Object):
        types = {field.name: field.type for field in kind} if kind is not None and pa.types.is_struct(kind) else {}
        return f"{{{','.join(f'{json.dumps(k)}:{_written(v, types.get(k))}' for k, v in value)}}}"
    if isinstance(value, list):
        inner = kind.value_type if kind is not None and _is_list(kind) else None
        return f"[{','.join(_written(item, inner) for item in value)}]"
    return json.dumps(value)


def _entries(fields: _Object, kind: pa.DataType) -> str:
    entries = (f'{{"key":{json.dumps(key)},"value":{_written(value, kind)}}}' for key, value in dict(fields).items())
    return f"[{','.join(entries)}]"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
