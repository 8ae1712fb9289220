"""Event-time order within a partition: the sender cuts its rows into sorted runs, and the receiver merges them.

Together with Spark's sort of the parcels by their first timestamp this is an external merge sort: neither side holds
more than a few runs, or parcels, in memory, however many rows there are and whatever their order was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import Batch, concat_batches

_RELEASE_BYTES = 8 * 1024 * 1024


def sorted_by_time(batch: Batch) -> Batch:
    """The rows in the order of their timestamps, those of one time as they were; as they are if they have none."""
    if batch.timestamps is None:
        return batch
    times = batch.timestamps.to_numpy(zero_copy_only=False)
    if batch.num_rows < 2 or bool(np.all(times[:-1] <= times[1:])):
        return batch
    return batch.take(pa.array(np.argsort(times, kind="stable")))


class TimeMerger:
    """Gives the rows of all inputs in the order of their timestamps; those of one time by input, then as they came.

    Args:
        inputs: how many inputs there are.
        release_bytes: how much waits before it is looked whether rows can go on.
    """

    def __init__(self, inputs: int, release_bytes: int = _RELEASE_BYTES) -> None:
        self._waiting: list[list[Batch]] = [[] for _ in range(inputs)]
        self._release_bytes = release_bytes
        self._bytes = 0
        self._enough = release_bytes

    def add(self, turn: int, channel: int, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """Take rows sorted by time, which begin at time `turn`; gives those that none can precede any more.

        Args:
            turn: int64 ms; never less than in the call before.
            channel: the input that they came on.
            batch: the rows.
        """
        if self._bytes >= self._enough:
            yield from self._release(turn)
            # What must wait on is not to be sorted anew for each parcel.
            self._enough = max(self._release_bytes, 2 * self._bytes)
        self._waiting[channel].append(batch)
        self._bytes += batch.nbytes

    def finish(self) -> Iterator[tuple[int, Batch]]:
        """The rows that are left."""
        yield from self._release(None)

    def _release(self, turn: int | None) -> Iterator[tuple[int, Batch]]:
        ready: list[tuple[int, Batch]] = []
        self._bytes = 0
        for channel, batches in enumerate(self._waiting):
            if not batches:
                continue
            whole = sorted_by_time(concat_batches(batches))
            times = _times(whole)
            end = len(times) if turn is None else int(np.searchsorted(times, turn, side="left"))
            rest = whole.slice(end)
            self._waiting[channel] = [rest] if rest.num_rows else []
            self._bytes += rest.nbytes
            if end:
                ready.append((channel, whole.slice(0, end)))
        yield from interleaved(ready)


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
