"""The router of a task: one collector for each outgoing edge of its chain, and the buffers behind them.

The chain emits into it; the loop asks it for capacity and makes it flush. It never waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.clock import Clock
from penstock.engine.elements import Batch, Control
from penstock.engine.task.outputs import ChannelBuffer
from penstock.engine.task.partitioners import Splitter


class RouterEdge:
    """Collector for one outgoing edge: divides batches among the edge's channels."""

    def __init__(self, splitter: Splitter, buffers: Sequence[ChannelBuffer], clock: Clock) -> None:
        self._split = splitter
        self.buffers = buffers
        self._clock = clock

    def collect(self, batch: Batch) -> None:
        now = self._clock.monotonic()
        for channel, part in self._split(batch):
            self.buffers[channel].add(part, now)

    def broadcast(self, element: Control) -> None:
        now = self._clock.monotonic()
        for buffer in self.buffers:
            buffer.add_control(element, now)


class Router:
    """All outgoing edges of one task."""

    def __init__(self, edges: Sequence[RouterEdge]) -> None:
        self._buffers = [buffer for edge in edges for buffer in edge.buffers]

    @property
    def has_capacity(self) -> bool:
        """Whether every channel can take the output of another step."""
        return not any(buffer.full for buffer in self._buffers)

    def congested(self, now: float) -> bool:
        """Whether rows that are due wait for a receiver to take what was sent before them."""
        return any(buffer.congested(now) for buffer in self._buffers)

    @property
    def drained(self) -> bool:
        """Whether everything emitted has been sent."""
        return all(buffer.empty for buffer in self._buffers)

    @property
    def deadline(self) -> float | None:
        """The earliest time (seconds, monotonic) at which something must be flushed, or None."""
        return min((d for buffer in self._buffers if (d := buffer.deadline) is not None), default=None)

    def flush(self, now: float) -> None:
        """Send what is full or due."""
        for buffer in self._buffers:
            buffer.flush(now)
