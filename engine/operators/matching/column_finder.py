"""Finds a pattern on columns: the machine, over the due rows of all keys at once, with partial matches in arrays.

The operator of `KeyedStream.match` uses it for patterns whose conditions are expressions, unless state lies in RocksDB.
What it finds, and the state that it saves, are those of `KeyedFinder`, so each restores what the other has saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.columns import one_array
from penstock.engine.operators.base import Collector, OperatorContext
from penstock.engine.operators.functions.function_operator import key_values
from penstock.engine.operators.joins.row_log import RowLog
from penstock.engine.operators.keyed import restored_keys
from penstock.engine.operators.matching.column_state import SavedColumns, from_tables
from penstock.engine.operators.matching.event_tests import ColumnTests
from penstock.engine.operators.matching.match_results import MatchResults, Result
from penstock.engine.operators.matching.match_spec import DROPPED, MatchPlan
from penstock.engine.operators.matching.match_state import EVENTS, MATCHES, STEPS
from penstock.engine.operators.matching.time_outs import TimeOuts
from penstock.engine.operators.matching.waiting_rows import TimedRows
from penstock.engine.patterns.limits import NO_LIMITS, Overflow
from penstock.engine.patterns.machine import Machine
from penstock.engine.patterns.machine_rules import BEHIND_ALL, NUMBER, PREVIOUS, Done, Int64s, Memory, Work
from penstock.engine.patterns.partial import Match
from penstock.engine.row_numbers import distinct_of
from penstock.engine.rows import batch_rows
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, complete_table
from penstock.engine.state.keys.index import KeyIndex
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.state.timers import EVENT_TIMERS, PROCESSING_TIMERS

_Bools: TypeAlias = npt.NDArray[np.bool_]
_MIN_GARBAGE: Final = 65_536
"""Steps, entries and keys that nobody needs any more, below which it is not worth while to look for them."""


class _Sorted(NamedTuple):
    """Due rows that matter, by key and time.

    Args:
        places: of each among the due rows.
        runs: slot, first row, row behind the last.
        answers: of each.
    """

    places: Int64s
    runs: Int64s
    answers: Int64s


class ColumnFinder:
    """Holds the partial matches of all keys in arrays.

    Args:
        plan: what to look for.
        context: where the operator runs.
        found: takes matches and time-outs.
    """

    def __init__(self, plan: MatchPlan, context: OperatorContext, found: MatchResults) -> None:
        self._plan = plan
        self._context = context
        self._found = found
        self._machine = Machine(plan.pattern, plan.limits)
        self._column_tests = ColumnTests(plan.pattern, context)
        self._index = KeyIndex()
        self._memory = empty_memory()
        self._rows = RowLog()
        """Those of the events, by their third number."""
        self._time_outs = TimeOuts()
        self._timers = EVENT_TIMERS if plan.is_event_time else PROCESSING_TIMERS
        self._dropped = None if plan.limits == NO_LIMITS else context.metrics.counter(DROPPED)
        self._sequence = 0
        self._busy_keys = 0
        """Those that have partial matches."""
        self._touched = 0
        """Keys that were worked on since idle ones were looked for."""
        self._live = 0
        """Entries, steps and events when they were compacted last."""
        self._most_keys = 0
        """Since then."""
        self._others: dict[str, Any] = {}

    def bind(self, schema: pa.Schema) -> None:
        """The types of the keys come with the rows."""

    @property
    def next_processing_time(self) -> int | None:
        """For `Operator.next_processing_time`."""
        return None if self._plan.is_event_time else self._time_outs.next

    def close(self) -> None:
        """Nothing is to be released."""

    # Finding

    def find(self, due: TimedRows | None, until: int | None, out: Collector) -> None:
        """As `Finder.find`."""
        if until is None:
            assert due is not None, "without rows there is a time to come to"
            # Rows come at the time of the clock, which has been reached then.
            until, timed = int(due.times[-1]), np.empty(0, np.int64)
        else:
            timed = self._time_outs.take(until)
        rows = None if due is None else self._sorted(due)
        if rows is None and not len(timed):
            return
        done = self._run(due, rows, timed, until)
        self._limit(done)
        self._keep_rows(due, rows, done)
        self._memory = done.memory
        self._wait(done.timers)
        self._give(done.found, out)
        self._release()
        self._compact()

    def _sorted(self, due: TimedRows) -> _Sorted | None:
        """The rows of keys that have partial matches, or that a row may begin one for."""
        answers, starts = self._machine.answers(self._column_tests.bits(due.rows))
        numbers, distinct = distinct_of([due.rows.column(name) for name in self._plan.keys])
        slots = self._index.find(distinct)
        wanted = slots >= 0
        wanted[wanted] = self._memory.slots[slots[wanted], 1] > 0
        wanted[numbers[starts]] = True
        keys = np.flatnonzero(wanted)
        if not len(keys):
            return None
        places = np.flatnonzero(wanted[numbers]) if len(keys) < len(wanted) else np.arange(len(numbers))
        codes = (np.cumsum(wanted) - 1)[numbers[places]]
        places = places[self._machine.order(codes, due.times[places])]
        ends = np.cumsum(np.bincount(codes, minlength=len(keys)))
        runs = np.stack([self._slots_of(keys, slots, distinct), np.concatenate([[0], ends[:-1]]), ends], axis=1)
        return _Sorted(places, np.ascontiguousarray(runs, np.int64), answers[places])

    def _slots_of(self, keys: Int64s, slots: Int64s, distinct: Sequence[pa.Array]) -> Int64s:
        """The slots of keys, by their places among the distinct ones; those without one get one."""
        found = slots[keys]
        missing = found < 0
        if missing.any():
            fresh = pa.array(keys[missing])
            found[missing] = self._index.lookup([column.take(fresh) for column in distinct])
        return found

    def _run(self, due: TimedRows | None, rows: _Sorted | None, timed: Int64s, until: int) -> Done:
        none = np.empty(0, np.int64)
        runs = np.empty((0, 3), np.int64) if rows is None else rows.runs
        count = 0 if rows is None else len(rows.places)
        idle = timed[~np.isin(timed, runs[:, 0])]
        if len(idle):
            runs = np.concatenate([runs, np.stack([idle, *[np.full(len(idle), count)] * 2], axis=1)])
        work = Work(
            runs,
            none if due is None or rows is None else due.times[rows.places],
            none if rows is None else rows.answers,
            none if due is None or rows is None else due.arrivals[rows.places],
            until,
            self._sequence,
        )
        self._sequence += count
        slots = _grown(self._memory.slots, self._index.end)
        self._touched += len(runs)
        busy = np.count_nonzero(slots[runs[:, 0], 1])
        done = self._machine.run(self._memory._replace(slots=slots), work)
        self._busy_keys += int(np.count_nonzero(done.memory.slots[runs[:, 0], 1]) - busy)
        return done

    def _limit(self, done: Done) -> None:
        limits = self._plan.limits
        if done.most and limits.overflow is Overflow.FAIL:
            raise limits.exceeded(done.most, self._context.where)
        if self._dropped is not None and done.dropped:
            self._dropped.inc(done.dropped)

    def _wait(self, timers: Int64s) -> None:
        """Wait for the times of slots: until the watermark is there, or the clock beyond."""
        self._time_outs.add(timers if self._plan.is_event_time else timers + np.array([0, 1]))

    def _keep_rows(self, due: TimedRows | None, rows: _Sorted | None, done: Done) -> None:
        """Keep the rows that were taken; the machine has numbered them by their places among the sorted ones."""
        before, after = self._memory.used[2], done.memory.used[2]
        if due is None or rows is None or before == after:
            return
        events = done.memory.events
        places = pa.array(rows.places[events[before:after, 2]])
        first = self._rows.append(due.rows.take(places))
        events[before:after, 2] = np.arange(first, first + after - before)

    def _release(self) -> None:
        """Forget keys that have nothing under way, and no time-out to come that another key might get.

        Most keys come again, and a slot costs little: so it waits until there are more of them than of others, and is
        not done more often than it is worth, as those that have a time-out to come are looked at in vain.
        """
        keys = len(self._index)
        if keys < 2 * self._busy_keys + _MIN_GARBAGE or self._touched < keys // 4:
            return
        self._touched = 0
        slots = self._index.slots()
        is_idle = (self._memory.slots[slots, 1] == 0) & ~self._time_outs.has(slots)
        self._index.remove(slots[is_idle])

    def _compact(self) -> None:
        used, keys = int(self._memory.used.sum()), len(self._index)
        self._most_keys = max(self._most_keys, keys)
        if used < _MIN_GARBAGE or (used < 2 * self._live + _MIN_GARBAGE and 2 * keys > self._most_keys):
            return
        self._most_keys = keys
        if not keys:
            self._index, self._memory, self._rows, self._live = KeyIndex(), empty_memory(), RowLog(), 0
            return
        self._memory = self._machine.compacted(self._memory)
        self._live = int(self._memory.used.sum())
        kept = self._memory.events
        # Events come in the order of their rows.
        if len(kept):
            self._rows.keep(kept[:, 2].copy())
            kept[:, 2] = np.arange(len(kept))
        else:
            self._rows = RowLog()

    # Results

    def _give(self, found: Int64s, out: Collector) -> None:
        if not self._found.reads_timed_out:
            found = found[found[:, 5] == 0]
        found = found[np.lexsort((found[:, 4], found[:, 3]))]
        most = self._context.config.max_batch_rows
        for begin in range(0, len(found), most):
            self._give_some(found[begin : begin + most], out)

    def _give_some(self, found: Int64s, out: Collector) -> None:
        matches = self._matches(found[:, 1])
        slots, places = np.unique(found[:, 0], return_inverse=True)
        columns = pa.RecordBatch.from_arrays(self._index.keys(slots), names=list(self._plan.keys))
        keys = key_values(batch_rows(columns, self._context.where), self._plan.keys)
        times, is_timed_out = found[:, 2].tolist(), (found[:, 5] != 0).tolist()
        self._found.give(map(Result, [keys[place] for place in places.tolist()], matches, times, is_timed_out), out)

    def _matches(self, last: Int64s) -> list[Match]:
        """The matches that end with these steps."""
        begins, taken = self._machine.paths(self._memory.steps, np.ascontiguousarray(last))
        events, places = np.unique(taken[:, 1], return_inverse=True)
        rows = batch_rows(self._rows.take(self._memory.events[events, 2]), self._context.where)
        names = self._plan.pattern.variables
        steps = list(zip(taken[:, 0].tolist(), places.tolist(), strict=True))
        matches: list[Match] = []
        for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            match: Match = {}
            for variable, place in steps[begin:end]:
                match.setdefault(names[variable], []).append(rows[place])
            matches.append(match)
        return matches

    # State

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `Finder.capture`: the arrays are copied, and made to tables later."""
        plan, memory = self._plan, self._memory
        used = memory.used
        copied = Memory(
            memory.slots.copy(),
            memory.entries[: used[0]].copy(),
            memory.steps[: used[1]].copy(),
            memory.events[: used[2]].copy(),
            used.copy(),
        )
        slots, times = self._time_outs.all()
        held = np.flatnonzero(memory.slots[:, 1] + memory.slots[:, 2] > 0)
        saved = SavedColumns(
            self._machine,
            copied,
            self._rows.copy(),
            held,
            self._index.take(held),
            self._index.take(slots),
            times,
            self._timers,
            plan.keys,
            plan.row_type,
            self._context.config.max_parallelism,
        )
        others = {name: complete_table(table) for name, table in self._others.items()}
        return OperatorCapture({**others, **saved.captures()})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """As `Finder.restore`."""
        own = {
            name: snapshot.tables[name] for name in (MATCHES, STEPS, EVENTS, self._timers) if name in snapshot.tables
        }
        self._others = {name: table for name, table in snapshot.tables.items() if name not in own}
        for table in own.values():
            restored_keys(table, self._plan.keys, self._context.where)
        if MATCHES in own:
            restored = from_tables(own, self._plan, self._index, self._context.where)
            self._memory, self._sequence = restored.memory, restored.sequence
            self._busy_keys = int(np.count_nonzero(self._memory.slots[:, 1]))
            for part in restored.rows:
                self._rows.append(part)
        if self._timers in own:
            data = own[self._timers].data.combine_chunks()
            slots = self._index.lookup([one_array(data.column(name)) for name in self._plan.keys])
            self._time_outs.add(np.stack([slots, data.column("__time").to_numpy()], axis=1))
        self._memory = self._memory._replace(slots=_grown(self._memory.slots, self._index.end))
        if self._plan.limits.ttl_ms is not None:
            self._wait_for_idle(self._plan.limits.ttl_ms)

    def _wait_for_idle(self, ttl: int) -> None:
        """What was saved by a job with no time to live, or another one, has no time yet to wait for."""
        counts = self._memory.slots[:, 1]
        offsets = self._memory.slots[:, 0] - (np.cumsum(counts) - counts)
        entries = self._memory.entries[np.arange(counts.sum()) + np.repeat(offsets, counts)]
        slots = np.repeat(np.arange(len(counts)), counts)
        timed = (entries[:, NUMBER] != BEHIND_ALL) & (entries[:, PREVIOUS] <= BEHIND_ALL - ttl)
        self._wait(np.stack([slots, entries[:, PREVIOUS] + ttl], axis=1)[timed])


def empty_memory() -> Memory:
    """No partial matches."""
    rows = [np.zeros((0, width), np.int64) for width in (3, 5, 3, 3)]
    return Memory(rows[0], rows[1], rows[2], rows[3], np.zeros(3, np.int64))


def _grown(slots: Int64s, count: int) -> Int64s:
    if count <= len(slots):
        return slots
    larger = np.zeros((max(count, 2 * len(slots)), 3), np.int64)
    larger[: len(slots)] = slots
    return larger
