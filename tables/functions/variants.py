"""VARIANT: values of JSON whose types each tells for itself, and PARSE_JSON, which makes them.

A VARIANT is kept as its JSON: keys in order, whole and decimal numbers as they are written, those with an exponent as
doubles. Equal values so have one text.

Source: Flink's documentation, "PARSE_JSON", "TRY_PARSE_JSON".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from penstock.tables.functions import signatures as s
from penstock.tables.functions.shown_values import java_double
from penstock.tables.functions.signatures import ScalarFunction, by_row
from penstock.tables.functions.surrogates import storable
from penstock.tables.types import Kind, SqlType


class _Number(str):
    """A number as JSON has it."""

    __slots__ = ()


def _fraction(text: str) -> _Number:
    if "e" in text.lower():
        return _Number(java_double(float(text)))
    return _Number(text.rstrip("0").removesuffix("."))


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice; PARSE_JSON(text, TRUE) keeps the last value")
    return found


def variant_text(value: Any) -> str:
    """The JSON of a value that `variant_value` gave, or of a part of it."""
    if isinstance(value, dict):
        members = (f"{json.dumps(key, ensure_ascii=False)}:{variant_text(value[key])}" for key in sorted(value))
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(variant_text, value))}]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def variant_value(text: str, keeps_last: bool = True) -> Any:
    """A text of JSON as dicts, lists, texts and numbers, which keep how they are written.

    Raises:
        ValueError: it is no JSON, or has a key twice where `keeps_last` is false.
    """
    pairs = dict if keeps_last else _without_repeats
    try:
        return json.loads(
            text, parse_float=_fraction, parse_int=_Number, parse_constant=_constant, object_pairs_hook=pairs
        )
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _parsed(text: str, keeps_last: bool = False) -> str:
    try:
        return storable(variant_text(variant_value(text, keeps_last)))
    except ValueError as error:
        raise ValueError(f"PARSE_JSON: {text!r} cannot be parsed: {error}") from None


def _tried(text: str, keeps_last: bool = False) -> str | None:
    try:
        return storable(variant_text(variant_value(text, keeps_last)))
    except ValueError:
        return None


def element(variant: str, place: str | int) -> str | None:
    """What an object has under a key, or an array at a place, which counts from 1; None where there is nothing.

    Raises:
        ValueError: a key of what is no object, or a place of what is no array.
    """
    value = variant_value(variant)
    if isinstance(place, str):
        if not isinstance(value, dict):
            raise ValueError(f"only an object has a key {place!r}, and this is {variant}")
        return variant_text(value[place]) if place in value else None
    if not isinstance(value, list):
        raise ValueError(f"only an array has a place {place}, and this is {variant}")
    return variant_text(value[place - 1]) if 1 <= place <= len(value) else None


def _variant(given: Sequence[SqlType]) -> SqlType:
    return SqlType(Kind.VARIANT)


FUNCTIONS: Final = (
    ScalarFunction("PARSE_JSON", (s.TEXT, s.BOOLEAN), _variant, by_row(_parsed), optional=1, fallible=True),
    ScalarFunction("TRY_PARSE_JSON", (s.TEXT, s.BOOLEAN), _variant, by_row(_tried), optional=1, nullable=True),
)
