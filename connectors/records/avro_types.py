"""Avro schemas as Arrow types, and as the schemas that records are read and written by.

The Avro codec calls it. Times travel as numbers, so that no date is beyond what Python's types hold and nothing is
converted record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.engine.errors import ConfigurationError

_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_DECIMAL_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class AvroTypes:
    """What an Avro record schema means.

    Args:
        columns: the fields; not nullable, also within, where the schema has no null.
        physical: the same schema with times as plain numbers.
    """

    columns: pa.Schema
    physical: dict[str, Any]


def avro_types(schema: Any, form: str) -> AvroTypes:
    """The columns of an Avro record schema.

    A union of null and one type is a nullable column, an enum text, a map a map, a record a struct, `duration` and
    `uuid` what they are stored as. A decimal of up to 38 digits is `decimal128`, else `decimal256`.

    Args:
        schema: the schema as parsed JSON.
        form: the format, for messages.

    Raises:
        ConfigurationError: no record, a union of several types, or a type within itself.

    Source: https://avro.apache.org/docs/1.12.0/specification/
    """
    converter = _Converter(form)
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise ConfigurationError(f"{form}: the Avro schema must be a record, whose fields become the columns")
    field, stored = converter.convert(schema, "", "record")
    if not field.type.num_fields:
        raise ConfigurationError(f"{form}: the Avro record has no fields, which would be the columns")
    return AvroTypes(pa.schema(list(field.type)), stored)


class _Converter:
    def __init__(self, form: str) -> None:
        self._form = form
        self._named: dict[str, pa.DataType | None] = {}

    def convert(self, node: Any, namespace: str, path: str) -> tuple[pa.Field, Any]:
        """The column of `node`, named by the caller, and the schema to read it by."""
        if isinstance(node, list):
            return self._union(node, namespace, path)
        if isinstance(node, str):
            return self._by_name(node, namespace, path)
        if not isinstance(node, dict) or "type" not in node:
            raise self._error(path, f"{node!r} is no Avro type")
        kind = node["type"]
        if isinstance(kind, (dict, list)):
            return self.convert(kind, namespace, path)
        convert: Callable[[Any, str, str], tuple[pa.DataType, Any]]
        if kind in ("record", "error", "enum", "fixed"):
            convert = self._declared
        elif kind == "array":
            convert = self._array
        elif kind == "map":
            convert = self._map
        elif kind in _PRIMITIVES:
            convert = self._logical
        else:
            return self._by_name(kind, namespace, path)
        arrow, physical = convert(node, namespace, path)
        return pa.field("", arrow, nullable=pa.types.is_null(arrow)), physical

    def _by_name(self, name: str, namespace: str, path: str) -> tuple[pa.Field, Any]:
        if name in _PRIMITIVES:
            return pa.field("", _PRIMITIVES[name], nullable=name == "null"), name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise self._error(path, f"no Avro type {name!r}")
        arrow = self._named[full]
        if arrow is None:
            raise self._error(path, f"type {name!r} occurs within itself, which no column can hold")
        return pa.field("", arrow, nullable=False), full

    def _union(self, branches: list[Any], namespace: str, path: str) -> tuple[pa.Field, Any]:
        converted = [self.convert(branch, namespace, path) for branch in branches]
        values = [field for field, _ in converted if not pa.types.is_null(field.type)]
        if len(values) > 1:
            raise self._error(path, "a union of several types besides null has no column type")
        nullable = len(values) < len(branches)
        field = values[0] if values else pa.field("", pa.null())
        return field.with_nullable(nullable), [physical for _, physical in converted]

    def _declared(self, node: dict[str, Any], namespace: str, path: str) -> tuple[pa.DataType, Any]:
        name = str(node.get("name", ""))
        space = name.rpartition(".")[0] or str(node.get("namespace", namespace))
        full = name if "." in name or not space else f"{space}.{name}"
        physical = {key: value for key, value in node.items() if key != "namespace"} | {"name": full}
        self._named[full] = None
        arrow: pa.DataType
        if node["type"] == "enum":
            arrow = pa.string()
        elif node["type"] == "fixed":
            arrow, physical = self._fixed(node, physical)
        else:
            arrow, physical["fields"] = self._fields(node, space, path)
        self._named[full] = arrow
        return arrow, physical

    def _fields(self, node: dict[str, Any], space: str, path: str) -> tuple[pa.DataType, list[Any]]:
        fields, physical = [], []
        for part in node.get("fields", []):
            field, inner = self.convert(part["type"], space, f"{path}.{part['name']}")
            fields.append(field.with_name(part["name"]))
            physical.append(part | {"type": inner})
        return pa.struct(fields), physical

    def _fixed(self, node: dict[str, Any], physical: dict[str, Any]) -> tuple[pa.DataType, dict[str, Any]]:
        if node.get("logicalType") == "decimal":
            return _decimal(node), physical
        return pa.binary(int(node["size"])), _plain(physical)

    def _array(self, node: dict[str, Any], namespace: str, path: str) -> tuple[pa.DataType, Any]:
        item, physical = self.convert(node["items"], namespace, f"{path}[]")
        return pa.list_(item.with_name("item")), node | {"items": physical}

    def _map(self, node: dict[str, Any], namespace: str, path: str) -> tuple[pa.DataType, Any]:
        value, physical = self.convert(node["values"], namespace, f"{path}{{}}")
        return pa.map_(pa.string(), value.with_name("value")), node | {"values": physical}

    def _logical(self, node: dict[str, Any], namespace: str, path: str) -> tuple[pa.DataType, Any]:
        kind, logical = node["type"], str(node.get("logicalType", ""))
        if kind == "bytes" and logical == "decimal":
            return _decimal(node), node
        return _TIMES.get((kind, logical), _PRIMITIVES[kind]), _plain(node)

    def _error(self, path: str, reason: str) -> ConfigurationError:
        return ConfigurationError(f"{self._form}: Avro schema, {path}: {reason}")


def _plain(node: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "logicalType"}


def _decimal(node: dict[str, Any]) -> pa.DataType:
    make = pa.decimal128 if node["precision"] <= _DECIMAL_DIGITS else pa.decimal256
    return make(node["precision"], node.get("scale", 0))


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type with everything within it nullable, as columns of streams are."""
    return _rebuilt(kind, lambda leaf: leaf)


def physical(kind: pa.DataType) -> pa.DataType:
    """The type with times as the numbers that Avro stores."""
    return _rebuilt(kind, _number)


def _number(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) else kind


def _rebuilt(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_rebuilt(kind.value_type, leaf))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _rebuilt(kind.item_type, leaf))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _rebuilt(field.type, leaf)) for field in kind])
    return leaf(kind)


def missing(array: pa.Array, field: pa.Field) -> str | None:
    """The path of a null where the schema has none, or None.

    Args:
        array: values of the column.
        field: the column as `AvroTypes.columns` has it.
    """
    if array.null_count and not field.nullable:
        return str(field.name)
    valid = array.drop_null() if array.null_count else array
    inner: list[tuple[pa.Array, pa.Field]] = []
    if pa.types.is_struct(field.type):
        inner = list(zip(valid.flatten(), field.type, strict=True))
    elif pa.types.is_list(field.type):
        inner = [(valid.flatten(), field.type.value_field)]
    elif pa.types.is_map(field.type):
        begin, end = valid.offsets[0].as_py(), valid.offsets[-1].as_py()
        inner = [(valid.items.slice(begin, end - begin), field.type.item_field)]
    found = (missing(part, within) for part, within in inner)
    return next((f"{field.name}.{path}" for path in found if path), None)
