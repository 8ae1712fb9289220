"""What a checkpoint writer knows of one state: its segments at each checkpoint, and what was captured since the base.

The writer keeps one for each table. Nothing captured is given up before a checkpoint that holds it is complete for
sure, so a failed upload or an aborted checkpoint loses nothing. Pure: tables in, tables out.

Segments are merged so that recovery reads few and writing costs what has changed (`first_to_merge`). The whole table is
written again when four times as many rows have changed as it has: a restore reads five times the state at the most.
Smaller changes are merged with each other, 16 of a size, unless that makes half a table: that would be most of a
checkpoint's work. So each row is written again a logarithm of times, and segments are some 15 of each size, and never
more than 96.

Source: O'Neil et al., "The Log-Structured Merge-Tree", 1996 (levels of geometric size).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.checkpointing.handles import FileHandle, TableHandle
from penstock.engine.errors import CheckpointError
from penstock.engine.state.capture import DELETED, Expiry, TableCapture
from penstock.engine.state.changes import CHANGES_OF_BASE
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution, by_group

_KEPT_APART: Final = 16
"""Captures that are kept apart; older ones are merged: more than are ever under way at once."""
_FAN_IN: Final = 16
"""How many segments of one size become one of the next."""
_SMALLEST: Final = 1024
"""Segments of fewer rows cost as much to read as those of so many."""
_MOST: Final = 96
"""Segments that a table never exceeds, whatever their sizes."""
_GONE: Final = "__gone"


@dataclass(frozen=True, slots=True)
class Captured:
    """What one capture, or several merged, told of the state.

    Args:
        checkpoint: of the (last) capture.
        rows: None if the state was empty.
        is_changes: whether the rows change what stood before; otherwise they are all there are.
        keys: as in `TableCapture`.
    """

    checkpoint: int
    rows: pa.Table | None
    is_changes: bool
    keys: object | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """What a checkpoint has to write.

    Args:
        table: the state as it stands, of whose segments those of the base remain; the new rows come behind them.
        died: which rows of those segments were dead in the base; None where the expiry of `table` says it.
        rows: the new rows, None for none: all there are where no segments remain, otherwise changes of those.
        keys: as in `TableCapture`, of `rows`.
    """

    table: TableHandle
    rows: pa.Table | None
    died: Expiry | None = None
    keys: object | None = None


class TableHistory:
    """One state of one operator in one subtask.

    Args:
        stood: the state at checkpoints that are known, by their numbers; None: empty.

    Attributes:
        stood: the same; whoever has written the files of a checkpoint adds it.
        keys: those of the rows that were written last (as in `TableCapture`), and the file that has them alone.
    """

    def __init__(self, stood: Mapping[int, TableHandle | None]) -> None:
        self.stood = dict(stood)
        self.keys: tuple[object | None, FileHandle | None] = None, None
        self._captured: list[Captured] = []
        self._lost: str | None = None
        known = [table for table in self.stood.values() if table is not None]
        self._table = replace(known[-1], segments=()) if known else TableHandle(Redistribution.KEYED, (), ())

    def add(self, checkpoint: int, capture: TableCapture, rows: pa.Table) -> None:
        """Take what a capture gives; `rows` are those of `capture`.

        Raises:
            CheckpointError: changes that do not say what tells rows apart.
        """
        identity = capture.identity or (self._table.identity if capture.is_changes else ())
        if capture.is_changes:
            if not identity:
                raise CheckpointError("an operator gave changes of a state, and no columns that tell its rows apart")
            if self._captured and goes_back(self._table.expiry, capture.expiry):
                self._captured = [self._merge(self._captured)]
        else:
            self._start_again()
        self._table = TableHandle(capture.redistribution, identity, (), capture.expiry)
        self._captured.append(Captured(checkpoint, rows, capture.is_changes, capture.keys))
        while len(self._captured) > _KEPT_APART:
            self._captured[:2] = [self._merge(self._captured[:2])]

    def add_empty(self, checkpoint: int) -> None:
        """Take that the capture had no such state."""
        self._start_again()
        self._captured.append(Captured(checkpoint, None, False))

    def add_lost(self, reason: str) -> None:
        """Take that a capture could not be read: changes behind it are worth nothing."""
        self._captured.clear()
        self._lost = reason

    def delta(self, base: int) -> Delta:
        """What a checkpoint that builds on checkpoint `base` has to write; what is older than that is forgotten.

        Raises:
            CheckpointError: a capture that it needs could not be read, or is not known.
        """
        if self._lost is not None:
            raise CheckpointError(f"changes that an earlier checkpoint captured could not be read: {self._lost}")
        self.stood = {checkpoint: table for checkpoint, table in self.stood.items() if checkpoint >= base}
        self._captured = [captured for captured in self._captured if captured.checkpoint > base]
        merged = self._merge(self._captured)
        if not merged.is_changes:
            return Delta(self._table, merged.rows, keys=merged.keys)
        if base not in self.stood:
            raise CheckpointError(f"changes build on checkpoint {base}, which this subtask has not written")
        stood = self.stood[base]
        if stood is None:
            assert merged.rows is not None, "changes have rows"
            return Delta(self._table, standing_rows([merged.rows], self._table.identity, self._table.expiry))
        died = stood.expiry if goes_back(stood.expiry, self._table.expiry) else None
        return Delta(replace(self._table, segments=stood.segments), merged.rows, died)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of the state, so that it need not be remembered."""
        gone = self._lost is None and all(captured.rows is None for captured in self._captured)
        return gone and not any(self.stood.values())

    def _start_again(self) -> None:
        self._captured.clear()
        self._lost = None

    def _merge(self, captured: Sequence[Captured]) -> Captured:
        checkpoint, is_changes = captured[-1].checkpoint, captured[0].is_changes
        parts = [one.rows for one in captured if one.rows is not None]
        if not parts:
            return Captured(checkpoint, None, False)
        merge = merge_changes if is_changes else standing_rows
        keys = captured[0].keys if len(captured) == 1 else None
        return Captured(checkpoint, merge(parts, self._table.identity, self._table.expiry), is_changes, keys)


