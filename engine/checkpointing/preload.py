"""Keyed state that a process takes in before its subtask is restored, so that only what changed since is read then.

Checkpoint stores fill and use it (`JobStore.preload`). It holds nothing but what immutable files say, and which those
were: whether it is of any use for a later checkpoint of the same attempt, which builds on it whether it counted or not,
is seen by comparing the files of both. So it can be late, but never wrong.

What is in the files of a state, oldest first, and then changed by further ones, is the state of all of them. Where a
checkpoint writer has merged some of the files behind the base, the merged one has each row that they changed
(`savepoints/history.py`): to change the state by it again brings it to the same end. A new base begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.state.snapshot import HeldState, Redistribution

Whose: TypeAlias = tuple[str, int, int, int]
"""URL of the folder, and the number, parallelism and max parallelism of the subtask that is restored."""
StateKey: TypeAlias = tuple[str, int, int]
"""A state of an operator in an old subtask: its name, the number of that subtask, and how many there were."""


@dataclass(frozen=True, slots=True)
class TakenState:
    """The state of an operator as far as it is one subtask's.

    Args:
        tables: by old subtask, the files that it was made of.
        rows: what they say, of the key groups that are the subtask's, without what is dead or deleted.
        held: the same as the operator holds it, in the place of the rows; it changes.
    """

    tables: Mapping[StateKey, TableHandle]
    rows: Mapping[StateKey, pa.Table]
    held: HeldState | None = None


@dataclass(slots=True)
class Preloaded:
    """What a process has taken in for a subtask.

    Args:
        whose: that subtask.
        checkpoint, attempt: of which checkpoint it is, and the execution of the job that took it.
        operators: by uid.
    """

    whose: Whose
    checkpoint: int
    attempt: int
    operators: dict[str, TakenState] = field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        """Whether it is there as the operators will have it, and not as rows that they make their own of."""
        return bool(self.operators) and all(taken.held is not None for taken in self.operators.values())

    def usable(self, whose: Whose, now: CompletedCheckpoint) -> Mapping[str, TakenState]:
        """What of it `now` may have come from, for a subtask; nothing, where that is another one or another job."""
        if self.whose != whose or self.checkpoint > now.checkpoint:
            return {}
        # What another attempt has abandoned is not in those that came behind it.
        return self.operators if self.attempt == now.attempt else {}


def keyed_tables(old: Sequence[tuple[SubtaskHandle, OperatorHandle]]) -> dict[StateKey, TableHandle]:
    """The keyed states of an operator whose files can be taken in: not those that a backend wrote itself."""
    return {
        (name, handle.subtask, handle.parallelism): table
        for handle, operator in old
        for name, table in operator.tables.items()
        if table.redistribution is Redistribution.KEYED
    }


def changes_since(before: TableHandle, now: TableHandle) -> Sequence[SegmentHandle] | None:
    """The files that change what `before` says into what `now` does; None: that begins anew.

    Example:
        >>> base, one, both = (SegmentHandle(FileHandle(name, 1, name), 1) for name in ("base", "one", "both"))
        >>> table = lambda *segments: TableHandle(Redistribution.KEYED, ("key",), segments)
        >>> [segment.file.path for segment in changes_since(table(base, one), table(base, both))]
        ['both']
        >>> changes_since(table(base, one), table(both)) is None
        True
    """
    if not before.segments or before.segments[:1] != now.segments[:1] or before.identity != now.identity:
        return None
    same = 0
    for one, other in zip(before.segments, now.segments, strict=False):
        if one != other:
            break
        same += 1
    # Without columns that tell rows apart nothing can be changed.
    return now.segments[same:] if now.identity or same == len(before.segments) == len(now.segments) else None
