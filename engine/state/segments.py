"""Grouped accumulators as immutable segments: append is cheap, and merging is paid for by the rows that come.

Operators keep accumulators that NumPy cannot hold in these. The compacted base has one row a group; partial segments
are merged into it when they hold twice its rows, so each row is merged a bounded number of times. Many small segments
are merged with each other before, since a read looks through all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

_MIN_ROWS: Final = 32_768
"""Fewer waiting rows than this are not worth a merge with the base; larger segments are merged with nothing else."""
_FAN_IN: Final = 16
"""How many small segments, made of equally many others, become one."""


class SegmentedTable:
    """Segments of one table of accumulators.

    Args:
        combine: merges the rows of a table to one row a group (associative).
    """

    def __init__(self, combine: Callable[[pa.Table], pa.Table]) -> None:
        self._combine = combine
        self._base: pa.Table | None = None
        self._segments: list[pa.Table] = []
        self._levels: list[int] = []
        """Of the segments: 0 for what was appended, one more for what is merged of `_FAN_IN` of a level."""
        self._waiting_rows = 0

    @property
    def rows(self) -> int:
        """Rows held, before merging."""
        return self._waiting_rows + (self._base.num_rows if self._base is not None else 0)

    @property
    def parts(self) -> list[pa.Table]:
        """What is held, as immutable tables in order of arrival."""
        return self._segments if self._base is None else [self._base, *self._segments]

    def append(self, segment: pa.Table) -> None:
        """Add partial accumulators."""
        self._segments.append(segment)
        self._levels.append(0)
        self._waiting_rows += segment.num_rows
        self._merge_small()
        base_rows = self._base.num_rows if self._base is not None else 0
        if self._waiting_rows > max(2 * base_rows, _MIN_ROWS):
            self.compact()

    def _merge_small(self) -> None:
        while len(self._levels) >= _FAN_IN and self._levels[-_FAN_IN] == self._levels[-1]:
            newest = self._segments[-_FAN_IN:]
            rows = sum(segment.num_rows for segment in newest)
            if max(segment.num_rows for segment in newest) > _MIN_ROWS:
                return
            merged = self._combine(concat_tables(newest))
            self._waiting_rows += merged.num_rows - rows
            self._segments[-_FAN_IN:] = [merged]
            self._levels[-_FAN_IN:] = [self._levels[-1] + 1]

    def compact(self) -> pa.Table:
        """Merge everything and return it: one row a group."""
        if self._segments:
            parts = self.parts
            self._base = self._combine(concat_tables(parts)) if len(parts) > 1 else parts[0]
            self._segments, self._levels, self._waiting_rows = [], [], 0
        assert self._base is not None, "an empty segmented table is never read"
        return self._base

    def replace(self, table: pa.Table) -> None:
        """Hold exactly the rows of `table`, one a group."""
        self._base, self._segments, self._levels, self._waiting_rows = table, [], [], 0


def concat_tables(tables: list[pa.Table]) -> pa.Table:
    """The rows of all tables; a column of nulls takes the type that others give it."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
