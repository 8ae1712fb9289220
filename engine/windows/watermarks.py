"""How far event time has come: watermark strategies, as users hold them, and the generators that run them.

`assign_timestamps` takes a strategy; each subtask runs a generator of its own. As in Flink, a watermark of `t` says
that no row with a timestamp at or below `t` follows, so the generators stay one millisecond behind what they allow.

Source: Flink's documentation, "Generating Watermarks" and "Builtin Watermark Generators".
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.assigners import LARGEST_SPAN_MS


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Watermarks that stay a fixed time behind the largest timestamp seen.

    Args:
        out_of_orderness_ms: how many milliseconds a row may come after a row with a later timestamp; 0 to 2**60.

    Raises:
        ConfigurationError: a number that is out of its range.

    Example:
        >>> WatermarkStrategy.for_bounded_out_of_orderness("5s").out_of_orderness_ms
        5000
    """

    out_of_orderness_ms: int

    def __post_init__(self) -> None:
        if not 0 <= self.out_of_orderness_ms <= LARGEST_SPAN_MS:
            raise ConfigurationError(f"out_of_orderness_ms must be from 0 to 2**60, not {self.out_of_orderness_ms}")

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never go back within one subtask's input."""
        return WatermarkStrategy(0)

    @staticmethod
    def for_bounded_out_of_orderness(delay: Duration) -> WatermarkStrategy:
        """A row comes at most `delay` after a row with a later timestamp; rows that come later still are late.

        Raises:
            ConfigurationError: `delay` is no duration, or longer than 2**60 ms.
        """
        return WatermarkStrategy(parse_duration(delay, "for_bounded_out_of_orderness"))

    def describe(self) -> str:
        if self.out_of_orderness_ms == 0:
            return "monotonous"
        return f"out of order by {format_duration(self.out_of_orderness_ms)}"


class WatermarkGenerator:
    """Runs one strategy in one subtask: follows the largest timestamp, and tells when the watermark advances."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._behind = strategy.out_of_orderness_ms + 1
        self._watermark = MIN_TIMESTAMP

    def advance(self, largest_timestamp: int) -> int | None:
        """The new watermark after rows up to `largest_timestamp`, or None if it did not advance."""
        watermark = largest_timestamp - self._behind
        if watermark <= self._watermark:
            return None
        self._watermark = watermark
        return watermark
