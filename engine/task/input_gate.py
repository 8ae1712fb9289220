"""The input gate of a task: takes messages from all its channels and gives the loop one element at a time.

It chooses fairly among the channels that have something, cuts long messages by the task's pace, makes one batch of the
few rows of several, gives back a channel's credit when it takes the last of a message, and merges watermarks, idleness,
supersteps, ends of input and the barriers of checkpoints, so that the chain sees one event time, one end and one
barrier. At the head of a loop the channels from its tails have no part in these: they have rounds of their own.

Source of the merging rules: Flink's `StatusWatermarkValve` as its documentation describes it ("Idle sources").
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.connectors import Wait
from penstock.engine.elements import (
    FEEDBACK_INPUT,
    INPUT_ENDED,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Barrier,
    Batch,
    CheckpointMode,
    Control,
    Element,
    EndOfInput,
    IterationBarrier,
    LatencyMarker,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.exchange.outputs import Message
from penstock.engine.few_rows import are_rows_alike, joined
from penstock.engine.metrics import GateStatistics
from penstock.engine.task.barriers import BarrierAligner
from penstock.engine.task.pace import Pace

_MOST_SHARES: Final = 10
"""Into so many parts the rows that a task wants under way are shared at the most."""

FEW_ROWS: Final = 64
"""What a batch of fewer rows costs is mostly what any batch costs."""

Choice: TypeAlias = Callable[[Sequence[int]], int]
"""Picks one of the channels that have a message, of which it is given each once, in order."""


@dataclass(slots=True)
class _ChannelState:
    """The largest watermark but the last one; whether the last one has come, and the end."""

    watermark: int = MIN_TIMESTAMP
    idle: bool = False
    complete: bool = False
    ended: bool = False

    @property
    def open(self) -> bool:
        return not (self.ended or self.complete)


class WatermarkMerger:
    """Merges the watermarks of several channels: the minimum over those that take part.

    A channel takes part unless it is idle, has ended or come to `MAX_TIMESTAMP`, or has come back from idleness and is
    still behind what was already emitted. If all are idle, event time moves to the largest watermark seen. It is
    complete only when no channel is open: what an idle one gives later must not be late because the others have ended.

    Args:
        channels: how many there are.
        without: those that never take part.
    """

    def __init__(self, channels: int, without: Collection[int] = ()) -> None:
        self._channels = [_ChannelState(ended=channel in without) for channel in range(channels)]
        self._emitted = MIN_TIMESTAMP
        self._idle = False
        self._between_rows = False

    def on_control(self, channel: int, element: Control) -> list[Control]:
        """What the merged stream emits now that `element` has come on `channel`."""
        state = self._channels[channel]
        if isinstance(element, Watermark) and element.timestamp < MAX_TIMESTAMP:
            state.watermark = max(state.watermark, element.timestamp)
            self._between_rows |= element.between_rows
            if not self._idle:
                # By far the most; who takes part stays as it was.
                return self._advance()
        match element:
            case Watermark(timestamp):
                state.complete |= timestamp == MAX_TIMESTAMP
            case WatermarkStatus(idle):
                state.idle = idle
            case EndOfInput():
                state.ended = True
        if all(state.ended for state in self._channels):
            return [*self._advance(), EndOfInput()]
        still_open = [state for state in self._channels if state.open]
        idle = all(state.idle for state in still_open)
        if idle == self._idle or not still_open:
            return self._advance()
        self._idle = idle
        status = WatermarkStatus(idle)
        return [*self._advance(), status] if idle else [status, *self._advance()]

    def replace(self, retired: Collection[int], added: int) -> None:
        """Let channels take part in the place of others: event time on them is where it was on those together.

        Args:
            retired: the others; they count as ended.
            added: how many come; they have the next numbers, and say themselves whether they are idle.
        """
        before = [state for channel in retired if (state := self._channels[channel]).open]
        active = [state.watermark for state in before if not state.idle and state.watermark >= self._emitted]
        reached = min(active) if active else max((state.watermark for state in before), default=MIN_TIMESTAMP)
        for channel in retired:
            self._channels[channel].ended = True
        self._channels.extend(_ChannelState(reached) for _ in range(added))

    def _advance(self) -> list[Control]:
        emitted, channels = self._emitted, self._channels
        active = [state.watermark for state in channels if not (state.idle or state.ended or state.complete)]
        if active:
            ahead = [watermark for watermark in active if watermark >= emitted]
            merged = min(ahead) if ahead else emitted
        elif any(state.complete for state in channels) and not any(state.open for state in channels):
            merged = MAX_TIMESTAMP
        else:
            merged = max(state.watermark for state in channels)
        if merged <= emitted:
            return []
        self._emitted = merged
        return [Watermark(merged, self._between_rows)]


class IterationBarrierMerger:
    """Merges the iteration barriers of several channels: a superstep is over when it is over on all of them.

    A channel that has ended holds nothing back; one from outside the loop never has a barrier, so its end is awaited.

    Args:
        channels: how many there are.
    """

    def __init__(self, channels: int) -> None:
        self._open = set(range(channels))
        self._over: dict[int, list[int]] = {}
        self._emitted: dict[int, int] = {}
        self._channels = channels

    def on_barrier(self, channel: int, barrier: IterationBarrier) -> list[IterationBarrier]:
        """What the merged stream emits now that `barrier` has come on `channel`."""
        over = self._over.setdefault(barrier.loop, [INPUT_ENDED] * self._channels)
        over[channel] = barrier.superstep
        return self._advance(barrier.loop)

    def on_end(self, channel: int) -> list[IterationBarrier]:
        """What it emits now that `channel` has ended."""
        self._open.discard(channel)
        return [barrier for loop in self._over for barrier in self._advance(loop)] if self._open else []

    def _advance(self, loop: int) -> list[IterationBarrier]:
        emitted = self._emitted.get(loop, INPUT_ENDED)
        merged = min(self._over[loop][channel] for channel in self._open)
        self._emitted[loop] = max(emitted, merged)
        return [IterationBarrier(loop, superstep) for superstep in range(emitted + 1, merged + 1)]


class FeedbackRounds:
    """The barriers that the tails of a loop send back to its head: a round is complete when all have sent theirs.

    Rows that a tail sends behind its barrier belong to the next round, so its channel is blocked until then. Each tail
    sends the same to every head, hence all heads see the same rounds with the same numbers of rows.

    Args:
        channels: those that come from the tails.
    """

    def __init__(self, channels: Collection[int]) -> None:
        self._open = set(channels)
        self._loop = 0
        self._superstep = 0
        self._rows = 0
        self.blocked: set[int] = set()

    @property
    def ended(self) -> bool:
        """Whether nothing comes back any more."""
        return not self._open

    def on_barrier(self, channel: int, barrier: IterationBarrier) -> list[Control]:
        """The round that is complete now, if one is."""
        self.blocked.add(channel)
        self._loop = barrier.loop
        self._rows += barrier.rows
        return self._complete()

    def on_end(self, channel: int) -> list[Control]:
        """The round that is complete now, if one is."""
        self._open.discard(channel)
        return self._complete()

    def _complete(self) -> list[Control]:
        if not self.blocked or self._open - self.blocked:
            return []
        complete = IterationBarrier(self._loop, self._superstep, self._rows)
        self._superstep += 1
        self._rows = 0
        self.blocked.clear()
        return [complete]


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
        self._announced: deque[tuple[int, Barrier | EndOfInput]] = deque()
        self._waiting: deque[int] = deque()
        self._set_aside: list[int] = []
        self._taken: deque[tuple[int, Element]] = deque()
        self._is_urgent = False
        self._now = 0.0
        self._feedback = frozenset(channel for channel, index in enumerate(input_indexes) if index == FEEDBACK_INPUT)
        self._merger = WatermarkMerger(len(input_indexes), self._feedback)
        self._supersteps = IterationBarrierMerger(len(input_indexes))
        self._rounds = FeedbackRounds(self._feedback)
        self._blocked: frozenset[int] = frozenset()
        self._input_ended = False
        self._discards = False
        self._retired = 0
        self._pace = Pace(0.0, 2**62)
        self.let_overtake(())
        if len(self._feedback) == len(input_indexes):
            # No upstream subtask sends here, as behind a global exchange.
            self._taken.append((0, self._end_input()))

    def let_overtake(self, channels: Iterable[int]) -> None:
        """Let unaligned barriers overtake rows on `channels`; to be called before anything arrives."""
        others = (channel for channel in range(len(self._input_indexes)) if channel not in self._feedback)
        self._aligner = BarrierAligner(others, channels)

    def replace_channels(
        self, retired: Collection[int], input_indexes: Sequence[int], overtakable: Sequence[bool]
    ) -> None:
        """Take input from new channels in the place of others; the new ones have the next numbers.

        Args:
            retired: channels that bring nothing more.
            input_indexes: for each new channel, which input of the operator it feeds.
            overtakable: for each, whether unaligned barriers may overtake its rows.
        """
        first, count = len(self._inboxes), len(input_indexes)
        self._input_indexes = (*self._input_indexes, *input_indexes)
        self._inboxes.extend(deque() for _ in input_indexes)
        self._retired += len(retired)
        self._merger.replace(retired, count)
        may_overtake = [first + number for number, may in enumerate(overtakable) if may]
        self._aligner.replace(retired, range(first, first + count), may_overtake)

    def follow(self, pace: Pace) -> None:
        """Give batches of at most `pace.rows` from now on."""
        self._pace = pace

    @property
    def wanted_rows(self) -> float:
        """How many rows each sender should have under way: of what is worth the target, the part of one channel.

        Channels count that have something now. Beyond some they are not told to send less: messages would get so small
        that they cost more than their rows.
        """
        busy = sum(map(bool, self._inboxes))
        return self._pace.worth / min(max(busy, 1), _MOST_SHARES)

    @property
    def alignment_seconds(self) -> float:
        """How long the barriers of the last checkpoint that began were apart."""
        return self._aligner.alignment_seconds

    @property
    def deadline(self) -> float:
        """When (seconds, monotonic) `next_urgent` has something to do because time has passed."""
        return self._aligner.deadline

    def put(self, channel: int, message: Message, release: Callable[[], None]) -> None:
        """Deliver a message; `release` is called when it is taken (that of a tail: now) and gives its credit back.

        May be called from another thread than `next`: it only appends to deques.
        """
        if channel in self._feedback:
            # In a loop whose channels are bounded all round, each task could wait for the next one for ever.
            release()
            release = _nothing
        self._inboxes[channel].append((message, release))
        if self._choose is None:
            self._waiting.append(channel)
        if self._discards:
            self._release_all()
            return
        last = message[-1] if message else None
        if isinstance(last, Barrier | EndOfInput):
            self._announced.append((channel, last))

    def discard_input(self) -> None:
        """Drop what has come and what will come, and give its credit back: the task had finished before a restore."""
        self._discards = True
        self._release_all()

    def _release_all(self) -> None:
        """May be called by two threads at once, hence no look before taking."""
        for inbox in self._inboxes:
            with contextlib.suppress(IndexError):
                while True:
                    inbox.popleft()[1]()

    def next_urgent(self, now: float) -> tuple[int, Element] | None:
        """What must not wait for the outputs: an unaligned barrier, and what was taken before it."""
        self._now = now
        while self._announced:
            self._on_announced(*self._announced.popleft())
        if self._aligner.deadline <= now:
            self._begin(self._aligner.on_time(now))
        return self._give() if self._is_urgent else None

    def next(self) -> tuple[int, Element] | Wait | None:
        """The next element with its input index, or None if there is nothing."""
        while not self._taken:
            if (channel := self._next_channel()) is None:
                return None
            rows = self._take_message(channel, self._pace.rows)
            if rows < FEW_ROWS and 2 * rows < self._pace.rows:
                self._gather(rows)
        return self._give()

    def next_watermark(self) -> tuple[int, Element] | None:
        """The watermark right behind what was given last, where it was taken with it."""
        return self._give() if self._taken and isinstance(self._taken[0][1], Watermark) else None

    def _gather(self, rows: int) -> None:
        """Make one batch of these few rows and those of the messages that wait beside them; watermarks follow them."""
        joinable = 0
        while True:
            taken = len(self._taken)
            while joinable < taken and _is_joinable(self._taken[joinable][1]):
                joinable += 1
            if joinable < taken or rows >= FEW_ROWS or 2 * rows >= self._pace.rows:
                break
            if (channel := self._next_channel()) is None:
                break
            rows += self._take_message(channel, self._pace.rows - rows)
        if joinable > 1:
            elements = list(self._taken)
            self._taken = deque((*_joined(elements[:joinable]), *elements[joinable:]))

    @property
    def presses(self) -> bool:
        """Whether something was taken, or a message may not wait for more of them; by the thread that takes them."""
        if self._taken:
            return True
        for channel, inbox in enumerate(self._inboxes):
            if inbox and channel not in self._blocked and self.presses_on(channel, inbox[0][0]):
                return True
        return False

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits here; by the thread that takes it."""
        return not self._taken and not any(self._inboxes)

    def presses_on(self, channel: int, message: Message) -> bool:
        """Whether a message that waits may not wait for more of them.

        So it is with many rows, barriers, ends and the like, and where there are two on a channel: its sender may have
        no more credit.
        """
        return len(self._inboxes[channel]) > 1 or not is_sparse(message)

    def _give(self) -> tuple[int, Element]:
        given = self._taken.popleft()
        if self._is_urgent:
            self._is_urgent = any(_is_unaligned(element) for _, element in self._taken)
        return given

    def abort(self, checkpoint: int) -> None:
        """Wait for the barriers of the checkpoint no more."""
        due = self._aligner.abort(checkpoint, self._now)
        self._taken = deque(
            (index, element)
            for index, element in self._taken
            if not isinstance(element, Barrier) or element.checkpoint != checkpoint
        )
        self._is_urgent = any(_is_unaligned(element) for _, element in self._taken)
        self._begin(due)

    def is_over(self, checkpoint: int) -> bool:
        """Whether barriers of the checkpoint are dropped: it was given up for a later one, or has had its snapshot."""
        return self._aligner.is_over(checkpoint)

    def take_overtaken(self, checkpoint: int) -> Mapping[int, Sequence[Batch]] | None:
        """By channel, the rows that the barrier of an unaligned checkpoint overtook; None while some may come."""
        return self._aligner.take_overtaken(checkpoint)

    def _on_announced(self, channel: int, element: Barrier | EndOfInput) -> None:
        if channel in self._feedback:
            return
        if isinstance(element, Barrier):
            self._begin(self._aligner.on_announced(channel, element, self._now))
        for checkpoint in self._aligner.awaiting(channel):
            self._record_inbox(channel, checkpoint)

    def _begin(self, barriers: Sequence[Barrier]) -> None:
        """Give the barriers to the task behind what was taken, and record what they have overtaken."""
        for barrier in barriers:
            self._taken.append((0, barrier))
            self._is_urgent |= _is_unaligned(barrier)
            for channel in self._aligner.awaited(barrier.checkpoint):
                self._record_inbox(channel, barrier.checkpoint)
        self._unblock()

    def _record_inbox(self, channel: int, checkpoint: int) -> None:
        """Record the rows that wait in front of the barrier, if it is there; else they are recorded as they are taken.

        The inbox is copied, because another thread may append to it.
        """
        rows: list[Batch] = []
        for message, _ in self._inboxes[channel].copy():
            for element in message:
                if isinstance(element, Batch):
                    rows.append(element)
                elif isinstance(element, EndOfInput) or _is_of(element, checkpoint):
                    self._aligner.record(channel, checkpoint, rows)
                    self._aligner.met(channel, checkpoint)
                    return

    def _take_message(self, channel: int, most: int) -> int:
        message, release = self._inboxes[channel].popleft()
        message, rest, rows = _cut(message, most)
        if rest:
            # Barriers, commands and other channels have their turn before it.
            self._inboxes[channel].appendleft((rest, release))
            if self._choose is None:
                self._waiting.append(channel)
        else:
            release()
        input_index = self._input_indexes[channel]
        for element in message:
            if isinstance(element, Batch):
                for checkpoint in self._aligner.awaiting(channel):
                    self._aligner.record(channel, checkpoint, (element,))
                self._taken.append((input_index, element))
            elif isinstance(element, Barrier):
                self._begin(self._aligner.on_barrier(channel, element, self._now))
            elif channel in self._feedback:
                self._taken.extend((input_index, merged) for merged in self._on_feedback(channel, element))
            else:
                self._taken.extend((input_index, merged) for merged in self._on_control(channel, element))
                if isinstance(element, EndOfInput):
                    self._begin(self._aligner.on_end(channel, self._now))
        return rows

    def _on_control(self, channel: int, element: Control) -> list[Control]:
        if isinstance(element, LatencyMarker):
            return [element]
        if isinstance(element, IterationBarrier):
            # A barrier that comes from another loop has nothing to do with the supersteps of this one.
            return [] if self._feedback else [*self._supersteps.on_barrier(channel, element)]
        supersteps = self._supersteps.on_end(channel) if isinstance(element, EndOfInput) else []
        merged = self._merger.on_control(channel, element)
        return [*supersteps, *(self._end_input() if isinstance(one, EndOfInput) else one for one in merged)]

    def _end_input(self) -> Control:
        """What the task gets when the channels from outside a loop have ended: all others stay open."""
        self._input_ended = True
        return EndOfInput() if self._rounds.ended else IterationBarrier(0, INPUT_ENDED)

    def _on_feedback(self, channel: int, element: Control) -> list[Control]:
        match element:
            case IterationBarrier():
                complete = self._rounds.on_barrier(channel, element)
            case EndOfInput():
                complete = self._rounds.on_end(channel)
            case _:
                # A latency marker, too, would go round for ever.
                return []
        self._unblock()
        return [*complete, EndOfInput()] if self._rounds.ended and self._input_ended else complete

    def _unblock(self) -> None:
        """Let the channels that are blocked no more have their turn again, in the order in which they came."""
        self._blocked = self._aligner.blocked | self._rounds.blocked
        if self._set_aside:
            self._waiting.extendleft(reversed(self._set_aside))
            self._set_aside.clear()

    def _next_channel(self) -> int | None:
        if self._choose is not None:
            ready = [channel for channel, inbox in enumerate(self._inboxes) if inbox and channel not in self._blocked]
            return self._choose(ready) if ready else None
        while self._waiting:
            channel = self._waiting.popleft()
            if channel not in self._blocked:
                return channel
            self._set_aside.append(channel)
        return None

    def statistics(self) -> GateStatistics:
        """What waits here. May be called from another thread."""
        channels = len(self._inboxes) - self._retired
        return GateStatistics(channels, sum(map(len, self._inboxes)), len(self._aligner.blocked))

    def close(self) -> None:
        """Nothing to release: messages that were not taken keep their credit."""


