"""The router of a task: one collector for each outgoing edge of its chain, and the buffers behind them.

The chain emits into it; the loop asks it for capacity and makes it flush. It never waits.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from penstock.engine.clock import Clock
from penstock.engine.elements import (
    Barrier,
    Batch,
    CheckpointMode,
    Control,
    EndOfInput,
    LatencyMarker,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.errors import RestoreError
from penstock.engine.exchange.outputs import ChannelBuffer
from penstock.engine.exchange.partitioners import Splitter
from penstock.engine.metrics import ChannelStatistics, OutputStatistics
from penstock.engine.operators.base import Collector

_MOST_HELD_ROWS: Final = 65_536
"""So many rows may be kept back for an edge before the task takes no more input; fewer, where receivers want fewer."""
_IS_FULL: Final = operator.attrgetter("full")


class RouterEdge:
    """Collector for one outgoing edge: divides batches among the edge's channels.

    Args:
        splitter: divides them.
        buffers: one a channel.
        clock: the runtime's clock.
        uid: of the exchange.
        overtakable: whether unaligned barriers may overtake its rows.
        takes_back: whether it can spread rows that were under way when a checkpoint was taken.
        downstream: id of the task behind it; None: the client.
        receivers: its subtasks that the channels go to, in their order; none: all.
    """

    def __init__(
        self,
        splitter: Splitter,
        buffers: Sequence[ChannelBuffer],
        clock: Clock,
        uid: str = "",
        overtakable: bool = False,
        takes_back: Callable[[Batch], bool] = lambda batch: True,
        downstream: int | None = None,
        receivers: Sequence[int] = (),
    ) -> None:
        self._split = splitter
        self.buffers = buffers
        self._clock = clock
        self.uid = uid
        self.overtakable = overtakable
        self.takes_back = takes_back
        self.downstream = downstream
        self._receivers = receivers
        self._marked = itertools.cycle(buffers)
        self._watermark: Watermark | None = None
        self._status: WatermarkStatus | None = None
        self._end: EndOfInput | None = None
        self._held: list[Batch | Control] | None = None
        self._held_rows, self._most_held = 0, 0.0
        self._left_rows = 0  # went to channels that have been replaced

    @property
    def holds_back(self) -> bool:
        """Whether something is kept back that was emitted."""
        return bool(self._held)

    @property
    def full(self) -> bool:
        """Whether as much is kept back as may be."""
        return self._held is not None and self._held_rows >= self._most_held

    def wanted_of(self, rows: int) -> float:
        """Of so many rows of input, by what has come of `rows`, the receivers have as much as they want at once."""
        emitted = self._left_rows + sum(buffer.added_rows for buffer in self.buffers)
        return sum(buffer.wanted_rows for buffer in self.buffers) * rows / emitted if emitted else math.inf

    def collect(self, batch: Batch) -> None:
        if self._held is not None:
            self._held.append(batch)
            self._held_rows += batch.num_rows
            return
        now = self._clock.monotonic()
        for channel, part in self._split(batch):
            self.buffers[channel].add(part, now)

    def broadcast(self, element: Control) -> None:
        if self._held is not None:
            self._held.append(element)
            return
        now = self._clock.monotonic()
        match element:
            case LatencyMarker():
                next(self._marked).add_control(element, now)
                return
            case Watermark():
                self._watermark = element
            case WatermarkStatus():
                self._status = element
            case EndOfInput():
                self._end = element
        for buffer in self.buffers:
            buffer.add_control(element, now)

    def channels(self) -> Iterator[ChannelStatistics]:
        """Each channel by itself."""
        buffers = self.buffers
        for receiver, buffer in zip(self._receivers or range(len(buffers)), buffers, strict=False):
            yield ChannelStatistics(self.downstream, receiver, buffer.added_rows, buffer.statistics())

    def hold(self) -> None:
        """Keep back what is emitted from now on: the subtasks behind the edge are about to be replaced."""
        if self._held is None:
            self._held = []
            self._most_held = min(_MOST_HELD_ROWS, sum(2 * buffer.wanted_rows for buffer in self.buffers))

    def resume(self) -> None:
        """Emit what was kept back, and what follows, to the channels that there are."""
        held, self._held, self._held_rows = self._held or (), None, 0
        for element in held:
            if isinstance(element, Batch):
                self.collect(element)
            else:
                self.broadcast(element)

    def connect(self, other: RouterEdge) -> None:
        """Take over the channels of another edge, which nothing was emitted to; each learns the event time or end.

        Their receivers do what those before them did, and so are taken to be as slow.
        """
        self._left_rows += sum(buffer.added_rows for buffer in self.buffers)
        for buffer in other.buffers:
            buffer.expect(max((before.wanted_rows for before in self.buffers), default=math.inf))
        self._split, self.buffers, self._marked = other._split, other.buffers, other._marked
        self._receivers = other._receivers
        self.uid, self.overtakable, self.takes_back = other.uid, other.overtakable, other.takes_back
        now = self._clock.monotonic()
        # A task that has ended sends its end in one message: it may never be stepped again.
        for element in (self._watermark, self._end or self._status):
            if element is not None:
                for buffer in self.buffers:
                    buffer.add_control(element, now)
        self.resume()


class Router:
    """All outgoing edges of one task.

    Args:
        edges: these.
        calls: the operators of the task that are called, by the uids of exchanges that might lead to them instead.
    """

    def __init__(self, edges: Sequence[RouterEdge], calls: Mapping[str, Collector] = MappingProxyType({})) -> None:
        self._edges = edges
        self._calls = calls
        self._buffers = [buffer for edge in edges for buffer in edge.buffers]

    @property
    def has_capacity(self) -> bool:
        """Whether every channel can take the output of another step."""
        # Loops without generators: each step of a task asks.
        for buffer in self._buffers:
            if buffer.full:
                return False
        return not any(map(_IS_FULL, self._edges))

    def congested(self, now: float) -> bool:
        """Whether rows that are due wait for a receiver to take what was sent before them."""
        return any(buffer.congested(now) for buffer in self._buffers)

    def wanted_of(self, rows: int) -> float:
        """As of one edge; the receivers of another may want more."""
        return min((edge.wanted_of(rows) for edge in self._edges), default=math.inf)

    @property
    def drained(self) -> bool:
        """Whether everything emitted has been sent."""
        return all(buffer.empty for buffer in self._buffers) and not any(edge.holds_back for edge in self._edges)

    def awaits_credit(self, by: float) -> bool:
        """Whether something that is due by then waits for a receiver to take what was sent before it."""
        for buffer in self._buffers:
            if buffer.awaits_credit(by):
                return True
        return any(edge.holds_back for edge in self._edges)

    @property
    def deadline(self) -> float | None:
        """The earliest time (seconds, monotonic) at which something must be flushed, or None."""
        return min([d for buffer in self._buffers if (d := buffer.deadline) is not None], default=None)

    def statistics(self) -> OutputStatistics:
        """The buffers and channels, added up. May be called from another thread."""
        each = [buffer.statistics() for buffer in self._buffers]
        return OutputStatistics(
            len(each),
            sum(one.rows for one in each),
            sum(one.bytes for one in each),
            sum(one.under_way for one in each),
            sum(one.full for one in each),
            sum(one.messages_sent for one in each),
            sum(one.bytes_sent for one in each),
        )

    def channels(self) -> list[ChannelStatistics]:
        """Each channel by itself. May be called from another thread."""
        return [channel for edge in self._edges for channel in edge.channels()]

    def flush(self, now: float) -> None:
        """Send what is full or due."""
        for buffer in self._buffers:
            buffer.flush(now)

    def hurry(self, now: float) -> None:
        """Send what waits, as if it had waited for the buffer timeout."""
        for buffer in self._buffers:
            buffer.hurry()
        self.flush(now)

    def broadcast(self, element: Control) -> None:
        """Send a control element to all consumers, behind everything emitted so far."""
        for edge in self._edges:
            edge.broadcast(element)

    def hold(self, tasks: Collection[int]) -> None:
        """Keep back what is emitted to these tasks from now on."""
        for edge in self._edges:
            if edge.downstream in tasks:
                edge.hold()

    def resume(self) -> None:
        """Emit what was kept back."""
        for edge in self._edges:
            edge.resume()

    def connect(self, edges: Mapping[int, RouterEdge]) -> None:
        """Give edges, by their numbers, the channels of others, and emit what was kept back for them."""
        for number, edge in edges.items():
            self._edges[number].connect(edge)
        self._buffers = [buffer for edge in self._edges for buffer in edge.buffers]

    def forward(self, barrier: Barrier) -> dict[str, list[Batch]]:
        """Send a barrier to all consumers; returns, by exchange, the rows that it overtakes where it is unaligned."""
        if barrier.mode is not CheckpointMode.UNALIGNED:
            self.broadcast(barrier)
            return {}
        for edge in self._edges:
            if not edge.overtakable:
                edge.broadcast(barrier)
        return _overtake(barrier, [(edge, edge.buffers) for edge in self._edges if edge.overtakable])

    def overtake_later(self, barrier: Barrier) -> dict[str, list[Batch]]:
        """Let a barrier that waits in the buffers overtake the rows before it; returns those, by exchange."""
        waiting = [
            (edge, [buffer for buffer in edge.buffers if buffer.holds(barrier.checkpoint)])
            for edge in self._edges
            if edge.overtakable
        ]
        return _overtake(barrier, waiting)

    def overtake_past_end(self, barrier: Barrier) -> dict[str, list[Batch]]:
        """The same for a task that has ended: where rows and the end wait, the barrier goes before them."""
        waiting = [
            (edge, [buffer for buffer in edge.buffers if not buffer.empty]) for edge in self._edges if edge.overtakable
        ]
        return _overtake(barrier, waiting)

    def withdraw(self, checkpoint: int) -> None:
        """Forget the barrier of a checkpoint that was given up, where it waits and a later one may overtake rows."""
        for edge in self._edges:
            if edge.overtakable:
                for buffer in edge.buffers:
                    buffer.withdraw(checkpoint)

    def holds(self, checkpoint: int) -> bool:
        """Whether the barrier of a checkpoint waits where it may overtake rows."""
        return any(buffer.holds(checkpoint) for edge in self._edges if edge.overtakable for buffer in edge.buffers)

    def resend(self, in_flight: Mapping[str, Sequence[Batch]]) -> None:
        """Emit the rows that were under way, by exchange, when a checkpoint was taken.

        Who was behind an exchange may be in this task now, at another parallelism, and takes them at once.

        Raises:
            RestoreError: no such exchange leaves this task, or it cannot take them.
        """
        edges = {edge.uid: edge for edge in self._edges}
        for uid, batches in in_flight.items():
            if uid in self._calls:
                for batch in batches:
                    self._calls[uid].collect(batch)
                continue
            if uid not in edges:
                raise RestoreError(
                    f"the checkpoint holds rows that were under way on {uid!r}, which this program does not have; take "
                    "a savepoint with the program that it had, and start this one from it"
                )
            for batch in batches:
                if not edges[uid].takes_back(batch):
                    raise RestoreError(
                        f"the checkpoint holds partial aggregates that were under way on {uid!r}, and the program has "
                        "other aggregates or windows behind it now; take a savepoint with the program that it had, and "
                        "start this one from it"
                    )
                edges[uid].collect(batch)


def _overtake(
    barrier: Barrier, waiting: Sequence[tuple[RouterEdge, Sequence[ChannelBuffer]]]
) -> dict[str, list[Batch]]:
    overtaken: dict[str, list[Batch]] = {}
    for edge, buffers in waiting:
        batches = [batch for buffer in buffers for batch in buffer.overtake(barrier)]
        if batches:
            overtaken.setdefault(edge.uid, []).extend(batches)
    return overtaken
