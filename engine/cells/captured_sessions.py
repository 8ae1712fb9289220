"""How sessions differ from those of the last capture: which have changed, and which rows of it stand for none any more.

`SessionAggregate` tells it what becomes of its sessions. In captures a session is known by its key and its start; a
session that begins earlier than it did, or has become part of another, leaves a row behind that must go. Sessions that
end need nothing: their rows expire.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.engine.cells.session_cells import SessionCells
from penstock.engine.cells.touched_cells import TouchedCells
from penstock.engine.state.capture import CaptureScope
from penstock.engine.state.changes import ChangesSinceWhole

_Int64s = npt.NDArray[np.int64]

_NEVER: Final = -(2**63)
"""The start of a session that is in no capture; no session begins then, as times are within 2**62."""


class CapturedSessions:
    """The sessions of the last capture.

    Args:
        sessions: those that are open now.
    """

    def __init__(self, sessions: SessionCells) -> None:
        self._sessions = sessions
        self._touched = TouchedCells()
        self._since = ChangesSinceWhole()
        self._starts = np.empty(0, np.int64)
        """By session, where it starts in the last capture."""
        self._merged_slots: list[_Int64s] = []
        self._merged_starts: list[_Int64s] = []

    def touch(self, sessions: _Int64s) -> None:
        """These have changed."""
        self._touched.mark(sessions, self._sessions.end)

    def merge(self, merged: _Int64s, into: _Int64s) -> None:
        """`merged[i]` has become part of `into[i]`."""
        if not len(merged):
            return
        starts = self._starts_of(merged)
        held = starts != _NEVER
        if held.any():
            self._merged_slots.append(self._sessions.slots[into[held]])
            self._merged_starts.append(starts[held])
        self.forget(merged)

    def forget(self, sessions: _Int64s) -> None:
        """These are closed, and their ids free."""
        self._touched.forget(sessions)
        self._starts[sessions[sessions < len(self._starts)]] = _NEVER

    def _starts_of(self, sessions: _Int64s) -> _Int64s:
        more = self._sessions.end - len(self._starts)
        if more > 0:
            self._starts = np.concatenate([self._starts, np.full(max(more, len(self._starts)), _NEVER)])
        starts: _Int64s = self._starts[sessions]
        return starts

    def changes(self, scope: CaptureScope) -> tuple[_Int64s, _Int64s, _Int64s] | None:
        """What a capture gives: what has changed since `settle`, or None for all that there is.

        Returns:
            sessions that are open; and the slots and starts of rows that must go, before rows of sessions come. Slots
            may have been given up since, and so may keys: their rows expire.
        """
        if scope is CaptureScope.COMPLETE:
            return None
        touched = self._touched.cells() if scope.takes_changes else None
        changed = None if touched is None else len(touched)
        if self._since.gives_all(changed, len(self._sessions), scope) or touched is None:
            return None
        starts = self._starts_of(touched)
        moved = (starts != _NEVER) & (starts != self._sessions.starts[touched])
        slots = np.concatenate([*self._merged_slots, self._sessions.slots[touched[moved]]])
        return touched, slots, np.concatenate([*self._merged_starts, starts[moved]])

    def settle(self, sessions: _Int64s) -> None:
        """A capture holds all changes so far; those of sessions that are open are in `sessions`."""
        self._starts_of(sessions)
        self._starts[sessions] = self._sessions.starts[sessions]
        self._touched.settle()
        self._merged_slots.clear()
        self._merged_starts.clear()
