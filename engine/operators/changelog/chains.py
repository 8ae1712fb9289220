"""Doubly linked lists of slots, one a group, in arrays: how kept rows are found by their key.

`KeyedRows` holds them. Adding and removing slots, and reading all slots of some groups, cost in proportion to these
slots, however many others there are. Few are worked on by plain Python; many, together or one batch
behind the other, by the same functions, compiled by numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from penstock.engine.operators.changelog.chain_loops import Int64s, link, unlink, walk
from penstock.engine.state.keys.codec import grown
from penstock.engine.state.keys.index import are_loaded, load_beside

_FEW: Final = 4096
"""Up to so many steps the import of numba takes longer than the loop."""
_TRICKLE: Final = 64
"""Batches of at most so many steps are those of a job at a low rate, which would stand still for the import."""
_EARNED: Final = 65_536
"""So many steps in larger batches have taken about as long as the import: that begins."""


class Chains:
    """Which slots belong to which group. Slots and groups are small numbers from 0 that others give.

    Example:
        >>> chains = Chains()
        >>> chains.add(np.array([0, 1, 2]), np.array([5, 4, 5]))
        >>> [array.tolist() for array in chains.of(np.array([4, 5, 6]))]
        [[0, 1, 1], [1, 2, 0]]
    """

    def __init__(self) -> None:
        self._heads = np.zeros(0, np.int64)
        self._sizes = np.zeros(0, np.int64)
        self._nexts = np.zeros(0, np.int64)
        self._befores = np.zeros(0, np.int64)
        self._groups = np.zeros(0, np.int64)
        self._steps = 0

    def add(self, slots: Int64s, groups: Int64s) -> None:
        """Slots that are in no group come into `groups`."""
        slot_end, group_end = int(slots.max(initial=-1)) + 1, int(groups.max(initial=-1)) + 1
        self._nexts, self._befores = grown(self._nexts, slot_end), grown(self._befores, slot_end)
        self._groups = grown(self._groups, slot_end)
        self._heads, self._sizes = grown(self._heads, group_end), grown(self._sizes, group_end)
        self._groups[slots] = groups
        np.add.at(self._sizes, groups, 1)
        self._run(link, len(slots), self._heads, self._nexts, self._befores, slots, groups)

    def remove(self, slots: Int64s) -> Int64s:
        """Slots leave their groups; the groups that have become empty."""
        groups = self._groups[slots]
        np.subtract.at(self._sizes, groups, 1)
        self._run(unlink, len(slots), self._heads, self._nexts, self._befores, slots, groups)
        left = np.unique(groups)
        empty: Int64s = left[self._sizes[left] == 0]
        return empty

    def of(self, groups: Int64s) -> tuple[Int64s, Int64s]:
        """All slots of `groups`: the position in `groups` of each slot, and the slot."""
        self._sizes = grown(self._sizes, int(groups.max(initial=-1)) + 1)
        self._heads = grown(self._heads, len(self._sizes))
        sizes = self._sizes[groups]
        slots = np.empty(int(sizes.sum()), np.int64)
        self._run(walk, len(slots), self._heads, self._nexts, groups, slots)
        return np.repeat(np.arange(len(groups)), sizes), slots

    def _run(self, loop: Callable[..., None], steps: int, *arrays: Any) -> None:
        self._steps += steps if steps > _TRICKLE else 0
        if steps <= _TRICKLE or (steps <= _FEW and (self._steps < _FEW or not self._pays())):
            loop(*arrays)
            return
        from penstock.engine.operators.changelog import chains_kernel

        getattr(chains_kernel, loop.__name__)(*arrays)

    def _pays(self) -> bool:
        """Whether the compiled loops are there for few steps, too: they are loaded first, beside the task."""
        if are_loaded():
            return True
        if self._steps >= _EARNED:
            load_beside()
        return False
