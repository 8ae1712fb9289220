"""Rows (dicts) for Python functions, made from Arrow columns, and Arrow columns made from their results.

The operators that call Python functions use it. A result never depends on where batches are cut: types come
from the declaration, or from the first values and are then held; what does not fit is a `RecordError` in
every cut.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.columns import readable
from penstock.engine.errors import RecordError, ResultError
from penstock.engine.redaction import VARIABLE, is_hidden, quotable, quoted
from penstock.engine.schemas import SchemaLike, parse_schema

Returns: TypeAlias = "SchemaLike | None"
"""How users declare the columns of a function's result: names with Arrow types or their text, or a schema."""

_EPOCH: Final = dt.datetime(1970, 1, 1)
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
_CONVERSION_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


def declared_schema(returns: Returns, where: str) -> pa.Schema | None:
    """The schema that `returns` declares, or None where nothing is declared.

    Args:
        returns: None, a schema, or a mapping of column name to Arrow type or its text.
        where: the operation, for messages.

    Raises:
        ConfigurationError: an unknown type, a name that is no text, one name twice, or no column at all.

    Example:
        `declared_schema({"word": "string", "at": "timestamp[ms, UTC]"}, "map")`
    """
    if returns is None:
        return None
    return parse_schema(returns, f"{where}: returns")


# --- columns to rows ----------------------------------------------------------------------------------------


def batch_rows(batch: pa.RecordBatch, where: str = "rows") -> list[dict[str, Any]]:
    """The rows as dicts of Python values, which the caller may change.

    Times are `datetime` (with a time zone where the column has one), never with nanoseconds.

    Raises:
        RecordError: a time that Python cannot hold (nanoseconds, or a year beyond 9999).

    Example:
        `batch_rows(pa.RecordBatch.from_pydict({"a": [1]})) == [{"a": 1}]`
    """
    names, columns = batch.schema.names, batch_columns(batch, where)
    return [dict(zip(names, values)) for values in zip(*columns)]  # noqa: B905 - a third slower with strict


def row_reader(batch: pa.RecordBatch, where: str = "rows") -> Callable[[int], dict[str, Any]]:
    """Makes a row when it is asked for by its number, as `batch_rows` does: for who needs few of them.

    Raises:
        RecordError: as for `batch_rows`, at once.

    Example:
        `row_reader(pa.RecordBatch.from_pydict({"a": [1, 2]}))(1) == {"a": 2}`
    """
    names, columns = batch.schema.names, batch_columns(batch, where)
    return lambda number: dict(zip(names, [column[number] for column in columns]))  # noqa: B905 - as above


def batch_columns(batch: pa.RecordBatch, where: str = "rows") -> list[list[Any]]:
    """The columns as lists of Python values, which are as those of `batch_rows`; errors as of that.

    Example:
        `batch_columns(pa.RecordBatch.from_pydict({"a": [1, 2]})) == [[1, 2]]`
    """
    return [
        _values(column, f"{where}: column {name!r}")
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]


def shown_row(batch: pa.RecordBatch, index: int) -> str:
    """Row `index` for a message: as a dict, or as Arrow prints it where Python cannot hold its values."""
    if is_hidden():
        return f"number {index} of {batch.num_rows} (its values are hidden: {VARIABLE})"
    return _shortened(next(row_texts(quotable(batch.slice(index, 1)))))


def row_texts(batch: pa.RecordBatch) -> Iterator[str]:
    """The rows as texts: dicts, or as Arrow prints them where Python cannot hold their values.

    Example:
        `list(row_texts(pa.RecordBatch.from_pydict({"a": [1]}))) == ["{'a': 1}"]`
    """
    try:
        yield from map(str, batch_rows(batch))
    except RecordError:
        if batch.num_rows == 1:
            yield " ".join(str(batch).split())
        else:
            for index in range(batch.num_rows):
                yield from row_texts(batch.slice(index, 1))


