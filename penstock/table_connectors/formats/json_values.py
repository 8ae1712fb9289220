"""Values of JSON as those of columns, with the conversions of Flink's format: null where there is none.

`mending.py` calls it for records that the format itself refuses, and for fields of CSV, whose conversions are the same.

Source: Flink's documentation, "JSON Format": `json.ignore-parse-errors`; fields that cannot be read are null, within
others as well.
"""

from __future__ import annotations

import base64
import decimal
import json
from typing import Any, Final

import pyarrow as pa

from penstock.connectors.json.types import from_wire, wire_type
from penstock.connectors.times import cut_moments, is_cut

_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, ArithmeticError)
_MOST_DIGITS: Final = 76
"""Of decimals."""


class _Number(decimal.Decimal):
    """A number with a fraction or an exponent, which knows how it was written."""

    text: str

    def __new__(cls, text: str) -> _Number:
        made = super().__new__(cls, text)
        made.text = text
        return made


def json_object(record: bytes) -> dict[str, Any] | None:
    """The fields of an object, whose numbers with a fraction are decimals; None: it is no object."""
    try:
        found = json.loads(record, parse_float=_Number)
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def json_values(fields: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """A row of fields that `json_object` gave; what cannot be read, or is missing, is null.

    Example:
        >>> schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
        >>> json_values({"n": "x", "text": 1}, schema).to_pylist()
        [{'n': None, 'text': '1'}]
    """
    columns = [pa.array([_value(fields.get(field.name), field.type)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    try:
        return _nested(value, kind) if pa.types.is_nested(kind) else single_value(value, kind)
    except _ERRORS:
        return None


def _nested(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: _value(_fields(value).get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        entries = ((_value(key, kind.key_type), _value(one, kind.item_type)) for key, one in _fields(value).items())
        return [(key, one) for key, one in entries if key is not None]
    if not isinstance(value, list):
        raise TypeError("no list")
    return [_value(one, kind.value_type) for one in value]


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value


def single_value(value: Any, kind: pa.DataType) -> Any:
    """What `json_object` gave, or the text of a field, as a value of a type without parts.

    Raises:
        pyarrow.ArrowException, ValueError, TypeError, ArithmeticError: it is no such value.

    Example:
        >>> single_value("1.234", pa.decimal128(5, 2)), single_value("yes", pa.bool_())
        (Decimal('1.23'), False)
    """
    text = _text(value)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text.encode()  # half of a pair of surrogates is no text
        return text
    if isinstance(value, (dict, list)):
        raise TypeError("no single value")
    text = text.strip()
    if pa.types.is_boolean(kind):
        return text.lower() == "true"
    if "_" in text:
        raise ValueError("only Python has numbers with underscores")
    if pa.types.is_integer(kind):
        is_wide = kind.bit_width >= 32
        return pa.scalar(_whole(value) if isinstance(value, decimal.Decimal) and is_wide else int(text), kind).as_py()
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        step = decimal.Decimal(1).scaleb(-kind.scale)
        exact = decimal.Decimal(text).quantize(step, decimal.ROUND_HALF_UP, decimal.Context(_MOST_DIGITS))
        return pa.scalar(exact, kind).as_py()
    if pa.types.is_binary(kind):
        return base64.b64decode(text, validate=True)
    # Times are counted in their own unit, which may be finer than Python's.
    return int(cut_moments(pa.array([text]), kind)[0].value) if is_cut(kind) else _time(text, kind)


def _whole(value: decimal.Decimal) -> int:
    if value.adjusted() > _MOST_DIGITS:
        raise OverflowError("no integer")
    return int(value)


def _time(text: str, kind: pa.DataType) -> int:
    wire = pa.array([text], pa.string()).cast(wire_type(kind))
    found: int = from_wire(wire, kind)[0].value
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        # Within others, numbers are those of Java's doubles.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)
    return value.text if isinstance(value, _Number) else json.dumps(value)
