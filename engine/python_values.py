"""Which Python values fit which Arrow types, and what they are where nothing is declared.

`rows.py` and what makes arrays of users' values use it. What Arrow would take and change is refused.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

_NAIVE: Final = "datetime"
_AWARE: Final = "datetime with a time zone"
_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    dt.datetime: _NAIVE,
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "timedelta",
    Decimal: "Decimal",
    list: "list",
    tuple: "list",
    dict: "dict",
}
_NATURAL: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bytes": pa.binary(),
    _NAIVE: pa.timestamp("us"),
    _AWARE: pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timedelta": pa.duration("us"),
    # A fixed scale, as Spark has it: the digits of the first value must not decide about the later ones.
    "Decimal": pa.decimal128(38, 18),
}
_SCALARS: Final = frozenset({*_KINDS, type(None)} - {list, tuple, dict})

# --- types --------------------------------------------------------------------------------------------------


class MisfitError(ValueError):
    """Values that do not fit a column; `ColumnConverter` finds the row and tells the user."""


def _kind(value: object) -> str:
    if type(value) is dt.datetime:
        return _NAIVE if value.tzinfo is None else _AWARE
    kind = _KINDS.get(type(value))
    if kind is None:
        raise MisfitError(f"{type(value).__module__}.{type(value).__qualname__} has no Arrow type")
    return kind


def _kinds(values: Iterable[Any]) -> list[str]:
    """The kinds of the values that are not None, in no order; each once."""
    samples = {type(value): value for value in values}
    samples.pop(type(None), None)
    if dt.datetime in samples:
        zones = {value.tzinfo is None for value in values if type(value) is dt.datetime}
        del samples[dt.datetime]
        times = [_NAIVE if naive else _AWARE for naive in zones]
    else:
        times = []
    return [*map(_kind, samples.values()), *times]


def inferred(values: list[Any], held: pa.DataType) -> pa.DataType:
    """The type of a column that is `held` so far (null: not known) once it has `values` as well."""
    kinds = _kinds(values)
    if not kinds:
        return held
    if len(kinds) > 1:
        raise MisfitError(f"the column mixes {' and '.join(sorted(kinds))}")
    kind = kinds[0]
    if not pa.types.is_null(held) and kind_of_type(held) != kind:
        raise MisfitError(f"a value of type {kind} in a column of {kind_of_type(held)}")
    if kind == "list":
        item = pa.null() if pa.types.is_null(held) else held.value_type
        return pa.list_(inferred(_items(values), item))
    if kind == "dict":
        return _inferred_struct([value for value in values if value is not None], held)
    return _NATURAL[kind]


def _inferred_struct(dicts: list[dict[Any, Any]], held: pa.DataType) -> pa.DataType:
    fields = (
        dict.fromkeys(dicts[0], pa.null()) if pa.types.is_null(held) else {field.name: field.type for field in held}
    )
    for value in dicts:
        if value.keys() != fields.keys():
            raise MisfitError(f"a dict with the keys {list(value)} in a column of dicts with the keys {list(fields)}")
    if not all(isinstance(name, str) for name in fields):
        raise MisfitError("a key that is no text")
    return pa.struct([(name, inferred([value[name] for value in dicts], kind)) for name, kind in fields.items()])


def kind_of_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return "list"
    if pa.types.is_struct(kind):
        return "dict"
    return next(name for name, natural in _NATURAL.items() if natural == kind)


def types_of(kinds: Iterable[str]) -> frozenset[type]:
    """The types whose values are of one of the kinds, each of them, or of none."""
    plain = _SCALARS - {dt.datetime, type(None)}
    return frozenset({type(None), *(python for python in plain if _KINDS[python] in kinds)})


def _items(values: Iterable[Any]) -> list[Any]:
    return list(chain.from_iterable(value for value in values if value is not None))


def fitting_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of Python values; None is null, and times lose the digits that the type does not have.

    Raises:
        ValueError: a value that Arrow would take and change, such as 1.5 for an integer.
        pyarrow.ArrowException, TypeError, OverflowError: one that it does not take.

    Example:
        `fitting_array([1, None], pa.int32())`
    """
    plain = plain_values(values)
    check_fit(plain, kind)
    return pa.array(plain, kind)


def fits(values: list[Any], kind: pa.DataType) -> bool:
    """Whether a column of the type has the values as they are.

    Example:
        >>> fits([1, 1.5], pa.int64())
        False
    """
    try:
        check_fit(values, kind)
    except MisfitError:
        return False
    return True


def check_fit(values: list[Any], kind: pa.DataType) -> None:
    """Refuse what Arrow takes but changes: 1.5 as int64, True as float64, unknown keys of a struct."""
    fit_of(kind)(values)


