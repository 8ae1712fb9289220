"""Which event-time windows a timestamp belongs to: values that users hold, read by the window operators.

A window is the half-open range [start, end) of event time, in milliseconds; its largest timestamp is end - 1, and it is
complete once the watermark has reached that. Windows are aligned to the epoch plus `offset`.

Source: Flink's documentation, "Windows"; slices follow "Efficient Window Aggregation with General Stream Slicing"
(Traub et al., EDBT 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.errors import ConfigurationError

LARGEST_SPAN_MS: Final = 2**60
"""The longest span of event time, in milliseconds: with timestamps below 2**62, window arithmetic fits int64."""


@dataclass(frozen=True, slots=True)
class AlignedWindows:
    """Windows of `size_ms` that start every `slide_ms`; tumbling if both are equal.

    Rows are kept once a *slice* (the greatest common divisor of size and slide), and each window adds up its slices.

    Args:
        size_ms, slide_ms: milliseconds, from 1 to 2**60. If the slide is larger, rows between windows belong to none.
        offset_ms: moves every window start, by at most 2**60 in either direction.

    Raises:
        ConfigurationError: a number that is out of its range.
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        for option, value in (("size", self.size_ms), ("slide", self.slide_ms)):
            _check_length(f"window {option}", value)
        if abs(self.offset_ms) > LARGEST_SPAN_MS:
            raise ConfigurationError(f"window offset must be at most 2**60 ms, not {self.offset_ms} ms")

    @property
    def slice_ms(self) -> int:
        """Length of a slice: every window start and end is a slice boundary."""
        return math.gcd(self.size_ms, self.slide_ms)

    def last_start(self, timestamp: int) -> int:
        """Start of the latest window that starts at or before `timestamp`."""
        return timestamp - (timestamp - self.offset_ms) % self.slide_ms

    def starts_covering(self, slice_start: int) -> range:
        """Starts of all windows that contain the slice, latest first."""
        last = self.last_start(slice_start)
        return range(last, slice_start - self.size_ms, -self.slide_ms)

    def describe(self) -> str:
        offset = f", offset {format_duration(self.offset_ms % self.slide_ms)}" if self.offset_ms % self.slide_ms else ""
        if self.size_ms == self.slide_ms:
            return f"tumbling {format_duration(self.size_ms)}{offset}"
        return f"sliding {format_duration(self.size_ms)} by {format_duration(self.slide_ms)}{offset}"


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows that last as long as a key's rows keep coming: each row opens [t, t + gap), touching ones are merged.

    As in Flink, a row exactly at the end of a session still belongs to it.

    Args:
        gap_ms: milliseconds without a row that end a session, from 1 to 2**60.

    Raises:
        ConfigurationError: a gap that is out of its range.
    """

    gap_ms: int

    def __post_init__(self) -> None:
        _check_length("session gap", self.gap_ms)

    def describe(self) -> str:
        return f"session gap {format_duration(self.gap_ms)}"


def _check_length(option: str, milliseconds: int) -> None:
    if milliseconds <= 0:
        raise ConfigurationError(f"{option} must be more than 0, not {milliseconds} ms")
    if milliseconds > LARGEST_SPAN_MS:
        raise ConfigurationError(f"{option} must be at most 2**60 ms, not {milliseconds} ms")


WindowAssigner = AlignedWindows | SessionWindows


def tumbling(size: Duration, offset: Duration = "0") -> AlignedWindows:
    """Windows of one size, end to end.

    Args:
        size: length of a window.
        offset: moves the window starts: `tumbling("1d", offset="16h")` gives days of UTC+8.

    Raises:
        ConfigurationError: no duration, or a size of 0.

    Example:
        >>> tumbling("1h").describe()
        'tumbling 1h'
    """
    size_ms = parse_duration(size, "window size")
    return AlignedWindows(size_ms, size_ms, parse_duration(offset, "window offset"))


def sliding(size: Duration, slide: Duration, offset: Duration = "0") -> AlignedWindows:
    """Windows of one size that start every `slide`; a row belongs to about size / slide of them.

    Raises:
        ConfigurationError: no duration, or a size or slide of 0.

    Example:
        >>> sliding("24h", "6h").describe()
        'sliding 1d by 6h'
    """
    return AlignedWindows(
        parse_duration(size, "window size"),
        parse_duration(slide, "window slide"),
        parse_duration(offset, "window offset"),
    )


def session(gap: Duration) -> SessionWindows:
    """Windows that close when a key has had no row for `gap`.

    Raises:
        ConfigurationError: no duration, or a gap of 0.

    Example:
        >>> session("30m").describe()
        'session gap 30m'
    """
    return SessionWindows(parse_duration(gap, "session gap"))