def _values(array: pa.Array, where: str) -> list[Any]:
    """As `to_pylist`, but times come by way of numpy, some fifty times as fast, and are never cut short."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode(), where)
    try:
        if pa.types.is_temporal(kind):
            return _temporal_values(array)
        if pa.types.is_nested(kind) and (plain := readable(kind)) != kind:
            array = array.cast(plain)
        values: list[Any] = array.to_pylist()
        return values
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise RecordError(
            f"{where} is {kind} and has a value that Python cannot hold, which knows microseconds and the "
            f"years 1 to 9999 ({error}); drop it with filter(...), or change the column's type before with "
            ".cast(...)"
        ) from error


def _temporal_values(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _datetimes(array)
    if pa.types.is_date(kind):
        days = array.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return [None if day is None else dt.date.fromordinal(_EPOCH.toordinal() + day) for day in days]
    if pa.types.is_duration(kind):
        durations: list[Any] = array.cast(pa.duration("us")).to_numpy(zero_copy_only=False).tolist()
        return durations
    times: list[Any] = (array.cast(pa.time64("us")) if pa.types.is_time(kind) else array).to_pylist()
    return times


def _datetimes(array: pa.Array) -> list[Any]:
    since = array.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).view("timedelta64[us]").tolist()
    zone = array.type.tz
    epoch = _EPOCH if zone is None else _EPOCH.replace(tzinfo=dt.timezone.utc)
    values = [None if delta is None else epoch + delta for delta in since]
    if zone in (None, "UTC"):
        return values
    local = pa.lib.string_to_tzinfo(zone)
    return [None if value is None else value.astimezone(local) for value in values]


# --- rows to columns ----------------------------------------------------------------------------------------


class RowConverter:
    """Makes record batches of rows that a function returned; one lives in one subtask and holds the types.

    With a schema, every row must have its columns as keys, and no others. Without, the first row names the columns,
    every row must have the same keys, and a column's type is that of its first value (null before).

    Args:
        schema: the declared columns, or None to infer them.
        where: the operator and subtask, for messages.

    Example:
        `RowConverter(None, "operator 'map', subtask 0").convert([{"a": 1, "b": "x"}])`
    """

    def __init__(self, schema: pa.Schema | None, where: str) -> None:
        self._where = where
        self._declared = schema is not None
        self._columns = [] if schema is None else [ColumnConverter(field.name, field, where) for field in schema]

    @property
    def schema(self) -> pa.Schema:
        """The columns as far as they are known; those of type null had no value yet."""
        return pa.schema([column.field for column in self._columns])

    def convert(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """A record batch of `rows`, in order.

        Raises:
            ResultError: a row is no dict, has other keys, or has a value that does not fit its column.
        """
        self._check_mappings(rows)
        if not self._columns and rows:
            self._columns = [ColumnConverter(name, None, self._where) for name in self._names(rows[0])]
        arrays = [
            column.convert(values, rows) for column, values in zip(self._columns, self._values(rows), strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _check_mappings(self, rows: Sequence[object]) -> None:
        if set(map(type, rows)) <= {dict}:
            return
        for index, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise ResultError(
                    f"{self._where}: row {index} is {_shown(row)} ({type(row).__name__}), not a dict; return "
                    "a dict "
                    'with a value for each column, such as {"word": "a", "n": 1}'
                )

    def _names(self, row: Mapping[str, Any]) -> list[str]:
        names = list(row)
        if not names:
            raise ResultError(f"{self._where}: row 0 is an empty dict; return at least one column")
        for name in names:
            if not isinstance(name, str):
                raise ResultError(f"{self._where}: row 0 has the key {name!r}; a column's name is a text")
        return names

    def _values(self, rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        names = [column.name for column in self._columns]
        try:
            if set(map(len, rows)) <= {len(names)}:
                return [[row[name] for row in rows] for name in names]
        except KeyError:
            pass
        raise self._key_error(rows, names)

    def _key_error(self, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> ResultError:
        """Of the first row that has other keys than the columns."""
        index, row = next((index, row) for index, row in enumerate(rows) if row.keys() != set(names))
        unknown = [key for key in row if key not in names]
        missing = [name for name in names if name not in row]
        problem = f"has the key {unknown[0]!r}" if unknown else f"lacks the key {missing[0]!r}"
        if self._declared and unknown:
            unlike, remedy = "which is not among the declared columns", "add it to returns={...}"
        elif self._declared:
            unlike, remedy = "which is declared; the columns are", "give it, as None where there is no value"
        else:
            unlike = "unlike the rows before, which have"
            remedy = "return the same keys each time (None for no value), or declare the columns with returns={...}"
        return ResultError(
            f"{self._where}: row {index} {problem}, {unlike} {', '.join(names)}; {remedy}; the row is {_shown(row)}"
        )


class ColumnConverter:
    """Makes Arrow arrays of the Python values of one column and holds the column's type.

    Args:
        name: the column's name.
        declared: the column's field (or None to infer the type).
        where: the operator and subtask, for messages.

    Example:
        `ColumnConverter("n", None, "operator 'map', subtask 0").convert([1, None])`
    """

    def __init__(self, name: str, declared: pa.Field | None, where: str) -> None:
        self.name = name
        self._where = where
        self._declared = declared
        self.field: pa.Field = pa.field(name, pa.null()) if declared is None else declared
        # Of a declared column they stay, and rows come a few at a time.
        self._carrier = readable(self.field.type)
        self._is_carried = self._carrier != self.field.type
        self._check_fit = _fit_of(self.field.type)

    def convert(self, values: Sequence[Any], rows: Sequence[object] = ()) -> pa.Array:
        """An array of `values`, in order.

        Args:
            values: None is always allowed, unless a declared field forbids it.
            rows: what the values came from, for messages.

        Raises:
            ResultError: a value that does not fit.
        """
        try:
            plain = _plain_values(values)
            array, kind = self._convert(plain, self.field.type)
        except _CONVERSION_ERRORS as error:
            raise self._locate(values, rows, error) from error
        if not self.field.nullable and array.null_count:
            raise self._error(values.index(None), None, rows, "null, and the column is declared without nulls")
        if self._declared is None and kind != self.field.type:
            self.field = pa.field(self.name, kind)
        return array

    def _convert(self, plain: list[Any], kind: pa.DataType) -> tuple[pa.Array, pa.DataType]:
        if self._declared is None:
            kind = _inferred(plain, kind)
            return pa.array(plain, type=kind), kind
        self._check_fit(plain)
        array = pa.array(plain, type=self._carrier)
        return (array.cast(kind) if self._is_carried else array), kind

    def _locate(self, values: Sequence[Any], rows: Sequence[object], error: Exception) -> ResultError:
        """The error for the first value that does not fit; one by one gives the same types as together."""
        kind = self.field.type
        for index, value in enumerate(values):
            try:
                _, kind = self._convert(_plain_values([value]), kind)
            except _CONVERSION_ERRORS as reason:
                return self._error(index, value, rows, str(reason))
        return self._error(0, values[0], rows, str(error))

    def _error(self, index: int, value: object, rows: Sequence[object], reason: str) -> ResultError:
        row = f"; the row is {_shown(rows[index])}" if rows else ""
        remedy = (
            f"declare its type, returns={{{self.name!r}: 'float64'}} for example, and return values of it (text and "
            "numbers do not mix: return str(...) of both)"
            if self._declared is None
            else f"return a value of the declared type {self.field.type}, or declare another"
        )
        return ResultError(
            f"{self._where}: row {index}, column {self.name!r}: {_shown(value)}: {reason}; {remedy}{row}"
        )


def fitting_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of Python values; None is null, and times lose the digits that the type does not have.

    Raises:
        ValueError: a value that Arrow would take and change, such as 1.5 for an integer.
        pyarrow.ArrowException, TypeError, OverflowError: one that it does not take.

    Example:
        `fitting_array([1, None], pa.int32())`
    """
    plain = _plain_values(values)
    _check_fit(plain, kind)
    return pa.array(plain, kind)


