"""The head of a source task: drives the readers of the splits that belong to one subtask.

Gives the loop batches, waits, and at the end of bounded input the last watermark and the end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.connectors import ConnectorContext, Source, SourceReader, Split, SplitOrder, Wait
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Element, EndOfInput, Watermark

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
    """

    def __init__(
        self, source: Source, splits: Sequence[Split], context: ConnectorContext, max_rows: int, max_bytes: int
    ) -> None:
        self._source = source
        self._pending = deque(splits)
        self._context = context
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._row_bytes: float = _ASSUMED_ROW_BYTES
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
        answer = split.reader.next_batch(self._rows_to_ask_for())
        self._open.remove(split)
        if answer is None:
            split.reader.close()
            return None
        self._open.append(split)
        if isinstance(answer, Wait):
            split.asleep_until = answer.until
            return None
        if not answer.num_rows:
            return None
        self._row_bytes = _row_bytes(answer)
        return Batch(answer)

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


@dataclass(slots=True, eq=False)
class _OpenSplit:
    """A reader, and when (seconds, monotonic) to ask it again."""

    reader: SourceReader
    asleep_until: float = -math.inf
