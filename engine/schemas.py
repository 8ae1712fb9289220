"""How users declare columns: names with types, as Arrow objects or as text.

Called on the `schema` argument of connectors and on the `returns` argument of the streams' verbs. The schemas that it
gives are plain: every column nullable, no metadata, no column twice, so that equal columns compare as equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.engine.errors import ConfigurationError

TypeLike: TypeAlias = "pa.DataType | str | type"
"""A column type: `pa.int64()`, a Python type (bool, int, float, str, bytes), or text such as `"int64"`,
`"timestamp[ms, tz=UTC]"`, `"list<string>"`."""
SchemaLike: TypeAlias = "Mapping[str, TypeLike] | pa.Schema"
"""Declared columns: a mapping from name to type, or an Arrow schema."""

_TIMESTAMP: Final = re.compile(r"timestamp\[\s*(s|ms|us|ns)\s*,\s*(?:tz=)?\s*(.+?)\s*\]")
_DECIMAL: Final = re.compile(r"decimal(?:128)?[\[(]\s*(\d+)\s*,\s*(-?\d+)\s*[\])]")
_LIST: Final = re.compile(r"list<(?:item:)?(.+)>")
_STRUCT: Final = re.compile(r"struct<(.+)>")


_PYTHON_TYPES: Final[Mapping[type, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}


def parse_type(value: TypeLike, where: str) -> pa.DataType:
    """The Arrow type that `value` means.

    Args:
        value: an Arrow type; one of bool, int, float, str and bytes; or an Arrow type's name: Arrow's own (`int64`,
            `float64`, `string`, `bool`, `date32`, `timestamp[ms]`), `timestamp[ms, tz=UTC]`, `decimal128(10, 2)`,
            `list<...>`, `struct<name: type, ...>`.
        where: what the type belongs to, for messages.

    Raises:
        ConfigurationError: no such type.

    Example:
        >>> parse_type("timestamp[ms, tz=UTC]", "column 'ts'")
        TimestampType(timestamp[ms, tz=UTC])
    """
    if isinstance(value, pa.DataType):
        return value
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    if isinstance(value, str):
        text = value.strip()
        try:
            if match := _TIMESTAMP.fullmatch(text):
                pa.lib.string_to_tzinfo(match[2])
                return pa.timestamp(match[1], tz=match[2])
            if match := _DECIMAL.fullmatch(text):
                return pa.decimal128(int(match[1]), int(match[2]))
            if match := _LIST.fullmatch(text):
                return pa.list_(parse_type(match[1], where))
            if match := _STRUCT.fullmatch(text):
                pairs = [part.partition(":") for part in _parts(match[1])]
                return pa.struct([(name.strip(), parse_type(kind.strip(), where)) for name, _, kind in pairs])
            return pa.type_for_alias(text)
        except (ValueError, KeyError):
            pass
    raise ConfigurationError(
        f"{where}: {value!r} is no type; give an Arrow type, or text such as 'int64', 'float64', 'string', "
        "'bool', 'date32', 'timestamp[ms]', 'timestamp[ms, tz=UTC]', 'decimal128(10, 2)' or 'list<int64>'"
    )


def _parts(text: str) -> list[str]:
    """The fields of a struct: cut at the commas that are in no brackets."""
    depths = accumulate((character in "<[(") - (character in ">])") for character in text)
    commas = [i for i, depth in enumerate(depths) if text[i] == "," and not depth]
    begins, ends = [0, *(comma + 1 for comma in commas)], [*commas, len(text)]
    return [text[begin:end] for begin, end in zip(begins, ends, strict=True)]


def parse_schema(declared: SchemaLike, where: str) -> pa.Schema:
    """The plain Arrow schema that `declared` means; `where` names the connector in messages.

    Raises:
        ConfigurationError: neither a mapping nor a schema, no columns, a column twice, or an unknown type.

    Example:
        >>> parse_schema({"carrier": "string", "delay": pa.int64()}, "files").names
        ['carrier', 'delay']
    """
    if isinstance(declared, pa.Schema):
        return plain_schema(declared, where)
    if not isinstance(declared, Mapping):
        raise ConfigurationError(
            f"{where}: columns are declared by a mapping from name to type, such as {{'word': 'string'}}, or by a "
            f"pyarrow.Schema, not by {declared!r}"
        )
    for name in declared:
        if not isinstance(name, str):
            raise ConfigurationError(f"{where}: column names must be text, not {name!r}")
    fields = [(name, parse_type(value, f"{where}: column {name!r}")) for name, value in declared.items()]
    return plain_schema(pa.schema(fields), where)


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """The same columns, those of dictionaries as their values."""
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)], schema.metadata)


def plain_schema(schema: pa.Schema, where: str) -> pa.Schema:
    """The same columns, all nullable and without metadata.

    Raises:
        ConfigurationError: no columns, or a column twice.
    """
    if not schema.names:
        raise ConfigurationError(f"{where}: there are no columns; give at least one")
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise ConfigurationError(f"{where}: column {twice[0]!r} occurs twice; give each column its own name")
    return pa.schema([(field.name, field.type) for field in schema])
