"""The open sessions of all keys: which rows belong to which, from when to when.

`SessionAggregate` places each batch here and keeps accumulators by the ids of the sessions. Memory is bounded by the
sessions that are open at one time, plus one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.engine.cells import session_rules
from penstock.engine.cells.cell_pool import CellPool
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.state.keys.codec import read_only

_Int64s = npt.NDArray[np.int64]

_FEW: Final = 4096
"""Batches of up to so many rows are placed by plain loops: a slow job must not wait for numba."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of a batch.

    Args:
        sessions: the session of each row; NONE of late ones.
        opened: sessions that are new.
        merged, into: sessions that were open before, and those that each of them is part of now. Their ids are free.
    """

    sessions: _Int64s
    opened: _Int64s
    merged: _Int64s
    into: _Int64s


class SessionCells:
    """Open sessions by id; `starts`, `ends` and `slots` are by id too, with the largest end where none is open."""

    def __init__(self) -> None:
        self._pool = CellPool()
        self._heads = np.zeros(0, np.int64)
        self._earlier = np.zeros(0, np.int64)
        self._merged_into = np.zeros(0, np.int64)
        self._had_large_batch = False
        self.slots = np.zeros(0, np.int64)
        self.starts = np.zeros(0, np.int64)
        self.ends = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self._pool.used

    @property
    def end(self) -> int:
        """All ids are below this."""
        return self._pool.end

    def open_sessions(self) -> _Int64s:
        """All of them, by id."""
        return np.flatnonzero(self.ends != MAX_TIMESTAMP)

    def ending(self, above: int, upto: int) -> _Int64s:
        """The sessions with above < end <= upto, which must be before the largest; earlier ends first."""
        sessions = np.flatnonzero(self.ends <= upto)
        sessions = sessions[self.ends[sessions] > above]
        ordered: _Int64s = sessions[np.argsort(self.ends[sessions], kind="stable")]
        return ordered

    def first_end(self, above: int) -> int:
        """The earliest end above this, or the largest timestamp."""
        first = int(self.ends.min(initial=MAX_TIMESTAMP))
        return first if first > above else int(self.ends[self.ends > above].min(initial=MAX_TIMESTAMP))

    def place(
        self, slots: _Int64s, starts: _Int64s, ends: _Int64s, all_slots: int, horizon: int = MIN_TIMESTAMP
    ) -> Placed:
        """Put rows into the sessions that they touch, in order; sessions that come to touch are merged.

        Args:
            slots, starts, ends: of the rows: their keys' slots, and from when to when (included) each lasts.
            all_slots: all slots are below this.
            horizon: rows are late whose session would end at this millisecond (its last one) or before.
        """
        fresh = self._pool.take(len(slots))
        self._reserve(all_slots)
        self._had_large_batch |= len(slots) > _FEW
        merged, sessions = np.empty(len(self) + len(slots), np.int64), np.empty(len(slots), np.int64)
        rows = read_only(slots), read_only(starts), read_only(ends)
        by_session = self.slots, self.starts, self.ends, self._merged_into
        used, gone = self._place_rows()(
            *rows, fresh, self._heads, self._earlier, *by_session, merged, sessions, horizon
        )
        self._pool.give_back(fresh[used:])
        return self._placed(sessions, fresh[:used], merged[:gone])

    def _placed(self, sessions: _Int64s, fresh: _Int64s, merged: _Int64s) -> Placed:
        if not len(merged):
            return Placed(sessions, fresh, merged, merged)
        into = self._merged_into[merged]
        while (further := self._merged_into[into]).max() != session_rules.NONE:
            into = np.where(further == session_rules.NONE, into, further)
        self._merged_into[merged] = into
        now = np.where(sessions == session_rules.NONE, session_rules.NONE, self._merged_into[sessions])
        sessions = np.where(now == session_rules.NONE, sessions, now)
        self._merged_into[merged] = session_rules.NONE
        is_fresh = np.zeros(self.end, np.bool_)
        is_fresh[fresh] = True
        old = ~is_fresh[merged]
        is_fresh[merged] = False
        self._free(merged)
        return Placed(sessions, fresh[is_fresh[fresh]], merged[old], into[old])

    def close(self, sessions: _Int64s) -> None:
        """Forget sessions that are open."""
        self._take_out()(sessions, self.slots[sessions], self._heads, self._earlier)
        self._free(sessions)

    def _free(self, sessions: _Int64s) -> None:
        self.ends[sessions] = MAX_TIMESTAMP
        self._pool.give_back(sessions)

    def _reserve(self, slots: int) -> None:
        self._heads = _grown(self._heads, slots, session_rules.NONE)
        self._earlier = _grown(self._earlier, self.end, session_rules.NONE)
        self._merged_into = _grown(self._merged_into, self.end, session_rules.NONE)
        self.slots = _grown(self.slots, self.end, 0)
        self.starts = _grown(self.starts, self.end, 0)
        self.ends = _grown(self.ends, self.end, MAX_TIMESTAMP)

    def _place_rows(self) -> Callable[..., tuple[int, int]]:
        if not self._had_large_batch:
            return session_rules.place_rows
        from penstock.engine.cells import session_kernel

        return session_kernel.place_rows

    def _take_out(self) -> Callable[..., None]:
        if not self._had_large_batch:
            return session_rules.take_out
        from penstock.engine.cells import session_kernel

        return session_kernel.take_out


def _grown(array: _Int64s, size: int, fill: int) -> _Int64s:
    if size <= len(array):
        return array
    return np.concatenate([array, np.full(max(size, 2 * len(array)) - len(array), fill)])
