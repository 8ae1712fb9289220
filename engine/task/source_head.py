"""The head of a source task: drives the readers of the splits that belong to one subtask.

Gives the loop batches, waits, and at the end of input the last watermark and the end. What the rows say about event
time comes from `source_time.py`, in order with them. The task gets its turn after each read, whatever the reader gave.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.connectors import ConnectorContext, Source, SourceReader, Split, SplitOrder, Wait
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Control, Element, EndOfInput, Watermark
from penstock.engine.operators.base import Collector
from penstock.engine.task.source_time import SourceTime, SplitTime, UntimedSplits

_ASSUMED_ROW_BYTES: Final = 1024
"""The size of a row before the first batch has shown it: rather too few rows once than too many."""


class SourceHead:
    """Reads splits in the source's order.

    Args:
        source: where the rows come from.
        splits: the splits of this subtask.
        context: handed to each reader.
        max_rows: the most rows of a batch.
        max_bytes: about how many bytes a batch may have, going by the rows of the batch before it; one row at least.
        event_time: makes what follows the splits' event time and emits to the collector that it is given.
    """

    def __init__(
        self,
        source: Source,
        splits: Sequence[Split],
        context: ConnectorContext,
        max_rows: int,
        max_bytes: int,
        event_time: Callable[[Collector], SourceTime] = UntimedSplits,
    ) -> None:
        self._source = source
        self._pending = deque(splits)
        self._context = context
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._row_bytes: float = _ASSUMED_ROW_BYTES
        self._most_open = len(splits) if source.split_order is SplitOrder.INTERLEAVED else 1
        self._open: deque[_OpenSplit] = deque()
        self._ready: deque[Element] = deque()
        self._time = event_time(_Queue(self._ready))
        self._last_words: deque[Element] = deque([Watermark(MAX_TIMESTAMP), EndOfInput()])
        if not splits and not source.bounded:
            # The other subtasks go on: that this one has nothing to read says nothing about event time.
            self._last_words.popleft()

    @property
    def keeps_input(self) -> bool:
        """Rows that are not read wait in the source, and are read in larger batches later."""
        return True

    def next(self) -> tuple[int, Element] | Wait | None:
        """The next batch or control element, `Wait` for a time to ask again.

        That time is now where a reader gave nothing and may be asked again at once: stops, watermarks and rows that
        are due must not wait for the first row. None if another subtask must get on first, or behind the end.
        """
        while not self._ready:
            while self._pending and len(self._open) < self._most_open:
                self._open_split(self._pending.popleft())
            if not self._open:
                break
            now = self._context.clock.monotonic()
            self._time.tick(now)
            if self._ready:
                break
            awake = next((split for split in self._open if split.asleep_until <= now and not split.time.paused), None)
            if awake is None:
                return self._wait()
            self._read(awake)
            if not self._ready and awake in self._open and awake.asleep_until <= now:
                return Wait(now)
        elements = self._ready or self._last_words
        return (0, elements.popleft()) if elements else None

    def _open_split(self, split: Split) -> None:
        time = self._time.open_split()
        self._open.append(_OpenSplit(self._source.open(split, self._context), time))

    def _wait(self) -> Wait | None:
        readable = (split.asleep_until for split in self._open if not split.time.paused)
        until = min((self._time.deadline, *readable))
        return None if until == math.inf else Wait(until)

    def _read(self, split: _OpenSplit) -> None:
        """Ask one reader, and put its split behind the others."""
        answer = split.reader.next_batch(self._rows_to_ask_for())
        self._open.remove(split)
        if answer is None:
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

    def _rows_to_ask_for(self) -> int:
        return max(1, min(self._max_rows, int(self._max_bytes / max(self._row_bytes, 1))))

    def close(self) -> None:
        """Close the readers that are open; the first error is raised when all have been closed."""
        errors: list[Exception] = []
        while self._open:
            try:
                self._open.popleft().reader.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _row_bytes(data: pa.RecordBatch) -> float:
    """Bytes of a row; a dictionary comes whole with every batch, so fewer rows would not make it smaller."""
    return int(data.nbytes - data.slice(0, 0).nbytes) / int(data.num_rows)


class _Queue:
    """The collector of what the head gives next."""

    def __init__(self, elements: deque[Element]) -> None:
        self._elements = elements

    def collect(self, batch: Batch) -> None:
        self._elements.append(batch)

    def broadcast(self, element: Control) -> None:
        self._elements.append(element)


@dataclass(slots=True, eq=False)
class _OpenSplit:
    """A reader, its event time, and when (seconds, monotonic) to ask it again."""

    reader: SourceReader
    time: SplitTime
    asleep_until: float = -math.inf
