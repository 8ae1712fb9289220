"""Paths into JSON, such as `lax $.items[*].price`, and what is found at them.

A path is `$` with `.name`, `['name']`, `[0]`, `[-1]`, `[*]` and `.*` behind it. In strict mode, which is the default,
what is not there is an error; in lax mode there is nothing.

Source: Flink's documentation, "JSON Functions".
"""

from __future__ import annotations

import decimal
import enum
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

_STEP: Final = re.compile(
    r"\.([A-Za-z_][\w$-]*)|\.?\[(-?\d+)\]|\.?\['([^']*)'\]|\.?\[\"([^\"]*)\"\]|\.\"([^\"]*)\"|\.\*|\.?\[\*\]"
)


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _decimal(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(text) from None


_DECODER: Final = json.JSONDecoder(parse_float=_decimal, parse_constant=_no_number)
_ENCODED: Final = json.JSONEncoder(ensure_ascii=False).encode
_BLANKS: Final = " \t\n\r"


def read_json(text: str) -> Any:
    """The value that a text begins with: as in Flink what is behind it is not read; numbers keep their digits.

    Raises:
        ValueError: no JSON.
    """
    begins = text.lstrip(_BLANKS)
    value, end = _DECODER.raw_decode(begins)
    if begins[end - 1].isdigit() and begins[end : end + 1].strip(_BLANKS):
        raise ValueError(text)
    return value


def compact_json(value: Any) -> str:
    """What `read_json` has read, as JSON with the members of objects in order."""
    if isinstance(value, dict):
        # One of Python's frames for each level: what can be read so deep is to be written, too.
        names = sorted(value)
        items = map(compact_json, map(value.__getitem__, names))
        members = map("{}:{}".format, map(_ENCODED, names), items)
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(compact_json, value))}]"
    if isinstance(value, decimal.Decimal):
        # Java's has no negative zero.
        return str(value or value.copy_abs())
    return _ENCODED(value)


class Found(enum.Enum):
    """What is at a path."""

    VALUE = "value"
    NULL = "null"
    """The null of JSON, which is no value."""
    NOTHING = "nothing"
    ERROR = "error"
    """No JSON, or in strict mode no such place."""


class _All(enum.Enum):
    ALL = "*"


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path, read.

    Args:
        strict: whether what is not there is an error.
        steps: names, places, and `*` for all of what an object or an array has.
    """

    strict: bool
    steps: tuple[str | int | _All, ...]

    def find(self, text: str) -> tuple[Found, Any]:
        """What is there, and its value: a list where the path goes to all of something."""
        missing = Found.ERROR if self.strict else Found.NOTHING
        try:
            value = read_json(text)
        except (ValueError, RecursionError):
            return missing, None
        found = list(_walked(value, self.steps))
        if _All.ALL in self.steps:
            return Found.VALUE, found
        if not found:
            return missing, None
        return (Found.NULL if found[0] is None else Found.VALUE), found[0]


def _walked(value: Any, steps: tuple[str | int | _All, ...]) -> Iterator[Any]:
    """The values at the end of all ways."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is _All.ALL:
        items = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        for item in items:
            yield from _walked(item, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and -len(value) <= step < len(value):
            yield from _walked(value[step], rest)
    elif isinstance(value, dict) and step in value:
        yield from _walked(value[step], rest)


@lru_cache(256)
def json_path(path: str) -> JsonPath:
    """Read a path.

    Raises:
        ValueError: it is none.
    """
    mode = re.match(r"\s*(lax|strict)\s+", path, re.IGNORECASE)
    text = path[mode.end() :].strip() if mode else path.strip()
    if not text.startswith("$"):
        raise ValueError(f"the path {path!r} does not begin with $")
    steps: list[str | int | _All] = []
    place = 1
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise ValueError(f"the path {path!r} cannot be read from {text[place:]!r} on")
        place = found.end()
        if found[2] is not None:
            steps.append(int(found[2]))
            continue
        name = next((one for one in (found[1], found[3], found[4], found[5]) if one is not None), None)
        steps.append(_All.ALL if name is None else name)
    return JsonPath(mode is None or mode[1].lower() == "strict", tuple(steps))
