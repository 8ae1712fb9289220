"""Which windows a timestamp belongs to: values that users hold, read by the window operators.

A window is the half-open range [start, end) of time, in milliseconds; its largest timestamp is end - 1, and it is
complete once the watermark (or the clock, in processing time) has reached that. Windows are aligned to the epoch plus
`offset`.

Source: Flink's documentation, "Windows"; slices follow "Efficient Window Aggregation with General Stream Slicing"
(Traub et al., EDBT 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.engine.durations import Duration, format_duration, parse_duration, parse_signed_duration
from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.base import (
    AssignerContext,
    TimeKind,
    WindowAssigner,
    assigned_time,
    check_time_kind,
    time_suffix,
)
from penstock.engine.windows.general import DynamicSessionWindows, Gap
from penstock.engine.windows.limits import LARGEST_SPAN_MS, check_span
from penstock.engine.windows.trigger_base import Row
from penstock.engine.windows.windows import TimeWindow


@dataclass(frozen=True, slots=True)
class AlignedWindows(WindowAssigner):
    """Windows of `size_ms` that start every `slide_ms`; tumbling if both are equal.

    Rows are kept once a *slice* (the greatest common divisor of size and slide), and each window adds up its slices.

    Args:
        size_ms, slide_ms: milliseconds, from 1 to 2**60. If the slide is larger, rows between windows belong to none.
        offset_ms: moves every window start, by at most 2**60 in either direction.
        time: event time, or that of the clock.

    Raises:
        ConfigurationError: a number that is out of its range.
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    time: TimeKind = "event"

    def __post_init__(self) -> None:
        check_time_kind(self.time, "window")
        for option, value in (("size", self.size_ms), ("slide", self.slide_ms)):
            check_span(value, f"window {option}")
        if abs(self.offset_ms) > LARGEST_SPAN_MS:
            raise ConfigurationError(f"window offset must be at most 2**60 ms, not {self.offset_ms} ms")

    @property
    def is_event_time(self) -> bool:
        return self.time == "event"

    @property
    def reads_rows(self) -> bool:
        return False

    def assign_windows(self, row: Row, timestamp: int | None, context: AssignerContext) -> list[TimeWindow]:
        time = assigned_time(self.time, timestamp, context)
        size, slide = self.size_ms, self.slide_ms
        last = time - (time - self.offset_ms) % slide
        if size == slide:
            return [TimeWindow(last, last + size)]
        return [TimeWindow(start, start + size) for start in range(last, time - size, -slide)]

    @property
    def slice_ms(self) -> int:
        """Length of a slice: every window start and end is a slice boundary."""
        return math.gcd(self.size_ms, self.slide_ms)

    @property
    def longest_ms(self) -> int:
        """Length of the longest window."""
        return self.size_ms

    @property
    def has_gaps(self) -> bool:
        """Whether there are times that belong to no window."""
        return self.slide_ms > self.size_ms

    def last_start(self, timestamp: int) -> int:
        """Start of the latest window that starts at or before `timestamp`."""
        return timestamp - (timestamp - self.offset_ms) % self.slide_ms

    def last_ends(self, timestamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each timestamp, the end of the latest window that starts at or before it; it may end before it, too."""
        return timestamps - (timestamps - self.offset_ms) % self.slide_ms + self.size_ms

    def start_of(self, end: int) -> int:
        """Start of the window that ends at `end`."""
        return end - self.size_ms

    def ends_over(self, slice_start: int, above: int, upto: int) -> range:
        """Ends of the windows that contain the slice, where above < end <= upto; ascending; none in a gap."""
        covering = self.starts_covering(slice_start)
        if not covering:
            return range(0)
        return _grid(covering[-1] + self.size_ms, covering[0] + self.size_ms, self.slide_ms, above, upto)

    def starts_covering(self, slice_start: int) -> range:
        """Starts of all windows that contain the slice, latest first."""
        last = self.last_start(slice_start)
        return range(last, slice_start - self.size_ms, -self.slide_ms)

    def describe(self) -> str:
        offset = f", offset {format_duration(self.offset_ms % self.slide_ms)}" if self.offset_ms % self.slide_ms else ""
        if self.size_ms == self.slide_ms:
            return f"tumbling {format_duration(self.size_ms)}{offset}{time_suffix(self.time)}"
        length = f"sliding {format_duration(self.size_ms)} by {format_duration(self.slide_ms)}"
        return f"{length}{offset}{time_suffix(self.time)}"


@dataclass(frozen=True, slots=True)
class CumulativeWindows(WindowAssigner):
    """Windows that grow by `step_ms` up to `max_size_ms`, then begin anew: totals so far of the day, every hour.

    All windows of a period of `max_size_ms` start where it starts. Rows are kept once a slice of `step_ms`.

    Args:
        max_size_ms, step_ms: milliseconds, from 1 to 2**60; the step divides the size.
        offset_ms: moves every period, by at most 2**60 in either direction.
        time: event time, or that of the clock.

    Raises:
        ConfigurationError: a number that is out of its range, or a step that does not divide the size.

    Source: Flink's documentation, "Windowing table-valued functions", CUMULATE.
    """

    max_size_ms: int
    step_ms: int
    offset_ms: int = 0
    time: TimeKind = "event"

    def __post_init__(self) -> None:
        check_time_kind(self.time, "window")
        for option, value in (("size", self.max_size_ms), ("step", self.step_ms)):
            check_span(value, f"window {option}")
        if self.max_size_ms % self.step_ms:
            raise ConfigurationError(
                f"the size of cumulative windows must be a multiple of their step: {self.max_size_ms} ms is none of "
                f"{self.step_ms} ms"
            )
        if abs(self.offset_ms) > LARGEST_SPAN_MS:
            raise ConfigurationError(f"window offset must be at most 2**60 ms, not {self.offset_ms} ms")

    @property
    def is_event_time(self) -> bool:
        return self.time == "event"

    @property
    def reads_rows(self) -> bool:
        return False

    def assign_windows(self, row: Row, timestamp: int | None, context: AssignerContext) -> list[TimeWindow]:
        time = assigned_time(self.time, timestamp, context)
        start = self.start_of(time + 1)
        first = time - (time - self.offset_ms) % self.step_ms + self.step_ms
        return [TimeWindow(start, end) for end in range(first, start + self.max_size_ms + 1, self.step_ms)]

    @property
    def slice_ms(self) -> int:
        """Length of a slice: every window start and end is a slice boundary."""
        return self.step_ms

    @property
    def longest_ms(self) -> int:
        """Length of the longest window."""
        return self.max_size_ms

    @property
    def has_gaps(self) -> bool:
        """Whether there are times that belong to no window."""
        return False

    def last_ends(self, timestamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each timestamp, the end of the latest window that contains it."""
        return timestamps - (timestamps - self.offset_ms) % self.max_size_ms + self.max_size_ms

    def start_of(self, end: int) -> int:
        """Start of the window that ends at `end`."""
        return end - 1 - (end - 1 - self.offset_ms) % self.max_size_ms

    def ends_over(self, slice_start: int, above: int, upto: int) -> range:
        """Ends of the windows that contain the slice, where above < end <= upto; ascending."""
        last = self.start_of(slice_start + self.step_ms) + self.max_size_ms
        return _grid(slice_start + self.step_ms, last, self.step_ms, above, upto)

    def describe(self) -> str:
        offset = self.offset_ms % self.max_size_ms
        shown = f", offset {format_duration(offset)}" if offset else ""
        length = f"cumulative {format_duration(self.max_size_ms)} by {format_duration(self.step_ms)}"
        return f"{length}{shown}{time_suffix(self.time)}"


@dataclass(frozen=True, slots=True)
class SessionWindows(WindowAssigner):
    """Windows that last as long as a key's rows keep coming: each row opens [t, t + gap), touching ones are merged.

    As in Flink, a row exactly at the end of a session still belongs to it.

    Args:
        gap_ms: milliseconds without a row that end a session, from 1 to 2**60.
        time: event time, or that of the clock.

    Raises:
        ConfigurationError: a gap that is out of its range.
    """

    gap_ms: int
    time: TimeKind = "event"

    def __post_init__(self) -> None:
        check_time_kind(self.time, "session")
        check_span(self.gap_ms, "session gap")

    @property
    def is_event_time(self) -> bool:
        return self.time == "event"

    @property
    def is_merging(self) -> bool:
        return True

    @property
    def reads_rows(self) -> bool:
        return False

    def assign_windows(self, row: Row, timestamp: int | None, context: AssignerContext) -> list[TimeWindow]:
        time = assigned_time(self.time, timestamp, context)
        return [TimeWindow(time, time + self.gap_ms)]

    def describe(self) -> str:
        return f"session gap {format_duration(self.gap_ms)}{time_suffix(self.time)}"


def _grid(first: int, last: int, step: int, above: int, upto: int) -> range:
    """The numbers from `first` to `last` by `step`, where above < number <= upto."""
    skipped = max(0, (above - first) // step + 1)
    return range(first + skipped * step, min(last, upto) + 1, step)


SlicedWindows = AlignedWindows | CumulativeWindows
"""Windows that are made of slices of equal length."""


def tumbling(size: Duration, offset: Duration = "0", time: TimeKind = "event") -> AlignedWindows:
    """Windows of one size, end to end.

    Args:
        size: length of a window.
        offset: moves the window starts: `tumbling("1d", offset="-8h")` gives days of UTC+8.
        time: `"event"`: that of the rows; `"processing"`: that of the clock.

    Raises:
        ConfigurationError: no duration, or a size of 0.

    Example:
        >>> tumbling("1h").describe()
        'tumbling 1h'
    """
    size_ms = parse_duration(size, "window size")
    return AlignedWindows(size_ms, size_ms, parse_signed_duration(offset, "window offset"), time)


def sliding(size: Duration, slide: Duration, offset: Duration = "0", time: TimeKind = "event") -> AlignedWindows:
    """Windows of one size that start every `slide`; a row belongs to about size / slide of them.

    Args:
        size, slide: lengths; any slide is allowed.
        offset, time: as for `tumbling`.

    Raises:
        ConfigurationError: no duration, or a size or slide of 0.

    Example:
        >>> sliding("24h", "6h").describe()
        'sliding 1d by 6h'
    """
    return AlignedWindows(
        parse_duration(size, "window size"),
        parse_duration(slide, "window slide"),
        parse_signed_duration(offset, "window offset"),
        time,
    )


def cumulative(
    max_size: Duration, step: Duration, offset: Duration = "0", time: TimeKind = "event"
) -> CumulativeWindows:
    """Windows that grow by `step` up to `max_size`, then begin anew; a row belongs to all that end behind it.

    Args:
        max_size: length of the last window of a period; a multiple of the step.
        step: by how much each window is longer than the one before.
        offset: moves the periods: `cumulative("1d", "1h", offset="-8h")` gives days of UTC+8.
        time: `"event"`: that of the rows; `"processing"`: that of the clock.

    Raises:
        ConfigurationError: no duration, a size or step of 0, or a size that is no multiple of the step.

    Example:
        >>> cumulative("24h", "1h").describe()
        'cumulative 1d by 1h'
    """
    return CumulativeWindows(
        parse_duration(max_size, "window size"),
        parse_duration(step, "window step"),
        parse_signed_duration(offset, "window offset"),
        time,
    )


def session(gap: Duration | Gap, time: TimeKind = "event") -> SessionWindows | DynamicSessionWindows:
    """Windows that close when a key has had no row for `gap`.

    Args:
        gap: a duration; or a function of a row (a dict) that returns one, or a number of milliseconds.
        time: `"event"`: that of the rows; `"processing"`: that of the clock.

    Raises:
        ConfigurationError: no duration, or a gap of 0.

    Example:
        >>> session("30m").describe()
        'session gap 30m'
        >>> by_device = session(gap=lambda row: "1h" if row["device"] == "tv" else "10m")
    """
    if callable(gap):
        return DynamicSessionWindows(gap, time)
    return SessionWindows(parse_duration(gap, "session gap"), time)
