"""Slots of keys: that of each row's key, where a batch has many rows for each, and of the keys that have state.

Window operators and running aggregates number the keys of whole batches here; the index is given each key once. Keys
without cells lose their slots before they are the larger part, so memory follows the keys with open windows, however
many have come by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.columns import one_array
from penstock.engine.row_numbers import DENSE, dense_numbers, distinct_of
from penstock.engine.state.keys.codec import is_word
from penstock.engine.state.keys.index import KeyIndex

_Int64s = npt.NDArray[np.int64]

_MANY_ROWS: Final = 1024
_MANY_A_KEY: Final = 4
_FEW_KEYS: Final = 4096
"""Above this, numbers are looked up in a compiled hash table."""
_PLACES_A_KEY: Final = 2
"""A table by number may have so many; a hash table has more."""
_MIN_UNUSED: Final = 1024


class CountedKeys:
    """Slots of keys, with the number of their users: `SliceCells` and the sessions number their keys here.

    Args:
        names: the key columns; none for a single key, that of all rows.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._index = KeyIndex()
        self._users = np.zeros(0, np.int64)
        self._unused = 0

    @property
    def end(self) -> int:
        """All slots in use are below this."""
        return self._index.end if self._names else 1

    def count(self) -> int:
        """How many have users. May be called from another thread."""
        return int(np.count_nonzero(self._users))

    def lookup(self, table: pa.Table) -> _Int64s:
        """The slot of each row's key. New keys have no users: `use` their slots before the next `lookup`."""
        if not self._names:
            slots = np.zeros(table.num_rows, np.int64)
        else:
            slots = slots_of_rows(self._index, [one_array(table.column(name)) for name in self._names])
        if self.end > len(self._users):
            self._users = np.concatenate([self._users, np.zeros(max(self.end, 1024), np.int64)])
        return slots

    def find(self, table: pa.Table) -> _Int64s:
        """The slots of those rows' keys that have one; there are keys."""
        slots = self._index.find([one_array(table.column(name)) for name in self._names])
        found: _Int64s = slots[slots >= 0]
        return found

    def use(self, slots: _Int64s) -> None:
        """Each of these (a slot may come more than once) has a user more."""
        np.add.at(self._users, slots, 1)

    def leave(self, slots: _Int64s) -> None:
        """Each of these (a slot may come more than once) has a user less; without users a key is forgotten in time."""
        np.subtract.at(self._users, slots, 1)
        self.pass_over(slots)

    def pass_over(self, slots: _Int64s) -> None:
        """Rows of these keys came, and nothing is kept for them: one without users is forgotten in time."""
        # A key often comes again soon; to count it once too often does no harm.
        self._unused += int(np.count_nonzero(self._users[slots] == 0))
        if self._names and self._unused > max(len(self._index) // 2, _MIN_UNUSED):
            held = self._index.slots()
            self._index.remove(held[self._users[held] == 0])
            self._unused = 0

    def are_held(self, slots: _Int64s) -> npt.NDArray[np.bool_]:
        """Which of these slots have users."""
        held: npt.NDArray[np.bool_] = self._users[slots] > 0
        return held

    def table(self, slots: _Int64s) -> pa.Table:
        """The key columns of `slots`."""
        return pa.table(dict(zip(self._names, self._index.keys(slots), strict=True))) if self._names else pa.table({})


def slots_of_rows(index: KeyIndex, columns: list[pa.Array]) -> _Int64s:
    """What `index.lookup(columns)` gives, sooner.

    Args:
        columns: the key columns, at least one.
    """
    if len(columns) == 1 and _are_many_integers(columns[0]):
        numbers, kind = columns[0].to_numpy().astype(np.int64, copy=False), columns[0].type
        most = max(len(numbers), _PLACES_A_KEY * len(index))

        def give(distinct: _Int64s) -> _Int64s:
            index.expect(len(numbers))
            return index.lookup([pa.array(distinct, kind)])

        if (found := index.direct.lookup(numbers, most, give)) is not None:
            return found
    if not _repeat(columns, len(index)):
        return index.lookup(columns)
    numbers, distinct = distinct_of(columns)
    slots: _Int64s = index.lookup(distinct)[numbers]
    return slots


def slots_of_keys(index: KeyIndex, columns: list[pa.Array]) -> _Int64s:
    """What `index.find(columns)` gives, in a third of the time where `slots_of_rows` has met the keys as numbers.

    Args:
        columns: the key columns, at least one.
    """
    if len(columns) == 1 and _are_integers(columns[0]):
        found = index.direct.find(columns[0].to_numpy().astype(np.int64, copy=False))
        if found is not None:
            return found
    return index.find(columns)


def _repeat(columns: list[pa.Array], keys: int) -> bool:
    """Whether a batch has so many rows for each key that Arrow numbers them faster than the index does."""
    rows = len(columns[0])
    if rows < _MANY_ROWS or keys * _MANY_A_KEY > rows:
        return False
    return len(columns) > 1 or keys <= _FEW_KEYS or not is_word(columns[0].type)


def _are_many_integers(column: pa.Array) -> bool:
    """Whether it is worth while to look up the keys by their numbers, where these lie close together."""
    return len(column) >= _MANY_ROWS and _are_integers(column)


def _are_integers(column: pa.Array) -> bool:
    """Whether all are numbers that 64 bits hold with a sign."""
    if column.null_count:
        return False
    return pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type)


def map_distinct(numbers: _Int64s, function: Callable[[_Int64s], _Int64s]) -> _Int64s:
    """`function` of each number, called once with those that differ.

    Slices and keys are looked up by it: a batch has many rows for each. Where the numbers lie close together, a row
    costs two steps in a table; where they do not, they are sorted.

    Args:
        numbers: at least one.
        function: is given distinct numbers, ascending, and returns as many.

    Example:
        >>> map_distinct(np.array([7, 5, 7]), lambda distinct: distinct * 10).tolist()
        [70, 50, 70]
    """
    dense = dense_numbers(numbers, DENSE)
    if dense is None:
        distinct, places = np.unique(numbers, return_inverse=True)
        return function(distinct)[places]
    relative, end, low = dense
    table = np.zeros(end, np.int64)
    table[relative] = 1
    present = np.flatnonzero(table)
    table[present] = function(present + low)
    mapped: _Int64s = table[relative]
    return mapped
