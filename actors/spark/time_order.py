"""Event-time order within a partition: the sender cuts its rows into sorted runs, and the receiver merges them.

Together with Spark's sort of the parcels by their first timestamp this is an external merge sort: neither side holds
more than a few runs, or parcels, in memory, however many rows there are and whatever their order was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.actors.spark.parcels import Arrival
from penstock.engine.elements import Batch, concat_batches

_RELEASE_BYTES: Final = 8 * 1024 * 1024


def sorted_by_time(batch: Batch) -> Batch:
    """The rows in the order of their timestamps, those of one time as they were; as they are if they have none."""
    if batch.timestamps is None:
        return batch
    times = batch.timestamps.to_numpy(zero_copy_only=False)
    if batch.num_rows < 2 or bool(np.all(times[:-1] <= times[1:])):
        return batch
    return batch.take(pa.array(np.argsort(times, kind="stable")))


class TimeMerger:
    """Gives rows in the order of their timestamps, over all inputs or of each; of one time by input, then as sent.

    Args:
        inputs: how many inputs there are.
        release_bytes: how much waits before it is checked whether rows can be passed on.
        mixes: whether rows of different inputs are in order, too; else those of each are in theirs, in larger batches.
    """

    def __init__(self, inputs: int, release_bytes: int = _RELEASE_BYTES, mixes: bool = True) -> None:
        self._mixes = mixes
        self._waiting: list[list[Arrival]] = [[] for _ in range(inputs)]
        self._release_bytes = release_bytes
        self._bytes = 0
        self._enough = release_bytes

    def add(self, channel: int, arrival: Arrival) -> Iterator[tuple[int, Batch]]:
        """Take rows sorted by time, whose turn is never less than in the call before; gives those to pass on.

        Args:
            channel: the input that they came on.
            arrival: the rows.
        """
        if self._bytes >= self._enough:
            yield from self._release(arrival.turn)
            # What must wait on is not to be looked at anew for each parcel.
            self._enough = max(self._release_bytes, 2 * self._bytes)
        self._waiting[channel].append(arrival)
        self._bytes += arrival.batch.nbytes

    def finish(self) -> Iterator[tuple[int, Batch]]:
        """The rows that are left."""
        yield from self._release(None)

    def _release(self, turn: int | None) -> Iterator[tuple[int, Batch]]:
        """The rows before `turn`, all of them for None: none can come any more that belongs before or among them."""
        ready: list[tuple[int, Batch]] = []
        self._bytes = 0
        for channel, arrivals in enumerate(self._waiting):
            parts = [(arrival, _rows_before(arrival.batch, turn)) for arrival in sorted(arrivals, key=_rank)]
            rests = [replace(arrival, batch=arrival.batch.slice(end)) for arrival, end in parts]
            self._waiting[channel] = [rest for rest in rests if rest.batch.num_rows]
            self._bytes += sum(rest.batch.nbytes for rest in self._waiting[channel])
            batches = [arrival.batch.slice(0, end) for arrival, end in parts if end]
            if batches:
                ready.append((channel, sorted_by_time(concat_batches(batches))))
        yield from interleaved(ready) if self._mixes else ready


def _rank(arrival: Arrival) -> tuple[int, int, int]:
    return arrival.rank


def _rows_before(batch: Batch, turn: int | None) -> int:
    return batch.num_rows if turn is None else int(np.searchsorted(_times(batch), turn, side="left"))


def interleaved(inputs: Sequence[tuple[int, Batch]]) -> Iterator[tuple[int, Batch]]:
    """Cut batches that are sorted by time into runs that follow each other; at equal times the first input goes first.

    Args:
        inputs: number and rows of each input.
    """
    if len(inputs) <= 1:
        yield from inputs
        return
    origins = np.repeat(np.arange(len(inputs)), [batch.num_rows for _, batch in inputs])
    order = np.argsort(np.concatenate([_times(batch) for _, batch in inputs]), kind="stable")
    by_time = origins[order]
    starts = [0, *(np.flatnonzero(np.diff(by_time)) + 1).tolist()]
    taken = [0] * len(inputs)
    for begin, end in zip(starts, [*starts[1:], len(by_time)], strict=True):
        origin = int(by_time[begin])
        channel, batch = inputs[origin]
        yield channel, batch.slice(taken[origin], end - begin)
        taken[origin] += end - begin


def _times(batch: Batch) -> npt.NDArray[np.int64]:
    assert batch.timestamps is not None, "rows that are merged by time have timestamps"
    times: npt.NDArray[np.int64] = batch.timestamps.to_numpy(zero_copy_only=False)
    return times
