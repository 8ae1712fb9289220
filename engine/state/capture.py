"""The state of an operator at a barrier, held by reference until a background thread makes tables of it.

Operators give captures, the task hands them to the runtime, and the checkpoint writer turns them into files. A capture
may hold only what has changed since the one before: rows that replace others by their identity.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP, SnapshotKind
from penstock.engine.state.snapshot import Redistribution, StateTable

FEW_ENTRIES: Final = 10_000
"""So many values, items of lists and hundreds of characters take a millisecond or so to make a table of."""
DELETED: Final = "__deleted"
"""Boolean column of changes, and of them alone: the row with this identity is gone."""


class CaptureScope(enum.Enum):
    """How much of its state an operator gives."""

    CHANGES = "changes"
    """What has changed since the last capture that was no `COMPLETE`; an operator may always give all of it."""
    BASE = "base"
    """All of it; the changes of later captures count from here."""
    SWITCH = "switch"
    """`CHANGES` for a live rescale, in which rows wait for the capture: however many they are, as those who take over
    have what was there before."""
    COMPLETE = "complete"
    """All of it, for a savepoint: what later captures count from stays as it was."""

    @property
    def takes_changes(self) -> bool:
        """Whether what has changed is enough."""
        return self in (CaptureScope.CHANGES, CaptureScope.SWITCH)


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """What the task asks its operators for at a barrier.

    Args:
        checkpoint: number of the checkpoint.
        scope: how much.
        kind: for what.
    """

    checkpoint: int
    scope: CaptureScope
    kind: SnapshotKind = SnapshotKind.CHECKPOINT


@dataclass(frozen=True, slots=True)
class Expiry:
    """Rows of a table whose int64 column `column` is below `below` are dead, however they came into it."""

    column: str
    below: int


@dataclass(frozen=True, slots=True)
class TableCapture:
    """One state of an operator at a barrier.

    Args:
        redistribution: how it is shared out after a restore.
        rows: makes the table; called once, from another thread than the operator's, while that one runs. Those of a
            keyed state begin with `KEY_GROUP`, and come in any order: a checkpoint would pay for the sort, and whoever
            reads the rows puts them in order as it needs them. Changes end with `DELETED`.
        identity: the columns that tell its rows apart, where captures may be changes; empty where they never are.
        is_changes: whether the rows replace those with the same identity; otherwise they are all there are.
        expiry: which older rows are dead.
        exact: it was taken for some keys (`StateRequest`), and holds copies of their rows and of no others, few enough
            (`FEW_ENTRIES`) for the operator's thread to make the table; `KEY_GROUP` may be missing.
        keys: the same object in captures whose rows have the same `KEY_GROUP` and identity, in the same order, so that
            a checkpoint can refer to those of one before; it holds none of them. None: not known. Only where the rows
            are all that there are, and none of them is dead.
    """

    redistribution: Redistribution
    rows: Callable[[], pa.Table]
    identity: tuple[str, ...] = ()
    is_changes: bool = False
    expiry: Expiry | None = None
    exact: bool = False
    keys: object | None = None


class NativeCapture(Protocol):
    """A backend's own immutable files (RocksDB's SSTs), of which most stay the same from one capture to the next."""

    @property
    def format(self) -> str:
        """Names the reader of the files, such as `"rocksdb"`."""
        ...

    @property
    def files(self) -> Mapping[str, Path]:
        """The files by the names that the reader expects. A name of an immutable file always has the same content."""
        ...

    @property
    def immutable(self) -> frozenset[str]:
        """The names of those that never change, and so need not be written again."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the reader needs to know beside the files."""
        ...

    def release(self) -> None:
        """The files have been written, or are not wanted; they may go."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorCapture:
    """All state of one operator in one subtask at a barrier.

    Args:
        tables: by the name of the state. A state that is missing is empty.
        watermark: the event time (int64 ms) that the operator had come to.
        native: files that hold keyed state beside the tables.
    """

    tables: Mapping[str, TableCapture] = field(default_factory=dict)
    watermark: int = MIN_TIMESTAMP
    native: NativeCapture | None = None


def complete_table(table: StateTable) -> TableCapture:
    """A capture of a table that is there already."""
    return TableCapture(table.redistribution, lambda: table.data)
