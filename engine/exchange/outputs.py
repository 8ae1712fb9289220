"""Output channels: rows wait here for a full batch, for the buffer timeout, or for credit.

The router fills these buffers and the loop flushes them; the runtime supplies the `Channel` underneath. While a channel
has no credit its rows are coalesced, so batches grow under load and stay small when idle.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.engine.elements import Barrier, Batch, Control, Element, LatencyMarker, Watermark, concat_batches
from penstock.engine.few_rows import FewRows, joined
from penstock.engine.metrics import OutputStatistics

Message: TypeAlias = tuple[Element, ...]
"""What travels at once: at most one batch, with the control elements right behind it; or the parts of one, where
watermarks stand between its rows. A barrier ends its message."""


_ENOUGH: Final = 2
"""So many messages under way keep sender and receiver busy, where each is worth half of the target."""


class Channel(Protocol):
    """The sending end of a channel, supplied by the runtime.

    A message that is a barrier alone may always be sent, also without credit: so an unaligned checkpoint gets through
    where rows do not. It uses up a credit like any other, so that `credits` may be negative for a while.
    """

    @property
    def credits(self) -> int:
        """How many messages may be sent now."""
        ...

    @property
    def under_way(self) -> int:
        """How many messages have been sent and not been taken by the receiver."""
        ...

    wanted_rows: float
    """How many rows the receiver wants to have under way on this channel; infinity for as many as there are."""

    def send(self, message: Message) -> None:
        """Send one message; uses up one credit until the receiver has taken it."""
        ...


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is full, and how long a part of one may wait.

    Args:
        rows: the most rows of a message; half of what the receiver wants to have under way, where that is less.
        size: the most bytes of a message; a single row may be larger.
        timeout: seconds that rows or a watermark wait for the batch to fill.
        watermark_interval: seconds between watermarks at the least, where the later one would travel alone.
    """

    rows: int
    size: int
    timeout: float
    watermark_interval: float = 0.0


