"""The automaton over arrays: what `matcher.py` does with objects, for patterns whose tests are columns alone.

The machine (`machine.py`) calls `run` with the rows of many keys, as it is or compiled by numba (`machine_kernel.py`).
It guarantees the matcher's results, order included. All times and numbers are int64.

A partial match is a row of five numbers (`STATE` and so on); those of a key stand in the order of their queue, and
those held back behind them. A step is (step before, variable, event), an event (time, number, row); -1 is none.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]

STATE, STEP, TIME, NUMBER, PREVIOUS = 0, 1, 2, 3, 4
"""Columns of an entry: its state, last step, time and number of the first event, time of the last event."""
BEHIND_ALL: Final = 2**63 - 1
NO_SKIP, TO_NEXT, PAST_LAST, TO_FIRST, TO_LAST = 0, 1, 2, 3, 4


class Program(NamedTuple):
    """A pattern as arrays.

    Args:
        bounds: start state, within (0 for none), skip kind, variable to skip to, whether anything goes by time alone.
        limits: most partial matches of a key (0 for any number), whether the newest go, time to live (0 for ever).
        gaps: bound since the event before, by state.
        is_pending: whether a state is a match once its time is over.
        plans: by state and answer: number of the first move, number of the move behind the last, whether the start
            stays, whether the event is taken.
        moves: variable (-1: ignored), target (-1: none), completions.
    """

    bounds: Int64s
    limits: Int64s
    gaps: Int64s
    is_pending: npt.NDArray[np.bool_]
    plans: npt.NDArray[np.int64]
    moves: Int64s


class Memory(NamedTuple):
    """The partial matches of all keys.

    Args:
        slots: by slot: where its entries begin, how many are partial matches, how many are held back.
        entries, steps, events: rows of them; only the first `used` are in use.
        used: how many entries, steps and events are in use.
    """

    slots: Int64s
    entries: Int64s
    steps: Int64s
    events: Int64s
    used: Int64s


class Work(NamedTuple):
    """Rows to be taken, by key and time.

    Args:
        runs: slot, first row, row behind the last.
        times, answers, arrivals: of each row.
        until: the time to come to behind the rows.
        number: of the first row's event; the next ones follow.
    """

    runs: Int64s
    times: Int64s
    answers: Int64s
    arrivals: Int64s
    until: int
    number: int


class Done(NamedTuple):
    """What came of it.

    Args:
        memory: the partial matches.
        found: slot, last step, time, time and arrival of what brought it about, and 1 where it is a time-out.
        timers: time-outs to wait for: slot, time.
        dropped: how many partial matches the limits have ended.
        most: how many a key has had where there were more than the limit; 0 where there were not.
    """

    memory: Memory
    found: Int64s
    timers: Int64s
    dropped: int
    most: int


def copies(to: Int64s, place: int, source: Int64s, at: int) -> None:
    """Write a row of one array into another."""
    for column in range(to.shape[1]):
        to[place, column] = source[at, column]


def with_room(rows: Int64s, count: int) -> Int64s:
    """The rows, or a larger copy, so that there is room for one more behind `count`."""
    if count < len(rows):
        return rows
    larger = np.empty((max(2 * len(rows), 16), rows.shape[1]), rows.dtype)
    for place in range(count):
        copies(larger, place, rows, place)
    return larger


def puts(rows: Int64s, place: int, a: int, b: int, c: int, d: int, e: int, f: int) -> None:
    """Write a row of six numbers."""
    rows[place, 0], rows[place, 1], rows[place, 2] = a, b, c
    rows[place, 3], rows[place, 4], rows[place, 5] = d, e, f


def sets(rows: Int64s, place: int, a: int, b: int, c: int) -> None:
    """Write a row of three numbers."""
    rows[place, 0], rows[place, 1], rows[place, 2] = a, b, c


def precedes(queue: Int64s, one: int, other: int) -> bool:
    """Whether the first event of one entry is before that of the other."""
    if queue[one, TIME] != queue[other, TIME]:
        return bool(queue[one, TIME] < queue[other, TIME])
    return bool(queue[one, NUMBER] < queue[other, NUMBER])


def swaps(queue: Int64s, one: int, other: int) -> None:
    """Exchange two entries."""
    for column in range(queue.shape[1]):
        kept = queue[one, column]
        queue[one, column] = queue[other, column]
        queue[other, column] = kept


def rises(queue: Int64s, count: int, state: int, step: int, time: int, number: int, previous: int) -> None:
    """Put an entry into a queue of `count`, which has room; as `queue.offer`."""
    queue[count, STATE], queue[count, STEP], queue[count, PREVIOUS] = state, step, previous
    queue[count, TIME], queue[count, NUMBER] = time, number
    place = count
    while place > 0 and precedes(queue, place, (place - 1) // 2):
        swaps(queue, place, (place - 1) // 2)
        place = (place - 1) // 2


def settles(queue: Int64s, count: int, place: int) -> None:
    """Exchange an entry with the lesser one below it, for as long as there is one; as `queue._settle`."""
    while 2 * place + 1 < count:
        least = 2 * place + 1
        if least + 1 < count and precedes(queue, least + 1, least):
            least += 1
        if not precedes(queue, least, place):
            return
        swaps(queue, place, least)
        place = least


def keeps(queue: Int64s, count: int, is_kept: npt.NDArray[np.bool_]) -> int:
    """Take out the other entries, and put those that are kept in order again; how many there are; as `queue.drop`."""
    kept = 0
    for place in range(count):
        if is_kept[place]:
            if kept != place:
                copies(queue, kept, queue, place)
            kept += 1
    if kept != count:
        for place in range(kept // 2 - 1, -1, -1):
            settles(queue, kept, place)
    return kept


def drops(queue: Int64s, count: int, time: int, number: int) -> int:
    """Take out what began before an event; how many are left."""
    is_kept = np.empty(count, np.bool_)
    for place in range(count):
        first = queue[place, TIME]
        is_kept[place] = first > time or (first == time and queue[place, NUMBER] >= number)
    return keeps(queue, count, is_kept)


def begun(queue: Int64s, count: int) -> int:
    """How many of the entries have a first event."""
    found = 0
    for place in range(count):
        if queue[place, NUMBER] != BEHIND_ALL:
            found += 1
    return found


def bounded(queue: Int64s, count: int, most: int, excess: int, newest_go: bool) -> int:
    """Take out `excess` partial matches of `most` and that many; how many entries are left; as `Matcher._bound`."""
    order = np.argsort(queue[:count, NUMBER], kind="mergesort")
    order = order[np.argsort(queue[:count, TIME][order], kind="mergesort")]
    is_kept = np.ones(count, np.bool_)
    first = most if newest_go else 0
    for place in range(first, first + excess):
        is_kept[order[place]] = False
    return keeps(queue, count, is_kept)


def skips(program: Program, steps: Int64s, events: Int64s, match: Int64s) -> tuple[int, int, bool]:
    """The event before which partial matches go, and whether any do; as `Matcher._skip_bound`."""
    kind, variable = program.bounds[2], program.bounds[3]
    if kind == TO_NEXT:
        return match[0, TIME], match[0, NUMBER] + 1, True
    step = match[0, STEP]
    if kind == PAST_LAST:
        return events[steps[step, 2], 0], events[steps[step, 2], 1] + 1, True
    found = -1
    while step >= 0:
        if steps[step, 1] == variable:
            found = steps[step, 2]
            if kind == TO_LAST:
                break
        step = steps[step, 0]
    if found < 0:
        return 0, 0, False
    return events[found, 0], events[found, 1], True


def adds(queue: Int64s, count: int, state: int, step: int, time: int, number: int, previous: int) -> Int64s:
    """Put an entry into a queue of `count`; the queue, or a larger copy."""
    queue = with_room(queue, count)
    rises(queue, count, state, step, time, number, previous)
    return queue


def has_old(program: Program, current: Int64s, count: int, time: int) -> bool:
    """Whether `advances` would end any entry; mostly none is old enough, and nothing needs to be copied then."""
    start, within, ttl = program.bounds[0], program.bounds[1], program.limits[2]
    for place in range(count):
        state = current[place, STATE]
        if state == start:
            continue
        gap, idle = program.gaps[state], time - current[place, PREVIOUS]
        # In 64 bits, where differences may wrap: at the end of time what began before 1970 is young, as in Flink.
        if (gap > 0 and idle >= gap) or (within > 0 and time - current[place, TIME] >= within) or 0 < ttl <= idle:
            return True
    return False


def advances(
    program: Program,
    current: Int64s,
    count: int,
    going: Int64s,
    complete: Int64s,
    found: Int64s,
    found_count: int,
    slot: int,
    time: int,
    arrival: int,
) -> tuple[Int64s, int, Int64s, int, Int64s, int, int]:
    """Move time on: what continues, is a match now, or has timed out, and how many were idle; as `Matcher.advance`."""
    start, within, ttl = program.bounds[0], program.bounds[1], program.limits[2]
    going_count, complete_count, idle_count = 0, 0, 0
    for place in range(count):
        state, step, first = current[place, STATE], current[place, STEP], current[place, TIME]
        number, previous = current[place, NUMBER], current[place, PREVIOUS]
        ends, is_over = first, False
        if state != start:
            gap = program.gaps[state]
            if gap > 0 and time - previous >= gap:
                ends, is_over = previous + gap, True
            elif within > 0 and time - first >= within:
                ends, is_over = first + within, True
        if not is_over and ttl > 0 and state != start and time - previous >= ttl:
            idle_count += 1
        elif not is_over:
            going = adds(going, going_count, state, step, first, number, previous)
            going_count += 1
        elif program.is_pending[state]:
            complete = adds(complete, complete_count, state, step, first, number, previous)
            complete_count += 1
        else:
            found = with_room(found, found_count)
            puts(found, found_count, slot, step, ends, time, arrival, 1)
            found_count += 1
    return going, going_count, complete, complete_count, found, found_count, idle_count


def takes(
    program: Program,
    current: Int64s,
    count: int,
    going: Int64s,
    complete: Int64s,
    steps: Int64s,
    step_count: int,
    events: Int64s,
    event_count: int,
    answer: int,
    time: int,
    number: int,
    row: int,
) -> tuple[Int64s, int, Int64s, int, Int64s, int, Int64s, int, bool]:
    """Take an event: what continues, what is complete, the steps and events after it, and whether anything began."""
    start = program.bounds[0]
    going_count = 0
    complete_count = 0
    has_event, has_begun = False, False
    for place in range(count):
        state, step, first = current[place, STATE], current[place, STEP], current[place, TIME]
        first_number, previous = current[place, NUMBER], current[place, PREVIOUS]
        is_start = state == start
        if is_start and program.plans[state, answer, 3] == 1 and time > 0:
            has_begun = True
        for move in range(program.plans[state, answer, 0], program.plans[state, answer, 1]):
            variable, target, completions = program.moves[move, 0], program.moves[move, 1], program.moves[move, 2]
            last, begin, begin_number, before = step, first, first_number, previous
            if variable >= 0:
                if not has_event:
                    events = with_room(events, event_count)
                    sets(events, event_count, time, number, row)
                    event_count += 1
                    has_event = True
                steps = with_room(steps, step_count)
                sets(steps, step_count, step, variable, event_count - 1)
                last, before = step_count, time
                step_count += 1
                if is_start:
                    begin, begin_number = time, number
            if target >= 0:
                going = adds(going, going_count, target, last, begin, begin_number, before)
                going_count += 1
            for _ in range(completions):
                complete = adds(complete, complete_count, -1, last, begin, begin_number, before)
                complete_count += 1
        if is_start and program.plans[state, answer, 2] == 1:
            going = adds(going, going_count, state, step, first, first_number, previous)
            going_count += 1
    return going, going_count, complete, complete_count, steps, step_count, events, event_count, has_begun


def emits(
    program: Program,
    steps: Int64s,
    events: Int64s,
    going: Int64s,
    going_count: int,
    complete: Int64s,
    complete_count: int,
    held: Int64s,
    held_count: int,
    found: Int64s,
    found_count: int,
    slot: int,
    time: int,
    arrival: int,
) -> tuple[int, Int64s, int, Int64s, int]:
    """Give the matches that nothing holds back, and drop what they skip; as `Matcher._emit`."""
    skip = program.bounds[2]
    match = np.empty((1, 5), np.int64)
    for place in range(complete_count):
        held = adds(
            held,
            held_count,
            complete[place, STATE],
            complete[place, STEP],
            complete[place, TIME],
            complete[place, NUMBER],
            complete[place, PREVIOUS],
        )
        held_count += 1
    while held_count > 0:
        is_held = held[0, TIME] > going[0, TIME] or (
            held[0, TIME] == going[0, TIME] and held[0, NUMBER] > going[0, NUMBER]
        )
        if skip != NO_SKIP and going_count > 0 and is_held:
            break
        copies(match, 0, held, 0)
        held_count -= 1
        copies(held, 0, held, held_count)
        settles(held, held_count, 0)
        if skip != NO_SKIP:
            bound, number, any_goes = skips(program, steps, events, match)
            if any_goes:
                going_count = drops(going, going_count, bound, number)
                held_count = drops(held, held_count, bound, number)
        found = with_room(found, found_count)
        puts(found, found_count, slot, match[0, STEP], time, time, arrival, 0)
        found_count += 1
    return going_count, held, held_count, found, found_count


def run(program: Program, memory: Memory, work: Work) -> Done:
    """Take the rows of all keys, and move time on; the slots of the memory are changed in place."""
    start, within, has_bounds = program.bounds[0], program.bounds[1], program.bounds[4] != 0
    most, newest_go, ttl = program.limits[0], program.limits[1] != 0, program.limits[2]
    dropped, most_found = 0, 0
    slots, entries, steps, events = memory.slots, memory.entries, memory.steps, memory.events
    entry_count, step_count, event_count = memory.used[0], memory.used[1], memory.used[2]
    found, timers = np.empty((16, 6), np.int64), np.empty((16, 2), np.int64)
    found_count, timer_count = 0, 0
    current, going = np.empty((16, 5), np.int64), np.empty((16, 5), np.int64)
    complete, held = np.empty((16, 5), np.int64), np.empty((16, 5), np.int64)
    for index in range(len(work.runs)):
        slot, begin, end = work.runs[index, 0], work.runs[index, 1], work.runs[index, 2]
        first, count, held_count = slots[slot, 0], slots[slot, 1], slots[slot, 2]
        for place in range(count):
            current = with_room(current, place)
            copies(current, place, entries, first + place)
        for place in range(held_count):
            held = with_room(held, place)
            copies(held, place, entries, first + count + place)
        if count == 0 and held_count == 0:
            rises(current, 0, start, -1, BEHIND_ALL, BEHIND_ALL, -1)
            count = 1
        has_begun, has_time, last = False, False, work.until
        # The round behind the rows only moves time on.
        for row in range(begin, end + 1):
            is_row = row < end
            time = work.times[row] if is_row else work.until
            arrival = work.arrivals[row] if is_row else BEHIND_ALL
            if is_row and count == 1 and held_count == 0 and current[0, STATE] == start:
                plan = program.plans[start, work.answers[row]]
                if plan[0] == plan[1] and plan[2] == 1:
                    continue
            if has_bounds and not (is_row and has_time and time == last) and has_old(program, current, count, time):
                going, going_count, complete, complete_count, found, found_count, idle = advances(
                    program, current, count, going, complete, found, found_count, slot, time, arrival
                )
                dropped += idle
                if going_count < count:
                    going_count, held, held_count, found, found_count = emits(
                        program,
                        steps,
                        events,
                        going,
                        going_count,
                        complete,
                        complete_count,
                        held,
                        held_count,
                        found,
                        found_count,
                        slot,
                        time,
                        arrival,
                    )
                    current, going, count = going, current, going_count
            if not is_row:
                continue
            last, has_time = time, True
            going, going_count, complete, complete_count, steps, step_count, events, event_count, begins = takes(
                program,
                current,
                count,
                going,
                complete,
                steps,
                step_count,
                events,
                event_count,
                work.answers[row],
                time,
                work.number + row,
                row,
            )
            open_count = begun(going, going_count) if most > 0 and going_count > most else 0
            if open_count > most:
                going_count = bounded(going, going_count, most, open_count - most, newest_go)
                dropped, most_found = dropped + open_count - most, max(most_found, open_count)
            if complete_count > 0 or held_count > 0:
                going_count, held, held_count, found, found_count = emits(
                    program,
                    steps,
                    events,
                    going,
                    going_count,
                    complete,
                    complete_count,
                    held,
                    held_count,
                    found,
                    found_count,
                    slot,
                    time,
                    arrival,
                )
            current, going, count = going, current, going_count
            # By Flink's rule what follows the beginning of a partial match is timed, too.
            has_begun = has_begun or begins
            if has_begun and within > 0 and time + within > work.until:
                timers = with_room(timers, timer_count)
                timers[timer_count, 0], timers[timer_count, 1] = slot, time + within
                timer_count += 1
        if count == 1 and held_count == 0 and current[0, STATE] == start:
            sets(slots, slot, 0, 0, 0)
            continue
        for place in range(count if ttl > 0 and begin < end else 0):
            last = current[place, PREVIOUS]
            # The others are waited for already.
            if current[place, NUMBER] != BEHIND_ALL and work.times[begin] <= last <= BEHIND_ALL - ttl:
                timers = with_room(timers, timer_count)
                timers[timer_count, 0], timers[timer_count, 1] = slot, last + ttl
                timer_count += 1
        sets(slots, slot, entry_count, count, held_count)
        for place in range(count):
            entries = with_room(entries, entry_count)
            copies(entries, entry_count, current, place)
            entry_count += 1
        for place in range(held_count):
            entries = with_room(entries, entry_count)
            copies(entries, entry_count, held, place)
            entry_count += 1
    used = np.array([entry_count, step_count, event_count], np.int64)
    kept = Memory(slots, entries, steps, events, used)
    return Done(kept, found[:found_count], timers[:timer_count], dropped, most_found)


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
    step_of, event_of = np.cumsum(keeps_step) - 1, np.cumsum(keeps_event) - 1
    entries = np.empty((total, 5), np.int64)
    place = 0
    for slot in range(len(slots)):
        first, count = slots[slot, 0], slots[slot, 1] + slots[slot, 2]
        slots[slot, 0] = place
        for old in range(first, first + count):
            copies(entries, place, memory.entries, old)
            if entries[place, STEP] >= 0:
                entries[place, STEP] = step_of[entries[place, STEP]]
            place += 1
    old_steps, old_events = np.flatnonzero(keeps_step), np.flatnonzero(keeps_event)
    steps = np.empty((len(old_steps), 3), np.int64)
    for new in range(len(old_steps)):
        old = old_steps[new]
        before = memory.steps[old, 0]
        steps[new, 0] = step_of[before] if before >= 0 else -1
        steps[new, 1], steps[new, 2] = memory.steps[old, 1], event_of[memory.steps[old, 2]]
    events = np.empty((len(old_events), 3), np.int64)
    for new in range(len(old_events)):
        copies(events, new, memory.events, old_events[new])
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
