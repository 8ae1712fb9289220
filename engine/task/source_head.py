"""The head of a source task: drives the readers of the splits that belong to one subtask.

Gives the loop batches, waits, barriers, and at the end of input the last watermark and the end. What the rows say about
event time comes from `source_time.py`, in order with them. The task gets its turn after each read, whatever the reader
gave. A capture holds the position of each split behind the rows that were given before the barrier.
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.engine.connectors import (
    ConnectorContext,
    Source,
    SourceReader,
    Split,
    SplitDiscovery,
    SplitOrder,
    Wait,
)
from penstock.engine.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Barrier,
    Batch,
    CheckpointMode,
    Control,
    Element,
    EndOfInput,
    LatencyMarker,
    SnapshotKind,
    Watermark,
)
from penstock.engine.errors import RestoreError
from penstock.engine.interruption import pass_interruption
from penstock.engine.metrics import GateStatistics
from penstock.engine.operators.base import Collector
from penstock.engine.state.capture import OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution
from penstock.engine.task.pace import Pace
from penstock.engine.task.source_time import SourceTime, SplitTime, UntimedSplits

_LOG: Final = logging.getLogger(__name__)
_ASSUMED_ROW_BYTES: Final = 1024
"""The size of a row before the first batch has shown it: rather too few rows once than too many."""
_COMPACT_BYTES: Final = 1024
"""Of a batch that has no more the size counts as it is, with what lies around the rows: it is found at once."""
SPLITS_TABLE: Final = "splits"
"""The state of a source: a row for each split that has been begun, in every subtask those of all."""
SPLIT_WATERMARK: Final = "watermark"
SPLITS_SCHEMA: Final = pa.schema(
    [
        pa.field("split_id", pa.string(), nullable=False),
        pa.field("position", pa.string()),
        pa.field("finished", pa.bool_(), nullable=False),
        pa.field(SPLIT_WATERMARK, pa.int64()),
    ]
)
"""`position` is JSON text, as the reader gave it; null behind the end of the split, and before its first row.
`watermark` is how far event time was in a split that had begun (ms); null where it had none. Old ones lack it."""
_LOOK_SECONDS: Final = 1.0
"""How often the source is asked for more splits."""


class SourceHead:
    """Reads splits in the source's order.

    Args:
        source: where the rows come from.
        splits: the splits of this subtask.
        context: handed to each reader.
        max_rows: the most rows of a batch, until the pace of the task is known.
        max_bytes: about how many bytes a batch may have, going by the rows of the batch before it; one row at least.
        event_time: makes what follows the splits' event time and emits to the collector that it is given.
        all_splits: the ids of the splits of all subtasks.
        latency_interval: seconds between latency markers; infinity for none.
    """

    def __init__(
        self,
        source: Source,
        splits: Sequence[Split],
        context: ConnectorContext,
        max_rows: int,
        max_bytes: int,
        event_time: Callable[[Collector], SourceTime] = UntimedSplits,
        all_splits: Collection[str] = (),
        latency_interval: float = math.inf,
    ) -> None:
        self._source = source
        known = {*all_splits, *(split.split_id for split in splits)}
        self._splits = SubtaskSplits(source, splits, known, context)
        self._context = context
        self._pace = Pace(0.0, max_rows)
        self._max_bytes = max_bytes
        self._row_bytes: float = _ASSUMED_ROW_BYTES
        self._most_open = math.inf if source.split_order is SplitOrder.INTERLEAVED else 1
        self._open: deque[_OpenSplit] = deque()
        self._ready: deque[Element] = deque()
        self._time = event_time(_Queue(self._ready))
        self._expect()
        self._newest = 0
        self._suspended_by: int | None = None
        self.deadline = math.inf
        self._latency_interval = latency_interval
        self._next_marker = math.inf if latency_interval == math.inf else -math.inf
        self._last_words: deque[Control] = deque([Watermark(MAX_TIMESTAMP), EndOfInput()])
        if not splits and not source.bounded:
            # The other subtasks keep reading: that this one has nothing to read says nothing about event time.
            self._last_words.popleft()

    presses: Final = True
    """Readers say themselves when they have more."""
    is_empty: Final = False

    def follow(self, pace: Pace) -> None:
        """Read batches of at most `pace.rows` from now on."""
        self._pace = pace

    @property
    def final_controls(self) -> Sequence[Control]:
        """What it says at the end of input."""
        return tuple(self._last_words)

    def restore(self, snapshot: OperatorSnapshot | None) -> None:
        """Resume where the subtask's splits were; those that the snapshot does not know are read from their start.

        Raises:
            RestoreError: a split was begun, and its source cannot resume in the middle.
        """
        table = None if snapshot is None else snapshot.tables.get(SPLITS_TABLE)
        if table is None:
            return
        self._splits.restore(table.data.to_pylist())
        if self._splits.begun and not self._source.rewindable:
            raise RestoreError(
                f"operator {self._context.operator!r}, subtask {self._context.subtask}: the source cannot resume where "
                "it was: it has no open_at(); give it one, or start without the checkpoint"
            )
        self._expect()

    def capture(self) -> OperatorCapture:
        """How far all splits are that have been begun; call it right behind a barrier, before a reader continues."""
        rows = [*(split.row for split in self._open), *self._splits.unopened()]

        def table() -> pa.Table:
            columns = zip(*rows, strict=True) if rows else ([], [], [], [])
            return pa.Table.from_arrays(
                [pa.array(list(c), t) for c, t in zip(columns, SPLITS_SCHEMA.types, strict=True)], schema=SPLITS_SCHEMA
            )

        return OperatorCapture({SPLITS_TABLE: TableCapture(Redistribution.UNION, table)})

    def expect(self, barrier: Barrier) -> None:
        """Put a barrier behind all that has been read and before later ones; it must not be over (`is_over`)."""
        later = [one for one in self._ready if isinstance(one, Barrier) and one.checkpoint > barrier.checkpoint]
        place = self._ready.index(later[0]) if later else len(self._ready)
        self._ready.insert(place, barrier)
        if barrier.alignment_timeout_ms is not None and barrier.mode is CheckpointMode.ALIGNED:
            due = self._context.clock.monotonic() + barrier.alignment_timeout_ms / 1000
            self.deadline = min(self.deadline, due)

    def abort(self, checkpoint: int) -> None:
        """Take back a barrier that was not given yet; resume behind one that was, where it has suspended the source."""
        waiting = [one for one in self._ready if not isinstance(one, Barrier) or one.checkpoint != checkpoint]
        self._ready.clear()
        self._ready.extend(waiting)
        if not any(map(_is_barrier, waiting)):
            self.deadline = math.inf
        if self._suspended_by == checkpoint:
            self._suspended_by = None

    def suspend(self, checkpoint: int) -> None:
        """Give nothing more behind the barrier of a checkpoint, which was given just now, unless that is aborted."""
        self._suspended_by = checkpoint

    def is_over(self, checkpoint: int) -> bool:
        """Whether a later barrier has been given, so that this one would come too late."""
        return checkpoint < self._newest

    def drain(self) -> None:
        """End all splits here, as if their input had ended; a restore from a capture would resume where that was."""
        for split in list(self._open):
            if self._source.rewindable:
                self._splits.begun[split.split_id] = split.begun
            self._open.remove(split)
            split.reader.close()
            split.time.end()
        self._splits.end()
        self._expect()
        if self._last_words and not isinstance(self._last_words[0], Watermark):
            self._last_words.appendleft(Watermark(MAX_TIMESTAMP))

    def suspend_at_end(self, barrier: Barrier) -> None:
        """Give the barrier behind the last row, in the place of the end of time and of the input."""
        self._last_words = deque([barrier])

    def next_urgent(self, now: float) -> tuple[int, Element] | None:
        """What must not wait for the outputs: a barrier, and what is before it; rows only where it is unaligned.

        An aligned barrier waits in the outputs behind the rows there: sent at once, it comes to all consumers at about
        the time of other sources' barriers, and these wait less for each other.

        Args:
            now: seconds, monotonic.
        """
        if not self._ready:
            return None
        if self.deadline <= now:
            self.deadline = math.inf
            waiting = [_unaligned(element) for element in self._ready]
            self._ready.clear()
            self._ready.extend(waiting)
        is_urgent = _is_unaligned if isinstance(self._ready[0], Batch) else _is_barrier
        return self._give() if any(map(is_urgent, self._ready)) else None

    def _give(self) -> tuple[int, Element]:
        element = self._ready.popleft()
        if isinstance(element, Barrier):
            self._newest = max(self._newest, element.checkpoint)
            if not any(map(_is_barrier, self._ready)):
                self.deadline = math.inf
            if element.kind is SnapshotKind.SUSPEND:
                self._suspended_by = element.checkpoint
        return 0, element

    def next(self) -> tuple[int, Element] | Wait | None:
        """The next batch or control element, `Wait` for a time to ask again.

        That time is now where a reader gave nothing and may be asked again at once: stops, watermarks and rows that
        are due must not wait for the first row. None if another subtask must get on first, behind a barrier that
        suspends, or behind the end.
        """
        if self._suspended_by is not None:
            return None
        if self._next_marker < math.inf and self._last_words:
            self._mark()
        while not self._ready:
            now = self._context.clock.monotonic()
            if self._splits.next_look <= now:
                self._splits.look(now)
            while self._splits.pending and len(self._open) < self._most_open:
                self._open_split(self._splits.pending.popleft())
            if not self._open and not self._splits.may_grow:
                break
            self._time.tick(now)
            if self._ready:
                break
            awake = next((split for split in self._open if split.asleep_until <= now and not split.time.paused), None)
            if awake is None:
                return self._wait()
            self._read(awake)
            if not self._ready and awake in self._open and awake.asleep_until <= now:
                return Wait(now)
        if self._ready:
            return self._give()
        return (0, self._last_words.popleft()) if self._last_words else None

    def next_watermark(self) -> tuple[int, Element] | None:
        """The watermark that came of what was given last."""
        return self._give() if self._ready and isinstance(self._ready[0], Watermark) else None

    def _mark(self) -> None:
        """Put a latency marker behind what has been read, where one is due."""
        clock = self._context.clock
        now = clock.monotonic()
        if self._next_marker <= now:
            self._next_marker = now + self._latency_interval
            self._ready.append(LatencyMarker(self._context.operator, clock.now_ms()))

    def _open_split(self, split: Split) -> None:
        self._expect()
        begun = self._splits.begun.pop(split.split_id, None)
        time = self._time.open_split(None if begun is None else begun.watermark)
        if begun is None:
            reader = self._source.open(split, self._context)
        else:
            reader = self._source.open_at(split, json.loads(begun.position), self._context)
        self._open.append(_OpenSplit(split.split_id, reader, time))

    def _wait(self) -> Wait | None:
        readable = (split.asleep_until for split in self._open if not split.time.paused)
        until = min((self._time.deadline, self._splits.next_look, self._next_marker, *readable))
        return None if until == math.inf else Wait(until)

    def _read(self, split: _OpenSplit) -> None:
        """Ask one reader, and put its split behind the others."""
        answer = split.reader.next_batch(self._rows_to_ask_for())
        self._open.remove(split)
        if answer is None:
            self._splits.finished.add(split.split_id)
            split.reader.close()
            split.time.end()
            return
        self._open.append(split)
        if isinstance(answer, Wait):
            split.asleep_until = answer.until
        if isinstance(answer, Wait) or not answer.num_rows:
            split.time.nothing(self._context.clock.monotonic(), split.asleep_until)
            return
        self._row_bytes = _row_bytes(answer)
        split.time.rows(answer)

    def _expect(self) -> None:
        self._time.expect(len(self._splits.pending), self._splits.may_grow)

    def _rows_to_ask_for(self) -> int:
        return max(1, min(self._pace.rows, int(self._max_bytes / max(self._row_bytes, 1))))

    def statistics(self) -> GateStatistics:
        """What is left to read; rows do not wait here, but with the readers."""
        # Called at any moment, beside the task's own thread.
        unread, splits = list(self._splits.pending), list(self._open)
        count = len(splits) + len(unread)
        if unread and self._time.waits_for_unread:
            return GateStatistics(splits=count, slowest=tuple(sorted(split.split_id for split in unread)))
        reached = {split.split_id: mark for split in splits if (mark := split.time.watermark) is not None}
        least, most = min(reached.values(), default=0), max(reached.values(), default=0)
        slowest = tuple(sorted(name for name, mark in reached.items() if mark == least))
        # One that has no watermark yet is not behind by any time.
        return GateStatistics(splits=count, slowest=slowest, behind_ms=most - least if least > MIN_TIMESTAMP else 0)

    def close(self) -> None:
        """Close the readers that are open; the first error is raised when all have been closed."""
        errors: list[BaseException] = []
        while self._open:
            try:
                self._open.popleft().reader.close()
            except BaseException as error:
                pass_interruption(error)
                errors.append(error)
        self._splits.close()
        if errors:
            raise errors[0]


def _row_bytes(data: pa.RecordBatch) -> float:
    """Bytes of a row; a dictionary comes whole with every batch, so fewer rows would not make it smaller."""
    held: int = data.get_total_buffer_size()
    if held <= _COMPACT_BYTES:
        return held / int(data.num_rows)
    return int(data.nbytes - data.slice(0, 0).nbytes) / int(data.num_rows)


def _position(reader: SourceReader) -> str:
    return json.dumps(reader.position(), sort_keys=True)


def _is_barrier(element: Element) -> bool:
    return isinstance(element, Barrier)


def _is_unaligned(element: Element) -> bool:
    return isinstance(element, Barrier) and element.mode is CheckpointMode.UNALIGNED


def _unaligned(element: Element) -> Element:
    """A barrier that may wait no longer as an unaligned one; anything else as it is."""
    if isinstance(element, Barrier) and element.alignment_timeout_ms is not None:
        return replace(element, mode=CheckpointMode.UNALIGNED)
    return element


class _Queue:
    """The collector of what the head gives next."""

    def __init__(self, elements: deque[Element]) -> None:
        self._elements = elements

    def collect(self, batch: Batch) -> None:
        self._elements.append(batch)

    def broadcast(self, element: Control) -> None:
        self._elements.append(element)


class Begun(NamedTuple):
    """Where to resume in a split.

    Args:
        position: JSON text, as its reader gave it.
        watermark: how far event time was (int64 ms); None where it had none.
    """

    position: str
    watermark: int | None


_Row: TypeAlias = tuple[str, str | None, bool, int | None]
"""As `SPLITS_SCHEMA` has it."""


@dataclass(slots=True, eq=False)
class _OpenSplit:
    """A reader, its event time, and when (seconds, monotonic) to ask it again."""

    split_id: str
    reader: SourceReader
    time: SplitTime
    asleep_until: float = -math.inf

    @property
    def begun(self) -> Begun:
        return Begun(_position(self.reader), self.time.reached)

    @property
    def row(self) -> _Row:
        begun = self.begun
        return self.split_id, begun.position, False, begun.watermark


class SubtaskSplits:
    """The splits of the subtask: which are still to be opened, and how far those are that are not being read.

    The head asks it what to open, and it says what belongs into a capture beside the open readers. A planned split
    belongs to the subtask that the plan gave it to; one that was discovered to the subtask that the hash of its id
    says, at any parallelism, so that no two subtasks read it.

    Args:
        source: whose splits they are.
        planned: those that the plan gave to this subtask.
        all_planned: the ids of those that it gave to any.
        context: of the subtask.

    Attributes:
        pending: to be opened, in this order.
        begun: where to resume in splits that were begun and are not open, by id.
        finished: the ids of those that are at their end.
        next_look: when `look` may find some (seconds, monotonic); infinity for never.
    """

    def __init__(
        self, source: Source, planned: Sequence[Split], all_planned: Collection[str], context: ConnectorContext
    ) -> None:
        self.pending = deque(planned)
        self.begun: dict[str, Begun] = {}
        self.finished: set[str] = set()
        self._source = source
        self._planned = planned
        self._known = set(all_planned)
        self._context = context
        self._discovery: SplitDiscovery | None = None if source.bounded else source.discover(context)
        self.next_look = math.inf if self._discovery is None else -math.inf

    @property
    def may_grow(self) -> bool:
        """Whether there may be more splits some time."""
        return self._discovery is not None

    def restore(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Resume where the splits were.

        Args:
            rows: of all splits that any subtask had begun or was to open, as `SPLITS_SCHEMA` has them.
        """
        saved = {row["split_id"]: row for row in rows}
        planned = {split.split_id: split for split in self._planned}
        if self.may_grow:
            # What came between the look before the checkpoint and the new plan is new: it is left to the next look.
            planned = {split_id: split for split_id, split in planned.items() if split_id in saved}
            others = sorted(saved.keys() - self._known)
            self._known &= saved.keys()
            self._known.update(others)
            planned |= self._made_again(filter(self._is_mine, others))
        mine = [saved[split_id] for split_id in planned if split_id in saved]
        self.begun = {
            row["split_id"]: Begun(row["position"], row.get(SPLIT_WATERMARK))
            for row in mine
            if row["position"] is not None
        }
        self.finished = {row["split_id"] for row in mine if row["finished"]}
        self.pending = deque(split for split_id, split in planned.items() if split_id not in self.finished)

    def _made_again(self, split_ids: Iterable[str]) -> dict[str, Split]:
        """Those of the splits that the source still reads, by id."""
        made = {}
        for split_id in split_ids:
            split = self._source.split(split_id)
            if split is not None:
                made[split_id] = split
                continue
            _LOG.warning(
                "operator %r, subtask %d: split %r of the checkpoint is left out, since the source no longer reads it",
                self._context.operator,
                self._context.subtask,
                split_id,
            )
        return made

    def look(self, now: float) -> None:
        """Take in the splits that have come; to be called when it is time to (`next_look`).

        Args:
            now: seconds, monotonic.
        """
        if self._discovery is None:
            return
        self.next_look = now + _LOOK_SECONDS
        for split in self._discovery.poll():
            if split.split_id not in self._known:
                self._known.add(split.split_id)
                if self._is_mine(split.split_id):
                    self.pending.append(split)

    def unopened(self) -> list[_Row]:
        """Rows of a capture: of splits at their end, and of those that were begun or found but are not open."""
        rows: list[_Row] = [(split_id, at.position, False, at.watermark) for split_id, at in self.begun.items()]
        if self.may_grow:
            waiting = [split.split_id for split in self.pending if split.split_id not in self.begun]
            rows += [(split_id, None, False, None) for split_id in waiting]
        return [*rows, *((split_id, None, True, None) for split_id in sorted(self.finished))]

    def end(self) -> None:
        """Nothing more is opened."""
        self.pending.clear()
        self.close()

    def close(self) -> None:
        """Look no more."""
        discovery, self._discovery = self._discovery, None
        self.next_look = math.inf
        if discovery is not None:
            discovery.close()

    def _is_mine(self, split_id: str) -> bool:
        return zlib.crc32(split_id.encode()) % self._context.parallelism == self._context.subtask