def goes_back(before: Expiry | None, now: Expiry | None) -> bool:
    """Whether rows that have died would come back: a restored operator may have less event time than it had."""
    return before is not None and (now is None or now.column != before.column or now.below < before.below)


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
        rows, first = together, start


def _level(rows: int) -> int:
    level, size = 0, _SMALLEST
    while rows > size:
        level, size = level + 1, size * _FAN_IN
    return level


def merge_rows(parts: Sequence[pa.Table], identity: Sequence[str], expiry: Expiry | None = None) -> pa.Table:
    """As `standing_rows`, sorted by `KEY_GROUP` where there is one: as restores and savepoints need them."""
    merged = standing_rows(parts, identity, expiry)
    return merged if KEY_GROUP not in merged.column_names else by_group(merged)


def standing_rows(parts: Sequence[pa.Table], identity: Sequence[str], expiry: Expiry | None = None) -> pa.Table:
    """The rows that stand after all parts, oldest first: of those with the same identity the last, unless deleted.

    Args:
        parts: complete rows first, then changes; one that lacks `DELETED` deletes nothing.
        identity: the columns that tell rows apart; nulls are equal. None of them: there are no changes, and a column
            named `DELETED` is one of the rows' own.
        expiry: rows to leave out.

    Returns:
        rows without `DELETED`, in the order of their last change.
    """
    deletes = bool(identity) and any(DELETED in part.column_names for part in parts)
    if deletes:
        parts = [part if DELETED in part.column_names else _none_marked(part, DELETED) for part in parts]
    merged = parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="default")
    if len(parts) > 1 and identity:
        merged = merged.take(pa.array(_last_of_each(merged, identity)))
    if deletes:
        merged = merged.filter(pc.invert(merged.column(DELETED))).drop_columns(DELETED)
    if expiry is not None and expiry.column in merged.column_names:
        merged = merged.filter(pc.greater_equal(merged.column(expiry.column), expiry.below))
    return merged


def _none_marked(part: pa.Table, name: str) -> pa.Table:
    """The part with a column `name` that is true of no row."""
    return part.append_column(name, pa.array(np.zeros(part.num_rows, np.bool_)))


def _last_of_each(table: pa.Table, identity: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The rows that no later row with the same identity follows, ascending."""
    numbered = table.select(list(identity)).append_column("__row", pa.array(np.arange(table.num_rows)))
    last = numbered.group_by(list(identity), use_threads=False).aggregate([("__row", "max")])
    rows: np.ndarray[tuple[int], np.dtype[np.int64]] = np.sort(last.column("__row_max").to_numpy())
    return rows


def merge_changes(parts: Sequence[pa.Table], identity: Sequence[str], expiry: Expiry | None = None) -> pa.Table:
    """One part that changes older rows as all parts do, one after another: what is deleted stays in it as deleted.

    Args:
        parts: changes, oldest first; one that lacks `DELETED` deletes nothing.
        identity, expiry: as in `standing_rows`.
    """
    named = [_renamed(part, DELETED, _GONE) for part in parts]
    marked = [part if _GONE in part.column_names else _none_marked(part, _GONE) for part in named]
    merged = _renamed(standing_rows(marked, identity), _GONE, DELETED)
    if expiry is None or expiry.column not in merged.column_names:
        return merged
    alive = pc.fill_null(pc.greater_equal(merged.column(expiry.column), expiry.below), False)
    if expiry.column in identity:
        return merged.filter(alive)
    # A row that has died still stands before an older one, which may live.
    gone = pc.or_(merged.column(DELETED), pc.invert(alive))
    return merged.set_column(merged.column_names.index(DELETED), DELETED, gone)


def _renamed(part: pa.Table, name: str, other: str) -> pa.Table:
    return part.rename_columns([other if column == name else column for column in part.column_names])
