"""Where the barriers of a checkpoint meet: decides, for a task with several channels, when its snapshot is due.

The input gate tells it what barriers and ends of input come, and asks which channels are blocked and whose rows an
unaligned checkpoint still has to record. Barriers of one channel come in the order of their checkpoints, and snapshots
are due in that order. Channels that have ended hold nothing back.

Source: Flink's documentation, "Checkpointing under backpressure", and the states of its barrier handler.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.elements import Barrier, Batch, CheckpointMode

_REMEMBERED: Final = 1000
"""A barrier that is older than the newest by this much is stale, whatever became of its checkpoint."""


class Phase(enum.Enum):
    """How far a checkpoint is at a task.

    ALIGNING -> OVERTAKING -> (gone)        unaligned
    ALIGNING -> (gone)                      aligned, at least once; aborted
    """

    ALIGNING = "aligning"
    """Barriers come in; in exactly-once modes, a channel whose barrier has come is blocked."""
    OVERTAKING = "overtaking"
    """The snapshot is made; rows that come before the barriers that are still missing belong to it."""


@dataclass(slots=True, eq=False)
class _Alignment:
    """One checkpoint: its barrier, the channels at whose barrier the task is, and those whose rows are recorded."""

    barrier: Barrier
    since: float
    phase: Phase = Phase.ALIGNING
    arrived: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)
    overtaken: dict[int, list[Batch]] = field(default_factory=dict)

    @property
    def deadline(self) -> float:
        """When (seconds, monotonic) the alignment has taken too long."""
        timeout = self.barrier.alignment_timeout_ms
        if self.barrier.mode is not CheckpointMode.ALIGNED or timeout is None:
            return math.inf
        return self.since + timeout / 1000


class BarrierAligner:
    """The checkpoints that are under way at one task.

    Args:
        channels: those whose barriers count.
        overtakable: those on which a barrier may overtake rows; on the others it keeps its place in every mode.
    """

    def __init__(self, channels: Iterable[int], overtakable: Iterable[int] = ()) -> None:
        self._open = set(channels)
        self._overtakable = frozenset(overtakable)
        self._alignments: dict[int, _Alignment] = {}
        self._complete: dict[int, dict[int, list[Batch]]] = {}
        self._over: set[int] = set()
        self._passed: dict[int, int] = {}
        self._newest = self._begun = 0
        self.blocked: frozenset[int] = frozenset()
        self.deadline = math.inf
        self.alignment_seconds = 0.0

    def on_announced(self, channel: int, barrier: Barrier, now: float) -> list[Barrier]:
        """A barrier has come to the end of a channel's inbox. Returns the barriers whose snapshot is due now."""
        if not self._give_up_if_late(barrier.checkpoint):
            self._alignment(barrier, now)
        return self._due(now)

    def on_barrier(self, channel: int, barrier: Barrier, now: float) -> list[Barrier]:
        """The task has come to a barrier in a channel. Returns the barriers whose snapshot is due now."""
        is_over = self._give_up_if_late(barrier.checkpoint)
        self._passed[channel] = barrier.checkpoint
        self._give_up_older(channel, barrier)
        if is_over:
            return self._due(now)
        alignment = self._alignment(barrier, now)
        if not alignment.arrived and barrier.mode is not CheckpointMode.UNALIGNED and alignment.deadline == math.inf:
            alignment.since = now
        if alignment.phase is Phase.OVERTAKING:
            self.met(channel, barrier.checkpoint)
        alignment.arrived.add(channel)
        return self._due(now)

    def on_end(self, channel: int, now: float) -> list[Barrier]:
        """The task has come to the end of a channel. Returns the barriers whose snapshot is due now."""
        self._open.discard(channel)
        for checkpoint in list(self._alignments):
            self.met(channel, checkpoint)
        return self._due(now) if self._open else []

    def on_time(self, now: float) -> list[Barrier]:
        """Time has come to `deadline`: what has waited too long becomes unaligned."""
        for alignment in self._alignments.values():
            if alignment.phase is Phase.ALIGNING and alignment.deadline <= now:
                alignment.barrier = replace(alignment.barrier, mode=CheckpointMode.UNALIGNED)
        return self._due(now)

    def abort(self, checkpoint: int, now: float) -> list[Barrier]:
        """The checkpoint is expected no more, and its barriers are stale. Returns those whose snapshot is due now."""
        alignment = self._alignments.get(checkpoint)
        if alignment is not None and alignment.phase is Phase.OVERTAKING:
            self._finish(alignment)
        self._forget(checkpoint)
        return self._due(now) if self._open else []

    def replace(self, retired: Iterable[int], added: Iterable[int], overtakable: Iterable[int]) -> None:
        """Await no barriers of some channels any more, but those of others.

        Args:
            retired: channels that have brought the barrier of every checkpoint that is under way.
            added: the others.
            overtakable: those of them on which a barrier may overtake rows.
        """
        for channel in retired:
            self._open.discard(channel)
            for checkpoint in list(self._alignments):
                self.met(channel, checkpoint)
        self._open.update(added)
        self._overtakable |= frozenset(overtakable)

    def is_over(self, checkpoint: int) -> bool:
        """Whether the checkpoint has had its snapshot here, or will never have it."""
        return checkpoint in self._over or checkpoint <= self._newest - _REMEMBERED

    def awaiting(self, channel: int) -> list[int]:
        """The checkpoints that record the rows of `channel` up to their barrier."""
        return [number for number, alignment in self._alignments.items() if channel in alignment.awaited]

    def awaited(self, checkpoint: int) -> list[int]:
        """The channels whose rows the checkpoint records up to its barrier."""
        alignment = self._alignments.get(checkpoint)
        return [] if alignment is None else sorted(alignment.awaited)

    def record(self, channel: int, checkpoint: int, rows: Iterable[Batch]) -> None:
        """Rows that the barrier of `checkpoint` has overtaken on `channel`."""
        self._alignments[checkpoint].overtaken.setdefault(channel, []).extend(rows)

    def met(self, channel: int, checkpoint: int) -> None:
        """The barrier that the checkpoint awaits on `channel`, or the channel's end, has come."""
        alignment = self._alignments.get(checkpoint)
        if alignment is None or channel not in alignment.awaited:
            return
        alignment.awaited.discard(channel)
        if not alignment.awaited:
            self._finish(alignment)

    def take_overtaken(self, checkpoint: int) -> dict[int, list[Batch]] | None:
        """All rows by channel that were overtaken, or None while some may come; gives those of a checkpoint once."""
        alignment = self._alignments.get(checkpoint)
        if alignment is not None and alignment.phase is Phase.OVERTAKING:
            return None
        return self._complete.pop(checkpoint, {})

    def _alignment(self, barrier: Barrier, now: float) -> _Alignment:
        alignment = self._alignments.setdefault(barrier.checkpoint, _Alignment(barrier, now))
        self._newest = max(self._newest, barrier.checkpoint)
        if barrier.mode is CheckpointMode.UNALIGNED and alignment.barrier.mode is not barrier.mode:
            alignment.barrier = barrier
        return alignment

    def _due(self, now: float) -> list[Barrier]:
        """Begin what can begin, oldest first."""
        if len(self._alignments) > 1:
            self._hurry_older()
        due = []
        for checkpoint in sorted(self._alignments):
            alignment = self._alignments[checkpoint]
            if alignment.phase is Phase.OVERTAKING:
                continue
            if not self._can_begin(alignment):
                break
            self._begin(alignment, now)
            due.append(alignment.barrier)
        self._update()
        return due

    def _hurry_older(self) -> None:
        """Let older checkpoints that may become unaligned do so where a later one could begin: it comes behind them."""
        overtaking = [
            checkpoint
            for checkpoint, alignment in self._alignments.items()
            if alignment.barrier.mode is CheckpointMode.UNALIGNED and self._can_begin(alignment)
        ]
        for checkpoint, alignment in self._alignments.items():
            if checkpoint < max(overtaking, default=0) and alignment.deadline < math.inf:
                alignment.barrier = replace(alignment.barrier, mode=CheckpointMode.UNALIGNED)

    def _can_begin(self, alignment: _Alignment) -> bool:
        unaligned = alignment.barrier.mode is CheckpointMode.UNALIGNED
        keep_their_place = self._open - self._overtakable if unaligned else self._open
        return keep_their_place <= alignment.arrived

    def _begin(self, alignment: _Alignment, now: float) -> None:
        self._begun = alignment.barrier.checkpoint
        self.alignment_seconds = now - alignment.since
        if alignment.barrier.mode is CheckpointMode.UNALIGNED:
            alignment.phase = Phase.OVERTAKING
            alignment.awaited = self._open - alignment.arrived
            if not alignment.awaited:
                self._finish(alignment)
        else:
            self._forget(alignment.barrier.checkpoint)

    def _give_up_older(self, channel: int, barrier: Barrier) -> None:
        """Drop alignments whose barriers can come no more: the channel has brought that of a later checkpoint."""
        for checkpoint, alignment in list(self._alignments.items()):
            if checkpoint >= barrier.checkpoint:
                continue
            if channel in alignment.awaited:
                self.met(channel, checkpoint)
            elif alignment.phase is Phase.ALIGNING and channel not in alignment.arrived:
                self._forget(checkpoint)

    def _give_up_if_late(self, checkpoint: int) -> bool:
        """Give up what is first heard of when a later one has begun or passed; whether the checkpoint is over then."""
        latest = max([self._begun, *(self._passed.get(channel, 0) for channel in self._open)])
        if checkpoint not in self._alignments and checkpoint < latest:
            self._forget(checkpoint)
        return self.is_over(checkpoint)

    def _finish(self, alignment: _Alignment) -> None:
        self._complete[alignment.barrier.checkpoint] = alignment.overtaken
        self._forget(alignment.barrier.checkpoint)

    def _forget(self, checkpoint: int) -> None:
        self._alignments.pop(checkpoint, None)
        self._newest = max(self._newest, checkpoint)
        self._over.add(checkpoint)
        self._over = {number for number in self._over if number > self._newest - _REMEMBERED}
        self._update()

    def _update(self) -> None:
        aligning = [one for one in self._alignments.values() if one.phase is Phase.ALIGNING]
        waiting = [one.arrived for one in aligning if one.barrier.mode is not CheckpointMode.AT_LEAST_ONCE]
        self.blocked = frozenset[int]().union(*waiting)
        self.deadline = min((alignment.deadline for alignment in aligning), default=math.inf)
