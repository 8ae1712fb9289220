"""Values, sizes and tables as text for people, and as JSON has them.

The reader and the comparison describe savepoints by it; the command line prints what they give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

_WIDTH: Final = 160


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts; times that Python cannot say (of windows without an end) as int64 milliseconds."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        kinds = [pa.int64() if pa.types.is_timestamp(kind) else kind for kind in table.schema.types]
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
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else str(value)


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
