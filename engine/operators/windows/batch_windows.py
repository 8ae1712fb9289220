"""The windows of all rows of a batch at once, as arrays, in the order in which rows one by one would come to them.

The window operators of compiled functions call it. What depends on the rows between is left to these operators: rows
behind the watermark, and those that bring two sessions together.

Source of the sessions: Flink's `MergingWindowSet`, for intervals that are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows
from penstock.engine.windows.limits import LARGEST_SPAN_MS

_Int64s: TypeAlias = npt.NDArray[np.int64]


def are_usual(times: _Int64s) -> bool:
    """Whether all windows of these times are within 64 bits, and so is what is computed of them."""
    least, most = MIN_TIMESTAMP + 4 * LARGEST_SPAN_MS, MAX_TIMESTAMP - 4 * LARGEST_SPAN_MS
    return bool(least < times.min() and times.max() < most)


def windows_of(windows: AlignedWindows | CumulativeWindows, times: _Int64s) -> tuple[_Int64s, _Int64s]:
    """The windows of rows, row by row and in the assigner's order: the rows and the ends of the windows.

    Example:
        >>> rows, ends = windows_of(AlignedWindows(10, 5), np.array([7, 11]))
        >>> rows.tolist(), ends.tolist()
        ([0, 0, 1, 1], [15, 10, 20, 15])
    """
    if isinstance(windows, CumulativeWindows):
        first = times - (times - windows.offset_ms) % windows.step_ms + windows.step_ms
        counts = (windows.last_ends(times) - first) // windows.step_ms + 1
        rows = np.repeat(np.arange(len(times)), counts)
        steps = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, first[rows] + steps * windows.step_ms
    steps = np.arange(-(-windows.size_ms // windows.slide_ms)) * windows.slide_ms
    ends = windows.last_ends(times)[:, None] - steps
    is_in = ends > times[:, None]
    return np.nonzero(is_in)[0], ends[is_in]


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions that rows come to, in the order in which they reach their bounds.

    Attributes:
        of_rows: the number of each row's session; -1 for rows that must be added one by one.
        firsts: the first row of each.
        starts, ends: their bounds behind all rows.
        before: the number of the session that it was before, or -1.
    """

    of_rows: _Int64s
    firsts: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]
    before: Sequence[int]


def sessions_of(
    keys: _Int64s, times: _Int64s, gap_ms: int, held: tuple[_Int64s, _Int64s, _Int64s], watermark: int
) -> Sessions:
    """The sessions of the rows of a batch.

    Rows that are over with the watermark, or bring sessions together, are left out with all of their session: what
    comes of them depends on their order.

    Args:
        keys: the number of each row's key.
        times: of rows.
        gap_ms: of sessions.
        held: sessions so far that rows may be in: numbers of keys, starts and ends.
        watermark: windows that end at or before it fire for each row.

    Example:
        >>> none = np.array([], np.int64)
        >>> made = sessions_of(np.array([0, 0, 0]), np.array([1, 4, 9]), 4, (none, none, none), 0)
        >>> made.of_rows.tolist(), made.starts, made.ends
        ([0, 0, 1], [1, 9], [8, 13])
    """
    count = len(held[0])
    key = np.concatenate([held[0], keys])
    starts, ends = np.concatenate([held[1], times]), np.concatenate([held[2], times + gap_ms])
    values, ranks = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    # Numbers of values, so that with a key's or a session's number before them they fit into 64 bits.
    low, high, distinct = ranks[: len(key)], ranks[len(key) :], len(values)
    order = np.lexsort((low, key))
    reach = np.maximum.accumulate(key[order] * distinct + high[order])
    begins = np.append(True, key[order][1:] * distinct + low[order][1:] > reach[:-1])
    session = np.empty(len(key), np.int64)
    session[order] = np.cumsum(begins) - 1

    # As they came: what was there, and then row by row.
    came = np.argsort(session, kind="stable")
    of, low, high = session[came], low[came], high[came]
    first = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    last = np.append(first[1:], len(of)) - 1
    back = (of[-1] - of) * distinct
    lowest = np.minimum.accumulate(back + low) - back
    highest = np.maximum.accumulate(of * distinct + high) - of * distinct
    touches = np.append(True, (low[1:] <= highest[:-1]) & (lowest[:-1] <= high[1:]))
    touches[first] = True
    in_time = (ends[came] - 1 > watermark) | (came < count)
    is_one = np.logical_and.reduceat(touches & in_time, first) & (came[last] >= count)

    is_final = (lowest == lowest[last][of]) & (highest == highest[last][of])
    reached = np.minimum.reduceat(np.where(is_final, came, len(came)), first)
    chosen = np.flatnonzero(is_one)
    chosen = chosen[np.argsort(reached[chosen], kind="stable")]
    numbers = np.full(len(first), -1)
    numbers[chosen] = np.arange(len(chosen))
    was_there = came[first] < count
    return Sessions(
        numbers[session[count:]],
        (came[first + was_there * (first < last)] - count)[chosen].tolist(),
        values[lowest[last]][chosen].tolist(),
        values[highest[last]][chosen].tolist(),
        np.where(was_there, came[first], -1)[chosen].tolist(),
    )
