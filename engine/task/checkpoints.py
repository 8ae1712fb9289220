"""The part of one subtask in checkpoints: forwards barriers, captures the operators, and starts from what they gave.

The task's loop calls it at barriers and at the end of input; the runtime, through the task, when a checkpoint is
triggered, aborted or complete. Captures are handed over in the order in which they were made, each of them, once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.task_capture import TaskCapture, in_flight_key
from penstock.engine.clock import Clock
from penstock.engine.elements import MAX_TIMESTAMP, Barrier, Batch, CheckpointMode, EndOfInput, SnapshotKind, Watermark
from penstock.engine.errors import UnknownStateError
from penstock.engine.state.capture import CaptureRequest, CaptureScope, OperatorCapture
from penstock.engine.task.chain import ChainLink
from penstock.engine.task.router import Router, RouterEdge
from penstock.engine.task.source_head import SourceHead

_REMEMBERED: Final = 1000
"""A checkpoint that is older than the newest by this much has been dealt with."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What the captures of a subtask say about it.

    Args:
        task, subtask, parallelism: which one.
        operators: uid and name of each operator of the chain.
        source: uid and name of the source, where it has one.
        channels: the `in_flight_key` of each input channel.
        incremental: whether captures may be of changes only.
    """

    task: int
    subtask: int
    parallelism: int
    operators: Sequence[tuple[str, str]]
    source: tuple[str, str] | None = None
    channels: Sequence[str] = ()
    incremental: bool = True


class Barriers(Protocol):
    """What the head of any task tells about barriers."""

    def abort(self, checkpoint: int) -> None:
        """Wait for the barriers of the checkpoint no more."""
        ...

    def is_over(self, checkpoint: int) -> bool:
        """Whether the checkpoint was given up because a later one has come, so that it must not be captured."""
        ...


class Gate(Protocol):
    """What the head tells besides where rows and barriers come through channels."""

    @property
    def alignment_seconds(self) -> float:
        """How long the barriers of the last checkpoint that began were apart."""
        ...

    def discard_input(self) -> None:
        """Take no input any more: the task had finished before a restore, and what is sent to it is sent again."""
        ...

    def take_overtaken(self, checkpoint: int) -> Mapping[int, Sequence[Batch]] | None:
        """By channel, the rows that the barrier of an unaligned checkpoint overtook; None while some may come."""
        ...


@dataclass(slots=True, eq=False)
class _Begun:
    """A capture, and what is to come before it is handed over."""

    capture: TaskCapture
    in_flight: dict[str, list[Batch]] = field(default_factory=dict)
    awaits_rows: bool = False
    leaves_until: float = math.inf
    """Until when its barrier may wait in the outputs (seconds, monotonic); infinity for as long as it takes."""


class TaskCheckpoints:
    """All checkpoints of one subtask.

    Args:
        info: which subtask.
        barriers: the task's head.
        source: the same, if it is a source.
        gate: the same, if it is an input gate.
        links: the operators of the chain.
        router: where barriers go.
        clock: the runtime's clock.

    Attributes:
        input_ended: whether the task's input has ended and the operators have emitted all that they had.
    """

    def __init__(
        self,
        info: TaskInfo,
        barriers: Barriers,
        source: SourceHead | None,
        gate: Gate | None,
        links: Sequence[ChainLink],
        router: Router,
        clock: Clock,
    ) -> None:
        self._info = info
        self._barriers = barriers
        self._source = source
        self._gate = gate
        self._links = links
        self._router = router
        self._clock = clock
        self._expected: dict[int, Barrier] = {}
        self._settled: set[int] = set()
        self._newest = 0
        self._captured = 0
        self._begun: deque[_Begun] = deque()
        self.input_ended = False
        self._end_is_barrier = False
        self._has_base = False
        self._suspended_by: int | None = None
        self._held_by: int | None = None
        self._channels = list(info.channels)

    def link(self, uid: str) -> ChainLink:
        """The operator of that uid in the chain, one with state that can be asked for.

        Raises:
            UnknownStateError: there is none.
        """
        links = {
            own: link
            for (own, _), link in zip(self._info.operators, self._links, strict=True)
            if link.operator.shows_state
        }
        if uid not in links:
            raise UnknownStateError(
                f"operator {uid!r} keeps no state that can be asked for; of its task do: {', '.join(links) or 'none'}"
            )
        return links[uid]

    @property
    def suspended(self) -> bool:
        """Whether the task has stopped behind a barrier and does nothing more by the clock."""
        return self._suspended_by is not None

    @property
    def deadline(self) -> float:
        """When (seconds, monotonic) `on_time` has something to do."""
        return min([begun.leaves_until for begun in self._begun]) if self._begun else math.inf

    def open(self, restored: RestoredTask | None) -> None:
        """Open the operators, the last one first, and send again what was under way and, where it was, the end.

        Raises:
            RestoreError: the checkpoint holds rows for an exchange that does not leave this task.
        """
        restored = restored or RestoredTask()
        for link, (uid, _) in reversed(list(zip(self._links, self._info.operators, strict=True))):
            link.open(restored.operators.get(uid))
        self._has_base = restored.tracked
        if self._source is not None and self._info.source is not None:
            self._source.restore(restored.operators.get(self._info.source[0]))
        # Watermarks that were under way are not kept: each says all that those before it said, and more will come.
        self._router.resend(restored.in_flight)
        if restored.finished:
            self.input_ended = True
            if self._gate is not None:
                self._gate.discard_input()
            words = (Watermark(MAX_TIMESTAMP), EndOfInput()) if self._source is None else self._source.final_controls
            for word in words:
                self._router.broadcast(word)

    def expect(self, barrier: Barrier) -> bool:
        """A checkpoint was triggered: a source injects the barrier, a task that has ended captures at once.

        Returns:
            whether there can be a capture: not of a task that has ended and captured for a later checkpoint, nor of a
            source that has given the barrier of one.
        """
        if self._is_settled(barrier.checkpoint) or barrier.checkpoint in self._expected:
            return True
        self._resume_behind(barrier)
        if self.input_ended:
            # Sinks have prepared all there is for the later one: the job must not end behind this one.
            if barrier.checkpoint < self._captured:
                return False
            self._begin_ended(barrier)
            return True
        if self._source is not None:
            if self._source.is_over(barrier.checkpoint):
                return False
            self._source.expect(barrier)
        self._expected[barrier.checkpoint] = barrier
        return True

    def begin(self, barrier: Barrier) -> None:
        """All that belongs before the barrier has been processed: send it on, and capture."""
        if self._is_settled(barrier.checkpoint):
            return
        self._resume_behind(barrier)
        if barrier.mode is CheckpointMode.UNALIGNED:
            # It must not overtake older ones, whose rows nobody would count then.
            for begun in self._begun:
                self._let_leave(begun)
        if barrier.kind is SnapshotKind.SUSPEND:
            self._suspended_by = barrier.checkpoint
            for link in self._links:
                link.before_suspend()
        elif self._info.task in barrier.replaced:
            self._suspended_by = barrier.checkpoint
            if self._source is not None:
                self._source.suspend(barrier.checkpoint)
        started = self._clock.monotonic()
        overtaken = self._router.forward(barrier)
        if barrier.replaced:
            self._held_by = barrier.checkpoint
            self._router.hold(barrier.replaced)
        begun = self._capture(barrier, started, overtaken)
        if barrier.mode is CheckpointMode.UNALIGNED:
            begun.awaits_rows = self._gate is not None
        elif barrier.mode is CheckpointMode.ALIGNED and barrier.alignment_timeout_ms is not None:
            begun.leaves_until = started + barrier.alignment_timeout_ms / 1000

    def _resume_behind(self, barrier: Barrier) -> None:
        """Nothing is taken behind a checkpoint that stops the job, or part of it: it was given up, unheard of here."""
        for stopped_by in (self._suspended_by, self._held_by):
            if stopped_by is not None and stopped_by < barrier.checkpoint:
                self.abort(stopped_by)

    def replace_inputs(self, keys: Sequence[str]) -> None:
        """The task has new input channels behind those that it had, with these `in_flight_key`s."""
        self._channels.extend(keys)

    def connect(self, edges: Mapping[int, RouterEdge]) -> None:
        """The subtasks that output was kept back for are there: it goes to the channels of these edges, by number."""
        self._held_by = None
        self._router.connect(edges)

    def on_end(self) -> None:
        """The input has ended and the operators have emitted all: what is expected has no barrier to wait for."""
        self.input_ended = True
        for checkpoint in sorted(self._expected):
            # If its barriers were dropped here, the other subtasks have captured another moment. What sinks prepare for
            # it behind a later one would be committed with that, and come again behind a restore.
            if checkpoint > self._captured and not self._barriers.is_over(checkpoint):
                self._begin_ended(self._expected[checkpoint])

    def _begin_ended(self, barrier: Barrier) -> None:
        # Channels that have ended count as aligned, so a barrier is needed only to overtake rows that are stuck: not
        # where an older checkpoint counts on the end behind them.
        overtakes = barrier.mode is CheckpointMode.UNALIGNED and not self._end_is_barrier
        self._end_is_barrier = not overtakes
        overtaken = self._router.overtake_past_end(barrier) if overtakes else {}
        self._capture(barrier, self._clock.monotonic(), overtaken, finished=True)

    def _capture(
        self, barrier: Barrier, started: float, overtaken: Mapping[str, list[Batch]], finished: bool = False
    ) -> _Begun:
        info = self._info
        self._captured = max(self._captured, barrier.checkpoint)
        self._settle(barrier.checkpoint)
        request = CaptureRequest(barrier.checkpoint, self._scope(barrier), barrier.kind)
        operators: list[tuple[str, str, OperatorCapture]] = []
        if self._source is not None and info.source is not None:
            operators.append((*info.source, self._source.capture()))
        for link, (uid, name) in zip(self._links, info.operators, strict=True):
            operators.append((uid, name, link.operator.capture(request)))
        alignment_ms = 0.0 if finished or self._gate is None else self._gate.alignment_seconds * 1000
        sync_ms = (self._clock.monotonic() - started) * 1000
        # Clocks of two machines may differ.
        since = self._clock.now_ms() - barrier.triggered_ms if barrier.triggered_ms else 0
        capture = TaskCapture(
            barrier,
            info.task,
            info.subtask,
            info.parallelism,
            operators,
            finished=finished,
            alignment_ms=alignment_ms,
            sync_ms=sync_ms,
            start_delay_ms=max(0.0, since - alignment_ms - sync_ms),
        )
        begun = _Begun(capture)
        self._add_sent(begun, overtaken)
        self._begun.append(begun)
        return begun

    def _scope(self, barrier: Barrier) -> CaptureScope:
        if barrier.kind is not SnapshotKind.CHECKPOINT:
            return CaptureScope.COMPLETE
        if self._info.incremental and self._has_base:
            return CaptureScope.SWITCH if barrier.replaced else CaptureScope.CHANGES
        self._has_base = True
        return CaptureScope.BASE

    def take_captures(self) -> list[TaskCapture]:
        """The captures to be written, in order; unaligned ones when the rows that they overtook are known."""
        taken = []
        while self._begun and self._is_complete(self._begun[0]):
            begun = self._begun.popleft()
            taken.append(replace(begun.capture, in_flight=begun.in_flight))
        return taken

    def _is_complete(self, begun: _Begun) -> bool:
        checkpoint = begun.capture.barrier.checkpoint
        if begun.awaits_rows and self._gate is not None:
            overtaken = self._gate.take_overtaken(checkpoint)
            if overtaken is None:
                return False
            begun.awaits_rows = False
            for channel, rows in overtaken.items():
                begun.in_flight.setdefault(self._channels[channel], []).extend(rows)
        return begun.leaves_until == math.inf or not self._router.holds(checkpoint)

    def on_time(self, now: float) -> None:
        """Time has come to `deadline`: barriers that wait in the outputs overtake the rows before them."""
        for begun in self._begun:
            if begun.leaves_until <= now:
                self._let_leave(begun)

    def _let_leave(self, begun: _Begun) -> None:
        if begun.leaves_until < math.inf:
            begun.leaves_until = math.inf
            barrier = replace(begun.capture.barrier, mode=CheckpointMode.UNALIGNED)
            self._add_sent(begun, self._router.overtake_later(barrier))

    def _add_sent(self, begun: _Begun, overtaken: Mapping[str, list[Batch]]) -> None:
        for uid, batches in overtaken.items():
            begun.in_flight.setdefault(in_flight_key(uid, self._info.subtask), []).extend(batches)

    def abort(self, checkpoint: int) -> None:
        """The checkpoint is expected no more. A capture of it that was made is handed over all the same."""
        self._settle(checkpoint)
        self._barriers.abort(checkpoint)
        self._router.withdraw(checkpoint)
        for begun in self._begun:
            if begun.capture.barrier.checkpoint == checkpoint:
                begun.leaves_until = math.inf
        if self._suspended_by == checkpoint:
            self._suspended_by = None
        if self._held_by == checkpoint:
            self._held_by = None
            self._router.resume()

    def complete(self, checkpoint: int) -> None:
        """The checkpoint counts: tell the operators."""
        for link in self._links:
            link.operator.on_checkpoint_complete(checkpoint)

    def _settle(self, checkpoint: int) -> None:
        self._expected.pop(checkpoint, None)
        self._newest = max(self._newest, checkpoint)
        self._settled.add(checkpoint)
        self._settled = {number for number in self._settled if number > self._newest - _REMEMBERED}

    def _is_settled(self, checkpoint: int) -> bool:
        return checkpoint in self._settled or checkpoint <= self._newest - _REMEMBERED
