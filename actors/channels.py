"""Both ends of a channel between two actors.

The sender pushes a message to the receiving actor and counts it as a credit in use until the answer is back; the
receiver answers only when its loop has taken the message. Nothing else limits or orders the traffic: pushes may
overtake each other, so each message carries a sequence number and the receiver puts them in order. A message is pickled
here, and goes through a socket to a process on the same machine (docs/adr/0076); where there is much of it, its columns
lie in memory that both share (docs/adr/0099). To others it travels within a call of the actor, unless it is large: Ray
would take longer over it, and would put what is larger than 100 KiB into its object store (docs/adr/0033).
"""

from __future__ import annotations

import asyncio
import math
import pickle
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
from ray.exceptions import ActorDiedError

from penstock.actors.links import Link, Readers, Reply, connected
from penstock.actors.plain_rows import RowPacker, unpacked_rows
from penstock.actors.shared_segments import SegmentBudget, SenderSegments, SharedFrame
from penstock.engine.elements import Batch, Element
from penstock.engine.errors import PenstockError, WorkerLostError
from penstock.engine.exchange.outputs import Message
from penstock.engine.task.input_gate import is_sparse

_SLACK_BYTES: Final = 4096
_LOOK_SECONDS: Final = 1.0
"""How often it is looked for a message that is missing."""
GAP_SECONDS: Final = 60.0
"""How long a message may be missing before the channel is given up."""
_PACKED_BYTES: Final = 512 * 1024
"""Rows of up to so many bytes cost less by value than through the object store, from which more of them are read.
What is under way by value lies in both processes: for each channel up to so many bytes for each credit."""
_FEW_BYTES: Final = 64 * 1024
"""Of more it is the bytes that take time, which pickle copies less often than Arrow's messages do."""
_WANTED: Final = struct.Struct("<d")
"""An answer by a link: the rows that are wanted, 0 for None, and behind them the text of an error."""
_PIECE_BYTES: Final = 96 * 1024
"""From 100 KiB on, Ray takes an argument out of its call, and from 10 MiB of all arguments together."""

Pushed: TypeAlias = tuple[int, int, int, Message]
"""The arguments of a call: the receiver's attempt and its channel, the message's number, and the message."""


Answered: TypeAlias = Callable[[float | None, BaseException | None], object]
"""Hears of a message, once and in any thread: that the receiver has taken it, and how many rows it wants to have under
way from now on (None: it has ended); or why the message was lost."""


class Push(Protocol):
    """Pushes a message to the receiving actor."""

    def __call__(self, sequence: int, message: Message, answered: Answered) -> None:
        """Send message number `sequence` of the channel."""
        ...


def packed(pushed: Pushed) -> Sequence[Pushed | bytes]:
    """The arguments of a call of `push`: bytes in pieces, unless the message is large; see `unpacked`."""
    data = _pickled(pushed, _held_bytes(pushed[-1]), RowPacker())
    if data is None:
        return [pushed]
    return _pieces(data)


def _pieces(data: bytes) -> list[bytes]:
    return [data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES)]


def _pickled(pushed: Pushed, held: int, pack: RowPacker) -> bytes | None:
    """The message, which holds so many bytes, in bytes; None: it is large, or Ray has to pickle it."""
    *where, message = pushed
    if held > _PACKED_BYTES:
        return None
    elements = message if held > _FEW_BYTES else tuple(map(pack, message))
    if _is_for_ray(elements):
        return None
    data = pickle.dumps((*where, elements), pickle.HIGHEST_PROTOCOL)
    if len(data) > 2 * _PACKED_BYTES:
        # Columns that share their memory are written once each.
        return None
    return data


