"""The rows of random programs, and how rows are compared: as texts, so that types and values of any kind can be.

Every stream between two verbs has the columns `k, j, v, f, x, t`, whatever has come before, so that any verb can stand
behind any other. `t` is the row's event timestamp at all times, `x` has the program's own type and is never null.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa

Row = dict[str, Any]
Rows = list[Row]

KINDS: Final[Mapping[str, list[Any]]] = {
    "bool": [True, False],
    "int32": [-(2**31), 0, 7, 2**31 - 1],
    "uint8": [0, 1, 255],
    "uint64": [0, 5, 2**64 - 1],
    "float32": [-1.5, 0.25, 1e9],
    "string": ["", "ä", "z", "a\0b", "日本"],
    "binary": [b"", b"\x00\xff", b"z"],
    "date32": [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2100, 2, 28), dt.date(1500, 3, 1)],
    "time32[ms]": [dt.time(0), dt.time(23, 59, 59, 999_000)],
    "timestamp[ms]": [dt.datetime(1970, 1, 1), dt.datetime(1500, 3, 1, 12), dt.datetime(2024, 3, 31, 2, 30)],
    "timestamp[us, tz=UTC]": [dt.datetime(2024, 10, 27, 1, 30, 0, 7, dt.timezone.utc)] * 2,
    "decimal128(10, 2)": [decimal.Decimal("-0.01"), decimal.Decimal("99999999.99")],
}
"""The types of `x`, each with some values."""
KEYS: Final = [("k",), ("k",), ("j",), ("k", "j"), ("x",)]
"""By what rows are brought together; `x` where its type can be a key."""
_FLOATS: Final = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -2.5, 3.0, 100.0]


def schema_of(kind: str) -> dict[str, str]:
    """The columns of all streams of a program whose `x` is of that type."""
    return {"k": "string", "j": "int64", "v": "int64", "f": "float64", "x": kind, "t": "int64"}


def random_rows(random: Random, kind: str, number: int) -> Rows:
    """Rows, roughly in order of time."""
    time, rows = random.randint(-500, 500), []
    for _ in range(number):
        time += random.choice([0, 1, 40, 90, 700]) - random.choice([0, 0, 60, 200])
        rows.append(
            {
                "k": random.choice(["", "a", "b", "c", "ä"]),
                "j": random.randint(-3, 9),
                "v": random.choice([None, *range(-3, 7)]),
                "f": random.choice(_FLOATS),
                "x": random.choice(KINDS[kind]),
                "t": time,
            }
        )
    return rows


def disorder(rows: Rows) -> int:
    """By how much the row that is furthest behind another one is behind it (ms)."""
    largest, worst = -math.inf, 0
    for row in rows:
        worst = max(worst, int(largest - row["t"]) if largest > row["t"] else 0)
        largest = max(largest, row["t"])
    return worst


def table_of(rows: Rows, kind: str) -> pa.Table:
    """The rows as Arrow."""
    from penstock.engine.schemas import parse_schema

    return pa.Table.from_pylist(rows, schema=parse_schema(schema_of(kind), "rows"))


def milliseconds(value: Any) -> int:
    """A window's bound as a number."""
    return value if isinstance(value, int) else round(value.timestamp() * 1000)


def texts(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The rows as sorted texts. Lists are sorted, since who collects values does not say in which order."""
    return sorted(", ".join(f"{name}={_text(name, row[name])}" for name in sorted(row)) for row in rows)


def places(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """What each row has in these columns, in the order of the rows."""
    return [
        f"place {number:03}: {', '.join(f'{name}={_text(name, row[name])}' for name in columns)}"
        for number, row in enumerate(rows)
    ]


def _text(name: str, value: Any) -> str:
    match value:
        case dt.datetime() if name in ("window_start", "window_end"):
            return str(milliseconds(value))
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat()
        case float():
            return f"{value + 0.0:.9g}"
        case list():
            return str(sorted(_text("", one) for one in value))
        case _:
            return repr(value)
