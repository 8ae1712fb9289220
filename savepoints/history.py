"""What a checkpoint writer knows of one state: its segments at each checkpoint, and what was captured since the base.

The writer keeps one for each table. Nothing captured is given up before a checkpoint that holds it is complete for
sure, so a failed upload or an aborted checkpoint loses nothing. Pure: tables in, tables out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from penstock.engine.checkpointing.handles import TableHandle
from penstock.engine.errors import CheckpointError
from penstock.engine.state.capture import Expiry, TableCapture, standing_rows
from penstock.engine.state.snapshot import Redistribution
from penstock.savepoints.compaction import merge_changes

_KEPT_APART: Final = 16
"""Captures that are kept apart; older ones are merged: more than are ever under way at once."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What one capture, or several merged, told of the state.

    Args:
        checkpoint: of the (last) capture.
        rows: None if the state was empty.
        is_changes: whether the rows change what stood before; otherwise they are all there are.
    """

    checkpoint: int
    rows: pa.Table | None
    is_changes: bool


@dataclass(frozen=True, slots=True)
class Delta:
    """What a checkpoint has to write.

    Args:
        table: the state as it stands, of whose segments those of the base remain; the new rows come behind them.
        died: which rows of those segments were dead in the base; None where the expiry of `table` says it.
        rows: the new rows, None for none: all there are where no segments remain, otherwise changes of those.
    """

    table: TableHandle
    rows: pa.Table | None
    died: Expiry | None = None


class TableHistory:
    """One state of one operator in one subtask.

    Args:
        stood: the state at checkpoints that are known, by their numbers; None: empty.
    """

    def __init__(self, stood: Mapping[int, TableHandle | None]) -> None:
        self._stood = dict(stood)
        self._captured: list[Captured] = []
        self._lost: str | None = None
        known = [table for table in self._stood.values() if table is not None]
        self._table = replace(known[-1], segments=()) if known else TableHandle(Redistribution.KEYED, (), ())

    def add(self, checkpoint: int, capture: TableCapture, rows: pa.Table) -> None:
        """Take what a capture gives; `rows` are those of `capture`.

        Raises:
            CheckpointError: changes that do not say what tells rows apart.
        """
        identity = capture.identity
        if capture.is_changes:
            identity = identity or self._table.identity
            if not identity:
                raise CheckpointError("an operator gave changes of a state, and no columns that tell its rows apart")
            if self._captured and goes_back(self._table.expiry, capture.expiry):
                self._captured = [self._merge(self._captured)]
        else:
            self._start_again()
        self._table = TableHandle(capture.redistribution, identity, (), capture.expiry)
        self._captured.append(Captured(checkpoint, rows, capture.is_changes))
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
        self._stood = {checkpoint: table for checkpoint, table in self._stood.items() if checkpoint >= base}
        self._captured = [captured for captured in self._captured if captured.checkpoint > base]
        merged = self._merge(self._captured)
        if not merged.is_changes:
            return Delta(self._table, merged.rows)
        if base not in self._stood:
            raise CheckpointError(f"changes build on checkpoint {base}, which this subtask has not written")
        stood = self._stood[base]
        if stood is None:
            assert merged.rows is not None, "changes have rows"
            return Delta(self._table, standing_rows([merged.rows], self._table.identity, self._table.expiry))
        died = stood.expiry if goes_back(stood.expiry, self._table.expiry) else None
        return Delta(replace(self._table, segments=stood.segments), merged.rows, died)

    def stood_at(self, checkpoint: int) -> TableHandle | None:
        """The state at a checkpoint that is known; None: empty, or not known."""
        return self._stood.get(checkpoint)

    def record(self, checkpoint: int, table: TableHandle | None) -> None:
        """The checkpoint's files are written: the state stands there as `table` says (None: empty)."""
        self._stood[checkpoint] = table

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of the state, so that it need not be remembered."""
        gone = self._lost is None and all(captured.rows is None for captured in self._captured)
        return gone and not any(self._stood.values())

    def _start_again(self) -> None:
        self._captured.clear()
        self._lost = None

    def _merge(self, captured: Sequence[Captured]) -> Captured:
        checkpoint, is_changes = captured[-1].checkpoint, captured[0].is_changes
        parts = [one.rows for one in captured if one.rows is not None]
        if not parts:
            return Captured(checkpoint, None, False)
        merge = merge_changes if is_changes else standing_rows
        return Captured(checkpoint, merge(parts, self._table.identity, self._table.expiry), is_changes)


def goes_back(before: Expiry | None, now: Expiry | None) -> bool:
    """Whether rows that have died would come back: a restored operator may have less event time than it had."""
    return before is not None and (now is None or now.column != before.column or now.below < before.below)
