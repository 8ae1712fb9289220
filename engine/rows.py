"""Rows (dicts) for Python functions, made from Arrow columns, and Arrow columns made from their results.

The operators that call Python functions use it. A result never depends on where batches are cut: types come
from the declaration, or from the first values and are then held; what does not fit is a `RecordError` in
every cut.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.columns import readable
from penstock.engine.errors import RecordError, ResultError
from penstock.engine.python_values import allowed_kinds, fit_of, inferred, kind_of_type, plain_values, types_of
from penstock.engine.redaction import VARIABLE, is_hidden, quotable, quoted
from penstock.engine.row_code import Columns, row_maker
from penstock.engine.schemas import SchemaLike, parse_schema

Returns: TypeAlias = "SchemaLike | None"
"""How users declare the columns of a function's result: names with Arrow types or their text, or a schema."""

_EPOCH: Final = dt.datetime(1970, 1, 1)
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
    return list(rows_of(batch.schema.names, batch_columns(batch, where)))


def rows_of(names: Sequence[str], columns: Columns) -> Iterator[dict[str, Any]]:
    """The rows of columns as `batch_columns` gives them, each made when it is asked for.

    Example:
        `list(rows_of(["a"], [[1, 2]])) == [{"a": 1}, {"a": 2}]`
    """
    return row_maker(tuple(names))(columns)


def row_reader(batch: pa.RecordBatch, where: str = "rows") -> Callable[[int], dict[str, Any]]:
    """Makes a row when it is asked for by its number, as `batch_rows` does: for who needs few of them.

    Raises:
        RecordError: as for `batch_rows`, at once.

    Example:
        `row_reader(pa.RecordBatch.from_pydict({"a": [1, 2]}))(1) == {"a": 2}`
    """
    names, columns = batch.schema.names, batch_columns(batch, where)
    return lambda number: dict(zip(names, [column[number] for column in columns]))  # noqa: B905 - slower with strict


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

    def convert_columns(self, names: Sequence[str], columns: Sequence[list[Any]]) -> pa.RecordBatch:
        """As `convert`, of rows with the keys `names`, which are given by the values of each.

        Raises:
            ResultError: a value does not fit its column.
        """
        if not self._columns:
            self._columns = [ColumnConverter(name, None, self._where) for name in names]
        try:
            arrays = [column.convert(values) for column, values in zip(self._columns, columns, strict=True)]
        except ResultError:
            return self.convert(list(rows_of(names, columns)))  # says which row it is
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
        self._check_fit = fit_of(self.field.type)
        self._usual = self._usual_types()

    def convert(self, values: Sequence[Any], rows: Sequence[object] = ()) -> pa.Array:
        """An array of `values`, in order.

        Args:
            values: None is always allowed, unless a declared field forbids it.
            rows: what the values came from, for messages.

        Raises:
            ResultError: a value that does not fit.
        """
        kind = self.field.type
        try:
            if self._usual.issuperset(map(type, values)):
                array = self._array(values, kind)
            else:
                array, kind = self._convert(plain_values(values), kind)
        except _CONVERSION_ERRORS as error:
            raise self._locate(values, rows, error) from error
        if not self.field.nullable and array.null_count:
            raise self._error(values.index(None), None, rows, "null, and the column is declared without nulls")
        if self._declared is None and kind != self.field.type:
            self.field = pa.field(self.name, kind)
            self._usual = self._usual_types()
        return array

    def _usual_types(self) -> frozenset[type]:
        """Whose values are plain and fit, so that nobody has to look at each."""
        held = self.field.type
        if self._declared is not None:
            return types_of(allowed_kinds(held.value_type if pa.types.is_dictionary(held) else held) or ())
        return types_of(() if pa.types.is_null(held) else (kind_of_type(held),))

    def _convert(self, plain: list[Any], kind: pa.DataType) -> tuple[pa.Array, pa.DataType]:
        if self._declared is None:
            kind = inferred(plain, kind)
        else:
            self._check_fit(plain)
        return self._array(plain, kind), kind

    def _array(self, plain: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(plain, type=self._carrier).cast(kind) if self._is_carried else pa.array(plain, type=kind)

    def _locate(self, values: Sequence[Any], rows: Sequence[object], error: Exception) -> ResultError:
        """The error for the first value that does not fit; one by one gives the same types as together."""
        kind = self.field.type
        for index, value in enumerate(values):
            try:
                _, kind = self._convert(plain_values([value]), kind)
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


def _shown(value: object) -> str:
    return _shortened(quoted(value))


def _shortened(shown: str) -> str:
    return shown if len(shown) <= 300 else f"{shown[:300]}... ({len(shown)} characters)"