def _pickled_beside(pushed: Pushed) -> tuple[bytes, list[memoryview]] | None:
    """The message in bytes, and the buffers that lie beside them; None: Ray has to pickle it."""
    if _is_for_ray(pushed[-1]):
        return None
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(pushed, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    return data, [buffer.raw() for buffer in buffers]


def _is_for_ray(elements: Iterable[object]) -> bool:
    """Whether pickle would want the class of a type there, which the program may have defined.

    Ray sends what the type is stored as.
    """
    return any(_hold_extension(one.data.schema.types) for one in elements if isinstance(one, Batch))


def _hold_extension(types: Iterable[pa.DataType]) -> bool:
    """Whether one of the types is an extension type, or has one among the types of its items and fields."""
    kinds = list(types)
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, pa.BaseExtensionType):
            return True
        if isinstance(kind, pa.DictionaryType):
            kinds.append(kind.value_type)
        else:
            kinds.extend(kind.field(number).type for number in range(kind.num_fields))
    return False


def _held_bytes(message: Message) -> int:
    """Of the memory that the rows lie in."""
    return sum([element.held_bytes for element in message if isinstance(element, Batch)])


def unpacked(arguments: Sequence[Pushed | bytes]) -> Pushed:
    """What `packed` was given."""
    first = arguments[0]
    if not isinstance(first, bytes):
        return first
    return _read(b"".join(piece for piece in arguments if isinstance(piece, bytes)))


def _read(data: bytes) -> Pushed:
    buffers = data.buffers if isinstance(data, SharedFrame) else ()
    attempt, channel, sequence, elements = pickle.loads(data, buffers=buffers)  # noqa: S301  Ray would do so as well
    return attempt, channel, sequence, tuple(map(unpacked_rows, elements))


def sparse_id(actor_id: str) -> str:
    """Under what an actor takes messages by links that may wait while its task rests; see `LinkServer`."""
    return f"{actor_id}-sparse"


class _Line:
    """A link to an actor, made when it is first wanted, and the messages that wait there for their answers.

    Args:
        peer: the actor.
        listening: under what it listens.
        loop: of this process.
        readers: watch for the answers; by default the loop.
        budget: of the memory that it shares with the actor.
    """

    def __init__(
        self,
        peer: Any,
        listening: str,
        loop: asyncio.AbstractEventLoop,
        readers: Readers | None,
        budget: SegmentBudget,
    ) -> None:
        self._peer = peer
        self._listening = listening
        self._loop = loop
        self._readers = readers
        self._link: Link | None = None
        self._segments = SenderSegments(budget)
        self._sought = False
        self._waiting: deque[Answered] = deque()

    @property
    def waits(self) -> bool:
        """Whether a message has no answer yet."""
        return bool(self._waiting)

    def send(self, data: bytes, answered: Answered, buffers: Sequence[memoryview] = ()) -> bool:
        """Send a message; by one thread.

        Args:
            data: the message.
            answered: hears of it.
            buffers: what lies beside it, through shared memory.

        Returns:
            False: the actor is not to be found there, or there is no memory for the buffers.
        """
        link = self._sought_link()
        placed = self._segments.place(buffers) if buffers and link is not None else None
        if link is None or (buffers and placed is None):
            return False
        self._waiting.append(answered)
        if not link.send(data, placed):
            self._loop.call_soon_threadsafe(self._on_lost)
        return True

    def _sought_link(self) -> Link | None:
        if not self._sought:
            self._sought = True
            if (connection := connected(self._listening)) is not None:
                self._link = Link(connection, self._loop, self._on_answer, self._on_lost, self._readers)
        return self._link

    def _on_answer(self, frame: bytes) -> None:
        error = frame[_WANTED.size :]
        # All that counts is how many have been taken, and what the last one said.
        self._waiting.popleft()(
            _WANTED.unpack_from(frame)[0] or None, WorkerLostError(error.decode()) if error else None
        )

    def _on_lost(self) -> None:
        """The link has ended: the receiver has died, or has lost what it has not answered."""
        self._link = None
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not waiting:
            return

        def fail(ping: Future[None]) -> None:
            error = ping.exception() or WorkerLostError("its connection has ended")
            for answered in waiting:
                answered(None, error)

        self._peer.ping.remote().future().add_done_callback(fail)

    def close(self) -> None:
        """End the link; behind the last message, on the event loop."""
        if self._link is not None:
            self._link.close()
        self._segments.close()


