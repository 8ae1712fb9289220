"""The JSON format: a record is one object, its fields are the columns.

Connectors call it. Arrow parses whole batches at once, without a Python object for each record; where it refuses a
batch, the bad records are told apart by the same parser, so that a good one always gives the same row.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.json.layouts import Layouts
from penstock.connectors.json.maps import MapTexts
from penstock.connectors.json.texts import JsonForm
from penstock.connectors.json.types import from_wire, is_writable, json_lines, wire_type
from penstock.connectors.records.batches import (
    PARSE_ERRORS,
    as_texts,
    as_values,
    decode_whole,
    encode_failure,
    fit_rows,
    held_decimals,
    join_values,
    utf8_reason,
)
from penstock.connectors.records.format import Decoded, RecordFormat
from penstock.connectors.records.json_fields import plain_reason, read_some, refused_field
from penstock.connectors.times import parsed, refuse_far_times
from penstock.engine.errors import ConfigurationError
from penstock.engine.schemas import SchemaLike, parse_schema

_FORM: Final = "JSON records"
_WHITESPACE: Final = " \t\r\n"
_JSON_NAMES: Final = {
    bool: "boolean", int: "number", float: "number", str: "string", dict: "object", list: "array"
}  # fmt: skip


class JsonFormat(RecordFormat):
    """One JSON object a record.

    A field that a record does not have is null, and a field without a column is ignored. Times are ISO-8601 text,
    bytes base64, decimals numbers or text, maps objects, durations numbers in the column's unit; `NaN` and `Infinity`
    are taken where the column is floating. A number that the column's type cannot hold, one with a point or an exponent
    (`1.0`, `1e3`) where it is of whole numbers, text where a number belongs, a field that occurs twice, or bytes that
    are no UTF-8 make a record bad. A null value (a tombstone) is a row of nulls; the text `null` is a bad record.

    Written are all columns, a null as `null`, in the column's order; NaN and infinities as `null`. A row whose columns
    are all null is written as an object like any other, never as a tombstone.

    Args:
        schema: the columns, as `{"id": "int64", ...}` or an Arrow schema.
        form: how rows are written, where it is not the usual form.

    Raises:
        ConfigurationError: no column, or one of a type that JSON cannot become.

    Example:
        >>> import pyarrow as pa
        >>> JsonFormat({"id": "int64"}).decode(pa.array([b'{"id": 1}', b"{"], pa.large_binary())).rows.to_pylist()
        [{'id': 1}]
    """

    def __init__(self, schema: SchemaLike, form: JsonForm | None = None) -> None:
        self._schema = parse_schema(schema, _FORM)
        self._form = form
        self._wire = pa.schema([(field.name, wire_type(field.type)) for field in self._schema])
        self._layouts = Layouts(self._wire)
        self._maps = MapTexts(self._schema)
        for field in self._schema:
            _check_type(field)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.LargeBinaryArray) -> Decoded:
        return decode_whole(values, self._schema, self._parse, self._surely_bad, self._reason)

    def _parse(self, values: pa.LargeBinaryArray) -> pa.RecordBatch:
        if values.null_count:
            values = values.fill_null(b"{}")
        if self._maps.are_there:
            texts = as_texts(values).to_pylist()
            values = pa.array([self._maps.as_entries(one).encode("utf-8") for one in texts], pa.large_binary())
        wire = self._read_values(values)
        columns = [from_wire(array, field.type) for array, field in zip(wire.columns, self._schema, strict=True)]
        return held_decimals(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _read_values(self, values: pa.LargeBinaryArray) -> pa.RecordBatch:
        """The rows of what has a known layout by that, those of all other records by Arrow's parser."""
        fitted = self._layouts.read_values(values)
        if fitted is None:
            return self._read_any(as_texts(values))
        if not fitted.is_valid:
            as_texts(values)
        others = fitted.others(len(values))
        return fitted.beside(self._read_any(as_texts(values.take(pa.array(others))))) if len(others) else fitted.rows

    def _read_any(self, text: pa.LargeStringArray) -> pa.RecordBatch:
        # Arrow's parser takes objects from anywhere. Each value starts with a brace and no raw newline may stand in a
        # text, so that no object reaches into the next value, each value gives a row at least, and the number of rows
        # tells whether each gave one. (Its parser would crash on a text that starts with `null`.)
        joined = join_values(_objects(text), "\n")
        rows = parsed(partial(read_some, joined), self._wire, from_wire)
        if rows.num_rows != len(text):
            raise ValueError("more than one JSON value in a record")
        return rows

    def _surely_bad(self, value: bytes) -> str | None:
        if reason := utf8_reason(value):
            return reason
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError as error:
            if b"Inf" in value:  # Arrow knows a second spelling of Infinity
                return None
            return f"no valid JSON ({error})" if value.strip() else "no JSON: the value is empty"
        except (RecursionError, ValueError):  # a limit of Python's, not of JSON: too deep, or too many digits
            return None
        if not isinstance(parsed, dict):
            return 'no JSON object; a record must be one object, such as {"id": 1}'
        for field, wire in zip(self._schema, self._wire, strict=True):
            # Maps are objects, and lists of entries on the wire only.
            kind = pa.struct([]) if pa.types.is_map(field.type) else wire.type
            if not _may_become(parsed.get(field.name), kind):
                return f"field {field.name!r}: a JSON {_JSON_NAMES[type(parsed[field.name])]} is no {field.type}"
        return None

    def _reason(self, value: bytes, error: Exception) -> str:
        if not _in_braces(pa.array([value.decode("utf-8").strip(_WHITESPACE)], pa.large_string())):
            return plain_reason(error)
        return refused_field(value, self._schema, error) or plain_reason(error)

    def encode(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        rows = fit_rows(rows, self._schema, _FORM)
        try:
            return as_values(self._lines(rows))
        except PARSE_ERRORS as error:
            raise encode_failure(rows, self._lines, _FORM, error) from error

    def _lines(self, rows: pa.RecordBatch) -> list[bytes]:
        refuse_far_times(rows)
        if self._form is not None:
            return [line.encode("utf-8") for line in self._form.lines(rows)]
        return json_lines(rows).encode("utf-8").split(b"\n")[:-1]

    def describe(self) -> str:
        return "json"


def _may_become(value: object, wire: pa.DataType) -> bool:
    """Whether the kind of the JSON value fits the type; what is within it and the form of a text are not seen."""
    if value is None:
        return True
    if pa.types.is_boolean(wire):
        return isinstance(value, bool)
    if pa.types.is_integer(wire) or pa.types.is_floating(wire):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if pa.types.is_string(wire) or pa.types.is_large_string(wire) or pa.types.is_timestamp(wire):
        return isinstance(value, str)
    if pa.types.is_struct(wire):
        return isinstance(value, dict)
    return not pa.types.is_list(wire) or isinstance(value, list)


def _objects(text: pa.LargeStringArray) -> pa.LargeStringArray:
    """The texts, each in braces."""
    if not _in_braces(text):
        text = pc.ascii_trim(text, characters=_WHITESPACE)
        if not _in_braces(text):
            raise ValueError("no JSON object")
    return text


def _in_braces(text: pa.Array) -> bool:
    starts, ends = pc.starts_with(text, "{"), pc.ends_with(text, "}")
    return bool(pc.all(starts).as_py() and pc.all(ends).as_py())


def _check_type(field: pa.Field) -> None:
    try:
        nothing = read_some(pa.py_buffer(b'{"x":null}'), pa.schema([("x", wire_type(field.type))]))
        from_wire(nothing.column(0).combine_chunks(), field.type)
        if is_writable(field.type):
            return
        reason = "it has no form in JSON"
    except PARSE_ERRORS as error:
        reason = str(error)
    raise ConfigurationError(
        f"{_FORM}: column {field.name!r} cannot be {field.type} ({reason}); declare another type and convert it in the "
        "program"
    )
