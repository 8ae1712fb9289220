"""Functions that make JSON of values: JSON_OBJECT, JSON_ARRAY, JSON_STRING, and those of a group's values.

The parser has put a keyword before each value: whether it is JSON already. Objects have their keys in order, as in
Flink.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.collections import with_exact_times
from penstock.tables.functions.json_paths import compact_json, read_json
from penstock.tables.functions.shown_values import java_double
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always
from penstock.tables.functions.surrogates import storable
from penstock.tables.types import Kind, SqlType

_ABSENT: Final = "ABSENT"
_JSON: Final = "JSON"
_TIMES: Final = (Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def json_text(value: object) -> str:
    """A plain value, with dicts for objects, as JSON."""
    if isinstance(value, dict):
        members = sorted((str(key), item) for key, item in value.items())
        return f"{{{','.join(f'{json.dumps(key, ensure_ascii=False)}:{json_text(item)}' for key, item in members)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(json_text, value))}]"
    if isinstance(value, _Written):
        return value.text
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float):
        # By way of Java's BigDecimal, as in Flink.
        return str(Decimal(java_double(value))) if math.isfinite(value) else f'"{java_double(value)}"'
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode("ascii"))
    if isinstance(value, datetime.datetime | datetime.date | datetime.time | _Nanoseconds):
        return json.dumps(_without_zeros(value.isoformat()))
    return json.dumps(value, ensure_ascii=False)


def _without_zeros(time: str) -> str:
    """A time of ISO 8601 as Java writes it: no zeros at the end of the fraction, and Z for UTC."""
    text, zone = (time.removesuffix("+00:00"), "Z") if time.endswith("+00:00") else (time, "")
    return (text.rstrip("0").removesuffix(".") if "." in text else text) + zone


class _Written:
    """JSON that is a text already."""

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass(frozen=True, slots=True)
class _Nanoseconds:
    """A time with nanoseconds, shown as Python shows others: as a key by `str`, as a value by `isoformat`."""

    since_1970: int
    kind: SqlType

    def __str__(self) -> str:
        return self.isoformat(" ")

    def isoformat(self, between: str = "T") -> str:
        """As ISO 8601, with the nanoseconds unless they are 0."""
        micros, nanos = divmod(self.since_1970, 1000)
        moment = _EPOCH + datetime.timedelta(microseconds=micros)
        text = f"{moment.isoformat(between, 'microseconds')}{nanos:03d}" if nanos else moment.isoformat(between)
        if self.kind.kind is Kind.TIME:
            return text.partition(between)[2]
        return f"{text}+00:00" if self.kind.kind is Kind.TIMESTAMP_LTZ else text


def _written(text: str) -> _Written:
    try:
        return _Written(storable(compact_json(read_json(text))))
    except (ValueError, RecursionError):
        raise ValueError(f"{text!r} is no JSON") from None


def _plain(value: Any, kind: SqlType) -> Any:
    """A value of Arrow as its JSON has it: maps and rows are objects."""
    if value is None:
        return None
    if kind.kind is Kind.VARIANT:
        return _Written(value)
    if kind.kind in _TIMES and isinstance(value, int):
        return _Nanoseconds(value, kind)
    if kind.kind is Kind.MAP:
        return {str(_plain(key, kind.parts[0])): _plain(item, kind.parts[1]) for key, item in value}
    if kind.kind is Kind.MULTISET:
        return [(_plain(item, kind.parts[0]), count) for item, count in value]
    if kind.kind is Kind.ARRAY:
        return [_plain(item, kind.parts[0]) for item in value]
    if kind.kind is Kind.ROW:
        return {field.name: _plain(value[field.name], field.type) for field in kind.fields}
    return value


def _values(call: CallValues, place: int) -> list[Any]:
    """The values behind the keyword at a place."""
    column, kind = call.columns[place + 1].to_pylist(), call.types[place + 1]
    if call.rows and call.columns[place][0].as_py() == _JSON:
        return [None if value is None else _written(value) for value in column]
    return [_plain(value, kind) for value in column]


def _drops_nulls(call: CallValues) -> bool:
    return bool(call.rows) and call.columns[0][0].as_py() == _ABSENT


def _texts(values: Sequence[object]) -> pa.Array:
    return pa.array([None if value is None else json_text(value) for value in values], pa.string())


def _object_of(call: CallValues) -> pa.Array:
    drops = _drops_nulls(call)
    rows: list[dict[str, Any]] = [{} for _ in range(call.rows)]
    for place in range(1, len(call.columns), 3):
        keys = [_plain(key, call.types[place]) for key in call.columns[place].to_pylist()]
        for row, key, value in zip(rows, keys, _values(call, place + 1), strict=True):
            if key is None:
                raise ValueError("JSON_OBJECT: a key is null")
            if value is not None or not drops:
                row[key] = value
    return _texts(rows)


def _array_of(call: CallValues) -> pa.Array:
    drops = _drops_nulls(call)
    rows: list[list[Any]] = [[] for _ in range(call.rows)]
    for place in range(1, len(call.columns), 2):
        for row, value in zip(rows, _values(call, place), strict=True):
            if value is not None or not drops:
                row.append(value)
    return _texts(rows)


def _string_of(call: CallValues) -> pa.Array:
    return _texts([_plain(value, call.types[0]) for value in call.columns[0].to_pylist()])


def _array_of_all(call: CallValues) -> pa.Array:
    drops, lists = _drops_nulls(call), _lists(call)
    return _texts([None if v is None else [x for x in v if x is not None or not drops] for v in lists])


def _object_of_all(call: CallValues) -> pa.Array:
    drops, found = _drops_nulls(call), []
    for pairs in _lists(call):
        members: dict[str, Any] | None = None if pairs is None else {}
        for key, value in ((tuple(pair.values())) for pair in pairs or ()):
            if key is None:
                raise ValueError("JSON_OBJECTAGG: a key is null")
            assert members is not None, "there are pairs"
            if value is not None or not drops:
                members[key] = value
        found.append(members)
    return _texts(found)


def _lists(call: CallValues) -> list[Any]:
    """The values of each group; null without any."""
    return [_plain(value, call.types[1]) for value in call.columns[1].to_pylist()]


def _made(
    name: str, parameters: tuple[str, ...], evaluate: Callable[[CallValues], pa.Array], coerce: s.Coerce | None = None
) -> ScalarFunction:
    return ScalarFunction(
        name,
        parameters,
        always(t.STRING),
        evaluate,
        optional=1,
        variadic=True,
        keeps_null=True,
        fallible=True,
        coerce=coerce,
    )


def _check_key(place: int, kind: SqlType) -> None:
    if kind.kind in s.NESTED:
        raise s.MisfitError(place, f" takes texts as keys, not {kind}; cast it to STRING")


def _keys_are_flat(given: Sequence[SqlType]) -> Sequence[SqlType]:
    for place in range(1, len(given), 3):
        _check_key(place, given[place])
    return given


def _keys_of_all_are_flat(given: Sequence[SqlType]) -> Sequence[SqlType]:
    _check_key(1, given[1].parts[0].fields[0].type)
    return given


def _json(call: CallValues) -> pa.Array:
    return pa.array([None if text is None else _written(text).text for text in call.columns[0].to_pylist()])


_BY_VALUES: Final = (
    _made("JSON_OBJECT", (s.KEYWORD, s.ANY), _object_of, _keys_are_flat),
    _made("JSON_ARRAY", (s.KEYWORD, s.ANY), _array_of),
    ScalarFunction("JSON_STRING", (s.ANY,), always(t.STRING), _string_of),
    ScalarFunction("JSON", (s.TEXT,), always(t.STRING), _json, fallible=True),
    ScalarFunction("JSON_ARRAYAGG", (s.KEYWORD, s.ARRAY), always(t.STRING), _array_of_all),
    ScalarFunction(
        "JSON_OBJECTAGG",
        (s.KEYWORD, s.ARRAY),
        always(t.STRING),
        _object_of_all,
        fallible=True,
        coerce=_keys_of_all_are_flat,
    ),
)

FUNCTIONS: Final = tuple(map(with_exact_times, _BY_VALUES))
