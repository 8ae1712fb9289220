"""Rows as JSON in another form than usual: times with a space, decimals as numbers, nulls left out.

The JSON format calls it where a table asks for one of these; `types.py` writes the usual form, faster.
"""

from __future__ import annotations

import decimal
import json
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.json.maps import rows_of
from penstock.connectors.json.types import plain_value
from penstock.connectors.times import timestamp_text
from penstock.engine.columns import rebuilt

Times: TypeAlias = Literal["ISO-8601", "SQL"]
"""`2024-01-02T03:04:05` or `2024-01-02 03:04:05`."""
Decimals: TypeAlias = Literal["texts", "numbers"]
Nulls: TypeAlias = Literal["written", "left out"]
"""What becomes of a field of an object that is null."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class JsonForm:
    """How values are written.

    Args:
        times: the form of timestamps.
        decimals: what decimals are written as; numbers have no exponent.
        nulls: whether fields that are null are written.

    Example:
        >>> row = pa.RecordBatch.from_pylist([{"d": decimal.Decimal("0.10"), "n": None}])
        >>> JsonForm(decimals="numbers", nulls="left out").lines(row)
        ['{"d":0.10}']
    """

    times: Times = "ISO-8601"
    decimals: Decimals = "texts"
    nulls: Nulls = "written"

    def lines(self, rows: pa.RecordBatch) -> list[str]:
        """Each row as an object.

        Raises:
            pyarrow.ArrowInvalid: a time within a map that Python cannot hold, which knows microseconds.
        """
        columns = [self._timed(column) for column in rows.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
        kind = pa.struct(list(batch.schema))
        return [self._written(row, kind) for row in rows_of(batch)]

    def _timed(self, array: pa.Array) -> pa.Array:
        """The column with its timestamps as texts, which hold nanoseconds."""
        kind = array.type
        if pa.types.is_timestamp(kind):
            text = timestamp_text(array)
            return pc.replace_substring(text, "T", " ", max_replacements=1) if self.times == "SQL" else text
        if pa.types.is_struct(kind) and kind.num_fields:
            parts = [self._timed(part) for part in array.flatten()]
            return pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=array.is_null())
        return array.cast(_microseconds(kind)) if pa.types.is_nested(kind) else array

    def _written(self, value: Any, kind: pa.DataType) -> str:
        if value is None:
            return "null"
        if pa.types.is_struct(kind):
            there = ((field, value[field.name]) for field in kind)
            return _object(
                {f.name: self._written(v, f.type) for f, v in there if v is not None or self.nulls == "written"}
            )
        if pa.types.is_map(kind):
            return _object({str(key): self._written(one, kind.item_type) for key, one in value.items()})
        if isinstance(value, list):
            return f"[{','.join(self._written(one, kind.value_type) for one in value)}]"
        if isinstance(value, decimal.Decimal) and self.decimals == "numbers":
            return f"{value:f}"
        text = plain_value(value)
        if pa.types.is_timestamp(kind) and self.times == "SQL":
            text = str(text).replace("T", " ")
        return _ENCODER.encode(text)


def _object(fields: dict[str, str]) -> str:
    return f"{{{','.join(f'{_ENCODER.encode(name)}:{text}' for name, text in fields.items())}}}"


def _microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with times that Python can hold; those of lists and maps."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz and "UTC")
    return pa.time64("us") if pa.types.is_time64(kind) else rebuilt(kind, _microseconds)
