"""A source of rows that the program already holds: lists, pandas data frames, Arrow tables.

Programs build one by `CollectionSource.of`, in tests and examples above all. The rows come in their order, by
one subtask, as zero-copy slices; types are fixed when the source is built.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, row_of, row_position
from penstock.engine.errors import ConfigurationError
from penstock.engine.schemas import SchemaLike, parse_schema, plain_schema

_WHERE: Final = "collection"
_SCALAR_COLUMN: Final = "value"
_SHOWN_CHARACTERS: Final = 80

RowSchema: TypeAlias = "SchemaLike | Sequence[str] | None"


@dataclass(frozen=True, slots=True)
class CollectionSplit:
    """All rows of the collection."""

    split_id: str = "collection"


class CollectionSource(Source):
    """Rows that were there when the program was built, in their order. Built by `CollectionSource.of`.

    They travel with the job, so they must fit into memory; read files for more.
    """

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        self._schema = schema
        self._batches = tuple(batch for batch in batches if batch.num_rows)

    @classmethod
    def of(cls, data: object, schema: RowSchema = None) -> CollectionSource:
        """A source of the rows of `data`.

        Args:
            data: an iterable of dicts, of tuples, or of single values (column `value`); a pandas DataFrame
                (its index is left out); a `pa.Table` or `pa.RecordBatch`.
            schema: names (a list), or names and types (a mapping or `pa.Schema`; see
                `penstock.engine.schemas.parse_type`). Without it tuples get the names f0, f1, ..., and
                types are inferred from all rows. With types, a key that a dict lacks is null.

        Raises:
            ConfigurationError: another kind of object, no rows and no schema, rows that differ in their
                columns, or a column whose values do not have one type.

        Example:
            >>> CollectionSource.of([("AA", 5), ("UA", 7)], schema=["carrier", "delay"]).schema.names
            ['carrier', 'delay']
        """
        names, types = _names_and_types(schema)
        table = _arrow_table(data)
        if table is not None:
            table = _apply_schema(table, names, types)
        else:
            table = _rows_to_table(_row_list(data), names, types)
        plain = plain_schema(table.schema, _WHERE)
        return cls(plain, table.replace_schema_metadata(None).cast(plain).to_batches())

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def max_parallelism(self) -> int:
        return 1

    def splits(self, parallelism: int) -> Sequence[CollectionSplit]:
        return [CollectionSplit()]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return _CollectionReader(self._batches)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return _CollectionReader(self._batches, row_of(position, f"{_WHERE}: split {split.split_id!r}"))

    def describe(self) -> str:
        return f"collection({sum(batch.num_rows for batch in self._batches)} rows)"

    def __reduce__(self) -> tuple[Callable[[pa.Buffer], CollectionSource], tuple[pa.Buffer]]:
        # Arrow's own pickling sends the whole parent of a slice; its stream format sends the rows alone.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        return _from_stream, (sink.getvalue(),)


def _from_stream(stream: pa.Buffer) -> CollectionSource:
    with pa.ipc.open_stream(stream) as reader:
        return CollectionSource(reader.schema, list(reader))


class _CollectionReader(SourceReader):
    def __init__(self, batches: Sequence[pa.RecordBatch], row: int = 0) -> None:
        self._batches = batches
        self._index = 0
        self._row = self._offset = row
        while self._index < len(batches) and self._offset >= batches[self._index].num_rows:
            self._offset -= batches[self._index].num_rows
            self._index += 1

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        if self._index == len(self._batches):
            return None
        batch = self._batches[self._index].slice(self._offset, max_rows)
        self._offset += batch.num_rows
        self._row += batch.num_rows
        if self._offset == self._batches[self._index].num_rows:
            self._index, self._offset = self._index + 1, 0
        return batch

    def position(self) -> Position:
        return row_position(self._row)


def _names_and_types(schema: RowSchema) -> tuple[list[str] | None, pa.Schema | None]:
    if schema is None:
        return None, None
    if isinstance(schema, (Mapping, pa.Schema)):
        types = parse_schema(schema, _WHERE)
        return types.names, types
    if isinstance(schema, (str, bytes)) or not isinstance(schema, Iterable):
        raise ConfigurationError(
            f"{_WHERE}: schema must be a list of names, a mapping from name to type or a pyarrow.Schema, not {schema!r}"
        )
    names = list(schema)
    for name in names:
        if not isinstance(name, str):
            raise ConfigurationError(f"{_WHERE}: column names must be text, not {name!r}")
    plain_schema(pa.schema([(name, pa.null()) for name in names]), _WHERE)
    return names, None


def _arrow_table(data: object) -> pa.Table | None:
    """The table that `data` is, or None if it is not columnar."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if type(data).__module__.partition(".")[0] == "pandas" and type(data).__name__ == "DataFrame":
        return _from_pandas(data)
    return None