def _cut(message: Message, most: int) -> tuple[Message, Message, int]:
    """The first part of a message, of at most `most` rows, what is left, and the rows of that part; parts are even."""
    taken = 0
    for place, element in enumerate(message):
        if not isinstance(element, Batch):
            continue
        count = element.num_rows
        if taken + count > most:
            if taken:
                return message[:place], message[place:], taken
            part = math.ceil(count / math.ceil(count / most))
            rest = (element.slice(part), *message[place + 1 :])
            return (*message[:place], element.slice(0, part)), rest, part
        taken += count
    return message, (), taken


def is_sparse(message: Message) -> bool:
    """Whether there are few rows in it, and nothing but rows, watermarks and latency markers."""
    return all(map(_may_wait, message))


def _may_wait(element: Element) -> bool:
    return _is_joinable(element) or isinstance(element, LatencyMarker)


def _is_joinable(element: Element) -> bool:
    """Few rows, or a watermark that rows may pass."""
    if isinstance(element, Batch):
        return element.num_rows < FEW_ROWS
    return isinstance(element, Watermark) and not element.between_rows


def _joined(taken: Iterable[tuple[int, Element]]) -> Iterator[tuple[int, Element]]:
    """The rows of each input in one batch, where they are alike, and the last of the watermarks behind them all."""
    parts: list[tuple[int, list[Batch]]] = []
    watermark: tuple[int, Element] | None = None
    last: dict[int, list[Batch]] = {}
    for index, element in taken:
        if not isinstance(element, Batch):
            watermark = index, element
        elif index in last and _are_alike(last[index][0], element):
            last[index].append(element)
        else:
            last[index] = [element]
            parts.append((index, last[index]))
    for index, batches in parts:
        yield index, joined(batches)
    if watermark is not None:
        yield watermark


def _are_alike(one: Batch, other: Batch) -> bool:
    """Whether they can be put together as they are."""
    if are_rows_alike(one, other):
        return True
    if one.partials != other.partials or (one.timestamps is None) != (other.timestamps is None):
        return False
    return bool(one.data.schema.equals(other.data.schema))


def _is_unaligned(element: Element) -> bool:
    return isinstance(element, Barrier) and element.mode is CheckpointMode.UNALIGNED


def _is_of(element: Element, checkpoint: int) -> bool:
    return isinstance(element, Barrier) and element.checkpoint == checkpoint


def _nothing() -> None:
    """The credit of a message from a tail is back already."""
