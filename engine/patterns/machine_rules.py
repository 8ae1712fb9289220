"""The automaton over arrays: what `matcher.py` does with objects, for patterns whose tests are columns alone.

The machine (`machine.py`) calls `run` with the rows of many keys, as it is or compiled by numba (`machine_kernel.py`).
It guarantees the matcher's results, order included. All times and numbers are int64.

A partial match is a row of five numbers (`STATE` and so on); those of a key stand in the order of their queue, and
those held back behind them. A step is (step before, variable, event), an event (time, number, row); -1 is none.
All queues are one array, as numba hands on one several times as fast as four, and what adds to an array has room in it:
`run` sees to that before each event.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]

STATE, STEP, TIME, NUMBER, PREVIOUS = 0, 1, 2, 3, 4
"""Columns of an entry: its state, last step, time and number of the first event, time of the last event."""
COMPLETE, HELD = 2, 3
"""Queues beside the two that take turns: the matches of an event, and those that are held back."""
BEHIND_ALL: Final = 2**63 - 1
NO_SKIP, TO_NEXT, PAST_LAST, TO_FIRST, TO_LAST = 0, 1, 2, 3, 4


class Program(NamedTuple):
    """A pattern as arrays.

    Args:
        bounds: start state, within (0 for none), skip kind, variable to skip to, whether anything goes by time alone.
        limits: most partial matches of a key (0 for any number), whether the newest go, time to live (0 for ever).
        gaps: bound since the event before, by state.
        is_pending: whether a state is a match once its time is over.
        plans: by state and answer: number of the first move, number of the move behind the last, whether the event
            is taken, and how many entries come of it at most.
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


def with_room(rows: Int64s, count: int, more: int) -> Int64s:
    """The rows, or a larger copy, so that there is room for so many more behind `count`."""
    if count + more <= len(rows):
        return rows
    # By loops: numba takes seconds to compile what slices of arrays may be assigned to.
    larger = np.empty((2 * (count + more), rows.shape[1]), rows.dtype)
    for place in range(count):
        for column in range(rows.shape[1]):
            larger[place, column] = rows[place, column]
    return larger


def with_room_in_queues(queues: Int64s, count: int, room: int) -> Int64s:
    """The queues, or larger copies of their first `count` entries, so that each has room for so many."""
    if room <= queues.shape[1]:
        return queues
    larger = np.empty((queues.shape[0], 2 * room, queues.shape[2]), queues.dtype)
    for queue in range(queues.shape[0]):
        for place in range(min(count, queues.shape[1])):
            for column in range(queues.shape[2]):
                larger[queue, place, column] = queues[queue, place, column]
    return larger


def puts(rows: Int64s, place: int, a: int, b: int, c: int, d: int, e: int, f: int) -> None:
    """Write a row of six numbers."""
    rows[place, 0], rows[place, 1], rows[place, 2] = a, b, c
    rows[place, 3], rows[place, 4], rows[place, 5] = d, e, f


def sets(rows: Int64s, place: int, a: int, b: int, c: int) -> None:
    """Write a row of three numbers."""
    rows[place, 0], rows[place, 1], rows[place, 2] = a, b, c


def moves(queues: Int64s, to: int, place: int, source: int, at: int) -> None:
    """Write an entry of one queue into another, or elsewhere in the same."""
    queues[to, place, STATE], queues[to, place, STEP] = queues[source, at, STATE], queues[source, at, STEP]
    queues[to, place, TIME], queues[to, place, NUMBER] = queues[source, at, TIME], queues[source, at, NUMBER]
    queues[to, place, PREVIOUS] = queues[source, at, PREVIOUS]


def precedes(queues: Int64s, queue: int, one: int, other: int) -> bool:
    """Whether the first event of one entry is before that of the other."""
    if queues[queue, one, TIME] != queues[queue, other, TIME]:
        return bool(queues[queue, one, TIME] < queues[queue, other, TIME])
    return bool(queues[queue, one, NUMBER] < queues[queue, other, NUMBER])


