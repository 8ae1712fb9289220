"""Rows that a function gives, kept as the values of columns until they become a record batch.

The operators that call Python functions use it. It guarantees that a row is kept as it was when the function gave it,
whatever the function does to its own objects afterwards: results do not depend on how rows are cut into batches.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.row_code import adder_maker
from penstock.engine.rows import RowConverter, rows_of

_SCALARS_OF_NUMPY: Final = frozenset(np.sctypeDict.values()) - {np.void, np.object_}
_UNCHANGEABLE: Final[frozenset[type]] = _SCALARS_OF_NUMPY.union(
    {bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal, type(None)},
)
_plain_text: Final = str.__str__
"""Of members of an enumeration, too, of which `str()` gives something else."""
# Looked up once and not for each row, of which there are many.
_are_unchangeable: Final = _UNCHANGEABLE.issuperset


def owned_row(row: Any) -> Any:
    """A copy that the function cannot reach: it may well keep using the dict, in its state for example.

    What is no mapping is given back as it is; the conversion refuses it.
    """
    if row.__class__ is dict:
        return owned_value(row)
    return owned_value(dict(row)) if isinstance(row, Mapping) else row


def owned_value(value: Any) -> Any:
    """As `owned_row`, of one value; what cannot be copied is given back as it is, and the conversion refuses it.

    Example:
        `owned_value([1, {"a": [2]}]) == [1, {"a": [2]}]`
    """
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    # By hand, at a fraction of what `deepcopy` takes.
    if kind is list or kind is tuple:
        return kind(value if _are_unchangeable(map(type, value)) else map(owned_value, value))
    if kind is dict:
        if _are_unchangeable(map(type, value.values())):
            return value.copy()
        return {name: owned_value(item) for name, item in value.items()}
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


class RowBuffer:
    """Takes rows one by one, and gives them as a batch; one lives in one subtask and holds the types.

    Args:
        schema: the declared columns, or None to infer them, as for a `RowConverter`.
        where: the operator and subtask, for messages.

    Attributes:
        add: takes a row; what does not fit is an error of `take`.

    Example:
        >>> buffer = RowBuffer(None, "operator 'map', subtask 0")
        >>> buffer.add({"a": 1})
        >>> buffer.take().to_pylist()
        [{'a': 1}]
    """

    def __init__(self, schema: pa.Schema | None, where: str) -> None:
        self._converter = RowConverter(schema, where)
        self._names: tuple[str, ...] = ()
        self._keys: frozenset[str] = frozenset()
        self._columns: list[list[Any]] = []
        self._misfits: list[tuple[int, Any]] = []
        self._are_held = schema is not None
        self.add: Callable[[Any], None] = self._add_first
        if schema is not None:
            self._begin(schema.names)

    def __len__(self) -> int:
        return (len(self._columns[0]) if self._columns else 0) + len(self._misfits)

    def _begin(self, row_names: Iterable[str]) -> None:
        names = tuple(map(_plain_text, row_names))
        self._names, self._keys = names, frozenset(names)
        self._columns = [[] for _ in names]
        if names:
            self.add = adder_maker(names)(_UNCHANGEABLE, self._add_unusual, *self._columns)

    def _add_first(self, row: Any) -> None:
        """Learn the names; later, too, from who has looked `add` up before."""
        if not self._columns and isinstance(row, Mapping) and all(isinstance(name, str) for name in row):
            self._begin(row)
        if self._columns:
            self.add(row)
        else:
            self._misfits.append((0, owned_row(row)))

    def _add_unusual(self, row: Any) -> None:
        own = owned_row(row)
        if isinstance(own, dict) and own.keys() != self._keys:
            # Texts of a class that hashes or compares them otherwise are names, too.
            own = {_plain_text(name) if isinstance(name, str) else name: value for name, value in own.items()}
        if isinstance(own, dict) and own.keys() == self._keys:
            for name, column in zip(self._names, self._columns, strict=True):
                column.append(own[name])
        else:
            self._misfits.append((len(self._columns[0]), own))

    def clear(self) -> None:
        """Forget what was added, by a call that failed perhaps."""
        self._misfits.clear()
        for column in self._columns:
            column.clear()
        if not self._are_held:
            self._columns = []
            self.add = self._add_first

    def take(self) -> pa.RecordBatch:
        """The rows, in order, which are gone then.

        Raises:
            ResultError: a row is no dict, has other keys, or has a value that does not fit its column.
        """
        if self._misfits:
            at, misfit = self._misfits[0]
            return self._converter.convert([*islice(rows_of(self._names, self._columns), at), misfit])
        data = self._converter.convert_columns(self._names, self._columns)
        self._are_held = bool(self._names)
        self.clear()
        return data