class ChannelBuffer:
    """The rows and control elements that wait for one channel, in order.

    Within one message a watermark is overtaken by the rows behind it and replaced by the next one: to hold a watermark
    back is always right, and it lets rows coalesce. It never moves beyond a full message, so with messages of one row
    nothing is reordered. One that a generator has put between two rows stays there, and so does every other control
    element, but for latency markers: each goes behind the message of the row before it, and ends none.

    Attributes:
        added_rows: how many have been queued so far.
    """

    def __init__(self, channel: Channel, limits: BatchLimits) -> None:
        self._channel = channel
        self._limits = limits
        self._sealed: deque[Message] = deque()
        self._parts: deque[tuple[Batch, int]] = deque()
        self._rows = 0
        self._bytes = 0
        self._watermarks: deque[tuple[int, Watermark]] = deque()
        self._markers: deque[tuple[int, LatencyMarker]] = deque()
        self._since: float | None = None
        self._has_sent_watermark = False
        self._watermark_sent = -math.inf
        self.added_rows = 0
        self._messages_sent = 0
        self._bytes_added = 0

    def statistics(self) -> OutputStatistics:
        """What waits here, and what has gone. May be called from another thread."""
        return OutputStatistics(
            1,
            self._rows,
            self._bytes,
            self._channel.under_way,
            int(self.full),
            self._messages_sent,
            self._bytes_added - self._bytes,
        )

    @property
    def full(self) -> bool:
        """Whether more rows should wait upstream until this channel has had credit."""
        if self._sealed or self._rows >= self._limits.rows or self._bytes >= self._limits.size:
            return True
        return self._rows > 0 and self._rows >= self._channel.wanted_rows / 2

    @property
    def wanted_rows(self) -> float:
        """How many rows the receiver wants in a message."""
        return self._channel.wanted_rows / 2

    def expect(self, wanted_rows: float) -> None:
        """Take the receiver to want no more rows in a message than so many, until it says so itself."""
        self._channel.wanted_rows = min(self._channel.wanted_rows, 2 * wanted_rows)

    def congested(self, now: float) -> bool:
        """Whether rows are due and the message before them has not been taken."""
        return self._since is not None and self._is_due(now) and self._channel.under_way > 0

    @property
    def empty(self) -> bool:
        return not self._sealed and self._since is None

    def awaits_credit(self, by: float) -> bool:
        """Whether what is full, or due by then (seconds, monotonic), waits for the message before it to be taken."""
        if self._since is None or not self._channel.under_way:
            return bool(self._sealed)
        return self.full or self._since + self._limits.timeout <= by

    def hurry(self) -> None:
        """What waits is due, unless it would have to wait for the message before it: that is no congestion yet."""
        if self._since is not None and not self._channel.under_way:
            self._since = -math.inf

    @property
    def deadline(self) -> float | None:
        """When what waits is due (seconds, monotonic), or None if nothing waits for time to pass."""
        if self._since is None or self._sealed or self._channel.under_way:
            return None
        due = self._since + self._limits.timeout
        return due if self._rows or self._markers else max(due, self._watermark_due)

    def add(self, batch: Batch, now: float) -> None:
        """Queue rows."""
        size, rows = batch.nbytes, batch.num_rows
        self._parts.append((batch, size))
        self._rows += rows
        self.added_rows += rows
        self._bytes += size
        self._bytes_added += size
        if self._since is None:
            self._since = now

    def add_control(self, element: Control, now: float) -> None:
        """Queue a control element behind everything queued so far."""
        if isinstance(element, Watermark):
            if self._watermarks and self._watermarks[-1][0] == self._rows:
                before = self._watermarks.pop()[1]
                element = Watermark(element.timestamp, element.between_rows or before.between_rows)
            self._watermarks.append((self._rows, element))
        elif isinstance(element, LatencyMarker):
            self._markers.append((self._rows, element))
        else:
            self._seal(element)
            return
        if self._since is None:
            self._since = now

    def holds(self, checkpoint: int) -> bool:
        """Whether the barrier of the checkpoint waits here."""
        return any(_is_barrier_of(message[-1], checkpoint) for message in self._sealed)

    def withdraw(self, checkpoint: int) -> None:
        """Forget the barrier of the checkpoint, if it waits here: nobody expects it, and later ones wait behind it."""
        messages = (message[:-1] if _is_barrier_of(message[-1], checkpoint) else message for message in self._sealed)
        self._sealed = deque(message for message in messages if message)

    def overtake(self, barrier: Barrier) -> list[Batch]:
        """Send `barrier` before all rows, or those before one of its checkpoint that waits; returns those rows.

        They stay here: they are sent, and belong to the checkpoint as well. Barriers never overtake each other: behind
        an older one that waits, the barrier waits too.
        """
        overtaken: list[Batch] = []
        messages, behind = list(self._sealed), 0
        for place, message in enumerate(messages):
            overtaken.extend(element for element in message if isinstance(element, Batch))
            if _is_barrier_of(message[-1], barrier.checkpoint):
                messages[place] = message[:-1]
                break
            if isinstance(message[-1], Barrier):
                overtaken, behind = [], place + 1
        else:
            overtaken.extend(part for part, _ in self._parts)
        if behind:
            messages.insert(behind, (barrier,))
        else:
            self._channel.send((barrier,))
        self._sealed = deque(message for message in messages if message)
        return overtaken

    def flush(self, now: float) -> None:
        """Send what is full, as far as credit and the receiver's wishes go, and what is due, if nothing is under way.

        A part of a batch waits for the message before it, as in Nagle's algorithm (RFC 896): a receiver that cannot
        keep up with small messages gets larger ones, and one that can gets each row at once.
        """
        if self._since is None and not self._sealed:
            return
        channel = self._channel
        # Mostly nothing is to be sent: whether there is credit is asked last.
        while (self._sealed or self.full or self._is_due(now)) and channel.credits > 0:
            if channel.under_way >= _ENOUGH and channel.wanted_rows < _ENOUGH * self._limits.rows:
                return
            if self._sealed:
                channel.send(self._sealed.popleft())
            elif not channel.under_way or self.full:
                channel.send(self._take())
                if self._has_sent_watermark:
                    self._watermark_sent, self._has_sent_watermark = now, False
            else:
                return
            self._messages_sent += 1

    @property
    def _most_rows(self) -> int:
        """The most rows of the next message."""
        return min(self._limits.rows, max(1, int(min(self._channel.wanted_rows / 2, self._limits.rows))))

    def _is_due(self, now: float) -> bool:
        if self._since is None or now < self._since + self._limits.timeout:
            return False
        return bool(self._rows or self._markers) or now >= self._watermark_due

    @property
    def _watermark_due(self) -> float:
        """When a watermark alone may follow the one before: it goes to all channels, and rows may be few."""
        return self._watermark_sent + self._limits.watermark_interval

    def _seal(self, element: Control) -> None:
        message: Message = ()
        while self._since is not None:
            if message:
                self._sealed.append(message)
            message = self._take()
        self._sealed.append((*message, element))

    def _take(self) -> Message:
        """The oldest rows, as many as fit one message, and the last watermark that none of the other rows precedes."""
        batch = self._take_rows() if self._parts and not self._watermark_goes_first else None
        message: Message
        if batch is not None and not self._watermarks and not self._markers:
            message = (batch,)
        else:
            message = tuple(self._with_watermarks(batch))
        if not self._parts:
            self._rows = self._bytes = 0
            self._since = None
        return message

    def _with_watermarks(self, batch: Batch | None) -> list[Element]:
        """The rows with the watermarks that stand among them and right behind them."""
        message: list[Element] = []
        begin, taken = 0, 0 if batch is None else batch.num_rows
        behind: Watermark | None = None
        while self._watermarks and self._watermarks[0][0] <= taken:
            place, behind = self._watermarks.popleft()
            self._has_sent_watermark = True
            if behind.between_rows and batch is not None and place < taken:
                if begin < place:
                    message.append(batch.slice(begin, place - begin))
                message.append(behind)
                begin, behind = place, None
        if batch is not None:
            message.append(batch.slice(begin) if begin else batch)
        if behind is not None:
            message.append(behind)
        self._watermarks = deque((rows - taken, watermark) for rows, watermark in self._watermarks)
        if self._markers:
            message.extend(marker for rows, marker in self._markers if rows <= taken)
            self._markers = deque((rows - taken, marker) for rows, marker in self._markers if rows > taken)
        return message

    def _take_rows(self) -> Batch:
        """The oldest rows, as many as fit one message; only they are copied together, once."""
        parts: list[Batch] = []
        rows, size = self._most_rows, self._limits.size
        while self._parts and rows > 0 and size > 0:
            part, part_size = self._parts[0]
            if part.num_rows > rows or part_size > size:
                fitting = _rows_that_fit(part, rows, size)
                if parts and not fitting:
                    break
                part = self._cut(max(1, fitting))
                parts.append(part)
                break
            self._forget_first()
            parts.append(part)
            rows -= part.num_rows
            size -= part_size
        whole = joined(parts) if type(parts[0]) is FewRows else concat_batches(parts)
        if len(parts) == 1 or whole.nbytes <= self._limits.size:
            return whole
        # Together they may be larger than alone: columns without a type, or without nulls, get what the others have.
        self._put_back(whole)
        return self._cut(max(1, _rows_that_fit(whole, self._most_rows, self._limits.size)))

    def _cut(self, count: int) -> Batch:
        """Take the first `count` rows of the oldest part."""
        part, _ = self._forget_first()
        if count < part.num_rows:
            self._put_back(part.slice(count))
        return part.slice(0, count)

    def _forget_first(self) -> tuple[Batch, int]:
        part, size = self._parts.popleft()
        self._rows -= part.num_rows
        self._bytes -= size
        return part, size

    def _put_back(self, part: Batch) -> None:
        size = part.nbytes
        self._parts.appendleft((part, size))
        self._rows += part.num_rows
        self._bytes += size

    @property
    def _watermark_goes_first(self) -> bool:
        """Whether a watermark stands before all rows, and they fill a message of their own."""
        return bool(self._watermarks) and self._watermarks[0][0] == 0 and self._rows >= self._most_rows


def _is_barrier_of(element: Element, checkpoint: int) -> bool:
    return isinstance(element, Barrier) and element.checkpoint == checkpoint


def _rows_that_fit(batch: Batch, rows: int, size: int) -> int:
    """How many rows of the batch are at most `rows` rows, and `size` bytes beside its dictionaries."""
    rows = min(batch.num_rows, rows)
    if batch.slice(0, rows).nbytes <= size:
        return rows
    # A dictionary travels whole with every part of the batch: to cut rows off does not make it smaller.
    size += batch.slice(0, 0).nbytes
    return bisect.bisect_right(range(1, rows + 1), size, key=lambda count: batch.slice(0, count).nbytes)
