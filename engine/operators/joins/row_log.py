"""Rows in order of arrival, each found by its position, in few record batches.

The session joins, the lookup cache and the sort keep their rows here. Appending copies each row a bounded number of
times, and taking rows costs in proportion to the rows that are taken, however many are held.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.elements import concat_record_batches
from penstock.engine.operators.join_columns import Int64s

PART_ROWS: Final = 65_536
"""Parts are not put together to more rows than this."""
PART_BYTES: Final = 1 << 28
"""Nor to more bytes: text columns of one record batch have offsets of 32 bits."""


class RowLog:
    """Rows of one stream, numbered from 0 as they came.

    Example:
        >>> log = RowLog()
        >>> log.append(pa.record_batch({"n": [5, 6, 7]})), log.append(pa.record_batch({"n": [8]}))
        (0, 3)
        >>> log.take(np.array([1, 3])).column("n").to_pylist()
        [6, 8]
    """

    def __init__(self) -> None:
        self.parts: list[pa.RecordBatch] = []
        """All rows, in order."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(int(part.nbytes) for part in self.parts)

    def append(self, rows: pa.RecordBatch) -> int:
        """Add rows behind all others; returns the position of the first."""
        first, self._count = self._count, self._count + rows.num_rows
        if rows.num_rows:
            self.parts.append(rows)
        while len(self.parts) > 1:
            before, last = self.parts[-2:]
            together = before.num_rows + last.num_rows
            if before.num_rows >= 2 * last.num_rows or together > PART_ROWS or before.nbytes + last.nbytes > PART_BYTES:
                break
            self.parts[-2:] = [concat_record_batches([before, last])]
        return first

    def copy(self) -> RowLog:
        """A log of its own with the same rows, by reference."""
        log = RowLog()
        log.parts, log._count = [*self.parts], self._count
        return log

    def take(self, places: Int64s) -> pa.RecordBatch:
        """A copy of the rows at `places`, which ascend; at least one."""
        return concat_record_batches(self._taken(places))

    def keep(self, places: Int64s) -> None:
        """Forget all rows but those at `places`, which ascend; they are numbered anew, from 0."""
        self.parts, self._count = self._taken(places), len(places)

    def _taken(self, places: Int64s) -> list[pa.RecordBatch]:
        offsets = np.cumsum([0, *(part.num_rows for part in self.parts)])
        bounds = np.searchsorted(places, offsets)
        touched = np.flatnonzero(bounds[1:] > bounds[:-1]).tolist()
        return [self.parts[i].take(pa.array(places[bounds[i] : bounds[i + 1]] - offsets[i])) for i in touched]


def positions(begins: Int64s, lengths: Int64s) -> Int64s:
    """The positions of ranges, one behind the other.

    Example:
        >>> positions(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    places: Int64s = np.arange(lengths.sum()) + np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    return places
