"""Which field of a JSON object Arrow's parser refuses: it reads whole objects, and does not say where it fails.

The JSON format and the reader of JSON files name that field of a bad record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.json as pj

from penstock.connectors.json.maps import MapTexts
from penstock.connectors.json.types import from_wire, wire_type
from penstock.connectors.records.batches import PARSE_ERRORS, error_text, held_decimals
from penstock.connectors.times import parsed

_BLANK: Final = " \t\r\n"


def refused_field(record: bytes, schema: pa.Schema, error: Exception) -> str | None:
    """The field with its type, and what is wrong with it; None where no field fails by itself.

    Args:
        record: one object, in braces.
        schema: the columns; a field without one is read, too.
        error: what the parser raised on the record; fields of a type that it names are tried first.

    Example:
        >>> schema = pa.schema([("a", pa.int64()), ("f", pa.float64())])
        >>> refused_field(b'{"a": 1, "f": 1e400}', schema, ValueError())
        "field 'f' (double): Number too big to be stored in double."
    """
    text = record.decode("utf-8")
    try:
        alone = dict(_fields(text))
    except (ValueError, RecursionError):  # of a limit of Python's, or a second spelling of Infinity that Arrow has
        alone = dict.fromkeys(schema.names, text)
    for field in sorted(schema, key=lambda field: str(wire_type(field.type)) not in str(error)):
        if field.name in alone and (reason := _reason(alone[field.name], pa.schema([field]))):
            return f"field {field.name!r} ({field.type}): {reason}"
    for name in alone:
        if name not in schema.names and (reason := _reason(alone[name], pa.schema([]))):
            return f"field {name!r}: {reason}"
    return None


def plain_reason(error: Exception) -> str:
    """The error's own words, without where Arrow saw it."""
    return error_text(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")


def _fields(record: str) -> Iterator[tuple[str, str]]:
    """Of each field its name, and an object of it alone as it is written; a name that comes twice is in both.

    Raises:
        ValueError, RecursionError: Python does not know it as JSON.
    """
    decoder, written = json.JSONDecoder(), dict[str, str]()
    at = _behind(record, 0, "{")
    while record[at] != "}":
        name, colon = decoder.raw_decode(record, at)
        value = _behind(record, colon, ":")
        _, end = decoder.raw_decode(record, value)
        written[name] = f"{written[name]}, {record[at:end]}" if name in written else record[at:end]
        yield name, f"{{{written[name]}}}"
        at = _next(record, end)
        at = _behind(record, at, ",") if record[at] == "," else at


def _next(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _BLANK:
        at += 1
    if at == len(text):
        raise ValueError("the object does not end")
    return at


def _behind(text: str, at: int, mark: str) -> int:
    at = _next(text, at)
    if text[at] != mark:
        raise ValueError(f"no {mark}")
    return _next(text, at + 1)


def _reason(text: str, schema: pa.Schema) -> str | None:
    """Why the parser refuses an object for these columns."""
    wire = pa.schema([(field.name, wire_type(field.type)) for field in schema])
    maps = MapTexts(schema)
    try:
        data = (maps.as_entries(text) if maps.are_there else text).encode("utf-8")
        rows = parsed(lambda wanted: read_some(data, wanted), wire, from_wire)
        arrays = [from_wire(array, field.type) for array, field in zip(rows.columns, schema, strict=True)]
        held_decimals(pa.RecordBatch.from_arrays(arrays, schema=schema))
    except PARSE_ERRORS as error:
        return plain_reason(error)
    return None


def read_some(text: bytes | pa.Buffer, wire: pa.Schema) -> pa.Table:
    """The rows of objects, one behind the other, with these columns alone."""
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior="ignore"),
    )
