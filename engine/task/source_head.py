"""The head of a source task: drives the readers of the splits that belong to one subtask.

Gives the loop batches, waits, and at the end of bounded input the last watermark and the end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engine.connectors import ConnectorContext, Source, SourceReader, Split, SplitOrder, Wait
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Element, EndOfInput, Watermark


class SourceHead:
    """Reads splits in the source's order.

    Args:
        source: where the rows come from.
        splits: the splits of this subtask.
        context: handed to each reader.
        max_rows: the most rows of a batch.
    """

    def __init__(self, source: Source, splits: Sequence[Split], context: ConnectorContext, max_rows: int) -> None:
        self._source = source
        self._pending = deque(splits)
        self._context = context
        self._max_rows = max_rows
        self._most_open = len(splits) if source.split_order is SplitOrder.INTERLEAVED else 1
        self._open: deque[_OpenSplit] = deque()
        self._last_words: deque[Element] = deque([Watermark(MAX_TIMESTAMP), EndOfInput()])

    @property
    def keeps_input(self) -> bool:
        """Rows that are not read wait in the source, and are read in larger batches later."""
        return True

    def next(self) -> tuple[int, Element] | Wait | None:
        """The next batch or control element, `Wait` where no reader has anything yet, None behind the end."""
        while True:
            while self._pending and len(self._open) < self._most_open:
                self._open.append(_OpenSplit(self._source.open(self._pending.popleft(), self._context)))
            if not self._open:
                return (0, self._last_words.popleft()) if self._last_words else None
            now = self._context.clock.monotonic()
            awake = next((split for split in self._open if split.asleep_until <= now), None)
            if awake is None:
                return Wait(min(split.asleep_until for split in self._open))
            data = self._read(awake)
            if data is not None:
                return 0, data

    def _read(self, split: _OpenSplit) -> Batch | None:
        """Ask one reader, and put its split behind the others."""
        answer = split.reader.next_batch(self._max_rows)
        self._open.remove(split)
        if answer is None:
            split.reader.close()
            return None
        self._open.append(split)
        if isinstance(answer, Wait):
            split.asleep_until = answer.until
            return None
        return Batch(answer) if answer.num_rows else None

    def close(self) -> None:
        """Close the readers that are open."""
        while self._open:
            self._open.popleft().reader.close()


@dataclass(slots=True, eq=False)
class _OpenSplit:
    """A reader, and when (seconds, monotonic) to ask it again."""

    reader: SourceReader
    asleep_until: float = -math.inf
