"""Event time in a source: each split has a watermark of its own, and the subtask's is their minimum.

The head of a source task (`source_head.py`) tells it what comes from each split and asks which splits must pause. What
it emits never goes back, and holds for rows of all splits of the subtask, those that were not opened yet among them.

Source: Flink's documentation, "Watermark Strategies and the Kafka Connector", "Dealing With Idle Sources".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, Protocol

import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Control, Watermark, WatermarkStatus
from penstock.engine.operators.base import Collector, OperatorContext
from penstock.engine.operators.watermark_generators import MonotonousClock, TimedInput
from penstock.engine.task.alignment import AlignmentMember, group_minimum
from penstock.engine.windows.watermarks import ByClock, WatermarkStrategy


class SplitTime(Protocol):
    """What the head tells of one open split."""

    @property
    def paused(self) -> bool:
        """Whether the split is too far ahead to be read."""
        ...

    @property
    def watermark(self) -> int | None:
        """How far event time is in the split (int64 ms); None where it holds nothing back."""
        ...

    @property
    def reached(self) -> int | None:
        """How far event time is in the split, for whoever resumes it, also while it is idle; None: as at its begin."""
        ...

    def rows(self, data: pa.RecordBatch) -> None:
        """Rows came; they are emitted from here."""
        ...

    def nothing(self, now: float, until: float) -> None:
        """The reader has nothing now, and is not asked again before `until` (seconds, monotonic)."""
        ...

    def end(self) -> None:
        """The split has ended."""
        ...


class SourceTime(Protocol):
    """Event time of all splits of a subtask."""

    @property
    def waits_for_unread(self) -> bool:
        """Whether splits that were not opened yet hold event time back."""
        ...

    def expect(self, unread: int, may_grow: bool) -> None:
        """So many splits are still to be opened; and others may come some time."""
        ...

    def open_split(self, reached: int | None = None) -> SplitTime:
        """One more split is read from now on, in which event time was as far (int64 ms) as it is resumed."""
        ...

    def tick(self, now: float) -> None:
        """Do what is due by the clock (seconds, monotonic)."""
        ...

    @property
    def deadline(self) -> float:
        """When `tick` has something to do (seconds, monotonic); infinity for never."""
        ...


class UntimedSplits:
    """A source without event time: rows pass. Is each of its splits itself."""

    deadline = math.inf
    paused = waits_for_unread = False
    watermark = reached = None

    def __init__(self, out: Collector) -> None:
        self._out = out

    def expect(self, unread: int, may_grow: bool) -> None:
        """None is waited for."""

    def open_split(self, reached: int | None = None) -> SplitTime:
        return self

    def tick(self, now: float) -> None:
        """Nothing is ever due."""

    def rows(self, data: pa.RecordBatch) -> None:
        self._out.collect(Batch(data))

    def nothing(self, now: float, until: float) -> None:
        """Silence means nothing."""

    def end(self) -> None:
        """The head emits the end."""


class TimedSplits:
    """A source with a watermark strategy.

    A split that is idle holds nothing back, nor does one that has ended. One that was not opened yet does: it may hold
    rows of any time (unless time is the clock's). So a subtask that reads splits one after another (files) has no
    watermark before it opens the last one, and none of its rows is late because of the order of its splits. Flink
    leaves unread splits out, and has such rows late. Where the last one has no rows, event time is in the end as far as
    the split with rows that is furthest behind: another job may resume from there.

    Args:
        strategy: has timestamps.
        context: of the source.
        out: takes the rows, and what all splits together say about event time.
        alignment: the subtask's part in its group, if there is one.
        error_column: of the source.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        context: OperatorContext,
        out: Collector,
        alignment: AlignmentMember | None = None,
        error_column: str | None = None,
    ) -> None:
        self._strategy = strategy
        self._error_column = error_column
        self._unread = 0
        self._may_grow = False
        # Rows that arrive later are later, by the clock, in whatever split they are.
        self.waits_for_unread = not isinstance(strategy.generation, ByClock)
        self._context = replace(context, clock=MonotonousClock(context.clock))
        self.out = out
        self._alignment = alignment
        self.idle_after = math.inf if strategy.idle_after_ms is None else strategy.idle_after_ms / 1000
        self._interval = context.config.auto_watermark_interval_ms / 1000 or math.inf
        self._next_emit = math.inf
        self._open: list[_TimedSplit] = []
        self._least_ended = MAX_TIMESTAMP
        self._watermark = MIN_TIMESTAMP
        self._idle = False
        self._by_row = False
        self._report([])

    def expect(self, unread: int, may_grow: bool) -> None:
        self._unread, self._may_grow = unread, may_grow
        self._report([split.input.watermark for split in self._open if not split.input.idle])

    def open_split(self, reached: int | None = None) -> SplitTime:
        split = _TimedSplit(self, TimedInput(self._strategy, self._context, self._error_column))
        if reached is not None:
            split.input.resume(reached)
        self._by_row = split.input.by_row
        self._open.append(split)
        if split.input.periodic and self._next_emit == math.inf:
            self._next_emit = self._context.clock.monotonic() + self._interval
        self.update()
        return split

    def close_split(self, split: _TimedSplit) -> None:
        """The split takes part no more."""
        self._open.remove(split)
        if split.input.watermark > MIN_TIMESTAMP:
            self._least_ended = min(self._least_ended, split.input.watermark)
        self.update()

    def tick(self, now: float) -> None:
        # Together: where all splits become idle at once, none of them must advance event time for the others.
        due = [split for split in self._open if split.has_timed_out(now)]
        for split in due:
            split.input.time_out(_NOBODY)
        emit = now >= self._next_emit
        if emit:
            self._next_emit = now + self._interval
            for split in self._open:
                split.input.emit_periodically(_NOBODY)
        if due or emit or not self._open:
            self.update()

    @property
    def deadline(self) -> float:
        return min((self._next_emit, *(split.deadline for split in self._open)))

    def update(self) -> None:
        """Emit what all splits together say, where that is new."""
        active = [split.input.watermark for split in self._open if not split.input.idle]
        # A subtask without splits may get some, and holds nothing back until then.
        idle = not active and (bool(self._open) or (self._may_grow and not self._unread))
        status_changes = idle != self._idle
        self._idle = idle
        if status_changes and not idle:
            self.out.broadcast(WatermarkStatus(False))
        held_back = self._unread and self.waits_for_unread
        reached = min(active, default=MIN_TIMESTAMP)
        if self._watermark == MIN_TIMESTAMP and not (self._open or self._unread or self._may_grow):
            reached = MIN_TIMESTAMP if self._least_ended == MAX_TIMESTAMP else self._least_ended
        if not held_back and reached > self._watermark:
            self._watermark = reached
            self.out.broadcast(Watermark(reached, self._by_row))
        if status_changes and idle:
            self.out.broadcast(WatermarkStatus(True))
        self._report(active)

    def _report(self, active: list[int]) -> None:
        """Say how far the subtask is: as far as the splits that are being read."""
        if self._alignment is None:
            return
        if active:
            self._alignment.position = min(active)
        else:
            self._alignment.position = MIN_TIMESTAMP if self._unread and not self._open else None

    def is_ahead(self, watermark: int) -> bool:
        """Whether a split with that watermark must wait for the others of its group."""
        if self._alignment is None:
            return False
        # What the runtime last said of the group may be older than what is known here of the subtask's own splits.
        minimum = group_minimum((self._alignment.position, self._alignment.minimum))
        return watermark - self._alignment.max_drift_ms > minimum