def swaps(queues: Int64s, queue: int, one: int, other: int) -> None:
    """Exchange two entries."""
    state, step, previous = queues[queue, one, STATE], queues[queue, one, STEP], queues[queue, one, PREVIOUS]
    time, number = queues[queue, one, TIME], queues[queue, one, NUMBER]
    moves(queues, queue, one, queue, other)
    queues[queue, other, STATE], queues[queue, other, STEP], queues[queue, other, PREVIOUS] = state, step, previous
    queues[queue, other, TIME], queues[queue, other, NUMBER] = time, number


def adds(queues: Int64s, queue: int, count: int, state: int, step: int, time: int, number: int, previous: int) -> None:
    """Put an entry into a queue of `count`, which has room; as `queue.offer`."""
    queues[queue, count, STATE], queues[queue, count, STEP], queues[queue, count, PREVIOUS] = state, step, previous
    queues[queue, count, TIME], queues[queue, count, NUMBER] = time, number
    place = count
    while place > 0 and precedes(queues, queue, place, (place - 1) // 2):
        swaps(queues, queue, place, (place - 1) // 2)
        place = (place - 1) // 2


def settles(queues: Int64s, queue: int, count: int, place: int) -> None:
    """Exchange an entry with the lesser one below it, for as long as there is one; as `queue._settle`."""
    while 2 * place + 1 < count:
        least = 2 * place + 1
        if least + 1 < count and precedes(queues, queue, least + 1, least):
            least += 1
        if not precedes(queues, queue, least, place):
            return
        swaps(queues, queue, place, least)
        place = least


def keeps(queues: Int64s, queue: int, count: int, is_kept: npt.NDArray[np.bool_]) -> int:
    """Take out the other entries, and put those that are kept in order again; how many there are; as `queue.drop`."""
    kept = 0
    for place in range(count):
        if is_kept[place]:
            if kept != place:
                moves(queues, queue, kept, queue, place)
            kept += 1
    if kept != count:
        for place in range(kept // 2 - 1, -1, -1):
            settles(queues, queue, kept, place)
    return kept


def drops(queues: Int64s, queue: int, count: int, time: int, number: int) -> int:
    """Take out what began before an event; how many are left."""
    is_kept = np.empty(count, np.bool_)
    for place in range(count):
        first = queues[queue, place, TIME]
        is_kept[place] = first > time or (first == time and queues[queue, place, NUMBER] >= number)
    return keeps(queues, queue, count, is_kept)


def begun(queues: Int64s, queue: int, count: int) -> int:
    """How many of the entries have a first event."""
    found = 0
    for place in range(count):
        if queues[queue, place, NUMBER] != BEHIND_ALL:
            found += 1
    return found


def in_order(queues: Int64s, queue: int, count: int) -> Int64s:
    """The places of the entries by first event, then as they stand; numba compiles NumPy's own sorts for seconds.

    Source: Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", Heapsort.
    """
    places = np.empty(count, np.int64)
    for place in range(count):
        places[place] = place
    top, end = count // 2, count
    while end > 1:
        if top > 0:
            top -= 1
        else:
            end -= 1
            places[0], places[end] = places[end], places[0]
        sinks(queues, queue, places, top, end)
    return places


def sinks(queues: Int64s, queue: int, places: Int64s, place: int, end: int) -> None:
    """Exchange a place with the later one below it, for as long as there is one that is later."""
    while 2 * place + 1 < end:
        latest = 2 * place + 1
        if latest + 1 < end and stands_before(queues, queue, places[latest], places[latest + 1]):
            latest += 1
        if not stands_before(queues, queue, places[place], places[latest]):
            return
        places[place], places[latest] = places[latest], places[place]
        place = latest


def stands_before(queues: Int64s, queue: int, one: int, other: int) -> bool:
    """Whether an entry is before another by first event, or, where these are equal, in the queue."""
    return precedes(queues, queue, one, other) or (one < other and not precedes(queues, queue, other, one))


def bounded(queues: Int64s, queue: int, count: int, most: int, excess: int, newest_go: bool) -> int:
    """Take out `excess` partial matches of `most` and that many; how many entries are left; as `Matcher._bound`."""
    order = in_order(queues, queue, count)
    is_kept = np.ones(count, np.bool_)
    first = most if newest_go else 0
    for place in range(first, first + excess):
        is_kept[order[place]] = False
    return keeps(queues, queue, count, is_kept)


def skips(program: Program, steps: Int64s, events: Int64s, last: int, time: int, number: int) -> tuple[int, int, bool]:
    """The event before which partial matches go, and whether any do; as `Matcher._skip_bound`.

    Args:
        last: the last step of the match.
        time, number: of its first event.
    """
    kind, variable = program.bounds[2], program.bounds[3]
    if kind == TO_NEXT:
        return time, number + 1, True
    if kind == PAST_LAST:
        return events[steps[last, 2], 0], events[steps[last, 2], 1] + 1, True
    step, found = last, -1
    while step >= 0:
        if steps[step, 1] == variable:
            found = steps[step, 2]
            if kind == TO_LAST:
                break
        step = steps[step, 0]
    if found < 0:
        return 0, 0, False
    return events[found, 0], events[found, 1], True


def has_old(program: Program, queues: Int64s, current: int, count: int, time: int) -> bool:
    """Whether `advances` would end any entry; mostly none is old enough, and nothing needs to be copied then."""
    start, within, ttl = program.bounds[0], program.bounds[1], program.limits[2]
    for place in range(count):
        state = queues[current, place, STATE]
        if state == start:
            continue
        gap, idle = program.gaps[state], time - queues[current, place, PREVIOUS]
        # In 64 bits, where differences may wrap: at the end of time what began before 1970 is young, as in Flink.
        if (gap > 0 and idle >= gap) or (within > 0 and time - queues[current, place, TIME] >= within):
            return True
        if 0 < ttl <= idle:
            return True
    return False


def advances(
    program: Program,
    queues: Int64s,
    current: int,
    count: int,
    found: Int64s,
    found_count: int,
    slot: int,
    time: int,
    arrival: int,
) -> tuple[int, int, int, int]:
    """Move time on: how much continues, is a match now, or has been found (time-outs), and how many were idle.

    As `Matcher.advance`; queues and `found` have room.
    """
    start, within, ttl = program.bounds[0], program.bounds[1], program.limits[2]
    going_count, complete_count, idle_count = 0, 0, 0
    for place in range(count):
        state, step, first = (
            queues[current, place, STATE],
            queues[current, place, STEP],
            queues[current, place, TIME],
        )
        number, previous = queues[current, place, NUMBER], queues[current, place, PREVIOUS]
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
            adds(queues, 1 - current, going_count, state, step, first, number, previous)
            going_count += 1
        elif program.is_pending[state]:
            adds(queues, COMPLETE, complete_count, state, step, first, number, previous)
            complete_count += 1
        else:
            puts(found, found_count, slot, step, ends, time, arrival, 1)
            found_count += 1
    return going_count, complete_count, found_count, idle_count


def makes(program: Program, queues: Int64s, current: int, count: int, answer: int) -> int:
    """How many entries come of an event at most."""
    made = 0
    for place in range(count):
        made += program.plans[queues[current, place, STATE], answer, 3]
    return made


def takes(
    program: Program,
    queues: Int64s,
    current: int,
    count: int,
    steps: Int64s,
    step_count: int,
    events: Int64s,
    event_count: int,
    answer: int,
    time: int,
    number: int,
    row: int,
) -> tuple[int, int, int, int, bool]:
    """Take an event: how much continues and is complete, steps and events behind it, and whether anything has begun.

    Queues, steps and events have room.
    """
    start = program.bounds[0]
    going_count, complete_count = 0, 0
    event, has_begun = -1, False
    for place in range(count):
        state, step, first = (
            queues[current, place, STATE],
            queues[current, place, STEP],
            queues[current, place, TIME],
        )
        first_number, previous = queues[current, place, NUMBER], queues[current, place, PREVIOUS]
        is_start = state == start
        if is_start and program.plans[state, answer, 2] == 1 and time > 0:
            has_begun = True
        for move in range(program.plans[state, answer, 0], program.plans[state, answer, 1]):
            variable, target, completions = program.moves[move, 0], program.moves[move, 1], program.moves[move, 2]
            last, begin, begin_number, before = step, first, first_number, previous
            if variable >= 0:
                if event < 0:
                    event = event_count
                    sets(events, event, time, number, row)
                sets(steps, step_count, step, variable, event)
                last, before = step_count, time
                step_count += 1
                if is_start:
                    begin, begin_number = time, number
            if target >= 0:
                adds(queues, 1 - current, going_count, target, last, begin, begin_number, before)
                going_count += 1
            for _ in range(completions):
                adds(queues, COMPLETE, complete_count, -1, last, begin, begin_number, before)
                complete_count += 1
        if is_start:
            adds(queues, 1 - current, going_count, state, step, first, first_number, previous)
            going_count += 1
    return going_count, complete_count, step_count, event_count if event < 0 else event + 1, has_begun


def emits(
    program: Program,
    steps: Int64s,
    events: Int64s,
    queues: Int64s,
    going: int,
    going_count: int,
    complete_count: int,
    held_count: int,
    found: Int64s,
    found_count: int,
    slot: int,
    time: int,
    arrival: int,
) -> tuple[int, int, int]:
    """Give the matches that nothing holds back, and drop what they skip: how much continues, is held, and was found.

    As `Matcher._emit`; queues and `found` have room.
    """
    skip = program.bounds[2]
    for place in range(complete_count):
        state, step, first = (
            queues[COMPLETE, place, STATE],
            queues[COMPLETE, place, STEP],
            queues[COMPLETE, place, TIME],
        )
        number, previous = queues[COMPLETE, place, NUMBER], queues[COMPLETE, place, PREVIOUS]
        adds(queues, HELD, held_count, state, step, first, number, previous)
        held_count += 1
    while held_count > 0:
        last, first, number = queues[HELD, 0, STEP], queues[HELD, 0, TIME], queues[HELD, 0, NUMBER]
        earliest = queues[going, 0, TIME]
        is_held = first > earliest or (first == earliest and number > queues[going, 0, NUMBER])
        if skip != NO_SKIP and going_count > 0 and is_held:
            break
        held_count -= 1
        moves(queues, HELD, 0, HELD, held_count)
        settles(queues, HELD, held_count, 0)
        if skip != NO_SKIP:
            bound, bound_number, any_goes = skips(program, steps, events, last, first, number)
            if any_goes:
                going_count = drops(queues, going, going_count, bound, bound_number)
                held_count = drops(queues, HELD, held_count, bound, bound_number)
        puts(found, found_count, slot, last, time, time, arrival, 0)
        found_count += 1
    return going_count, held_count, found_count


def run(program: Program, memory: Memory, work: Work) -> Done:
    """Take the rows of all keys, and move time on; the slots of the memory are changed in place."""
    start, within, has_bounds = program.bounds[0], program.bounds[1], program.bounds[4] != 0
    most, newest_go, ttl = program.limits[0], program.limits[1] != 0, program.limits[2]
    dropped, most_found = 0, 0
    slots, entries, steps, events = memory.slots, memory.entries, memory.steps, memory.events
    entry_count, step_count, event_count = memory.used[0], memory.used[1], memory.used[2]
    found, timers = np.empty((16, 6), np.int64), np.empty((16, 2), np.int64)
    found_count, timer_count = 0, 0
    # The first two take turns: what continues, and what comes of it.
    queues = np.empty((4, 16, 5), np.int64)
    current = 0
    for index in range(len(work.runs)):
        slot, begin, end = work.runs[index, 0], work.runs[index, 1], work.runs[index, 2]
        first, count, held_count = slots[slot, 0], slots[slot, 1], slots[slot, 2]
        queues = with_room_in_queues(queues, 0, count + held_count + 1)
        for column in range(5):
            for place in range(count):
                queues[current, place, column] = entries[first + place, column]
            for place in range(held_count):
                queues[HELD, place, column] = entries[first + count + place, column]
        if count == 0 and held_count == 0:
            adds(queues, current, 0, start, -1, BEHIND_ALL, BEHIND_ALL, -1)
            count = 1
        has_begun, has_time, last = False, False, work.until
        # The round behind the rows only moves time on.
        for row in range(begin, end + 1):
            is_row = row < end
            time = work.times[row] if is_row else work.until
            arrival = work.arrivals[row] if is_row else BEHIND_ALL
            answer = work.answers[row] if is_row else 0
            is_fresh = count == 1 and held_count == 0 and queues[current, 0, STATE] == start
            if is_row and is_fresh and program.plans[start, answer, 0] == program.plans[start, answer, 1]:
                continue
            # From here on there is room for what comes of the entries, and for the matches that may be given then.
            made = makes(program, queues, current, count, answer) if is_row else 0
            room = held_count + count + made
            if room > queues.shape[1]:
                queues = with_room_in_queues(queues, max(count, held_count), room)
            if found_count + room > len(found):
                found = with_room(found, found_count, room)
            is_later = has_bounds and not (is_row and has_time and time == last)
            if is_later and has_old(program, queues, current, count, time):
                going_count, complete_count, found_count, idle = advances(
                    program, queues, current, count, found, found_count, slot, time, arrival
                )
                dropped += idle
                if going_count < count:
                    going_count, held_count, found_count = emits(
                        program,
                        steps,
                        events,
                        queues,
                        1 - current,
                        going_count,
                        complete_count,
                        held_count,
                        found,
                        found_count,
                        slot,
                        time,
                        arrival,
                    )
                    current, count = 1 - current, going_count
            if not is_row:
                continue
            last, has_time = time, True
            if step_count + made > len(steps):
                steps = with_room(steps, step_count, made)
            if event_count == len(events):
                events = with_room(events, event_count, 1)
            going_count, complete_count, step_count, event_count, begins = takes(
                program,
                queues,
                current,
                count,
                steps,
                step_count,
                events,
                event_count,
                answer,
                time,
                work.number + row,
                row,
            )
            current, count = 1 - current, going_count
            open_count = begun(queues, current, count) if most > 0 and count > most else 0
            if open_count > most:
                count = bounded(queues, current, count, most, open_count - most, newest_go)
                dropped, most_found = dropped + open_count - most, max(most_found, open_count)
            if complete_count > 0 or held_count > 0:
                count, held_count, found_count = emits(
                    program,
                    steps,
                    events,
                    queues,
                    current,
                    count,
                    complete_count,
                    held_count,
                    found,
                    found_count,
                    slot,
                    time,
                    arrival,
                )
            # By Flink's rule what follows the beginning of a partial match is timed, too.
            has_begun = has_begun or begins
            if has_begun and within > 0 and time + within > work.until:
                timers = with_room(timers, timer_count, 1)
                timers[timer_count, 0], timers[timer_count, 1] = slot, time + within
                timer_count += 1
        if count == 1 and held_count == 0 and queues[current, 0, STATE] == start:
            sets(slots, slot, 0, 0, 0)
            continue
        for place in range(count if ttl > 0 and begin < end else 0):
            last = queues[current, place, PREVIOUS]
            # The others are waited for already.
            is_timed = work.times[begin] <= last <= BEHIND_ALL - ttl
            if is_timed and queues[current, place, NUMBER] != BEHIND_ALL:
                timers = with_room(timers, timer_count, 1)
                timers[timer_count, 0], timers[timer_count, 1] = slot, last + ttl
                timer_count += 1
        sets(slots, slot, entry_count, count, held_count)
        entries = with_room(entries, entry_count, count + held_count)
        for column in range(5):
            for place in range(count):
                entries[entry_count + place, column] = queues[current, place, column]
            for place in range(held_count):
                entries[entry_count + count + place, column] = queues[HELD, place, column]
        entry_count += count + held_count
    used = np.array([entry_count, step_count, event_count], np.int64)
    kept = Memory(slots, entries, steps, events, used)
    return Done(kept, found[:found_count], timers[:timer_count], dropped, most_found)
