"""Functions and constructors of arrays, maps and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions import variants
from penstock.tables.functions.common_types import common_type
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always, by_row
from penstock.tables.types import Kind, RowField, SqlType


def _common(kinds: Sequence[SqlType], what: str) -> SqlType:
    found = common_type(kinds)
    if found is None:
        raise TypeError(f"{what} have no type in common")
    return found


def _array_type(given: Sequence[SqlType]) -> SqlType:
    return t.array(_common(given, "the elements")).with_nullable(False)


def _map_type(given: Sequence[SqlType]) -> SqlType:
    return SqlType(Kind.MAP, False, parts=(_common(given[::2], "the keys"), _common(given[1::2], "the values")))


def _row_type(given: Sequence[SqlType]) -> SqlType:
    fields = tuple(RowField(f"EXPR${place}", kind) for place, kind in enumerate(given))
    return SqlType(Kind.ROW, False, fields=fields)


def _array_of(call: CallValues) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in call.columns), strict=True)
    return pa.array([list(row) for row in rows], t.arrow_type(call.result))


def _map_of(call: CallValues) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in call.columns), strict=True)
    maps = [_last_of_each_key(zip(row[::2], row[1::2], strict=True)) for row in rows]
    return pa.array(maps, t.arrow_type(call.result))


def _last_of_each_key(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    kept: dict[Any, tuple[Any, Any]] = {}
    for key, value in pairs:
        if key is None:
            raise ValueError("a key of a map is null")
        kept[repr(key) if isinstance(key, list | dict) else key] = (key, value)
    return list(kept.values())


def _row_of(call: CallValues) -> pa.Array:
    target = t.arrow_type(call.result)
    columns = [column.cast(field.type) for column, field in zip(call.columns, target, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(target))


def _fitted(place: int, given: SqlType, wanted: SqlType, what: str) -> SqlType:
    """The type that an argument is cast to, which must lose nothing.

    Raises:
        MisfitError: it may.
    """
    common = common_type([given, wanted])
    if common is None or not common.same_as(wanted):
        raise s.MisfitError(place, f" takes {what} ({wanted.with_nullable(True)}) here, not {given}; cast it")
    return wanted.with_nullable(given.nullable or given.kind is Kind.NULL)


def _with_element(given: Sequence[SqlType]) -> Sequence[SqlType]:
    """An array and what may be an element of it."""
    return [given[0], _fitted(1, given[1], given[0].parts[0], "an element of the array")]


def _longer(given: Sequence[SqlType]) -> SqlType:
    """The array with one more element."""
    element = given[0].parts[0]
    return t.array(element.with_nullable(element.nullable or given[1].nullable))


def _alike(what: str) -> s.Coerce:
    """Arrays or maps, as those that hold the elements of all."""

    def coerce(given: Sequence[SqlType]) -> Sequence[SqlType]:
        common = _common(given, what)
        return [common.with_nullable(kind.nullable) for kind in given]

    return coerce


def _with_index(given: Sequence[SqlType]) -> Sequence[SqlType]:
    """A collection and a place or key in it."""
    holder, index = given
    if holder.kind is Kind.MAP:
        return [holder, _fitted(1, index, holder.parts[0], "a key of the map")]
    takes = (*t.INTEGERS, Kind.NULL) if holder.kind is Kind.ARRAY else (*t.INTEGERS, *t.CHARACTERS, Kind.NULL)
    if holder.kind in (Kind.ARRAY, Kind.VARIANT) and index.kind not in takes:
        wanted = "a whole number, from 1," if holder.kind is Kind.ARRAY else "a whole number or a text"
        raise s.MisfitError(1, f" takes {wanted} here, not {index}; cast it")
    return given


def _of_texts(given: Sequence[SqlType]) -> Sequence[SqlType]:
    if not given[0].parts[0].is_text:
        raise s.MisfitError(0, f" takes an array of texts, not {given[0]}; cast it to ARRAY<STRING>")
    return given


def _of_entries(given: Sequence[SqlType]) -> Sequence[SqlType]:
    if given[0].parts[0].kind is not Kind.ROW or len(given[0].parts[0].fields) != 2:
        raise s.MisfitError(0, f" takes an array of rows of a key and a value, not {given[0]}")
    return given


def _of_ordered(given: Sequence[SqlType]) -> Sequence[SqlType]:
    element = given[0].parts[0]
    if s.accepts(s.ORDERED, element) is None:
        raise s.MisfitError(0, f" takes an array of values that have an order, not {given[0]}")
    return given


def _element_type(given: Sequence[SqlType]) -> SqlType:
    kind = given[0]
    if kind.kind is Kind.ARRAY:
        return kind.parts[0].with_nullable(True)
    if kind.kind is Kind.MAP:
        return kind.parts[1].with_nullable(True)
    if kind.kind is Kind.VARIANT:
        return kind.with_nullable(True)
    raise TypeError(f"only arrays, maps and variants have elements, not {kind}")


def _element(call: CallValues) -> pa.Array:
    pairs = zip(call.columns[0].to_pylist(), call.columns[1].to_pylist(), strict=True)
    pick = _PICKS[call.types[0].kind]
    values = [None if one is None or key is None else pick(one, key) for one, key in pairs]
    return pa.array(values, t.arrow_type(call.result))


def _at(values: list[Any], place: int) -> Any:
    return values[place - 1] if 1 <= place <= len(values) else None


def _of_key(pairs: list[tuple[Any, Any]], key: Any) -> Any:
    return next((value for held, value in pairs if held == key), None)


_PICKS: Final[dict[Kind, Callable[[Any, Any], Any]]] = {
    Kind.ARRAY: _at,
    Kind.MAP: _of_key,
    Kind.VARIANT: variants.element,
}


def _cardinality(call: CallValues) -> pa.Array:
    return pa.array([None if value is None else len(value) for value in call.columns[0].to_pylist()], pa.int32())


def _field(call: CallValues) -> pa.Array:
    import pyarrow.compute as pc

    return (
        pc.struct_field(call.columns[0], str(s.constant_at(call, 1)))
        if call.rows
        else pa.array([], t.arrow_type(call.result))
    )


def _collection(
    name: str,
    parameters: tuple[str, ...],
    infer: s.Infer,
    function: Callable[..., object],
    optional: int = 0,
    coerce: s.Coerce | None = None,
) -> ScalarFunction:
    return ScalarFunction(
        *(name, parameters, infer, by_row(function)),
        nullable=name in _OFTEN_NULL,
        fallible=name in _FALLIBLE,
        optional=optional,
        coerce=coerce,
    )


_OFTEN_NULL: Final = ("ELEMENT", "ARRAY_MAX", "ARRAY_MIN", "MAP_FROM_ENTRIES")
"""Those that have no value for some arrays that are not null."""
_FALLIBLE: Final = ("ELEMENT", "MAP_FROM_ARRAYS", "MAP_FROM_ENTRIES")
"""Those that fail for some arrays: too long ones, and such whose values are no keys."""


def _only(values: list[Any]) -> Any:
    if len(values) > 1:
        raise ValueError(f"ELEMENT: the array has {len(values)} elements, and may have one")
    return values[0] if values else None


def _distinct(values: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept


def _sorted(values: list[Any], ascending: bool = True, nulls_first: bool | None = None) -> list[Any]:
    nulls = [value for value in values if value is None]
    rest = sorted((value for value in values if value is not None), reverse=not ascending)
    first = ascending if nulls_first is None else nulls_first
    return nulls + rest if first else rest + nulls


def _with_null_values(function: Callable[..., object]) -> s.Evaluate:
    """Only a null array gives null; the value that is looked for may be null."""

    def evaluate(call: CallValues) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in call.columns), strict=True)
        values = [None if row[0] is None else function(*row) for row in rows]
        return pa.array(values, t.arrow_type(call.result))

    return evaluate


def _slice(values: list[Any], start: int, end: int | None = None) -> list[Any]:
    size = len(values)
    begin = start - 1 if start > 0 else size + start if start < 0 else 0
    stop = size if end is None else end if end > 0 else size + end + 1
    return values[max(begin, 0) : max(stop, 0)]


def _keys(given: Sequence[SqlType]) -> SqlType:
    return t.array(given[0].parts[0])


def _values(given: Sequence[SqlType]) -> SqlType:
    return t.array(given[0].parts[1])


def _entries(given: Sequence[SqlType]) -> SqlType:
    fields = (RowField("key", given[0].parts[0]), RowField("value", given[0].parts[1]))
    return t.array(SqlType(Kind.ROW, fields=fields))


def _item(given: Sequence[SqlType]) -> SqlType:
    return given[0].parts[0].with_nullable(True)


def _from_arrays(given: Sequence[SqlType]) -> SqlType:
    return SqlType(Kind.MAP, parts=(given[0].parts[0], given[1].parts[0]))


def _from_entries(given: Sequence[SqlType]) -> SqlType:
    fields = given[0].parts[0].fields
    return SqlType(Kind.MAP, parts=(fields[0].type, fields[1].type))


def _map_of_entries(entries: list[dict[str, Any] | None]) -> list[tuple[Any, Any]] | None:
    if None in entries:
        return None
    return _last_of_each_key(tuple(entry.values()) for entry in entries if entry is not None)


def _map_from_arrays(keys: list[Any], values: list[Any]) -> list[tuple[Any, Any]]:
    if len(keys) != len(values):
        raise ValueError(f"MAP_FROM_ARRAYS: there are {len(keys)} keys and {len(values)} values")
    return _last_of_each_key(zip(keys, values, strict=True))


_A: Final = s.ARRAY
_ARRAYS: Final = _alike("the arrays")

_BY_VALUES: Final = (
    ScalarFunction("ARRAY", (s.ANY,), _array_type, _array_of, variadic=True, keeps_null=True),
    ScalarFunction("MAP", (s.ANY,), _map_type, _map_of, variadic=True, keeps_null=True, fallible=True),
    ScalarFunction(
        *("ELEMENT_AT", (s.ANY, s.ANY), _element_type, _element),
        nullable=True,
        fallible_of=lambda given, literal: given[0].kind is Kind.VARIANT,
        coerce=_with_index,
    ),
    ScalarFunction("CARDINALITY", (s.MEMBERS,), always(t.INT), _cardinality),
    _collection("ELEMENT", (_A,), _item, _only),
    ScalarFunction(
        "ARRAY_CONTAINS", (_A, s.ANY), always(t.BOOLEAN), _with_null_values(lambda v, x: x in v), coerce=_with_element
    ),
    ScalarFunction(
        "ARRAY_POSITION",
        (_A, s.ANY),
        always(t.INT),
        by_row(lambda v, x: v.index(x) + 1 if x in v else 0),
        coerce=_with_element,
    ),
    ScalarFunction(
        "ARRAY_REMOVE",
        (_A, s.ANY),
        s.like_first,
        _with_null_values(lambda v, x: [y for y in v if y != x]),
        coerce=_with_element,
    ),
    ScalarFunction("ARRAY_APPEND", (_A, s.ANY), _longer, _with_null_values(lambda v, x: [*v, x]), coerce=_with_element),
    ScalarFunction(
        "ARRAY_PREPEND", (_A, s.ANY), _longer, _with_null_values(lambda v, x: [x, *v]), coerce=_with_element
    ),
    _collection("ARRAY_DISTINCT", (_A,), s.like_first, _distinct),
    _collection("ARRAY_REVERSE", (_A,), s.like_first, lambda v: v[::-1]),
    _collection("ARRAY_SORT", (_A, s.BOOLEAN, s.BOOLEAN), s.like_first, _sorted, 2, _of_ordered),
    _collection("ARRAY_SLICE", (_A, s.INTEGER, s.INTEGER), s.like_first, _slice, 1),
    _collection(
        "ARRAY_MAX", (_A,), _item, lambda v: max((x for x in v if x is not None), default=None), 0, _of_ordered
    ),
    _collection(
        "ARRAY_MIN", (_A,), _item, lambda v: min((x for x in v if x is not None), default=None), 0, _of_ordered
    ),
    _collection("ARRAY_UNION", (_A, _A), s.like_first, lambda a, b: _distinct([*a, *b]), 0, _ARRAYS),
    _collection(
        "ARRAY_EXCEPT", (_A, _A), s.like_first, lambda a, b: _distinct([x for x in a if x not in b]), 0, _ARRAYS
    ),
    _collection(
        "ARRAY_INTERSECT", (_A, _A), s.like_first, lambda a, b: _distinct([x for x in a if x in b]), 0, _ARRAYS
    ),
    ScalarFunction(
        "ARRAY_CONCAT",
        (_A,),
        s.like_first,
        by_row(lambda *v: [x for part in v for x in part]),
        variadic=True,
        coerce=_ARRAYS,
    ),
    _collection(
        "ARRAY_JOIN",
        (_A, s.TEXT, s.TEXT),
        always(t.STRING),
        lambda v, sep, null=None: sep.join(
            x if x is not None else null for x in v if x is not None or null is not None
        ),
        1,
        _of_texts,
    ),
    _collection("MAP_KEYS", (s.MAP,), _keys, lambda v: [key for key, _ in v]),
    _collection("MAP_VALUES", (s.MAP,), _values, lambda v: [value for _, value in v]),
    _collection("MAP_ENTRIES", (s.MAP,), _entries, lambda v: [{"key": key, "value": value} for key, value in v]),
    _collection("MAP_FROM_ARRAYS", (_A, _A), _from_arrays, _map_from_arrays),
    _collection("MAP_FROM_ENTRIES", (_A,), _from_entries, _map_of_entries, 0, _of_entries),
    ScalarFunction(
        "MAP_UNION",
        (s.MAP,),
        s.like_first,
        by_row(lambda *v: _last_of_each_key(pair for part in v for pair in part)),
        variadic=True,
        coerce=_alike("the maps"),
    ),
)


def with_exact_times(function: ScalarFunction) -> ScalarFunction:
    """The function, which sees numbers in place of times with nanoseconds."""

    def evaluate(call: CallValues) -> pa.Array:
        return function.evaluate(call.with_numbers())

    return replace(function, evaluate=evaluate)


FUNCTIONS: Final = (
    *map(with_exact_times, _BY_VALUES),
    ScalarFunction("ROW", (s.ANY,), _row_type, _row_of, variadic=True, keeps_null=True),
    ScalarFunction("FIELD", (s.ANY, s.TEXT), s.like_first, _field),
)