def _from_pandas(frame: Any) -> pa.Table:
    for name in frame.columns:
        if not isinstance(name, str):
            raise ConfigurationError(f"{_WHERE}: column names must be text, not {name!r}; rename the column")
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"{_WHERE}: the data frame cannot become columns: {error}; give the column one type (`astype`)"
        ) from error


def _apply_schema(table: pa.Table, names: list[str] | None, types: pa.Schema | None) -> pa.Table:
    """The table under the declared names (by place), or with the declared columns (by name) and types."""
    if names is None:
        return table
    if types is None:
        if len(names) != table.num_columns:
            raise ConfigurationError(
                f"{_WHERE}: the schema names {len(names)} columns, but the data has {table.num_columns}"
            )
        return table.rename_columns(names)
    plain_schema(table.schema, _WHERE)
    columns = []
    for field in types:
        if field.name not in table.column_names:
            raise ConfigurationError(
                f"{_WHERE}: the data has no column {field.name!r}; it has {', '.join(table.column_names)}"
            )
        try:
            columns.append(table.column(field.name).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise ConfigurationError(
                f"{_WHERE}: column {field.name!r} cannot become {field.type}: {error}; declare another type"
            ) from error
    return pa.Table.from_arrays(columns, schema=types)


def _row_list(data: object) -> list[Any]:
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, bytearray, Mapping)):
        module = type(data).__module__.partition(".")[0]
        if module not in ("pandas", "pyarrow"):
            return list(data)
    raise ConfigurationError(
        f"{_WHERE}: rows cannot be taken from {type(data).__name__} ({_shown(data)}); give a list of dicts, "
        "tuples or values, a pandas DataFrame or a pyarrow Table (`pa.table(...)` makes one from a dict of "
        "columns)"
    )


def _rows_to_table(rows: list[Any], names: list[str] | None, types: pa.Schema | None) -> pa.Table:
    if not rows:
        if types is None:
            raise ConfigurationError(
                f"{_WHERE}: no rows to infer the columns from; pass a schema with types, such as "
                "schema={'id': 'int64'}"
            )
        return types.empty_table()
    first = rows[0]
    if isinstance(first, Mapping):
        columns = _columns_of_dicts(rows, names, types)
    elif isinstance(first, tuple):
        columns = _columns_of_tuples(rows, names)
    else:
        columns = _column_of_values(rows, names)
    arrays = [
        _to_array(name, values, None if types is None else types.field(name).type) for name, values in columns.items()
    ]
    return pa.Table.from_arrays(arrays, names=list(columns))


def _columns_of_dicts(rows: list[Any], names: list[str] | None, types: pa.Schema | None) -> dict[str, list[Any]]:
    keys = list(rows[0]) if names is None else names
    for key in keys:
        if not isinstance(key, str):
            raise ConfigurationError(f"{_WHERE}: row 0: keys must be text, not {key!r}")
    known = frozenset(keys)
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise _other_kind(index, row, "a dict")
        if row.keys() == known:
            continue
        extra = next((key for key in row if key not in known), None)
        if extra is not None:
            raise ConfigurationError(
                f"{_WHERE}: row {index} has the key {extra!r}, which "
                f"{'the first row' if names is None else 'the schema'} lacks; give all rows the same keys, "
                "or declare a schema with types and all keys"
            )
        if types is None:
            missing = next(key for key in keys if key not in row)
            raise ConfigurationError(
                f"{_WHERE}: row {index} lacks the key {missing!r}; give all rows the same keys, or declare a "
                "schema with types, under which a missing key is null"
            )
    return {key: [row.get(key) for row in rows] for key in keys}


def _columns_of_tuples(rows: list[Any], names: list[str] | None) -> dict[str, list[Any]]:
    if names is None:
        names = list(getattr(rows[0], "_fields", None) or (f"f{place}" for place in range(len(rows[0]))))
    for index, row in enumerate(rows):
        if not isinstance(row, tuple):
            raise _other_kind(index, row, "a tuple")
        if len(row) != len(names):
            raise ConfigurationError(
                f"{_WHERE}: row {index} has {len(row)} values for {len(names)} columns ({', '.join(names)})"
            )
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _column_of_values(rows: list[Any], names: list[str] | None) -> dict[str, list[Any]]:
    if names is not None and len(names) != 1:
        raise ConfigurationError(
            f"{_WHERE}: the schema has {len(names)} columns, but row 0 is a single value "
            f"({_shown(rows[0])}); give tuples or dicts"
        )
    for index, row in enumerate(rows):
        if isinstance(row, (Mapping, tuple)):
            raise _other_kind(index, row, "a single value")
        if isinstance(row, list):
            raise ConfigurationError(f"{_WHERE}: row {index} is a list; give a tuple for a row of several columns")
    return {_SCALAR_COLUMN if names is None else names[0]: rows}


