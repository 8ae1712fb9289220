"""The loops over the linked lists of `chains.py`: plain functions, which `chains_kernel.py` compiles for many slots.

Heads are by group, followers and predecessors by slot; all of them are stored one higher, and 0 stands for none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def link(heads: Int64s, nexts: Int64s, befores: Int64s, slots: Int64s, groups: Int64s) -> None:
    """Put each slot in front of its group's list; 0 stands for none, and slots are stored one higher."""
    for row in range(len(slots)):
        slot, group = slots[row], groups[row]
        head = heads[group]
        nexts[slot] = head
        befores[slot] = 0
        if head > 0:
            befores[head - 1] = slot + 1
        heads[group] = slot + 1


def unlink(heads: Int64s, nexts: Int64s, befores: Int64s, slots: Int64s, groups: Int64s) -> None:
    """Take each slot out of its group's list."""
    for row in range(len(slots)):
        slot = slots[row]
        follower, before = nexts[slot], befores[slot]
        if before > 0:
            nexts[before - 1] = follower
        else:
            heads[groups[row]] = follower
        if follower > 0:
            befores[follower - 1] = before


def walk(heads: Int64s, nexts: Int64s, groups: Int64s, out: Int64s) -> None:
    """Write the slots of all `groups`, one list behind the other."""
    place = 0
    for row in range(len(groups)):
        slot = heads[groups[row]]
        while slot > 0:
            out[place] = slot - 1
            place += 1
            slot = nexts[slot - 1]
