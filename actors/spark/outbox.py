"""The sending side of a stage: gathers what its task emits into sorted runs, and cuts these into parcels.

Stands behind the task's channels; `stage.py` takes the parcels out as they become ready.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.actors.spark.parcels import FIRST_TURN, NO_ROWS, Parcel, Phase, pack
from penstock.actors.spark.time_order import sorted_by_time
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark, concat_batches
from penstock.engine.exchange.outputs import Message

PARCEL_BYTES: Final = 1024 * 1024
"""About how large a parcel is."""
HELD_BYTES: Final = 64 * 1024 * 1024
"""How much the lanes of a subtask gather together, to be sorted by time, before the longest of them is sent."""
_CREDITS: Final = 2**31


@dataclass(slots=True)
class _Lane:
    """What waits for one receiving subtask."""

    edge: int
    route: int
    phase: Phase
    is_timed: bool
    is_dealt: bool
    batches: list[Batch] = field(default_factory=list)
    size: int = 0
    sent: int = 0
    watermark: int = MIN_TIMESTAMP


class Outbox:
    """All lanes of one subtask.

    Args:
        sender: the subtask.
        parcel_bytes, held_bytes: as the constants above.

    Attributes:
        dealt: a checksum over what has left on lanes among which rows are dealt out, whatever they hold: a subtask that
            runs again must come to the same.
    """

    def __init__(self, sender: int, parcel_bytes: int = PARCEL_BYTES, held_bytes: int = HELD_BYTES) -> None:
        self._sender = sender
        self._parcel_bytes = parcel_bytes
        self._held_bytes = held_bytes
        self._lanes: list[_Lane] = []
        self._held = 0
        self._ready: deque[Parcel] = deque()
        self.dealt = 0

    def lane(
        self, edge: int, route: int, phase: Phase = Phase.ROWS, is_timed: bool = True, is_dealt: bool = False
    ) -> LaneEnd:
        """The sending end of a channel.

        Args:
            edge, route, phase: as in `Parcel`.
            is_timed: whether its rows are to be read in the order of their timestamps, where they have some.
            is_dealt: whether its rows are there by their turn, and not for what they hold.
        """
        lane = _Lane(edge, route, phase, is_timed, is_dealt)
        self._lanes.append(lane)
        return LaneEnd(self, lane)

    def add(self, lane: _Lane, batch: Batch) -> None:
        """Take rows for a lane."""
        size = batch.nbytes
        lane.batches.append(batch)
        lane.size += size
        self._held += size
        keeps_order = not lane.is_timed or batch.timestamps is None
        if keeps_order and lane.size >= self._parcel_bytes:
            self._send(lane)
        elif self._held > self._held_bytes:
            self._send(max(self._lanes, key=lambda one: one.size))

    def take(self) -> Sequence[Parcel]:
        """The parcels that are ready."""
        ready, self._ready = self._ready, deque()
        return ready

    def finish(self) -> Sequence[Parcel]:
        """The parcels that are ready, all that waited, and how far event time is on lanes where it advances."""
        for lane in self._lanes:
            self._send(lane)
            if lane.is_timed and MIN_TIMESTAMP < lane.watermark < MAX_TIMESTAMP:
                self._put(lane, Phase.WATERMARK, lane.watermark, NO_ROWS)
        return self.take()

    def _send(self, lane: _Lane) -> None:
        if not lane.batches:
            return
        whole = concat_batches(lane.batches)
        self._held -= lane.size
        lane.batches, lane.size = [], 0
        if lane.is_timed:
            whole = sorted_by_time(whole)
        rows = max(1, whole.num_rows * self._parcel_bytes // max(whole.nbytes, 1))
        for begin in range(0, whole.num_rows, rows):
            part = whole.slice(begin, rows)
            turn = _turn(part) if lane.is_timed else FIRST_TURN
            self._put(lane, lane.phase, turn, part)

    def _put(self, lane: _Lane, phase: Phase, turn: int, batch: Batch) -> None:
        rows = pack(batch)
        if lane.is_dealt:
            self.dealt = zlib.crc32(rows, zlib.crc32(b"%d %d" % (lane.edge, lane.route), self.dealt))
        self._ready.append(Parcel(lane.edge, lane.route, phase, turn, self._sender, lane.sent, rows))
        lane.sent += 1


class LaneEnd:
    """A channel to Spark, which takes whatever comes: Spark writes it to disk where memory is short."""

    credits = _CREDITS
    under_way = 0
    wanted_rows = math.inf

    def __init__(self, outbox: Outbox, lane: _Lane) -> None:
        self._outbox = outbox
        self._lane = lane

    def send(self, message: Message) -> None:
        """Keep the rows, and the last watermark: the next stage begins when all rows are there."""
        for element in message:
            match element:
                case Batch():
                    self._outbox.add(self._lane, element)
                case Watermark(timestamp):
                    self._lane.watermark = timestamp
                case _:
                    pass


def _turn(part: Batch) -> int:
    if part.timestamps is None:
        return FIRST_TURN
    first: int = part.timestamps[0].as_py()
    return max(first, FIRST_TURN + 1)