def _shown(value: object) -> str:
    return _shortened(quoted(value))


def _shortened(shown: str) -> str:
    return shown if len(shown) <= 300 else f"{shown[:300]}... ({len(shown)} characters)"


# --- types --------------------------------------------------------------------------------------------------


class _MisfitError(ValueError):
    """Values that do not fit a column; `ColumnConverter` finds the row and tells the user."""


def _kind(value: object) -> str:
    if type(value) is dt.datetime:
        return _NAIVE if value.tzinfo is None else _AWARE
    kind = _KINDS.get(type(value))
    if kind is None:
        raise _MisfitError(f"{type(value).__module__}.{type(value).__qualname__} has no Arrow type")
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


def _inferred(values: list[Any], held: pa.DataType) -> pa.DataType:
    """The type of a column that is `held` so far (null: not known) once it has `values` as well."""
    kinds = _kinds(values)
    if not kinds:
        return held
    if len(kinds) > 1:
        raise _MisfitError(f"the column mixes {' and '.join(sorted(kinds))}")
    kind = kinds[0]
    if not pa.types.is_null(held) and _kind_of_type(held) != kind:
        raise _MisfitError(f"a value of type {kind} in a column of {_kind_of_type(held)}")
    if kind == "list":
        item = pa.null() if pa.types.is_null(held) else held.value_type
        return pa.list_(_inferred(_items(values), item))
    if kind == "dict":
        return _inferred_struct([value for value in values if value is not None], held)
    return _NATURAL[kind]


