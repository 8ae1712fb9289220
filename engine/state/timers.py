"""Timers of a keyed operator: (key, namespace, time), each at most once, by event time and by processing time.

Operators own one `TimerQueue` for each kind of time. They fire in order of time and, within one time, of registration,
so that runs with the same input agree. Queues live in memory with every backend, and in snapshots as keyed tables.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.engine.state.backend import Key, Namespace, key_tuple
from penstock.engine.state.snapshot import StateTable, keyed_table
from penstock.engine.state.state_tables import END, START, StateTables, instant

EVENT_TIMERS: Final = "__event_timers"
PROCESSING_TIMERS: Final = "__processing_timers"
_TIME: Final = "__time"

_Entry: TypeAlias = "tuple[int, int, Key, Namespace, Key]"
"""Time, number, the key as dicts tell it apart, namespace, and the key as rows carry it."""


class TimerQueue:
    """The timers of one kind of time."""

    def __init__(self) -> None:
        # Per (key, namespace) would save nothing: most keys have one timer.
        self._registered: dict[tuple[int, Key, Namespace], int] = {}
        self._queue: list[_Entry] = []
        self._number = 0

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
        self._registered.pop((timestamp, instant(key), namespace), None)
        if len(self._queue) > 2 * len(self._registered) + 1024:
            self._queue = [entry for entry in self._queue if self._stands(entry)]
            heapq.heapify(self._queue)

    def due(self, timestamp: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Take the timers at or before `timestamp`, one by one; those registered meanwhile for such a time too."""
        while (first := self.next_time) is not None and first <= timestamp:
            time, _, held, namespace, key = heapq.heappop(self._queue)
            del self._registered[time, held, namespace]
            yield time, key, namespace

    def due_so_far(self, timestamp: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Take the timers at or before `timestamp`, one by one, but for those registered meanwhile."""
        taken = []
        while (first := self.next_time) is not None and first <= timestamp:
            taken.append(heapq.heappop(self._queue))
        for entry in taken:
            # The one before may have deleted it.
            if self._stands(entry):
                time, _, held, namespace, key = entry
                del self._registered[time, held, namespace]
                yield time, key, namespace

    def _drop_deleted(self) -> None:
        while self._queue and not self._stands(self._queue[0]):
            heapq.heappop(self._queue)

    def _stands(self, entry: _Entry) -> bool:
        time, number, held, namespace, _ = entry
        return self._registered.get((time, held, namespace)) == number

    def snapshot(self, keys: pa.Schema, max_parallelism: int) -> StateTable:
        """All timers, as a keyed table of the key columns, `__start`, `__end` and `__time`.

        Args:
            keys: the key columns' fields.
            max_parallelism: number of key groups.
        """
        timers = sorted(self._registered.items(), key=lambda item: (item[0][0], item[1]))
        tuples = [key_tuple(key, keys.names) for (_, key, _), _ in timers]
        columns = {
            field.name: pa.array([values[index] for values in tuples], field.type) for index, field in enumerate(keys)
        }
        spaces = [namespace or (None, None) for (_, _, namespace), _ in timers]
        columns[START] = pa.array([start for start, _ in spaces], pa.int64())
        columns[END] = pa.array([end for _, end in spaces], pa.int64())
        columns[_TIME] = pa.array([time for (time, _, _), _ in timers], pa.int64())
        return keyed_table(pa.table(columns), keys.names, max_parallelism)

    def restore(self, table: StateTable, keys: pa.Schema) -> None:
        """Hold the timers of `table`, whose keys become what rows carry."""
        read = StateTables(keys.names, 1, "timers").key_values(table.data)
        bounds = (table.data.column(name).to_pylist() for name in (_TIME, START, END))
        # Within one time they keep the order of the table, which is that of registration within each key group.
        for time, start, end, key in sorted(zip(*bounds, read, strict=True), key=lambda row: row[0]):
            self.register(time, key, None if start is None else (start, end))
