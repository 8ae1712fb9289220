"""What programs make functions for SQL with: `udf`, `arrow_udf`, `udtf` and `udaf`.

A program gives them a name by `env.tables.create_temporary_function`. A type that SQL does not have is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.engine.errors import ConfigurationError, SqlError
from penstock.tables import types as t
from penstock.tables.functions.user import UserFunction, UserFunctionKind
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.type_parser import parse_type
from penstock.tables.types import Kind, RowField, SqlType


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