def _inferred_struct(dicts: list[dict[Any, Any]], held: pa.DataType) -> pa.DataType:
    fields = (
        dict.fromkeys(dicts[0], pa.null()) if pa.types.is_null(held) else {field.name: field.type for field in held}
    )
    for value in dicts:
        if value.keys() != fields.keys():
            raise _MisfitError(f"a dict with the keys {list(value)} in a column of dicts with the keys {list(fields)}")
    if not all(isinstance(name, str) for name in fields):
        raise _MisfitError("a key that is no text")
    return pa.struct([(name, _inferred([value[name] for value in dicts], kind)) for name, kind in fields.items()])


def _kind_of_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return "list"
    if pa.types.is_struct(kind):
        return "dict"
    return next(name for name, natural in _NATURAL.items() if natural == kind)


def _items(values: Iterable[Any]) -> list[Any]:
    return list(chain.from_iterable(value for value in values if value is not None))


def fits(values: list[Any], kind: pa.DataType) -> bool:
    """Whether a column of the type has the values as they are.

    Example:
        >>> fits([1, 1.5], pa.int64())
        False
    """
    try:
        _check_fit(values, kind)
    except _MisfitError:
        return False
    return True


def _check_fit(values: list[Any], kind: pa.DataType) -> None:
    """Refuse what Arrow takes but changes: 1.5 as int64, True as float64, unknown keys of a struct."""
    _fit_of(kind)(values)


def _fit_of(kind: pa.DataType) -> Callable[[list[Any]], None]:
    """`_check_fit` for one type, which is looked at once."""
    if pa.types.is_dictionary(kind):
        return _fit_of(kind.value_type)
    allowed = _allowed_kinds(kind)
    return _leave_to_arrow if allowed is None else partial(_check_kinds, kind, allowed)


def _leave_to_arrow(values: list[Any]) -> None:
    pass


def _check_kinds(kind: pa.DataType, allowed: frozenset[str], values: list[Any]) -> None:
    for found in _kinds(values):
        if found not in allowed:
            raise _MisfitError(f"a value of type {found} in a column of {kind}")
    if pa.types.is_struct(kind):
        _check_struct([value for value in values if value is not None], kind)
    elif pa.types.is_map(kind):
        _check_map([value for value in values if value is not None], kind)
    elif "list" in allowed:
        _check_fit(_items(values), kind.value_type)


def _check_struct(dicts: list[dict[Any, Any]], kind: pa.DataType) -> None:
    names = {field.name for field in kind}
    for value in dicts:
        if not value.keys() <= names:
            raise _MisfitError(f"a dict with the unknown key {next(key for key in value if key not in names)!r}")
    for field in kind:
        _check_fit([value.get(field.name) for value in dicts], field.type)


def _check_map(maps: list[Any], kind: pa.DataType) -> None:
    pairs = list(chain.from_iterable(value.items() if isinstance(value, dict) else value for value in maps))
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or pair[0] is None:
            raise _MisfitError(f"{pair!r:.200} in a map, whose entries are pairs of a key and a value")
    _check_fit([key for key, _ in pairs], kind.key_type)
    _check_fit([value for _, value in pairs], kind.item_type)


def _allowed_kinds(kind: pa.DataType) -> frozenset[str] | None:
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


def _plain_values(values: Sequence[Any]) -> list[Any]:
    """The values as the plain Python types of `_KINDS`: numpy scalars and arrays, tuples, subclasses."""
    if set(map(type, values)) <= _SCALARS:
        return values if isinstance(values, list) else list(values)
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, list):
        return _plain_values(value)
    if isinstance(value, tuple):
        return tuple(_plain_values(value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        return _plain_values(list(value))
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
            raise _MisfitError(f"{value!r} has more than microseconds")
        return exact.item()
    return value.item()


def _plain_datetime(value: dt.datetime) -> dt.datetime | None:
    """That of a subclass, such as pandas' `Timestamp`, whose `NaT` is like nothing, itself included."""
    if value != value:
        return None
    if getattr(value, "nanosecond", 0):
        raise _MisfitError(f"{value!r} has more than microseconds")
    return dt.datetime.combine(value.date(), value.timetz())


_PLAIN_OF: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytearray, bytes),
    (bytes, bytes),
    (dt.datetime, _plain_datetime),
)
