"""Functions of JSON in texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.json_paths import Found, compact_json, json_path, read_json
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always, by_row
from penstock.tables.functions.surrogates import storable

_HAS_PATH: Final = s.checked_text(1, json_path)
_NO_VALUE: Final = (Found.NULL, Found.NOTHING)
_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "VALUE": lambda _: True,
    "OBJECT": lambda v: isinstance(v, dict),
    "ARRAY": lambda v: isinstance(v, list),
    "SCALAR": lambda v: not isinstance(v, dict | list),
}


def _compact(value: Any) -> str:
    try:
        return storable(compact_json(value))
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _is_single(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _value(text: str, path: str) -> str | None:
    kind, value = json_path(path).find(text)
    return _text_of(value) if kind is Found.VALUE and _is_single(value) else None


def _text_of(value: Any) -> str:
    return storable(value) if isinstance(value, str) else compact_json(value)


def _value_or(call: CallValues) -> pa.Array:
    """JSON_VALUE with what is given where nothing is found, and where there is an error: null, a default, an error."""
    columns = [column.to_pylist() for column in call.columns]
    found: list[str | None] = []
    for text, path, empty, if_empty, error, if_error in zip(*columns, strict=True):
        if text is None or path is None:
            found.append(None)
            continue
        read = json_path(path)
        kind, value = read.find(text)
        if kind is Found.VALUE and not _is_single(value):
            kind = Found.ERROR if read.strict else Found.NOTHING
        if kind in _NO_VALUE:
            found.append(_otherwise(empty, if_empty, f"there is nothing at {path!r}"))
        elif kind is Found.ERROR:
            found.append(_otherwise(error, if_error, f"there is no single value at {path!r}"))
        else:
            found.append(_text_of(value))
    return pa.array(found, pa.string())


def _otherwise(what: str, default: str | None, problem: str) -> str | None:
    if what == "ERROR":
        raise ValueError(f"JSON_VALUE: {problem}")
    return default


def _value_of(call: CallValues) -> pa.Array:
    return _value_or(call) if len(call.columns) > 2 else by_row(_value)(call)


_INSTEAD: Final[dict[str, Any]] = {"NULL": None, "EMPTY ARRAY": [], "EMPTY OBJECT": {}}


def _queried(text: str, path: str, wrapper: str, empty: str, error: str) -> Any:
    """What JSON_QUERY finds, an object or an array; None for null."""
    read = json_path(path)
    kind, value = read.find(text)
    if kind is Found.VALUE:
        if wrapper == "UNCONDITIONAL" or (wrapper == "CONDITIONAL" and not isinstance(value, list)):
            value = [value]
        if not _is_single(value):
            return value
        kind = Found.ERROR if read.strict else Found.NOTHING
    instead = empty if kind in _NO_VALUE else error
    if instead == "ERROR":
        raise ValueError(f"JSON_QUERY: there is no object or array at {path!r}")
    return _INSTEAD[instead]


def _query(text: str, path: str, wrapper: str = "WITHOUT", empty: str = "NULL", error: str = "NULL") -> str | None:
    found = _queried(text, path, wrapper, empty, error)
    return None if found is None else _compact(found)


def _query_texts(text: str, path: str, wrapper: str, empty: str, error: str) -> list[str | None] | None:
    """JSON_QUERY with RETURNING ARRAY<STRING>; an object is no array."""
    found = _queried(text, path, wrapper, empty, error)
    if not isinstance(found, list):
        return None
    return [None if one is None else _text_of(one) if _is_single(one) else _compact(one) for one in found]


def _exists(text: str, path: str, error: str = "FALSE") -> bool | None:
    kind, _ = json_path(path).find(text)
    if kind is not Found.ERROR:
        return kind is not Found.NOTHING
    if error == "ERROR":
        raise ValueError(f"JSON_EXISTS: there is nothing at {path!r}")
    return {"TRUE": True, "FALSE": False, "UNKNOWN": None}[error]


def _is_json(text: str, kind: str) -> bool:
    try:
        return _KINDS[kind](read_json(text))
    except (ValueError, RecursionError):
        return False


def _quote(text: str) -> str:
    return json.dumps(text).replace("/", "\\/")


def _unquote(text: str) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return storable(found) if isinstance(found, str) else text


def _function(name: str, kind: t.SqlType, function: Callable[..., object], *more: str) -> ScalarFunction:
    return ScalarFunction(name, (s.TEXT, *more), always(kind), by_row(function), nullable=True, fallible=True)


FUNCTIONS: Final = (
    ScalarFunction(
        "JSON_VALUE",
        (s.TEXT, s.TEXT, s.KEYWORD, s.TEXT, s.KEYWORD, s.TEXT),
        always(t.STRING),
        _value_of,
        optional=4,
        nullable=True,
        fallible=True,
        check=_HAS_PATH,
    ),
    ScalarFunction(
        "JSON_QUERY",
        (s.TEXT, s.TEXT, s.KEYWORD, s.KEYWORD, s.KEYWORD),
        always(t.STRING),
        by_row(_query),
        optional=3,
        nullable=True,
        fallible=True,
        check=_HAS_PATH,
    ),
    ScalarFunction(
        "JSON_QUERY_TEXTS",
        (s.TEXT, s.TEXT, s.KEYWORD, s.KEYWORD, s.KEYWORD),
        always(t.array(t.STRING)),
        by_row(_query_texts),
        nullable=True,
        fallible=True,
        check=_HAS_PATH,
    ),
    ScalarFunction(
        "JSON_EXISTS",
        (s.TEXT, s.TEXT, s.KEYWORD),
        always(t.BOOLEAN),
        by_row(_exists),
        optional=1,
        nullable=True,
        fallible=True,
        check=_HAS_PATH,
    ),
    _function("IS_JSON", t.BOOLEAN, _is_json, s.KEYWORD),
    ScalarFunction("JSON_QUOTE", (s.TEXT,), always(t.STRING), by_row(_quote)),
    ScalarFunction("JSON_UNQUOTE", (s.TEXT,), always(t.STRING), by_row(_unquote)),
)
