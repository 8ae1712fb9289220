"""Values, sizes and tables as text for people, and as JSON has them.

The reader and the comparison describe savepoints by it; the command line prints what they give.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from penstock.engine.columns import numbers_type

_WIDTH: Final = 160
_SECOND: Final = 1_000_000_000
_DAY: Final = 86_400 * _SECOND


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts; times that Python cannot say (of windows without an end) as numbers in their unit."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        kinds = [pa.int64() if pa.types.is_timestamp(kind) else numbers_type(kind) for kind in table.schema.types]
        rows = table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True)))).to_pylist()
    return rows


def json_value(value: Any) -> Any:
    """A value as JSON has it: bytes as hexadecimal digits, what JSON lacks as text.

    Example:
        >>> json_value({"raw": b"ab", "share": float("nan")})
        {'raw': '6162', 'share': 'nan'}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case Mapping():
            return {str(name): json_value(held) for name, held in value.items()}
        case list() | tuple():
            return [json_value(held) for held in value]
        case dt.timedelta():
            return _span(value)
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)


def value_text(value: Any) -> str:
    """A value on one line: as JSON has it, but without quotes around what JSON lacks (times, decimals, bytes).

    Example:
        >>> import datetime as dt
        >>> value_text({"at": dt.datetime(2024, 1, 2), "tags": ["a", None], "raw": b"ab"})
        '{at: 2024-01-02T00:00:00, tags: ["a", null], raw: 6162}'
    """
    match value:
        case None | bool() | int() | str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            return f"{{{', '.join(f'{name}: {value_text(held)}' for name, held in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(value_text, value))}]"
        case _:
            return str(json_value(value))


def _span(value: dt.timedelta) -> str:
    """A span of time as `-1 day 00:00:00.5`; pandas' have nanoseconds, too."""
    count = (value.days * 86_400 + value.seconds) * _SECOND + value.microseconds * 1_000
    count += getattr(value, "nanoseconds", 0)
    days, rest = divmod(abs(count), _DAY)
    whole, fraction = divmod(rest, _SECOND)
    clock = f"{whole // 3_600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    behind = f".{fraction:09d}".rstrip("0") if fraction else ""
    ahead = f"{days} day{'' if days == 1 else 's'} " if days else ""
    return f"{'-' if count < 0 else ''}{ahead}{clock}{behind}"


def sized(count: int) -> str:
    """A number of bytes for people.

    Example:
        >>> sized(1_530_000)
        '1.5 MB'
    """
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def rendered(renderable: Any) -> str:
    """What rich would print on a wide terminal without colours."""
    from rich.console import Console

    console = Console(width=_WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
