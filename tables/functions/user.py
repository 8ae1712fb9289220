"""Functions of the user, written in Python: scalar, by columns, table and aggregate functions for SQL.

Programs make them by `udf.py`. They are called where rows are computed, so they must be picklable.
"""

from __future__ import annotations

import enum
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.interruption import pass_interruption
from penstock.engine.python_values import fitting_array
from penstock.tables.types import Kind, SqlType, arrow_type


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
        except BaseException as error:
            pass_interruption(error)
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


def _line_of(error: BaseException) -> str:
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
