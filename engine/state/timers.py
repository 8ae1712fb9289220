"""Timers of a keyed operator: (key, namespace, time), each at most once, by event time and by processing time.

Operators own one `TimerQueue` for each kind of time. They fire in order of time and, within one time, of registration,
so that runs with the same input agree. Queues live in memory with every backend, and in snapshots as keyed tables whose
column `__number` keeps the order of registration.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.errors import StateError
from penstock.engine.state.backend import Key, Namespace, key_tuple
from penstock.engine.state.capture import DELETED, CaptureScope, TableCapture
from penstock.engine.state.changes import are_most
from penstock.engine.state.snapshot import Redistribution, StateTable, keyed_table
from penstock.engine.state.state_tables import END, START, StateTables, instant

EVENT_TIMERS: Final = "__event_timers"
PROCESSING_TIMERS: Final = "__processing_timers"
TIMER_TIME: Final = "__time"
_NUMBER: Final = "__number"

_Entry: TypeAlias = "tuple[int, int, Key, Namespace, Key]"
"""Time, number, the key as dicts tell it apart, namespace, and the key as rows carry it."""
_Timer: TypeAlias = "tuple[int, Key, Namespace]"
"""Time, the key as dicts tell it apart, and namespace."""


def timer_time(time: object, where: str, example: str) -> int:
    """The time of a timer, as a user gave it.

    Args:
        time: any whole number (NumPy's too): int64 milliseconds since the epoch.
        where: operator and subtask, for messages.
        example: what would do, for messages.

    Raises:
        StateError: it is none.
    """
    if type(time) is int and MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
        return time
    try:
        number = operator.index(time)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not MIN_TIMESTAMP <= number <= MAX_TIMESTAMP:
        raise StateError(
            f"{where}: a timer's time is a whole number of milliseconds since the epoch (int64), not {time!r:.100}; "
            f"{example}, for example"
        )
    return number


@dataclass(frozen=True, slots=True)
class DueTimers:
    """Timers that are taken off a queue together, in the order in which they fire."""

    entries: Sequence[_Entry]

    @property
    def times(self) -> list[int]:
        """Their times, ascending (int64 ms)."""
        return [entry[0] for entry in self.entries]

    @property
    def keys(self) -> list[Key]:
        """Their keys, as rows carry them."""
        return [entry[4] for entry in self.entries]


class TimerQueue:
    """The timers of one kind of time."""

    def __init__(self) -> None:
        # Per (key, namespace) would save nothing: most keys have one timer.
        self._registered: dict[_Timer, int] = {}
        """Their numbers, ascending."""
        self._queue: list[_Entry] = []
        self._number = 0
        # Timers with higher numbers are not in any capture that later ones count from; None: nor are the others.
        self._captured: int | None = None
        self._deleted: set[_Timer] = set()

    def __len__(self) -> int:
        return len(self._registered)

    @property
    def next_time(self) -> int | None:
        """The time of the first timer, or None."""
        self._drop_deleted()
        return self._queue[0][0] if self._queue else None

    def register(self, timestamp: int, key: Key, namespace: Namespace = None) -> None:
        """Add a timer, unless there is the same one."""
        held = instant(key)
        identity = (timestamp, held, namespace)
        if identity in self._registered:
            return
        self._number += 1
        self._registered[identity] = self._number
        heapq.heappush(self._queue, (timestamp, self._number, held, namespace, key))

    def delete(self, timestamp: int, key: Key, namespace: Namespace = None) -> None:
        """Forget a timer, if there is one; its place in the queue is dropped when it comes up, or by a clean-up."""
        self._forget((timestamp, instant(key), namespace))
        if len(self._queue) > 2 * len(self._registered) + 1024:
            self._queue = [entry for entry in self._queue if self._stands(entry)]
            heapq.heapify(self._queue)

    def due(self, timestamp: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Take the timers at or before `timestamp`, one by one; those registered meanwhile for such a time too."""
        while (first := self.next_time) is not None and first <= timestamp:
            time, _, held, namespace, key = heapq.heappop(self._queue)
            self._forget((time, held, namespace))
            yield time, key, namespace

    def take_due(self, timestamp: int) -> DueTimers:
        """Take the timers at or before `timestamp` off the queue: `settle` or `put_back` them before anything else."""
        entries = []
        while (first := self.next_time) is not None and first <= timestamp:
            entries.append(heapq.heappop(self._queue))
        return DueTimers(entries)

    def settle(self, due: DueTimers) -> None:
        """Forget timers that were taken and have fired, all of them."""
        for time, _, held, namespace, _ in due.entries:
            self._forget((time, held, namespace))

    def put_back(self, due: DueTimers) -> None:
        """As if the timers had not been taken."""
        for entry in due.entries:
            heapq.heappush(self._queue, entry)

    def due_so_far(self, timestamp: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Take the timers at or before `timestamp`, one by one, but for those registered meanwhile."""
        for entry in self.take_due(timestamp).entries:
            # The one before may have deleted it.
            if self._stands(entry):
                time, _, held, namespace, key = entry
                self._forget((time, held, namespace))
                yield time, key, namespace

    def _forget(self, timer: _Timer) -> None:
        number = self._registered.pop(timer, None)
        if number is not None and self._captured is not None and number <= self._captured:
            self._deleted.add(timer)

    def _drop_deleted(self) -> None:
        while self._queue and not self._stands(self._queue[0]):
            heapq.heappop(self._queue)

    def _stands(self, entry: _Entry) -> bool:
        time, number, held, namespace, _ = entry
        return self._registered.get((time, held, namespace)) == number

    def capture(self, scope: CaptureScope, keys: pa.Schema, max_parallelism: int) -> TableCapture:
        """Timers at a barrier, by reference: all of them, or those registered, fired and deleted since.

        A keyed table of the key columns, `__start`, `__end`, `__time` and `__number`.

        Args:
            scope: how much.
            keys, max_parallelism: see `snapshot`.
        """
        since, deleted = self._captured, self._deleted
        if scope is not CaptureScope.COMPLETE:
            self._captured, self._deleted = self._number, set()
        identity = (*keys.names, START, END, TIMER_TIME)
        if scope.takes_changes and since is not None:
            added = self._registered_since(since)
            gone = [timer for timer in deleted if timer not in self._registered]
            if scope is CaptureScope.SWITCH or not are_most(len(added) + len(gone), len(self._registered)):
                changes = [*added, *((timer, 0) for timer in gone)]
                marks = pa.array([False] * len(added) + [True] * len(gone), pa.bool_())

                def rows() -> pa.Table:
                    return keyed_table(_columns(changes, keys, marks), keys.names, max_parallelism).data

                return TableCapture(Redistribution.KEYED, rows, identity, is_changes=True)
        timers = list(self._registered.items())
        return TableCapture(
            Redistribution.KEYED,
            lambda: keyed_table(_columns(timers, keys), keys.names, max_parallelism).data,
            identity,
        )

    def _registered_since(self, number: int) -> list[tuple[_Timer, int]]:
        added = []
        for timer in reversed(self._registered.items()):
            if timer[1] <= number:
                break
            added.append(timer)
        return added[::-1]

    def restore(self, table: StateTable, keys: pa.Schema) -> None:
        """Hold the timers of `table`, whose keys become what rows carry; there are none yet.

        Those of several subtasks come together in order of their numbers.
        """
        read = StateTables(keys.names, 1, "timers").key_values(table.data)
        bounds = (table.data.column(name).to_pylist() for name in (_NUMBER, TIMER_TIME, START, END))
        timers = sorted(zip(*bounds, read, strict=True), key=lambda row: row[0])
        numbers = [number for number, *_ in timers]
        if len(set(numbers)) == len(numbers):
            # Later captures may refer to the numbers of this one.
            self._captured = self._number = numbers[-1] if numbers else 0
        else:
            numbers = list(range(1, len(numbers) + 1))
            self._number = len(numbers)
        for number, (_, time, start, end, key) in zip(numbers, timers, strict=True):
            held, namespace = instant(key), None if start is None else (start, end)
            self._registered[time, held, namespace] = number
            self._queue.append((time, number, held, namespace, key))
        heapq.heapify(self._queue)


def _columns(timers: Sequence[tuple[_Timer, int]], keys: pa.Schema, marks: pa.Array | None = None) -> pa.Table:
    """The columns of timers with their numbers, and `DELETED` where there are `marks`."""
    tuples = [key_tuple(key, keys.names) for (_, key, _), _ in timers]
    columns = {field.name: pa.array([values[at] for values in tuples], field.type) for at, field in enumerate(keys)}
    spaces = [namespace or (None, None) for (_, _, namespace), _ in timers]
    columns[START] = pa.array([start for start, _ in spaces], pa.int64())
    columns[END] = pa.array([end for _, end in spaces], pa.int64())
    columns[TIMER_TIME] = pa.array([time for (time, _, _), _ in timers], pa.int64())
    columns[_NUMBER] = pa.array([number for _, number in timers], pa.int64())
    if marks is not None:
        columns[DELETED] = marks
    return pa.table(columns)
