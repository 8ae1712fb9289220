"""Functions of JSON in texts.

A path is `$`, `$.name`, `$['name']`, `$[0]` and what these make together, also behind `lax` and `strict`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always, by_row

_STEP: Final = re.compile(r"\.([A-Za-z_][\w$-]*)|\[(\d+)\]|\['([^']*)'\]|\.\"([^\"]*)\"")
_MISSING: Final = object()
_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "VALUE": lambda _: True,
    "OBJECT": lambda v: isinstance(v, dict),
    "ARRAY": lambda v: isinstance(v, list),
    "SCALAR": lambda v: not isinstance(v, dict | list),
}


@lru_cache(256)
def _steps(path: str) -> tuple[str | int, ...]:
    text = re.sub(r"^\s*(lax|strict)\s+", "", path).strip()
    if not text.startswith("$"):
        raise ValueError(f"the path {path!r} does not begin with $")
    place, steps = 1, []
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise ValueError(f"the path {path!r} cannot be read from {text[place:]!r} on")
        name = found[1] or found[3] or found[4]
        steps.append(int(found[2]) if found[2] is not None else name)
        place = found.end()
    return tuple(steps)


def _at(text: str, path: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _MISSING
    for step in _steps(path):
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return _MISSING
        elif not isinstance(value, dict) or step not in value:
            return _MISSING
        value = value[step]
    return value


def _value(text: str, path: str) -> str | None:
    found = _at(text, path)
    if found is _MISSING or found is None or isinstance(found, dict | list):
        return None
    return found if isinstance(found, str) else json.dumps(found)


def _value_or(call: CallValues) -> pa.Array:
    """JSON_VALUE with what is given where nothing is found, and where no single value is: null, a default, an error."""
    columns = [column.to_pylist() for column in call.columns]
    found: list[str | None] = []
    for text, path, empty, if_empty, error, if_error in zip(*columns, strict=True):
        if text is None or path is None:
            found.append(None)
            continue
        value = _at(text, path)
        if value is _MISSING and _is_json(text, "VALUE"):
            found.append(_otherwise(empty, if_empty, f"there is nothing at {path!r}"))
        elif value is _MISSING or isinstance(value, dict | list):
            found.append(_otherwise(error, if_error, f"there is no single value at {path!r}"))
        else:
            found.append(value if isinstance(value, str) or value is None else json.dumps(value))
    return pa.array(found, pa.string())


def _otherwise(what: str, default: str | None, problem: str) -> str | None:
    if what == "ERROR":
        raise ValueError(f"JSON_VALUE: {problem}")
    return default


def _value_of(call: CallValues) -> pa.Array:
    return _value_or(call) if len(call.columns) > 2 else by_row(_value)(call)


def _query(text: str, path: str, wrapper: str = "WITHOUT") -> str | None:
    found = _at(text, path)
    if found is _MISSING:
        return None
    if wrapper == "UNCONDITIONAL" or (wrapper == "CONDITIONAL" and not isinstance(found, dict | list)):
        found = [found]
    return json.dumps(found, separators=(",", ":")) if isinstance(found, dict | list) else None


def _is_json(text: str, kind: str) -> bool:
    try:
        return _KINDS[kind](json.loads(text))
    except (ValueError, RecursionError):
        return False


def _quote(text: str) -> str:
    return json.dumps(text)


def _unquote(text: str) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, str) else text


def _function(name: str, kind: t.SqlType, function: Callable[..., object], parameters: int) -> ScalarFunction:
    return ScalarFunction(name, (s.TEXT,) * parameters, always(kind), by_row(function), nullable=True, fallible=True)


FUNCTIONS: Final = (
    ScalarFunction(
        "JSON_VALUE",
        (s.TEXT, s.TEXT, s.KEYWORD, s.TEXT, s.KEYWORD, s.TEXT),
        always(t.STRING),
        _value_of,
        optional=4,
        nullable=True,
        fallible=True,
    ),
    ScalarFunction(
        "JSON_QUERY",
        (s.TEXT, s.TEXT, s.KEYWORD),
        always(t.STRING),
        by_row(_query),
        optional=1,
        nullable=True,
        fallible=True,
    ),
    _function("JSON_EXISTS", t.BOOLEAN, lambda text, path: _at(text, path) is not _MISSING, 2),
    _function("IS_JSON", t.BOOLEAN, _is_json, 2),
    _function("JSON_QUOTE", t.STRING, _quote, 1),
    _function("JSON_UNQUOTE", t.STRING, _unquote, 1),
)
