"""The search of `search.py` over arrays: all partitions at once, for patterns whose definitions ask of each row alone.

`ColumnSearch` calls `run` with rows of many partitions, as it is or compiled by numba (`column_kernel.py`). It finds
the same matches at the same times. All numbers are int64.

Rows stand in the order in which they came, each with the place of the next one of its partition; -1 is none, of a row
that is to be taken the next one that comes. A way is what the search may go back to; those of a partition are a stack.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]

TIME, ANSWERS, NEXT, VARIABLE, FAILED, FAILED_IN = 0, 1, 2, 3, 4, 5
"""Columns of a row. States from which no way leads on behind it, a bit each, hold for the attempt `FAILED_IN` alone."""
ROW_WIDTH: Final = 6
FIRST, LAST, STATE, STEP, ROW, BEFORE, SEEN, WAITED, WAY, TIMED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
"""Columns of a partition: the row with which the attempt begins, and the last that has come; where the attempt stands
(-1 in `STATE`: it is to begin); the row to be taken next, and the one before it; the last row that was looked at,
whether it counts that no further one comes in time; the uppermost way; the time-out that is waited for."""
SLOT_WIDTH: Final = 10
OPEN, NO_MATCH, MATCHED = 0, 1, 2
NEXT_ROW, PAST_LAST_ROW, TO_FIRST, TO_LAST = 0, 1, 2, 3
FINE, SKIPS_NOWHERE, SKIPS_TO_ITSELF = 0, 1, 2
EARLIEST: Final = -(2**63)
NO_BOUND: Final = 2**63 - 1


class Program(NamedTuple):
    """A pattern as arrays.

    Args:
        steps: variable (-1: a match), target; by state, in order of preference.
        begins: where the steps of each state begin; behind them where the last ones end.
        bounds: a bit for each variable that may begin a match; a bit that says that a row begins none; bound of time
            (-1 for none); where the search resumes; a bit for each variable that it goes to.
    """

    steps: Int64s
    begins: Int64s
    bounds: Int64s


class Memory(NamedTuple):
    """The partitions that have an attempt under way.

    Args:
        slots: by slot; `FIRST` is -1 where there is none.
        rows: only the first `used[0]` are in use.
        ways: state, step, row, row before, way below; only the first `used[1]` are in use.
        used: how many rows and ways are in use.
    """

    slots: Int64s
    rows: Int64s
    ways: Int64s
    used: Int64s


class Work(NamedTuple):
    """Rows to be added, by partition and time.

    Args:
        runs: slot, first row, row behind the last.
        times, answers: of each row.
        until: no rows up to this time come any more.
        is_over: whether no rows come at all.
    """

    runs: Int64s
    times: Int64s
    answers: Int64s
    until: int
    is_over: bool


class Done(NamedTuple):
    """What came of it.

    Args:
        memory: the partitions.
        found: of each match: how many rows there are of it and those before it, and its time.
        taken: row and variable of each row of each match.
        timers: time-outs to wait for: slot, time.
        problem: why a search cannot resume.
    """

    memory: Memory
    found: Int64s
    taken: Int64s
    timers: Int64s
    problem: int


def with_room(rows: Int64s, count: int) -> Int64s:
    """The rows, or a larger copy, so that there is room for one more behind `count`."""
    if count < len(rows):
        return rows
    larger = np.empty((max(2 * len(rows), 16), rows.shape[1]), rows.dtype)
    # By loops, as in `machine_rules.with_room`.
    for place in range(len(rows)):
        for column in range(rows.shape[1]):
            larger[place, column] = rows[place, column]
    return larger


def resumes(
    program: Program,
    slots: Int64s,
    rows: Int64s,
    ways: Int64s,
    way_count: int,
    slot: int,
    deadline: int,
    no_more: bool,
) -> tuple[int, Int64s, int]:
    """Search on, as far as the rows decide it; as `RowSearch.resume`."""
    start, way = slots[slot, FIRST], slots[slot, WAY]
    state, step, row, before = slots[slot, STATE], slots[slot, STEP], slots[slot, ROW], slots[slot, BEFORE]
    seen = slots[slot, SEEN]
    outcome = NO_MATCH
    while True:
        if step == program.begins[state + 1]:
            if before >= 0:
                if rows[before, FAILED_IN] != start:
                    rows[before, FAILED_IN], rows[before, FAILED] = start, 0
                rows[before, FAILED] |= 1 << state
            if way < 0:
                break
            state, step, row, before = ways[way, 0], ways[way, 1], ways[way, 2], ways[way, 3]
            if way == way_count - 1:
                way_count -= 1
            way = ways[way, 4]
            continue
        variable, target = program.steps[step, 0], program.steps[step, 1]
        if variable < 0:
            outcome = MATCHED
            break
        if row < 0 or rows[row, TIME] >= deadline:
            if row < 0 and not no_more:
                outcome = OPEN
                break
            slots[slot, WAITED] = 1
            step += 1
            continue
        seen = max(seen, row)
        step += 1
        fails = rows[row, FAILED_IN] == start and rows[row, FAILED] >> target & 1 == 1
        if rows[row, ANSWERS] >> variable & 1 == 0 or fails:
            continue
        rows[row, VARIABLE] = variable
        if step < program.begins[state + 1]:
            ways = with_room(ways, way_count)
            ways[way_count, 0], ways[way_count, 1], ways[way_count, 2] = state, step, row
            ways[way_count, 3], ways[way_count, 4] = before, way
            way = way_count
            way_count += 1
        state, step, before, row = target, program.begins[target], row, rows[row, NEXT]
    while outcome == MATCHED and way >= 0 and way == way_count - 1:
        way_count -= 1
        way = ways[way, 4]
    slots[slot, STATE], slots[slot, STEP], slots[slot, ROW], slots[slot, BEFORE] = state, step, row, before
    slots[slot, SEEN], slots[slot, WAY] = seen, way
    return outcome, ways, way_count


def begins_at(program: Program, rows: Int64s, row: int) -> int:
    """The first row from this one on with which a match may begin, or -1."""
    first, never = program.bounds[0], program.bounds[1]
    while row >= 0 and (rows[row, ANSWERS] & first == 0 or rows[row, ANSWERS] & never != 0):
        row = rows[row, NEXT]
    return int(row)


def goes_on(program: Program, rows: Int64s, start: int, last: int) -> tuple[int, int]:
    """Where the search resumes behind a match, or why it cannot."""
    kind = program.bounds[3]
    if kind == NEXT_ROW:
        return rows[start, NEXT], FINE
    if kind == PAST_LAST_ROW:
        return rows[last, NEXT], FINE
    found, row = -1, start
    while True:
        if program.bounds[4] >> rows[row, VARIABLE] & 1 == 1:
            found = row
            if kind == TO_FIRST:
                break
        if row == last:
            break
        row = rows[row, NEXT]
    if found < 0:
        return -1, SKIPS_NOWHERE
    return found, SKIPS_TO_ITSELF if found == start else FINE


def appends(slots: Int64s, rows: Int64s, row_count: int, slot: int, time: int, answers: int) -> Int64s:
    """Add a row to a partition; the rows, or a larger copy."""
    rows = with_room(rows, row_count)
    rows[row_count, TIME], rows[row_count, ANSWERS], rows[row_count, NEXT] = time, answers, -1
    rows[row_count, VARIABLE], rows[row_count, FAILED], rows[row_count, FAILED_IN] = 0, 0, -1
    if slots[slot, FIRST] < 0:
        slots[slot, FIRST], slots[slot, STATE] = row_count, -1
    else:
        rows[slots[slot, LAST], NEXT] = row_count
        if slots[slot, STATE] >= 0 and slots[slot, ROW] < 0:
            slots[slot, ROW] = row_count
    slots[slot, LAST] = row_count
    return rows


def takes(rows: Int64s, start: int, last: int, taken: Int64s, count: int) -> tuple[Int64s, int]:
    """Write down the rows of a match, and their variables."""
    row = start
    while True:
        taken = with_room(taken, count)
        taken[count, 0], taken[count, 1] = row, rows[row, VARIABLE]
        count += 1
        if row == last:
            return taken, count
        row = rows[row, NEXT]


def run(program: Program, memory: Memory, work: Work) -> Done:
    """Add the rows of all partitions, and search them; the slots of the memory are changed in place."""
    within = program.bounds[2]
    slots, rows, ways = memory.slots, memory.rows, memory.ways
    row_count, way_count = memory.used[0], memory.used[1]
    found, timers, taken = np.empty((16, 2), np.int64), np.empty((16, 2), np.int64), np.empty((16, 2), np.int64)
    found_count, timer_count, taken_count, problem = 0, 0, 0, FINE
    for index in range(len(work.runs)):
        slot = work.runs[index, 0]
        for row in range(work.runs[index, 1], work.runs[index, 2]):
            rows = appends(slots, rows, row_count, slot, work.times[row], work.answers[row])
            row_count += 1
        decided = EARLIEST
        while slots[slot, FIRST] >= 0:
            if slots[slot, STATE] < 0:
                start = begins_at(program, rows, slots[slot, FIRST])
                slots[slot, FIRST] = start
                if start < 0:
                    break
                slots[slot, STATE], slots[slot, STEP], slots[slot, ROW] = 0, 0, start
                slots[slot, BEFORE], slots[slot, WAITED], slots[slot, WAY] = -1, 0, -1
                slots[slot, SEEN] = start
            start = slots[slot, FIRST]
            deadline = rows[start, TIME] + within if within >= 0 else NO_BOUND
            no_more = work.is_over or (within >= 0 and work.until >= deadline - 1)
            outcome, ways, way_count = resumes(program, slots, rows, ways, way_count, slot, deadline, no_more)
            if outcome == OPEN:
                if within >= 0 and slots[slot, TIMED] != deadline:
                    timers = with_room(timers, timer_count)
                    timers[timer_count, 0], timers[timer_count, 1] = slot, deadline
                    timer_count += 1
                    slots[slot, TIMED] = deadline
                break
            decided = max(decided, rows[slots[slot, SEEN], TIME])
            if slots[slot, WAITED] == 1 and within >= 0:
                decided = max(decided, deadline - 1)
            behind, last = rows[start, NEXT], slots[slot, BEFORE]
            if outcome == MATCHED:
                # At once: the next match may have the same rows, for other variables.
                taken, taken_count = takes(rows, start, last, taken, taken_count)
                found = with_room(found, found_count)
                found[found_count, 0], found[found_count, 1] = taken_count, decided
                found_count += 1
                behind, why = goes_on(program, rows, start, last)
                problem = max(problem, why)
                if why != FINE:
                    behind = -1
            slots[slot, FIRST], slots[slot, STATE] = behind, -1
    used = np.array([row_count, way_count], np.int64)
    memory = Memory(slots, rows, ways, used)
    return Done(memory, found[:found_count], taken[:taken_count], timers[:timer_count], problem)


def held(memory: Memory) -> Int64s:
    """For each row its place among those of its partition, or -1 where it is needed no more."""
    places = np.full(memory.used[0], -1, np.int64)
    for slot in range(len(memory.slots)):
        row, place = memory.slots[slot, FIRST], 0
        while row >= 0:
            places[row] = place
            row, place = memory.rows[row, NEXT], place + 1
    return places


def compacted(memory: Memory, is_kept: npt.NDArray[np.bool_], number: Int64s, old: Int64s) -> Memory:
    """Only what is under way; the rows that are kept stand in the same order.

    Args:
        memory: the partitions.
        is_kept: of each row.
        number: of each row among those that are kept.
        old: each row that is kept.
    """
    slots = memory.slots.copy()
    rows = np.empty((len(old), memory.rows.shape[1]), np.int64)
    for new in range(len(old)):
        for column in range(rows.shape[1]):
            rows[new, column] = memory.rows[old[new], column]
        for column in (NEXT, FAILED_IN):
            other = rows[new, column]
            # An attempt that is over began with a row that is gone.
            rows[new, column] = number[other] if other >= 0 and is_kept[other] else -1
    ways = np.empty((16, 5), np.int64)
    way_count = 0
    for slot in range(len(slots)):
        if slots[slot, FIRST] < 0:
            continue
        for column in (FIRST, LAST, ROW, BEFORE, SEEN):
            other = slots[slot, column]
            slots[slot, column] = number[other] if other >= 0 else -1
        length, way = 0, slots[slot, WAY]
        while way >= 0:
            length, way = length + 1, memory.ways[way, 4]
        while len(ways) < way_count + length:
            ways = with_room(ways, len(ways))
        way = slots[slot, WAY]
        slots[slot, WAY] = way_count + length - 1 if length > 0 else -1
        for place in range(way_count + length - 1, way_count - 1, -1):
            ways[place, 0], ways[place, 1], ways[place, 2] = (
                memory.ways[way, 0],
                memory.ways[way, 1],
                number[memory.ways[way, 2]],
            )
            ways[place, 3] = number[memory.ways[way, 3]] if memory.ways[way, 3] >= 0 else -1
            ways[place, 4] = place - 1 if place > way_count else -1
            way = memory.ways[way, 4]
        way_count += length
    return Memory(slots, rows, ways, np.array([len(old), way_count], np.int64))
