"""What keyed state remembers of its changes between captures: the items touched, and what a capture gives of them.

States on the heap, the columnar backend and the running aggregate keep one log each. Nothing is remembered before the
first capture that later ones count from, and never much more than there is state: then a capture gives all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.engine.state.capture import CaptureScope
from penstock.engine.state.keys.codec import grown, pooled_empty
from penstock.engine.state.keys.index import Slots
from penstock.engine.state.state_tables import StateRows

CHANGES_OF_BASE: Final = 4
"""So many times as much as a base may lie in changes behind it. More is read at a restore, less is written again."""
SLACK: Final = 1024
"""So many items that are gone are remembered however little there is."""
_MANY_SLOTS: Final = 1_000_000
"""From here on their marks are found by numba, which the index of so many keys has loaded already."""


@dataclass(frozen=True, slots=True)
class CapturedRows:
    """The entries of one state at a barrier, by reference.

    Args:
        rows: makes them of what the barrier took; may be called in another thread.
        is_changes: whether they are changes, the last `StateRows.deleted` of what is gone; otherwise they are all.
        entries: of those that somebody asked for, how many there are, with what is in them (see `entries_of`).
    """

    rows: Callable[[], StateRows]
    is_changes: bool = False
    entries: int = 0


def entries_of(value: Any) -> int:
    """As how many a value counts for `FEW_ENTRIES`: one, and each item of a list and hundred characters of a text."""
    if isinstance(value, dict):
        return sum(map(entries_of, value.values()))
    if isinstance(value, str | bytes):
        return 1 + len(value) // 100
    return 1 + len(value) if isinstance(value, list) else 1


def are_most(changed: int, entries: int) -> bool:
    """Whether to give all `entries` rather than the changes: when at least half of them are."""
    return changed > 0 and 2 * changed >= entries


class ChangesSinceWhole:
    """Whether a capture gives all entries rather than the changes.

    So it does where most have changed; and where, with these changes, `CHANGES_OF_BASE` times as many have been given
    as there were when all were given for the last time. Then the checkpoint writer would merge everything into a new
    base (`savepoints/history.py`), which reads all of it and tells rows apart by their keys: what lies in arrays is
    given again for a third of that.
    """

    __slots__ = ("_given", "_whole")

    def __init__(self) -> None:
        self._given = 0
        self._whole: int | None = None

    def gives_all(self, changed: int | None, entries: int, scope: CaptureScope) -> bool:
        """Decide about one capture that counts, and remember it.

        Args:
            changed: how many entries have changed; None: not known, or all are asked for.
            entries: how many there are.
            scope: how much is asked for.
        """
        whole = entries if self._whole is None else self._whole
        if changed is not None:
            few = not are_most(changed, entries) and self._given + changed <= CHANGES_OF_BASE * whole
            if few or (scope is CaptureScope.SWITCH and self._whole is not None):
                self._given, self._whole = self._given + changed, whole
                return False
        self._given, self._whole = 0, entries
        return True


class UntrackedCaptures:
    """Whether it is worth while to remember changes, where most of a state changes between captures.

    To merge most of a state into the rest is dearer than to give all of it, so that after such a capture the next two
    give all of it unasked, then four, then eight: each time it is tried again in between.
    """

    __slots__ = ("_in_a_row", "_left")

    def __init__(self) -> None:
        self._in_a_row = 0
        self._left = 0

    def next(self, was_tracked: bool, has_changed_much: bool) -> bool:
        """Whether to remember changes from this capture on.

        Args:
            was_tracked: whether they were remembered up to here.
            has_changed_much: whether they were most of the state.
        """
        if was_tracked:
            self._in_a_row = min(3, self._in_a_row + 1) if has_changed_much else 0
            self._left = 2**self._in_a_row if has_changed_much else 0
        elif self._left:
            self._left -= 1
        return self._left == 0


class ChangedItems:
    """The places, or the keys of maps in them, that have changed since the last capture that counts."""

    __slots__ = ("_limit", "items")

    def __init__(self) -> None:
        self.items: set[Any] | None = None
        """What has changed; None where that is not known, so that the next capture gives all. Add to it directly."""
        self._limit = SLACK

    def begin(self) -> None:
        """What there is now has not changed."""
        self.items = set()
        self._limit = SLACK

    def drop(self, item: Hashable, entries: Callable[[], int]) -> None:
        """An item is gone.

        Args:
            item: the place, or what stands for an entry of it.
            entries: how many there are, asked for now and then: with more changes than that, all will be given.
        """
        if self.items is None:
            return
        self.items.add(item)
        if len(self.items) > self._limit:
            self._limit = max(SLACK, 2 * entries())
            if len(self.items) > self._limit:
                self.items = None

    def take(self, scope: CaptureScope, entries: Callable[[], int]) -> set[Any] | None:
        """What a capture gives: the changes, from which nothing counts any more, or None for all that there is."""
        if scope is CaptureScope.COMPLETE:
            return None
        items = self.items
        self.begin()
        if scope is CaptureScope.BASE or items is None:
            return None
        return None if scope is not CaptureScope.SWITCH and are_most(len(items), entries()) else items


class ChangedSlots:
    """The slots whose values have changed since the last capture that counts."""

    __slots__ = ("_marks", "_since")

    def __init__(self) -> None:
        self._since = ChangesSinceWhole()
        self._marks: npt.NDArray[np.bool_] | None = None

    def begin(self) -> None:
        """What there is now has not changed."""
        if self._marks is None:
            self._marks = np.zeros(0, np.bool_)
        # As large as before: a new one would cost the rows behind a barrier its pages.
        self._marks[:] = False

    def forget(self) -> None:
        """What has changed is not known any more."""
        self._marks = None

    def mark(self, slots: Slots, end: int) -> None:
        """The values of `slots`, all below `end`, have changed."""
        if self._marks is not None:
            if end > len(self._marks):
                self._marks = grown(self._marks, end)
            self._marks[slots] = True

    def take(self, scope: CaptureScope, entries: int) -> Slots | None:
        """What a capture gives: the slots that have changed, ascending, or None for all that there are."""
        if scope is CaptureScope.COMPLETE:
            return None
        marks = None if scope is CaptureScope.BASE else self._marks
        changed = None if marks is None else int(np.count_nonzero(marks))
        gives_all = self._since.gives_all(changed, entries, scope)
        slots = None if gives_all or marks is None or changed is None else _marked(marks, changed)
        self.begin()
        return slots


def _marked(marks: npt.NDArray[np.bool_], count: int) -> Slots:
    """The slots that are marked, so many, ascending. Called at the barrier, while rows wait."""
    if len(marks) < _MANY_SLOTS:
        return np.flatnonzero(marks)
    from penstock.engine.state.capture_kernel import marked

    slots = pooled_empty(count + 1, np.int64)
    marked(marks, slots)
    return slots[:-1]
