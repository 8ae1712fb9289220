"""The head of a source task: drives the readers of the splits that belong to one subtask.

Gives the loop batches, waits, and at the end of bounded input the last watermark and the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

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
        self._open: deque[SourceReader] = deque()
        self._last_words: deque[Element] = deque([Watermark(MAX_TIMESTAMP), EndOfInput()])

    def next(self) -> tuple[int, Element] | Wait | None:
        """The next batch or control element, `Wait` where no reader has anything yet, None behind the end."""
        waits: list[float] = []
        while True:
            while self._pending and len(self._open) < self._most_open:
                self._open.append(self._source.open(self._pending.popleft(), self._context))
            if not self._open:
                return (0, self._last_words.popleft()) if self._last_words else None
            if len(waits) == len(self._open):
                return Wait(min(waits))
            reader = self._open[0]
            match reader.next_batch(self._max_rows):
                case None:
                    self._open.popleft().close()
                case Wait(until):
                    waits.append(until)
                    self._open.rotate(-1)
                case data:
                    self._open.rotate(-1)
                    if data.num_rows:
                        return 0, Batch(data)
                    # This reader got on and may have rows next, so nothing waits as long as those counted so far.
                    waits.clear()

    def close(self) -> None:
        """Close the readers that are open."""
        while self._open:
            self._open.popleft().close()