class Pusher:
    """Pushes the messages of one channel through links, where the receiver is on this machine.

    There are two: few rows that nothing is under way before may wait while the receiver rests, which does not look for
    them then; all else may not (docs/adr/0097).

    Args:
        peer: the receiving actor.
        attempt: what runs there.
        channel: the channel's number there.
        loop: of this process.
        readers: watch for the answers that come through the link; by default the loop.
        budget: of the memory that it shares with receivers, beside other channels; by default it has its own.
    """

    def __init__(
        self,
        peer: Any,
        attempt: int,
        channel: int,
        loop: asyncio.AbstractEventLoop,
        readers: Readers | None = None,
        budget: SegmentBudget | None = None,
    ) -> None:
        self._peer = peer
        self._where = attempt, channel
        self._pack = RowPacker()
        actor_id, budget = peer._actor_id.hex(), budget or SegmentBudget()
        self._sparse = _Line(peer, sparse_id(actor_id), loop, readers, budget)
        self._pressing = _Line(peer, actor_id, loop, readers, budget)

    def __call__(self, sequence: int, message: Message, answered: Answered) -> None:
        """Push message number `sequence`; by one thread."""
        pushed = (*self._where, sequence, message)
        held = _held_bytes(message)
        beside = _pickled_beside(pushed) if held > _FEW_BYTES else None
        if beside is not None and self._pressing.send(beside[0], answered, beside[1]):
            return
        data = _pickled(pushed, held, self._pack)
        if data is not None:
            may_wait = len(data) <= _FEW_BYTES and not (self._sparse.waits or self._pressing.waits)
            if may_wait and is_sparse(message) and self._sparse.send(data, answered):
                return
            if self._pressing.send(data, answered):
                return

        def on_done(call: Future[float | None]) -> None:
            error = call.exception()
            answered(None if error else call.result(), error)

        self._peer.push.remote(*([pushed] if data is None else _pieces(data))).future().add_done_callback(on_done)

    def close(self) -> None:
        """End the links; behind the last push, on the event loop."""
        self._sparse.close()
        self._pressing.close()


class Take(Protocol):
    """Gives a message to what runs; `answer` is called by any thread, once, as the result of `push` is given."""

    def __call__(self, pushed: Pushed, answer: Callable[[float | None], object]) -> None:
        """Take it."""
        ...


def take_frame(frame: bytes, reply: Reply, take: Take) -> None:
    """Take a message that came through a link, and answer as `Pusher` reads it."""
    try:
        take(_read(frame), lambda wanted: reply(_WANTED.pack(wanted or 0.0)))
    except Exception as error:
        reply(_WANTED.pack(0.0) + f"{type(error).__name__}: {error}".encode(errors="replace"))


class SendingEnd:
    """The engine's `Channel` over actor calls. `send` and `credits` are used by one thread.

    Args:
        push: calls the receiver.
        credit: how many calls may be unresolved.
        wake: called from any thread when credit came back.
        fail: called from any thread when a message was lost although its receiver lives.
        wanted_rows: how many rows the receiver wants to have under way, before it has said so itself.
    """

    def __init__(
        self,
        push: Push,
        credit: int,
        wake: Callable[[], None],
        fail: Callable[[PenstockError], None],
        wanted_rows: float = math.inf,
    ) -> None:
        self.wanted_rows = wanted_rows
        self._push = push
        self._credit = self._credits = credit
        self._wake = wake
        self._fail = fail
        self._sequence = 0
        self._returned: deque[None] = deque()

    @property
    def credits(self) -> int:
        while self._returned:
            self._returned.popleft()
            self._credits += 1
        return self._credits

    @property
    def under_way(self) -> int:
        # It is asked for by other threads too, so it moves nothing.
        return self._credit - self._credits - len(self._returned)

    def send(self, message: Message) -> None:
        self._credits -= 1
        self._push(self._sequence, tuple(map(_compacted, message)), self._on_answer)
        self._sequence += 1

    def _on_answer(self, wanted: float | None, error: BaseException | None) -> None:
        if error is None:
            self.wanted_rows = wanted or self.wanted_rows
            self._returned.append(None)
            self._wake()
        elif not isinstance(error, ActorDiedError):
            # A dead receiver is noticed by the job manager, which names it.
            self._fail(WorkerLostError(f"a message of a channel was lost: {type(error).__name__}: {error}"))


