"""Functions of the user, written in Python: scalar, by columns, table and aggregate functions for SQL.

Programs make them with `udf`, `arrow_udf`, `udtf` and `udaf`, and give them a name by
`env.tables.create_temporary_function`. They are called where rows are computed, so they must be picklable.
"""

from __future__ import annotations

import enum
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.errors import ConfigurationError, SqlError
from penstock.engine.rows import fitting_array
from penstock.tables import types as t
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.type_parser import parse_type
from penstock.tables.types import Kind, RowField, SqlType, arrow_type


class UserFunctionKind(enum.Enum):
    """What a function is called with, and what it gives."""

    SCALAR = "scalar"
    """The values of a row; a value."""
    COLUMNS = "columns"
    """The columns of many rows; a column."""
    TABLE = "table"
    """The values of a row; any number of rows."""
    AGGREGATE = "aggregate"
    """The values of a group, in a list; a value."""


class UserFunctionError(ValueError):
    """A function of the user fails, or gives what it must not; the text names the function and its line."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the user; made by `udf`, `arrow_udf`, `udtf` or `udaf`.

    Args:
        kind: what it is called with.
        call: the Python function.
        returns: the type of its result; of a table function an array of rows.
        takes: the types of its arguments; None: any, as they come.
        deterministic: whether equal arguments always give equal results.
    """

    kind: UserFunctionKind
    call: Callable[..., Any]
    returns: SqlType
    takes: tuple[SqlType, ...] | None
    deterministic: bool = True

    def evaluate(self, name: str, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """The results for some rows.

        Args:
            name: of the function in SQL, for messages.
            columns: the arguments; of an aggregate function one column of lists.
            rows: how many.

        Raises:
            UserFunctionError: the function fails, or gives what is not of its type.
        """
        try:
            found = self._results(columns, rows)
        except Exception as error:
            raise UserFunctionError(
                f"the function {name} fails{_line_of(error)} ({type(error).__name__}: {error})"
            ) from error
        if not isinstance(found, (pa.Array, pa.ChunkedArray, Sequence, np.ndarray)):
            raise UserFunctionError(
                f"the function {name} gives a {type(found).__name__}; it must give an array or a list"
            )
        try:
            made = self._typed(found)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise UserFunctionError(f"the function {name} gives what is no {self.returns}: {error}") from error
        if len(made) != rows:
            raise UserFunctionError(
                f"the function {name} gives {len(made)} values for {rows} rows; it must give as many"
            )
        return made

    def _typed(self, found: Any) -> pa.Array:
        kind = arrow_type(self.returns)
        if not isinstance(found, (pa.Array, pa.ChunkedArray)):
            return fitting_array(found, kind)
        whole = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        return whole if whole.type == kind else whole.cast(kind)

    def _results(self, columns: Sequence[pa.Array], rows: int) -> Any:
        if self.kind is UserFunctionKind.COLUMNS:
            return self.call(*columns)
        if not columns:
            return [self._result(()) for _ in range(rows)]
        return [self._result(values) for values in zip(*(column.to_pylist() for column in columns), strict=True)]

    def _result(self, values: tuple[Any, ...]) -> Any:
        if self.kind is UserFunctionKind.TABLE:
            names = [field.name for field in self.returns.parts[0].fields]
            return [_row(row, names) for row in self.call(*values) or ()]
        if self.kind is UserFunctionKind.AGGREGATE:
            # Several arguments are a row of each.
            given = values[0] or []
            return self._row_or_value(
                self.call([tuple(one.values()) if isinstance(one, dict) else one for one in given])
            )
        return self._row_or_value(self.call(*values))

    def _row_or_value(self, found: Any) -> Any:
        if self.returns.kind is not Kind.ROW or found is None:
            return found
        return _row(found, [field.name for field in self.returns.fields])


def udf(
    function: Callable[..., Any], *, returns: str, takes: Sequence[str] | None = None, deterministic: bool = True
) -> UserFunction:
    """A scalar function: called for each row with plain values, None for null; None is null.

    Args:
        function: the Python function; a lambda or a function of the program's own module travels with the job.
        returns: the SQL type of its result.
        takes: the SQL types of its arguments, to which they are cast where that loses nothing; None takes any.
        deterministic: False where equal arguments may give other results; it is then refused where rows change.

    Raises:
        ConfigurationError: a type that SQL does not have.

    Example:
        >>> from penstock import StreamEnvironment
        >>> env = StreamEnvironment(runtime="local")
        >>> env.tables.create_temporary_function("shout", udf(lambda word: word.upper() + "!", returns="STRING"))
        >>> list(env.sql("SELECT shout('hello') AS word").collect())
        [{'word': 'HELLO!'}]
    """
    return UserFunction(UserFunctionKind.SCALAR, function, _type(returns), _types(takes), deterministic)


def arrow_udf(
    function: Callable[..., Any], *, returns: str, takes: Sequence[str] | None = None, deterministic: bool = True
) -> UserFunction:
    """A scalar function by columns: called with Arrow arrays for many rows at once, and gives an array or a list.

    How many rows there are says nothing: results must be those of each row by itself. Arguments as of `udf`.

    Example:
        >>> import pyarrow.compute as pc
        >>> from penstock import StreamEnvironment
        >>> env = StreamEnvironment(runtime="local")
        >>> env.tables.create_temporary_function("twice", arrow_udf(lambda x: pc.multiply(x, 2), returns="BIGINT"))
        >>> list(env.sql("SELECT twice(21) AS n").collect())
        [{'n': 42}]
    """
    return UserFunction(UserFunctionKind.COLUMNS, function, _type(returns), _types(takes), deterministic)


def udtf(
    function: Callable[..., Any],
    *,
    returns: Mapping[str, str],
    takes: Sequence[str] | None = None,
    deterministic: bool = True,
) -> UserFunction:
    """A table function: called for each row, and gives rows (tuples, or values where there is one column).

    In SQL: `FROM t, LATERAL TABLE(words(line)) AS w (word)`, or LEFT JOIN ... ON TRUE, which keeps rows without any.

    Args:
        function: the Python function; often a generator.
        returns: the columns and their SQL types.
        takes, deterministic: as of `udf`.

    Raises:
        ConfigurationError: no column, or a type that SQL does not have.

    Example:
        >>> from penstock import StreamEnvironment
        >>> env = StreamEnvironment(runtime="local")
        >>> env.tables.create_temporary_function("words", udtf(str.split, returns={"word": "STRING"}))
        >>> list(env.sql("SELECT word FROM (VALUES ('a b')) AS t (line), LATERAL TABLE(words(line))").collect())
        [{'word': 'a'}, {'word': 'b'}]
    """
    if not returns:
        raise ConfigurationError("udtf: returns has no column; give names and SQL types, such as {'word': 'STRING'}")
    fields = tuple(RowField(name, _type(kind)) for name, kind in returns.items())
    rows = t.array(SqlType(Kind.ROW, nullable=False, fields=fields))
    return UserFunction(UserFunctionKind.TABLE, function, rows, _types(takes), deterministic)


def udaf(function: Callable[..., Any], *, returns: str, takes: Sequence[str] | None = None) -> UserFunction:
    """An aggregate function: called with the list of a group's values, and gives one.

    The values are in the order in which they came, nulls among them; those of several arguments, or of a ROW, are
    tuples. Rows that are taken back are no longer in the list, which is empty where FILTER keeps none. All values of a
    group are kept, so it is for small groups, or with a `STATE_TTL`.

    Args:
        function: the Python function.
        returns: the SQL type of its result.
        takes: as of `udf`.

    Raises:
        ConfigurationError: a type that SQL does not have.

    Example:
        >>> import statistics
        >>> from penstock import StreamEnvironment
        >>> env = StreamEnvironment(runtime="local")
        >>> env.tables.create_temporary_function("median", udaf(statistics.median, returns="DOUBLE", takes=["DOUBLE"]))
        >>> [*_, row] = env.sql("SELECT median(n) AS m FROM (VALUES (1), (5), (3)) AS t (n)").collect()
        >>> row["m"]
        3.0
    """
    return UserFunction(UserFunctionKind.AGGREGATE, function, _type(returns), _types(takes))


_TYPES: Final = "such as INT, STRING, DECIMAL(10, 2) or ARRAY<DOUBLE>"


def _type(text: str) -> SqlType:
    try:
        cursor = Cursor(SqlText(text))
        kind = parse_type(cursor)
    except SqlError as error:
        raise ConfigurationError(f"{text!r} is no SQL type; give one {_TYPES}") from error
    if not cursor.ended:
        raise ConfigurationError(f"{text!r} is no SQL type; give one {_TYPES}")
    return kind


def _types(texts: Sequence[str] | None) -> tuple[SqlType, ...] | None:
    if isinstance(texts, str):
        raise ConfigurationError(f"takes is a list of SQL types, such as [{texts!r}]")
    return None if texts is None else tuple(_type(text) for text in texts)


def _line_of(error: Exception) -> str:
    """Where in the user's function it was raised, as far as that is Python."""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename != __file__:
            return f" in {os.path.basename(frame.filename)}, line {frame.lineno}"
    return ""


def _row(row: Any, names: list[str]) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {name: row[name] for name in names}
    values = row if isinstance(row, (tuple, list)) and len(names) > 1 else (row,)
    if isinstance(row, tuple) and len(names) == 1:
        values = row
    if len(values) != len(names):
        raise ValueError(f"a row has {len(values)} values, and there are {len(names)} columns: {', '.join(names)}")
    return dict(zip(names, values, strict=True))
