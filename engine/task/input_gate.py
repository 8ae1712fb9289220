"""The input gate of a task: takes messages from all its channels and gives the loop one element at a time.

It chooses fairly among the channels that have something, gives back a channel's credit when it takes a message, and
merges watermarks, idleness and ends of input, so that the chain sees one event time and one end.

Source of the merging rules: Flink's `StatusWatermarkValve` as its documentation describes it ("Idle sources").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.connectors import Wait
from penstock.engine.elements import (
    MIN_TIMESTAMP,
    Batch,
    Control,
    Element,
    EndOfInput,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.task.outputs import Message

Choice: TypeAlias = Callable[[Sequence[int]], int]
"""Picks one of the channels that have a message."""


@dataclass(slots=True)
class _ChannelState:
    watermark: int = MIN_TIMESTAMP
    idle: bool = False
    ended: bool = False


class WatermarkMerger:
    """Merges the watermarks of several channels: the minimum over those that take part.

    A channel takes part unless it is idle or ended, or has come back from idleness and is still behind what was already
    emitted. If all are idle, event time moves to the largest watermark seen.
    """

    def __init__(self, channels: int) -> None:
        self._channels = [_ChannelState() for _ in range(channels)]
        self._emitted = MIN_TIMESTAMP
        self._idle = False

    def on_control(self, channel: int, element: Control) -> list[Control]:
        """What the merged stream emits now that `element` has come on `channel`."""
        state = self._channels[channel]
        match element:
            case Watermark(timestamp):
                state.watermark = max(state.watermark, timestamp)
            case WatermarkStatus(idle):
                state.idle = idle
            case EndOfInput():
                state.ended = True
        if all(state.ended for state in self._channels):
            return [*self._advance(), EndOfInput()]
        idle = all(state.idle or state.ended for state in self._channels)
        if idle == self._idle:
            return self._advance()
        self._idle = idle
        status = WatermarkStatus(idle)
        return [*self._advance(), status] if idle else [status, *self._advance()]

    def _advance(self) -> list[Control]:
        taking_part = [
            state.watermark
            for state in self._channels
            if not state.idle and not state.ended and state.watermark >= self._emitted
        ]
        behind = any(not state.idle and not state.ended and state.watermark < self._emitted for state in self._channels)
        if taking_part:
            merged = min(taking_part)
        elif behind:
            merged = self._emitted
        else:
            merged = max(state.watermark for state in self._channels)
        if merged <= self._emitted:
            return []
        self._emitted = merged
        return [Watermark(merged)]


class InputGate:
    """Messages in from N channels, one element out at a time.

    Args:
        input_indexes: for each channel, which input of the operator it feeds.
        choose: picks the next channel; by default the one that has waited longest.
    """

    def __init__(self, input_indexes: Sequence[int], choose: Choice | None = None) -> None:
        self._input_indexes = input_indexes
        self._choose = choose
        self._inboxes: list[deque[tuple[Message, Callable[[], None]]]] = [deque() for _ in input_indexes]
        self._waiting: deque[int] = deque()
        self._taken: deque[tuple[int, Element]] = deque()
        self._merger = WatermarkMerger(len(input_indexes))
        if not input_indexes:
            # No upstream subtask sends here, as behind a global exchange.
            self._taken.append((0, EndOfInput()))

    @property
    def keeps_input(self) -> bool:
        """Messages wait here at the cost of their senders' credit."""
        return False

    def put(self, channel: int, message: Message, release: Callable[[], None]) -> None:
        """Deliver a message; `release` is called when it is taken and gives its credit back.

        May be called from another thread than `next`: it only appends to deques.
        """
        self._inboxes[channel].append((message, release))
        self._waiting.append(channel)

    def next(self) -> tuple[int, Element] | Wait | None:
        """The next element with its input index, or None if there is nothing."""
        while not self._taken:
            if not self._waiting:
                return None
            self._take_message()
        return self._taken.popleft()

    def _take_message(self) -> None:
        channel = self._next_channel()
        message, release = self._inboxes[channel].popleft()
        release()
        input_index = self._input_indexes[channel]
        for element in message:
            if isinstance(element, Batch):
                self._taken.append((input_index, element))
            else:
                self._taken.extend((input_index, merged) for merged in self._merger.on_control(channel, element))

    def _next_channel(self) -> int:
        if self._choose is None:
            return self._waiting.popleft()
        channel = self._choose(list(self._waiting))
        self._waiting.remove(channel)
        return channel

    def close(self) -> None:
        """Nothing to release: messages that were not taken keep their credit."""
