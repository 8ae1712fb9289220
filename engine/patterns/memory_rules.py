"""What is done with all partial matches at once: the paths of matches, garbage thrown away, owners of steps.

The machine (`machine.py`) calls these with the arrays of `machine_rules.py`, as they are or compiled by numba.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.engine.patterns.machine_rules import STEP, Int64s, Memory


def paths(steps: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """The paths that end with the steps `last`: where each begins, and (variable, event) one behind the other."""
    begins = np.zeros(len(last) + 1, np.int64)
    for index in range(len(last)):
        length, step = 0, last[index]
        while step >= 0:
            length += 1
            step = steps[step, 0]
        begins[index + 1] = begins[index] + length
    taken = np.empty((begins[len(last)], 2), np.int64)
    for index in range(len(last)):
        place, step = begins[index + 1] - 1, last[index]
        while step >= 0:
            taken[place, 0], taken[place, 1] = steps[step, 1], steps[step, 2]
            place, step = place - 1, steps[step, 0]
    return begins, taken


def renumbered(is_kept: npt.NDArray[np.bool_]) -> tuple[Int64s, Int64s]:
    """For each row its number among those that are kept, and for each of these its row.

    By loops: numba compiles NumPy's functions for it for seconds.
    """
    number_of, rows = np.empty(len(is_kept), np.int64), np.empty(len(is_kept), np.int64)
    count = 0
    for row in range(len(is_kept)):
        number_of[row] = count
        if is_kept[row]:
            rows[count] = row
            count += 1
    return number_of, rows[:count]


def compacted(memory: Memory) -> Memory:
    """Only what keys still have."""
    slots, used = memory.slots.copy(), memory.used
    keeps_step, keeps_event = np.zeros(used[1], np.bool_), np.zeros(used[2], np.bool_)
    total = 0
    for slot in range(len(slots)):
        first, count = slots[slot, 0], slots[slot, 1] + slots[slot, 2]
        total += count
        for place in range(first, first + count):
            step = memory.entries[place, STEP]
            while step >= 0 and not keeps_step[step]:
                keeps_step[step] = True
                keeps_event[memory.steps[step, 2]] = True
                step = memory.steps[step, 0]
    step_of, old_steps = renumbered(keeps_step)
    event_of, old_events = renumbered(keeps_event)
    entries = np.empty((total, 5), np.int64)
    place = 0
    for slot in range(len(slots)):
        first, count = slots[slot, 0], slots[slot, 1] + slots[slot, 2]
        slots[slot, 0] = place
        for old in range(first, first + count):
            for column in range(entries.shape[1]):
                entries[place, column] = memory.entries[old, column]
            if entries[place, STEP] >= 0:
                entries[place, STEP] = step_of[entries[place, STEP]]
            place += 1
    steps = np.empty((len(old_steps), 3), np.int64)
    for new in range(len(old_steps)):
        old = old_steps[new]
        before = memory.steps[old, 0]
        steps[new, 0] = step_of[before] if before >= 0 else -1
        steps[new, 1], steps[new, 2] = memory.steps[old, 1], event_of[memory.steps[old, 2]]
    events = np.empty((len(old_events), 3), np.int64)
    for new in range(len(old_events)):
        for column in range(3):
            events[new, column] = memory.events[old_events[new], column]
    sizes = np.array([total, len(steps), len(events)], np.int64)
    return Memory(slots, entries, steps, events, sizes)


def owners(memory: Memory) -> tuple[Int64s, Int64s]:
    """For each step the slot whose it is, and the first step of its path."""
    owner, root = np.full(memory.used[1], -1, np.int64), np.empty(memory.used[1], np.int64)
    for slot in range(len(memory.slots)):
        first, count = memory.slots[slot, 0], memory.slots[slot, 1] + memory.slots[slot, 2]
        for place in range(first, first + count):
            step = memory.entries[place, STEP]
            while step >= 0 and owner[step] < 0:
                owner[step] = slot
                step = memory.steps[step, 0]
    for step in range(memory.used[1]):
        before = memory.steps[step, 0]
        root[step] = step if before < 0 else root[before]
    return owner, root
