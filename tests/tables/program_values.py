"""Values of Flink's programs: as JSON has them, as Arrow takes them, and as Java shows them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.tables.functions.shown_values import java_double


def plain(value: Any) -> Any:
    """A value of the file as Python has it."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (kind, content), *_ = value.items()
        if kind == "$BigDecimal":
            return Decimal(content)
        if kind in ("$Float", "$Double"):
            return float(content)
        if kind == "$LocalDateTime":
            return datetime.datetime.fromisoformat(content)
        if kind == "$Instant":
            return datetime.datetime.fromisoformat(content.replace("Z", "+00:00"))
        if kind == "$LocalDate":
            return datetime.date.fromisoformat(content)
        if kind == "$LocalTime":
            return datetime.time.fromisoformat(content)
        if kind in ("$Byte", "$Short", "$Long"):
            return int(content)
        if kind == "$map":
            return [(plain(k), plain(v)) for k, v in (content.items() if isinstance(content, dict) else content)]
        if kind == "$Row":
            return plain(content)
        if kind.startswith("$"):
            return plain(content)
    if value.keys() == {"kind", "values"}:
        return dict(enumerate(plain(value["values"])))
    return {key: plain(item) for key, item in value.items()}


def arrow_value(value: Any, kind: pa.DataType) -> Any:
    """A value as Arrow takes it for a type: rows are dicts."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        items = value.values() if isinstance(value, dict) else value
        return {f.name: arrow_value(item, f.type) for f, item in zip(kind, items, strict=True)}
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [
            (arrow_value(_number_key(k, kind.key_type), kind.key_type), arrow_value(v, kind.item_type))
            for k, v in pairs
        ]
    if pa.types.is_list(kind):
        return [arrow_value(item, kind.value_type) for item in value]
    if pa.types.is_binary(kind):
        return bytes(b & 255 for b in value) if isinstance(value, list) else value
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
    return value


def _number_key(key: Any, kind: pa.DataType) -> Any:
    return (
        int(key)
        if isinstance(key, str) and pa.types.is_integer(kind)
        else float(key)
        if isinstance(key, str) and pa.types.is_floating(kind)
        else key
    )


def held_value(value: Any, kind: pa.DataType) -> Any:
    """A value that came out, as the program's text of it would be read: 0.1 of four bytes is 0.1."""
    if value is None:
        return None
    if pa.types.is_float32(kind):
        return float(str(np.float32(value)))
    if pa.types.is_struct(kind):
        return {f.name: held_value(value[f.name], f.type) for f in kind}
    if pa.types.is_map(kind):
        return [(held_value(k, kind.key_type), held_value(v, kind.item_type)) for k, v in value]
    if pa.types.is_list(kind):
        return [held_value(item, kind.value_type) for item in value]
    return value


def shown(value: Any) -> str:
    """A value as Java's `Row.toString` shows it; maps, which have no order, in that of their keys."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, datetime.datetime):
        is_moment = value.tzinfo is not None
        return f"{value.strftime('%Y-%m-%d')}T{_time(value, is_moment)}{'Z' if is_moment else ''}"
    if isinstance(value, datetime.time):
        return _time(value, False)
    if isinstance(value, dict):
        return f"+I[{', '.join(shown(item) for item in value.values())}]"
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return f"{{{', '.join(sorted(f'{shown(k)}={shown(v)}' for k, v in value))}}}"
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, bytes):
        return f"[{', '.join(str(b - 256 if b > 127 else b) for b in value)}]"
    return str(value)


def _time(value: datetime.datetime | datetime.time, with_seconds: bool) -> str:
    """Seconds where they are not 0, and of their fraction three or six digits."""
    text = value.strftime("%H:%M")
    if value.second or value.microsecond or with_seconds:
        text += value.strftime(":%S")
    if value.microsecond % 1000:
        return f"{text}.{value.microsecond:06d}"
    return f"{text}.{value.microsecond // 1000:03d}" if value.microsecond else text


def split_row(row: str) -> list[str]:
    """The values of a row that is shown, such as `+I[1, [2, 3]]`."""
    values, depth = [""], 0
    for part in row[3:-1].split(", "):
        values[-1] = f"{values[-1]}, {part}" if depth else part
        depth = values[-1].count("[") + values[-1].count("{") - values[-1].count("]") - values[-1].count("}")
        if depth <= 0:
            depth = 0
            values.append("")
    return values[:-1] if len(values) > 1 and not values[-1] else values