def _compacted(element: Element) -> Element:
    """The element without the parent of a slice: pickling a slice would send all of its parent."""
    if not isinstance(element, Batch) or element.is_compact:
        return element
    return Batch(_owned(element.data), _owned_array(element.timestamps), _owned_array(element.kinds), element.partials)


def _owned(data: pa.RecordBatch) -> pa.RecordBatch:
    # `nbytes` takes as long as to copy few rows.
    held = data.get_total_buffer_size()
    if held <= _SLACK_BYTES or held <= 2 * data.nbytes + _SLACK_BYTES:
        return data
    return pa.ipc.read_record_batch(data.serialize(), data.schema)


def _owned_array(array: pa.Array | None) -> pa.Array | None:
    if array is None or array.get_total_buffer_size() <= 2 * array.nbytes + _SLACK_BYTES:
        return array
    return pa.concat_arrays([array, array.slice(0, 0)])


class ReceivingEnd:
    """Puts one channel's messages in order. They may come on the event loop, where it is made, and by another thread.

    Args:
        deliver: hands a message and its release to the input gate.
        give_up: called on the loop when a message stays missing.
        read: has what has come received, where the thread that does so is at work for long.
    """

    def __init__(
        self,
        deliver: Callable[[Message, Callable[[], None]], None],
        give_up: Callable[[PenstockError], None],
        read: Callable[[], None],
    ) -> None:
        self._deliver = deliver
        self._give_up = give_up
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._next = 0
        self._early: dict[int, tuple[Message, Callable[[], None]]] = {}
        self._gap_timer: asyncio.TimerHandle | None = None

    def receive(self, sequence: int, message: Message, release: Callable[[], None]) -> None:
        """Take message number `sequence`; a duplicate is released and dropped."""
        with self._lock:
            if sequence < self._next or sequence in self._early:
                release()
                return
            if sequence > self._next:
                self._early[sequence] = (message, release)
            else:
                self._deliver(message, release)
                self._next += 1
            while self._early and self._next in self._early:
                self._deliver(*self._early.pop(self._next))
                self._next += 1
        if self._early or self._gap_timer is not None:
            self._loop.call_soon_threadsafe(self._watch_gap)

    def _watch_gap(self) -> None:
        if self._gap_timer is not None:
            self._gap_timer.cancel()
            self._gap_timer = None
        self._look_again(self._loop.time() + GAP_SECONDS)

    def _look_again(self, until: float) -> None:
        missing = self._missing()
        if missing is not None:
            self._gap_timer = self._loop.call_later(min(_LOOK_SECONDS, GAP_SECONDS), self._look, missing, until)

    def _look(self, missing: int, until: float) -> None:
        """Messages of one channel come by two ways, and a thread at work reads neither: those are not missing."""
        self._gap_timer = None
        self._read()
        if self._missing() != missing:
            self._watch_gap()
        elif self._loop.time() < until:
            self._look_again(until)
        else:
            self._give_up(WorkerLostError(f"message {missing} of a channel did not arrive within {GAP_SECONDS:.0f} s"))

    def _missing(self) -> int | None:
        with self._lock:
            return self._next if self._early else None