class _Nobody:
    """Takes what splits say one by one, where what they say together is emitted."""

    def collect(self, batch: Batch) -> None:
        """Rows do not come this way."""

    def broadcast(self, element: Control) -> None:
        """The `TimedInput` keeps its watermark and whether it is idle."""


_NOBODY: Final = _Nobody()


class _TimedSplit:
    """One open split; the collector of its `TimedInput`."""

    def __init__(self, splits: TimedSplits, timed: TimedInput) -> None:
        self.input = timed
        self._splits = splits
        self._quiet_since = math.inf
        self._asked = self._asleep_until = -math.inf

    def collect(self, batch: Batch) -> None:
        self._splits.out.collect(batch)

    def broadcast(self, element: Control) -> None:
        self._splits.update()

    @property
    def paused(self) -> bool:
        return self._splits.is_ahead(self.input.watermark)

    @property
    def watermark(self) -> int | None:
        return None if self.input.idle else self.input.watermark

    @property
    def reached(self) -> int | None:
        # By the clock, the next row is later anyway; a clock that is behind must not have it late.
        is_known = self._splits.waits_for_unread and self.input.watermark > MIN_TIMESTAMP
        return self.input.watermark if is_known else None

    def rows(self, data: pa.RecordBatch) -> None:
        if self.input.has_time(data):
            self._quiet_since = math.inf
        self.input.process(Batch(data), self)

    def nothing(self, now: float, until: float) -> None:
        self._quiet_since = min(self._quiet_since, now)
        self._asked = now
        self._asleep_until = until

    def end(self) -> None:
        self._splits.close_split(self)

    def has_timed_out(self, now: float) -> bool:
        """Whether the split becomes idle now. Never before its reader was asked: rows may have waited for that."""
        if self._quiet_since == math.inf or self.input.idle:
            return False
        if self.paused:
            # Nobody asks the reader, so its silence says nothing.
            self._quiet_since = now
            return False
        return now >= self._idle_at and (now < self._asleep_until or self._asked >= self._idle_at)

    @property
    def _idle_at(self) -> float:
        return self._quiet_since + self._splits.idle_after

    @property
    def deadline(self) -> float:
        """When the split becomes idle."""
        return math.inf if self.input.idle or self.paused else self._idle_at