def fit_of(kind: pa.DataType) -> Callable[[list[Any]], None]:
    """`check_fit` for one type, which is looked at once."""
    if pa.types.is_dictionary(kind):
        return fit_of(kind.value_type)
    allowed = allowed_kinds(kind)
    return _leave_to_arrow if allowed is None else partial(_check_kinds, kind, allowed)


def _leave_to_arrow(values: list[Any]) -> None:
    pass


def _check_kinds(kind: pa.DataType, allowed: frozenset[str], values: list[Any]) -> None:
    for found in _kinds(values):
        if found not in allowed:
            raise MisfitError(f"a value of type {found} in a column of {kind}")
    if pa.types.is_struct(kind):
        _check_struct([value for value in values if value is not None], kind)
    elif pa.types.is_map(kind):
        _check_map([value for value in values if value is not None], kind)
    elif "list" in allowed:
        check_fit(_items(values), kind.value_type)


def _check_struct(dicts: list[dict[Any, Any]], kind: pa.DataType) -> None:
    names = {field.name for field in kind}
    for value in dicts:
        if not value.keys() <= names:
            raise MisfitError(f"a dict with the unknown key {next(key for key in value if key not in names)!r}")
    for field in kind:
        check_fit([value.get(field.name) for value in dicts], field.type)


def _check_map(maps: list[Any], kind: pa.DataType) -> None:
    pairs = list(chain.from_iterable(value.items() if isinstance(value, dict) else value for value in maps))
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or pair[0] is None:
            raise MisfitError(f"{pair!r:.200} in a map, whose entries are pairs of a key and a value")
    check_fit([key for key, _ in pairs], kind.key_type)
    check_fit([value for _, value in pairs], kind.item_type)


def allowed_kinds(kind: pa.DataType) -> frozenset[str] | None:
    """The kinds of Python values that a declared type takes; None leaves it to Arrow."""
    return next((kinds for accepts, kinds in _TAKES if accepts(kind)), None)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


_TAKES: Final[tuple[tuple[Callable[[pa.DataType], bool], frozenset[str]], ...]] = (
    (pa.types.is_null, frozenset()),
    (pa.types.is_boolean, frozenset({"bool"})),
    (pa.types.is_integer, frozenset({"int"})),
    (pa.types.is_floating, frozenset({"float", "int"})),
    (pa.types.is_decimal, frozenset({"Decimal", "int"})),
    (pa.types.is_string, frozenset({"str"})),
    (pa.types.is_large_string, frozenset({"str"})),
    (pa.types.is_string_view, frozenset({"str"})),
    (pa.types.is_binary, frozenset({"bytes"})),
    (pa.types.is_large_binary, frozenset({"bytes"})),
    (pa.types.is_binary_view, frozenset({"bytes"})),
    (pa.types.is_fixed_size_binary, frozenset({"bytes"})),
    (pa.types.is_date, frozenset({"date"})),
    (pa.types.is_time, frozenset({"time"})),
    (pa.types.is_duration, frozenset({"timedelta"})),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is None, frozenset({_NAIVE})),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, frozenset({_AWARE})),
    (_is_list, frozenset({"list"})),
    (pa.types.is_struct, frozenset({"dict"})),
    (pa.types.is_map, frozenset({"dict", "list"})),
)


# --- values -------------------------------------------------------------------------------------------------


def plain_values(values: Sequence[Any]) -> list[Any]:
    """The values as the plain Python types of `_KINDS`: numpy scalars and arrays, tuples, subclasses."""
    if set(map(type, values)) <= _SCALARS:
        return values if isinstance(values, list) else list(values)
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, list):
        return plain_values(value)
    if isinstance(value, tuple):
        return tuple(plain_values(value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        return plain_values(list(value))
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _plain_time(value)
    if isinstance(value, np.generic):
        return value.item()
    return next((make(value) for base, make in _PLAIN_OF if isinstance(value, base)), value)


def _plain_time(value: Any) -> Any:
    if np.isnat(value):
        return None
    unit = np.datetime_data(value.dtype)[0]
    if unit in ("ns", "ps", "fs", "as"):
        exact = value.astype(f"{value.dtype.kind}8[us]")
        if exact != value:
            raise MisfitError(f"{value!r} has more than microseconds")
        return exact.item()
    return value.item()


def _plain_datetime(value: dt.datetime) -> dt.datetime | None:
    """That of a subclass, such as pandas' `Timestamp`, whose `NaT` is like nothing, itself included."""
    if value != value:
        return None
    if getattr(value, "nanosecond", 0):
        raise MisfitError(f"{value!r} has more than microseconds")
    return dt.datetime.combine(value.date(), value.timetz())


_PLAIN_OF: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytearray, bytes),
    (bytes, bytes),
    (dt.datetime, _plain_datetime),
)
