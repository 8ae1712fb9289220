"""The rows of random programs, and how rows are compared: as texts, so that types and values of any kind can be.

Every stream between two verbs has the columns `k, j, v, f, x, t`, whatever has come before, so that any verb can stand
behind any other. `t` is the row's event timestamp at all times, `x` has the program's own type.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa

from penstock.engine.schemas import TypeLike, parse_schema

_UTC: Final = dt.timezone.utc
_HOURS: Final = [(0, 0), (1, 30), (12, 0)]
"""Of the night in which clocks in Berlin are set back: in the same order there, with the later 2:30 among them."""
Row = dict[str, Any]
Rows = list[Row]

KINDS: Final[Mapping[str, list[Any]]] = {
    "bool": [True, False],
    "int8": [-128, None, 127],
    "int32": [-(2**31), 0, 7, 2**31 - 1],
    "uint8": [0, 1, 255],
    "uint64": [0, 5, 2**64 - 1],
    "float32": [-1.5, 0.25, 1e9],
    "float64": [math.nan, -0.0, 0.0, None, math.inf],
    "string": ["", "ä", "z", "a\0b", "日本"],
    "large_string": ["", "long " * 8_000, None, "\U0001f600"],
    "dictionary": ["", "ä", None, "z"],
    "binary": [b"", b"\x00\xff", b"z"],
    "large_binary": [b"", None, b"\xff"],
    "fixed binary": [b"\x00\x00", b"\xff\x00"],
    "date32": [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2100, 2, 28), dt.date(1500, 3, 1)],
    "time32[ms]": [dt.time(0), dt.time(23, 59, 59, 999_000)],
    "time64[us]": [dt.time(0), None, dt.time(23, 59, 59, 999_999)],
    "duration[ms]": [dt.timedelta(days=-3)],
    "timestamp[s]": [dt.datetime(1969, 12, 31, 23, 59, 59), None, dt.datetime(2024, 3, 31, 2, 30)],
    "timestamp[ms]": [dt.datetime(1970, 1, 1), dt.datetime(1500, 3, 1, 12), dt.datetime(2024, 3, 31, 2, 30)],
    "timestamp[ns]": [dt.datetime(1970, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 2, 29)],
    "timestamp[us, tz=UTC]": [dt.datetime(2024, 10, 27, 1, 30, 0, 7, _UTC)] * 2,
    "timestamp[ms, tz=Europe/Berlin]": [None, *(dt.datetime(2024, 10, 27, h, m, tzinfo=_UTC) for h, m in _HOURS)],
    "decimal128(10, 2)": [decimal.Decimal("-0.01"), decimal.Decimal("99999999.99")],
    "decimal128(38, 10)": [decimal.Decimal("100000000000000.0000000001"), None, decimal.Decimal("-0.0000000001")],
    "list": [[None, "", "ä"]],
    "struct": [{"a": None, "b": [{"c": decimal.Decimal("0.5")}, None]}],
    "map": [[("a", 1), ("", None)]],
}
"""The types of `x`, each with some values; one value where a largest one cannot be asked for."""
_NAMED: Final[Mapping[str, pa.DataType]] = {
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "fixed binary": pa.binary(2),
    "list": pa.list_(pa.string()),
    "struct": pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.decimal128(5, 1))])))]),
    "map": pa.map_(pa.string(), pa.int64()),
}
"""Those types that have no text."""
KEYS: Final = [("k",), ("k",), ("j",), ("k", "j"), ("x",)]
"""By what rows are brought together; `x` where its type can be a key."""
_FLOATS: Final = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -2.5, 3.0, 100.0]


def schema_of(kind: str) -> dict[str, TypeLike]:
    """The columns of all streams of a program whose `x` is of that type."""
    return {"k": "string", "j": "int64", "v": "int64", "f": "float64", "x": _NAMED.get(kind, kind), "t": "int64"}


def is_nested(kind: str) -> bool:
    """Whether values of the type have parts, so that they cannot be sorted by, or be keys."""
    return kind in ("list", "struct", "map")


def has_extremes(kind: str) -> bool:
    """Whether there is a least and a largest value."""
    return not is_nested(kind) and not kind.startswith("duration")


def keeps_type(kind: str) -> bool:
    """Whether the largest value is of the same type; that of a dictionary is of the type of its values."""
    return kind != "dictionary"


def can_be_key(kind: str) -> bool:
    """Whether rows can be brought together by `x`."""
    return not is_nested(kind) and not kind.startswith("float") and None not in KINDS[kind]


def largest(values: Sequence[Any]) -> Any:
    """The largest value of `x`, or the only one, where one is known."""
    found = known_numbers(values)
    return None if not found else found[0] if isinstance(found[0], dict | list) else max(found)


def known(values: Sequence[Any]) -> list[Any]:
    """The values that are not null."""
    return [value for value in values if value is not None]


def known_numbers(values: Sequence[Any]) -> list[Any]:
    """The values that are not null, and not NaN."""
    return [value for value in known(values) if not (isinstance(value, float) and math.isnan(value))]


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
            return (value if value.tzinfo is None else value.astimezone(_UTC).replace(tzinfo=None)).isoformat()
        case float():
            return f"{value + 0.0:.9g}"
        case list():
            return str(sorted(_text("", one) for one in value))
        case _:
            return repr(value)
