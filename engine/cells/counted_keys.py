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

from penstock.engine.cells.row_slots import slots_of_rows
from penstock.engine.row_numbers import one_array
from penstock.engine.state.keys.index import KeyIndex

_Int64s = npt.NDArray[np.int64]

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


def beside(*tables: pa.Table) -> pa.Table:
    """The columns of all tables in one; those without columns may have any number of rows."""
    return pa.table({name: table.column(name) for table in tables for name in table.column_names})
