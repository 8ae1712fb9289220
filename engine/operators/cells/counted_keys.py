"""The keys that a window operator has state for: a slot for each, and how many cells use it.

`SliceCells` and the sessions number their keys here. Keys without cells lose their slots before they are the larger
part, so memory follows the keys with open windows, however many have come by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.accumulators import one_array
from penstock.engine.aggregation import groups_of
from penstock.engine.operators.cells.distinct import map_distinct
from penstock.engine.state.key_codec import is_word
from penstock.engine.state.key_index import KeyIndex

_Int64s = npt.NDArray[np.int64]

_MANY_ROWS: Final = 1024
_MANY_A_KEY: Final = 4
_FEW_KEYS: Final = 4096
"""Above this, numbers are looked up in a compiled hash table."""
_MIN_UNUSED: Final = 1024


class CountedKeys:
    """Slots of keys, with the number of their users.

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

    def lookup(self, table: pa.Table) -> _Int64s:
        """The slot of each row's key. New keys have no users: `use` their slots before the next `lookup`."""
        if not self._names:
            slots = np.zeros(table.num_rows, np.int64)
        else:
            slots = self._lookup([one_array(table.column(name)) for name in self._names])
        if self.end > len(self._users):
            self._users = np.concatenate([self._users, np.zeros(max(self.end, 1024), np.int64)])
        return slots

    def _lookup(self, columns: list[pa.Array]) -> _Int64s:
        # The index is then given each key of the batch once.
        if len(columns) == 1 and _is_narrow(columns[0]):
            kind = columns[0].type
            return map_distinct(
                columns[0].to_numpy().astype(np.int64, copy=False),
                lambda distinct: self._index.lookup([pa.array(distinct, kind)]),
            )
        if not self._repeat(columns):
            return self._index.lookup(columns)
        groups = groups_of([pa.chunked_array([column]) for column in columns], len(columns[0]))
        first = np.empty(groups.count, np.int64)
        first[groups.ids[::-1]] = np.arange(len(groups.ids) - 1, -1, -1)
        rows = pa.array(first)
        slots: _Int64s = self._index.lookup([column.take(rows) for column in columns])[groups.ids]
        return slots

    def _repeat(self, columns: list[pa.Array]) -> bool:
        """Whether a batch has so many rows for each key that Arrow numbers them faster than the index does."""
        rows, keys = len(columns[0]), len(self._index)
        if rows < _MANY_ROWS or keys * _MANY_A_KEY > rows:
            return False
        return len(columns) > 1 or keys <= _FEW_KEYS or not is_word(columns[0].type)

    def use(self, slots: _Int64s) -> None:
        """Each of these (a slot may come more than once) has a user more."""
        np.add.at(self._users, slots, 1)

    def leave(self, slots: _Int64s) -> None:
        """Each of these (a slot may come more than once) has a user less; without users a key is forgotten in time."""
        np.subtract.at(self._users, slots, 1)
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


def _is_narrow(column: pa.Array) -> bool:
    """Whether the keys are integers that lie closer together than there are rows."""
    if len(column) < _MANY_ROWS or column.null_count:
        return False
    if not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return False
    numbers = column.to_numpy()
    return int(numbers.max()) - int(numbers.min()) < len(numbers)


def beside(*tables: pa.Table) -> pa.Table:
    """The columns of all tables in one; those without columns may have any number of rows."""
    return pa.table({name: table.column(name) for table in tables for name in table.column_names})