def _to_array(name: str, values: list[Any], declared: pa.DataType | None) -> pa.Array:
    if declared is None:
        _check_one_type(name, values)
    try:
        return _converted(values, declared)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _bad_value(name, values, declared, error) from error


def _converted(values: Sequence[Any], declared: pa.DataType | None) -> pa.Array:
    array = pa.array(values, declared)
    if declared is not None and pa.types.is_integer(declared) and not set(map(type, values)) <= {int, type(None)}:
        # Arrow cuts decimal places off.
        for value, made in zip(values, array.to_pylist(), strict=True):
            if made is not None and value != made:
                raise ValueError("it has decimal places")
    return array


def _check_one_type(name: str, values: Sequence[Any]) -> None:
    """Arrow itself merges some types in silence: text with bytes, dates with times, times with and without a zone."""
    types = set(map(type, values)) - {type(None)}
    if any(issubclass(one, datetime.datetime) for one in types):
        _check_zones(name, values)
    if len(types) <= 1:
        return
    given = ((index, value) for index, value in enumerate(values) if value is not None)
    first_row, first = next(given)
    kind = _kind(first)
    for index, value in given:
        other = _kind(value)
        if other != kind and {kind, other} != {"int", "float"}:
            raise ConfigurationError(
                f"{_WHERE}: column {name!r} mixes types: {type(first).__name__} in row {first_row}, "
                f"{type(value).__name__} in row {index} ({_shown(value)}); give the column one type, or "
                f"declare it in the schema, such as schema={{{name!r}: 'string'}}"
            )


def _check_zones(name: str, values: Sequence[Any]) -> None:
    rows: dict[bool, int] = {}
    for index, value in enumerate(values):
        if isinstance(value, datetime.datetime):
            rows.setdefault(value.tzinfo is None, index)
    if len(rows) > 1:
        raise ConfigurationError(
            f"{_WHERE}: column {name!r} mixes times with a time zone (row {rows[False]}) and without one (row "
            f"{rows[True]}); give all of them a zone, or none"
        )


def _kind(value: object) -> str:
    """Which values Arrow can hold in one column: those of the same kind."""
    for kind, members in _KINDS:
        if isinstance(value, members):
            return kind
    return type(value).__qualname__


# bool is an int and datetime is a date to Python: the narrower comes first.
_KINDS: Final[tuple[tuple[str, tuple[type, ...]], ...]] = (
    ("bool", (bool, np.bool_)),
    ("timedelta", (datetime.timedelta, np.timedelta64)),
    ("decimal", (decimal.Decimal,)),
    ("int", (numbers.Integral,)),
    ("float", (numbers.Real,)),
    ("text", (str,)),
    ("bytes", (bytes,)),
    ("datetime", (datetime.datetime, np.datetime64)),
    ("date", (datetime.date,)),
    ("struct", (Mapping,)),
    ("list", (list, tuple, np.ndarray)),
)


def _bad_value(name: str, values: Sequence[Any], declared: pa.DataType | None, error: Exception) -> ConfigurationError:
    for index, value in enumerate(values):
        if reason := _refusal(value, declared):
            wanted = "of a type that Arrow has" if declared is None else str(declared)
            return ConfigurationError(
                f"{_WHERE}: column {name!r}, row {index}: {_shown(value)} ({type(value).__name__}) is not "
                f"{wanted} ({reason}); correct the value, or declare another type in the schema"
            )
    return ConfigurationError(f"{_WHERE}: column {name!r} cannot be built: {error}; declare its type in the schema")


def _refusal(value: object, declared: pa.DataType | None) -> str:
    """Why Arrow does not take the value, or an empty text."""
    try:
        _converted([value], declared)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return str(error) or type(error).__name__
    return ""


def _other_kind(index: int, row: object, first: str) -> ConfigurationError:
    return ConfigurationError(
        f"{_WHERE}: row 0 is {first}, but row {index} is {_shown(row)} ({type(row).__name__}); "
        "all rows must be of one kind"
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
