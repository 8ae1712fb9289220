"""The rows that joins keep: segments sorted by key and time, or by time alone.

The join operators append each batch as a segment and probe all segments of the other side. Segments of like size are
merged, so there are few of them, and each row is copied a bounded number of times; rows that can go are dropped when
they make up half of a segment. The results do not depend on where segments begin and end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, concat_batches, concat_record_batches
from penstock.engine.operators.base import Collector
from penstock.engine.operators.join_columns import Int64s, same_keys
from penstock.engine.operators.joins.row_bytes import row_bytes, widest_row_bytes
from penstock.engine.row_numbers import DENSE, dense_numbers
from penstock.engine.state.keys.groups import hash_columns

EMIT_ROWS: Final = 65_536
"""The most rows that a join emits at once."""
EMIT_BYTES: Final = 1 << 26
"""The most bytes that a join emits at once, unless a single pair has more."""
_MERGED_ROWS: Final = 1_048_576
"""Segments are not merged to more than this."""
_MERGED_BYTES: Final = 1 << 30
"""Nor to more bytes: text columns of one record batch have offsets of 32 bits."""
_SMALL_ROWS: Final = 65_536
_FEW_TIMES: Final = 4
"""It is cheaper to look at up to so many times as many rows, in order, than to look rows up."""
_LARGEST_POSITION: Final = 2**62

Mask = npt.NDArray[np.bool_]


def key_codes(keys: Sequence[pa.Array]) -> Int64s:
    """One int64 a row, equal where the keys are; see `codes_are_keys` for the other way round.

    Args:
        keys: plain key columns without nulls.
    """
    if not codes_are_keys([key.type for key in keys]):
        return hash_columns(keys)
    column = keys[0]
    if not pa.types.is_integer(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    codes: Int64s = column.to_numpy().astype(np.int64, copy=False)
    return codes


def codes_are_keys(types: Sequence[pa.DataType]) -> bool:
    """Whether rows with equal codes have equal keys: so with one integer or time; with others it must be looked up."""
    return len(types) == 1 and bool(pa.types.is_integer(types[0]) or pa.types.is_temporal(types[0]))


def spread(begins: Int64s, ends: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """All (i, position) with begins[i] <= position < ends[i], in order, as pairs of arrays of `EMIT_ROWS` at most."""
    lengths = ends - begins
    reached = np.cumsum(lengths)
    offsets = begins - (reached - lengths)
    total = int(reached[-1]) if len(reached) else 0
    if (lengths == 1).all():
        for first in range(0, total, EMIT_ROWS):
            yield np.arange(first, min(first + EMIT_ROWS, total)), begins[first : first + EMIT_ROWS]
        return
    for first in range(0, total, EMIT_ROWS):
        numbers = np.arange(first, min(first + EMIT_ROWS, total))
        of = np.searchsorted(reached, numbers, "right")
        yield of, numbers + offsets[of]


def parts(*taken: tuple[pa.RecordBatch, Int64s]) -> Iterator[slice]:
    """Cut results so that none has more than about `EMIT_BYTES`.

    Args:
        taken: batches, and the rows of each that make up the results; as many of each.

    Yields:
        Which of the results go together, in order.
    """
    count = len(taken[0][1])
    wide = [(rows, indices) for rows, indices in taken if not _all_fit(rows, count)]
    if not wide:
        yield slice(0, count)
        return
    reached = np.cumsum(sum(row_bytes(rows, indices) for rows, indices in wide))
    begin = 0
    while begin < count:
        before = int(reached[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(reached, before + EMIT_BYTES, "right")), begin + 1)
        yield slice(begin, end)
        begin = end


def _all_fit(rows: pa.RecordBatch, count: int) -> bool:
    """Whether any `count` of these rows, repeated or not, are known to stay well below the most bytes."""
    if rows.nbytes * count <= EMIT_BYTES // 2:
        return True
    return rows.num_rows <= _FEW_TIMES * count and widest_row_bytes(rows) * count <= EMIT_BYTES // 2


def emit_together(batches: Iterable[Batch], out: Collector) -> None:
    """Emit small batches as one."""
    waiting: list[Batch] = []
    rows, nbytes = 0, 0
    for batch in batches:
        if waiting and nbytes + batch.nbytes > EMIT_BYTES:
            out.collect(concat_batches(waiting))
            waiting, rows, nbytes = [], 0, 0
        waiting.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if rows >= EMIT_ROWS:
            out.collect(concat_batches(waiting))
            waiting, rows, nbytes = [], 0, 0
    if waiting:
        out.collect(concat_batches(waiting))


class KeySegment:
    """Rows sorted by (code, timestamp), and by arrival among equal ones.

    Args:
        rows, codes, timestamps: the rows, already sorted.
        floor: rows with timestamps at or below it may be gone (see `KeySegments`).
    """

    def __init__(self, rows: pa.RecordBatch, codes: Int64s, timestamps: Int64s, floor: int) -> None:
        self.rows = rows
        self.codes = codes
        self.timestamps = timestamps
        self.floor = floor
        self.first, self.last = int(timestamps.min()), int(timestamps.max())
        self.plan_check()
        self._begins = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        self._distinct = codes[self._begins]
        self._numbers: tuple[int, Int64s] | None = None
        self._index()

    @classmethod
    def sort(cls, rows: pa.RecordBatch, codes: Int64s, timestamps: Int64s, floor: int = MIN_TIMESTAMP) -> KeySegment:
        """A segment of rows in order of arrival."""
        order = _order(codes, timestamps)
        return cls(rows.take(pa.array(order)), codes[order], timestamps[order], floor)

    def plan_check(self) -> None:
        """Choose the floor at which half of the rows that are above it now may be dead: dropping them pays then."""
        above = self.timestamps[self.timestamps > self.floor]
        half = len(above) // 2
        self.check_at = int(np.partition(above, half)[half]) if len(above) else MAX_TIMESTAMP

    def _index(self) -> None:
        """Number the rows so that (code, timestamp) can be searched for as one ascending number."""
        groups = np.repeat(np.arange(len(self._begins)), np.diff(self._begins, append=len(self.codes)))
        self._times: Int64s | None = None
        self._stride = self.last - self.first + 2
        if self._stride * len(self._begins) > _LARGEST_POSITION:
            self._times = np.unique(self.timestamps)
            self._stride = len(self._times) + 1
        self._positions = groups * self._stride + self._place(self.timestamps)

    def _place(self, times: Int64s) -> Int64s:
        """Where each time stands among those of the segment: from 0 to `_stride` - 1, which is behind all."""
        if self._times is not None:
            return np.searchsorted(self._times, times)
        return np.minimum(np.maximum(times, self.first), self.last + 1) - self.first

    def __len__(self) -> int:
        return len(self.codes)

    def ranges(self, codes: Int64s, low: Int64s, high: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """The rows with code i and low[i] <= timestamp <= high[i], above the floor: (i, begin, end), none empty."""
        if int(high.max()) < self.first or int(low.min()) > self.last:
            empty = np.empty(0, np.int64)
            return empty, empty, empty
        probes, groups = self._groups(codes)
        low, high = np.maximum(low[probes], self.floor + 1), high[probes]
        begins = np.searchsorted(self._positions, groups * self._stride + self._place(low))
        ends = np.searchsorted(self._positions, groups * self._stride + self._place(high + 1))
        found = ends > begins
        return probes[found], begins[found], ends[found]

    def of_codes(self, codes: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """All rows with code i, of whatever time: (i, begin, end), none empty."""
        probes, groups = self._groups(codes)
        return probes, self._begins[groups], np.append(self._begins, len(self.codes))[groups + 1]

    def address(self) -> None:
        """Find codes by a table where they lie close together: for rows that are looked up again and again."""
        dense = dense_numbers(self._distinct, DENSE)
        if dense is not None:
            offsets, end, low = dense
            numbers = np.full(end, -1)
            numbers[offsets] = np.arange(len(offsets))
            self._numbers = low, numbers

    def latest(self, codes: Int64s, times: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """The last row with code i and timestamp <= times[i]: (i, its place, the first place of its code)."""
        probes, groups = self._groups(codes)
        places = np.searchsorted(self._positions, groups * self._stride + self._place(times[probes] + 1)) - 1
        firsts = self._begins[groups]
        found = places >= firsts
        return probes[found], places[found], firsts[found]

    def _groups(self, codes: Int64s) -> tuple[Int64s, Int64s]:
        """Which of `codes` the segment has, and the number of each of them in it."""
        if self._numbers is not None:
            low, numbers = self._numbers
            # What is too small becomes very large.
            offsets = (codes - low).view(np.uint64)
            found = numbers[np.minimum(offsets, np.uint64(len(numbers) - 1))]
            probes = np.flatnonzero((found >= 0) & (offsets < len(numbers)))
            return probes, found[probes]
        groups = np.minimum(np.searchsorted(self._distinct, codes), len(self._distinct) - 1)
        probes = np.flatnonzero(self._distinct[groups] == codes)
        return probes, groups[probes]

    def filtered(self, keep: Mask) -> KeySegment:
        """The rows to keep, at least one."""
        return KeySegment(self.rows.filter(pa.array(keep)), self.codes[keep], self.timestamps[keep], self.floor)


def _order(codes: Int64s, timestamps: Int64s) -> Int64s:
    """As `np.lexsort((timestamps, codes))`, but much faster where the rows are in long runs that are sorted already."""
    by_code = np.argsort(codes, kind="stable")
    codes, times = codes[by_code], timestamps[by_code]
    begins_group = codes[1:] != codes[:-1]
    if not ((times[1:] < times[:-1]) & ~begins_group).any():
        return by_code
    first, last = int(times.min()), int(times.max())
    stride = last - first + 1
    if stride * len(codes) > _LARGEST_POSITION:
        return by_code[np.lexsort((times, codes))]
    positions = np.zeros(len(codes), np.int64)
    np.cumsum(begins_group, out=positions[1:])
    positions *= stride
    positions += times - first
    return by_code[np.argsort(positions, kind="stable")]


def expired(segment: KeySegment) -> Mask:
    """Rows at or below the floor."""
    mask: Mask = segment.timestamps <= segment.floor
    return mask


class KeySegments:
    """Rows of one side, sorted by key and time.

    Args:
        dead: which rows of a segment nothing can need any more, given its floor; called in any thread.
    """

    def __init__(self, dead: Callable[[KeySegment], Mask]) -> None:
        self._dead = dead
        self._segments: list[KeySegment] = []

    def __iter__(self) -> Iterator[KeySegment]:
        """The segments, in order of arrival."""
        return iter(self._segments)

    def __len__(self) -> int:
        """Rows held, the dead that were not dropped yet among them."""
        return sum(map(len, self._segments))

    def append(self, segment: KeySegment) -> None:
        """Add rows that came behind all others."""
        self._segments.append(segment)
        while len(self._segments) > 1:
            before, last = self._segments[-2:]
            if len(before) >= 2 * len(last) or len(before) + len(last) > _MERGED_ROWS:
                break
            if before.rows.nbytes + last.rows.nbytes > _MERGED_BYTES:
                break
            del self._segments[-2:]
            self._add_live(self._merged(before, last))

    def raise_floor(self, floor: int) -> None:
        """Say that the rows here that are at or below `floor` may go; not those that are appended later."""
        segments, self._segments = self._segments, []
        for segment in segments:
            segment.floor = floor
            if floor >= segment.check_at:
                self._add_live(segment)
            else:
                self._segments.append(segment)

    def captured(self) -> Callable[[], tuple[list[pa.RecordBatch], Int64s]] | None:
        """The rows as they are now, without dead ones, and their timestamps, to be made later and in any thread.

        None where there are none. Takes references alone: of a segment nothing changes but the floor.
        """
        segments = [copy(segment) for segment in self._segments]

        def made() -> tuple[list[pa.RecordBatch], Int64s]:
            kept = [(segment, ~self._dead(segment)) for segment in segments]
            rows = [segment.rows.filter(pa.array(keep)) for segment, keep in kept]
            return rows, np.concatenate([segment.timestamps[keep] for segment, keep in kept])

        return made if segments else None

    def _add_live(self, segment: KeySegment | None) -> None:
        if segment is None:
            return
        dead = self._dead(segment)
        if not dead.any():
            segment.plan_check()
            self._segments.append(segment)
        elif not dead.all():
            self._segments.append(segment.filtered(~dead))

    def _merged(self, *segments: KeySegment) -> KeySegment | None:
        live = [(segment, ~self._dead(segment)) for segment in segments]
        parts = [segment if keep.all() else segment.filtered(keep) for segment, keep in live if keep.any()]
        if len(parts) < 2:
            return parts[0] if parts else None
        rows = concat_record_batches([part.rows for part in parts])
        codes = np.concatenate([part.codes for part in parts])
        timestamps = np.concatenate([part.timestamps for part in parts])
        return KeySegment.sort(rows, codes, timestamps, min(part.floor for part in parts))


def superseded(key_of: Callable[[pa.RecordBatch], list[pa.Array]]) -> Callable[[KeySegment], Mask]:
    """Rows behind which another row of their key, at or below the floor, follows: a version nobody can ask for.

    Args:
        key_of: the key columns of rows.
    """

    def dead(segment: KeySegment) -> Mask:
        mask = np.zeros(len(segment), np.bool_)
        mask[:-1] = (segment.codes[1:] == segment.codes[:-1]) & (segment.timestamps[1:] <= segment.floor)
        candidates = np.flatnonzero(mask)
        keys = key_of(segment.rows)
        if len(candidates) and not codes_are_keys([key.type for key in keys]):
            equal = same_keys(keys, candidates, keys, candidates + 1)
            mask[candidates] = equal.to_numpy(zero_copy_only=False)
        return mask

    return dead


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """Rows in order of their timestamps, and of arrival among equal ones.

    Args:
        fired_until: windows that end at or below this have been emitted with these rows.
    """

    rows: pa.RecordBatch
    timestamps: Int64s
    fired_until: int = MIN_TIMESTAMP

    def between(self, low: int, high: int) -> TimeSlice:
        """The rows with low <= timestamp < high, without a copy."""
        begin, end = np.searchsorted(self.timestamps, [low, high])
        return TimeSlice(self.rows.slice(begin, end - begin), self.timestamps[begin:end], self.fired_until)


class TimeSegments:
    """Rows of one side, sorted by time."""

    def __init__(self) -> None:
        self._segments: list[TimeSlice] = []

    def __iter__(self) -> Iterator[TimeSlice]:
        return iter(self._segments)

    def __len__(self) -> int:
        return sum(len(segment.timestamps) for segment in self._segments)

    @property
    def first(self) -> int | None:
        """The smallest timestamp."""
        return min((int(segment.timestamps[0]) for segment in self._segments), default=None)

    def append(self, rows: pa.RecordBatch, timestamps: Int64s, fired_until: int = MIN_TIMESTAMP) -> None:
        """Add rows, in order of arrival; at least one."""
        if (timestamps[1:] < timestamps[:-1]).any():
            order = np.argsort(timestamps, kind="stable")
            rows, timestamps = rows.take(pa.array(order)), timestamps[order]
        self._segments.append(TimeSlice(rows, timestamps, fired_until))
        while len(self._segments) > 1:
            before, last = self._segments[-2:]
            sizes = len(before.timestamps), len(last.timestamps)
            if sizes[0] >= 2 * sizes[1] or sum(sizes) > _SMALL_ROWS or before.fired_until != last.fired_until:
                break
            if before.rows.nbytes + last.rows.nbytes > _MERGED_BYTES:
                break
            self._segments[-2:] = [_merged([before, last])]

    def between(self, low: int, high: int) -> list[TimeSlice]:
        """The rows with low <= timestamp < high; slices in order of arrival, none of them empty."""
        slices = [segment.between(low, high) for segment in self._segments]
        return [part for part in slices if len(part.timestamps)]

    def captured(self) -> Callable[[], tuple[list[pa.RecordBatch], Int64s]] | None:
        """The rows as they are now, and their timestamps, to be put together later and in any thread; None for none."""
        parts = list(self._segments)
        if not parts:
            return None
        return lambda: ([part.rows for part in parts], np.concatenate([part.timestamps for part in parts]))

    def drop_before(self, low: int) -> None:
        """Forget the rows with timestamps below `low`."""
        if any(segment.timestamps[0] < low for segment in self._segments):
            self._segments = self.between(low, MAX_TIMESTAMP)


def _merged(slices: Sequence[TimeSlice]) -> TimeSlice:
    rows = concat_record_batches([part.rows for part in slices])
    timestamps = np.concatenate([part.timestamps for part in slices])
    order = np.argsort(timestamps, kind="stable")
    return TimeSlice(rows.take(pa.array(order)), timestamps[order], slices[0].fired_until)
