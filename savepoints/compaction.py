"""How the segments of one table of state are merged, so that recovery reads few and writing costs what has changed.

The checkpoint writer calls it. Pure. The whole table is written again when four times as many rows have changed as it
has: a restore reads five times the state at the most. Smaller changes are merged with each other, 16 of a size, unless
that makes half a table: that would be most of a checkpoint's work. So each row is written again a logarithm of times,
and segments are some 15 of each size, and never more than 96.

Source: O'Neil et al., "The Log-Structured Merge-Tree", 1996 (levels of geometric size).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.state.capture import DELETED, Expiry, standing_rows
from penstock.engine.state.changes import CHANGES_OF_BASE

_FAN_IN: Final = 16
"""How many segments of one size become one of the next."""
_SMALLEST: Final = 1024
"""Segments of fewer rows cost as much to read as those of so many."""
_MOST: Final = 96
"""Segments that a table never exceeds, whatever their sizes."""
_GONE: Final = "__gone"


def first_to_merge(segments: Sequence[int], new: int) -> int:
    """Which of the segments, from the first named to the last, are merged with the new one.

    Args:
        segments: rows of each, oldest first; the first is the base, which holds all rows that stood then.
        new: rows of the changes that come now.

    Returns:
        an index; 0 makes a new base of everything, `len(segments)` merges nothing.

    Example:
        >>> first_to_merge([100_000, *[900] * 15], 600)
        1
    """
    if not segments:
        return 0
    base = max(segments[0], _SMALLEST)
    if sum(segments[1:]) + new > CHANGES_OF_BASE * base or len(segments) >= _MOST:
        return 0
    first, rows = len(segments), new
    while True:
        start = first
        while start > 1 and _level(segments[start - 1]) <= _level(rows):
            start -= 1
        together = rows + sum(segments[start:first])
        if len(segments[start:first]) + 1 < _FAN_IN or together > base // 2:
            return first
        rows = together
        first = start


def _level(rows: int) -> int:
    level, size = 0, _SMALLEST
    while rows > size:
        level, size = level + 1, size * _FAN_IN
    return level


def merge_changes(parts: Sequence[pa.Table], identity: Sequence[str], expiry: Expiry | None = None) -> pa.Table:
    """One part that changes older rows as all parts do, one after another: what is deleted stays in it as deleted.

    Args:
        parts: changes, oldest first; one that lacks `DELETED` deletes nothing.
        identity, expiry: as in `standing_rows`.
    """
    named = [_renamed(part, DELETED, _GONE) for part in parts]
    marked = [part if _GONE in part.column_names else part.append_column(_GONE, _none(part)) for part in named]
    merged = _renamed(standing_rows(marked, identity), _GONE, DELETED)
    if expiry is None or expiry.column not in merged.column_names:
        return merged
    alive = pc.fill_null(pc.greater_equal(merged.column(expiry.column), expiry.below), False)
    if expiry.column in identity:
        return merged.filter(alive)
    # A row that has died still stands before an older one, which may live.
    gone = pc.or_(merged.column(DELETED), pc.invert(alive))
    return merged.set_column(merged.column_names.index(DELETED), DELETED, gone)


def _none(part: pa.Table) -> pa.Array:
    return pa.array(np.zeros(part.num_rows, np.bool_))


def _renamed(part: pa.Table, name: str, other: str) -> pa.Table:
    return part.rename_columns([other if column == name else column for column in part.column_names])
