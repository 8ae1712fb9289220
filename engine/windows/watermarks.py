"""How far event time has come, as users say it: watermark strategies, and the base class of generators of their own.

`assign_timestamps` and `from_source` take a strategy; `generators.py` runs it. As in Flink, a watermark of `t` promises
that no row with a timestamp at or below `t` follows, so the built-in ones stay one millisecond behind what they allow.

Source: Flink's documentation, "Generating Watermarks" and "Builtin Watermark Generators".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.limits import LARGEST_SPAN_MS

Row: TypeAlias = dict[str, Any]


class WatermarkOutput(Protocol):
    """Where a `WatermarkGenerator` puts what it finds out."""

    def emit_watermark(self, timestamp: int) -> None:
        """No row with a timestamp at or below `timestamp` (int64 ms) will follow.

        A watermark that does not advance is dropped: event time never goes back.

        Raises:
            TypeError, ValueError: not a whole number, or not within int64.
        """
        ...

    def mark_idle(self) -> None:
        """Hold nobody back until there is a watermark or a row again."""
        ...

    def mark_active(self) -> None:
        """Take part in event time again."""
        ...


class WatermarkGenerator:
    """Base class of a user's generator: watches the rows of one split or one subtask, and emits watermarks.

    Override `on_event` (a row at a time, at the cost of Python for each row) or `on_batch`, not both, to watch rows and
    to emit where a row says so; override `on_periodic_emit` to emit now and then what they told.

    Example:
        >>> class Marked(WatermarkGenerator):
        ...     def on_event(self, row, timestamp, output):
        ...         if row["kind"] == "end of hour":
        ...             output.emit_watermark(timestamp)
        >>> strategy = WatermarkStrategy.for_generator(Marked)
    """

    def on_event(self, row: Row, timestamp: int, output: WatermarkOutput) -> None:
        """A row (a dict of its own) with its timestamp. What is emitted here comes before the next row."""

    def on_batch(self, batch: pa.RecordBatch, timestamps: pa.Int64Array, output: WatermarkOutput) -> None:
        """Rows with their timestamps (int64 ms, no nulls). What is emitted here comes behind all of them."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called behind each batch and, while none comes, every `auto_watermark_interval` of the environment."""


@dataclass(frozen=True, slots=True)
class BoundedOutOfOrderness:
    """Behind the largest timestamp by `delay_ms` milliseconds, and one more.

    Raises:
        ConfigurationError: a number that is out of its range, 0 to 2**60.
    """

    delay_ms: int

    def __post_init__(self) -> None:
        if not 0 <= self.delay_ms <= LARGEST_SPAN_MS:
            raise ConfigurationError(f"out of orderness must be from 0 to 2**60 ms, not {self.delay_ms} ms")

    def __str__(self) -> str:
        return f"out of order by {format_duration(self.delay_ms)}" if self.delay_ms else "monotonous"


@dataclass(frozen=True, slots=True)
class CustomGenerator:
    """Whatever the generator emits that `make` creates."""

    make: Callable[[], WatermarkGenerator]

    def __str__(self) -> str:
        return f"by {_name(self.make)}"


@dataclass(frozen=True, slots=True)
class Punctuated:
    """Where the function finds a watermark in a row."""

    function: Callable[[Row, int], int | None]

    def __str__(self) -> str:
        return f"punctuated by {_name(self.function)}"


@dataclass(frozen=True, slots=True)
class ByClock:
    """Event time is the clock's."""

    def __str__(self) -> str:
        return "ingestion time"


@dataclass(frozen=True, slots=True)
class NoWatermarks:
    """None before the end."""

    def __str__(self) -> str:
        return "no watermarks"


Generation: TypeAlias = BoundedOutOfOrderness | CustomGenerator | Punctuated | ByClock | NoWatermarks
"""How watermarks come about."""

TimestampAssigner: TypeAlias = str | Callable[[Row], int]
"""Where a row's timestamp is: a column, or what a function of the row returns (milliseconds since the epoch)."""


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Which sources wait for each other, and when.

    Args:
        group: sources with the same name are of one group.
        max_drift_ms: how far a split may be ahead of the earliest one of the group.
        update_interval_ms: how often subtasks in other processes learn how far the group is.
    """

    group: str
    max_drift_ms: int
    update_interval_ms: int

    def __str__(self) -> str:
        return f"within {format_duration(self.max_drift_ms)} of group {self.group!r}"


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Where timestamps come from and how watermarks follow them. Immutable: each `with_...` gives another strategy.

    Begin with one of the static methods; the fields are for the engine.

    Example:
        >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness("5s").with_idleness("1m")
        >>> strategy.with_timestamp_assigner("at").describe()
        'at, out of order by 5s, idle after 1m'
    """

    generation: Generation
    assigner: TimestampAssigner | None = None
    idle_after_ms: int | None = None
    alignment: WatermarkAlignment | None = None
    remedy: str = (
        "filter such rows out before timestamps are assigned; where a source assigns them, have "
        "with_timestamp_assigner give such rows an early time, as 0, and filter them out behind the source, which "
        "keeps the watermarks of its partitions"
    )
    """What the user can do about rows without a time, in the words of what he has written."""

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never go back within one split, or one subtask of `assign_timestamps`."""
        return WatermarkStrategy(_IN_ORDER)

    @staticmethod
    def for_bounded_out_of_orderness(delay: Duration) -> WatermarkStrategy:
        """A row comes at most `delay` after a row with a later timestamp; rows that come later still are late.

        Raises:
            ConfigurationError: `delay` is no duration, or longer than 2**60 ms.
        """
        return WatermarkStrategy(BoundedOutOfOrderness(parse_duration(delay, "for_bounded_out_of_orderness")))

    @staticmethod
    def for_generator(make: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Watermarks of your own.

        Args:
            make: a `WatermarkGenerator` class, or a function that returns one; called once for each split, or each
                subtask of `assign_timestamps`.

        Raises:
            ConfigurationError: `make` cannot be called.
        """
        if isinstance(make, WatermarkGenerator) or not callable(make):
            raise ConfigurationError(
                f"for_generator takes what makes a WatermarkGenerator, not {make!r}; give the class, or a function"
            )
        return WatermarkStrategy(CustomGenerator(make))

    @staticmethod
    def for_punctuated(function: Callable[[Row, int], int | None]) -> WatermarkStrategy:
        """Watermarks where a row says so: `function(row, timestamp)` returns one (int64 ms), or None.

        Raises:
            ConfigurationError: `function` cannot be called.

        Example:
            >>> WatermarkStrategy.for_punctuated(lambda row, at: at if row["last"] else None).describe()
            'punctuated by <lambda>'
        """
        if not callable(function):
            raise ConfigurationError(f"for_punctuated takes a function of a row and its timestamp, not {function!r}")
        return WatermarkStrategy(Punctuated(function))

    @staticmethod
    def for_ingestion_time() -> WatermarkStrategy:
        """A row's timestamp is the clock's when it arrives, and event time goes with the clock, also without rows.

        The timestamps of a subtask never go back, even if the clock does.
        """
        return WatermarkStrategy(ByClock())

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Timestamps, but no watermark before the end of the input: nothing waits for event time."""
        return WatermarkStrategy(NoWatermarks())

    def with_timestamp_assigner(self, assigner: TimestampAssigner) -> WatermarkStrategy:
        """Where timestamps come from.

        Args:
            assigner: a column (a timestamp, without a zone: UTC; a date; an integer of milliseconds since the epoch;
                no nulls), or a function of a row that returns milliseconds since the epoch, as an int.

        Raises:
            ConfigurationError: neither of these, or ingestion time, which is the clock's.
        """
        if not isinstance(assigner, str) and not callable(assigner):
            raise ConfigurationError(
                f"with_timestamp_assigner takes the name of a column, or a function of a row, not {assigner!r}"
            )
        if isinstance(self.generation, ByClock):
            raise ConfigurationError("with_timestamp_assigner: the timestamps of ingestion time are the clock's")
        return replace(self, assigner=assigner)

    def with_idleness(self, timeout: Duration) -> WatermarkStrategy:
        """Hold nobody back while no row has come for `timeout` by the clock.

        Rows of a quiet split may be late when they come after all: others advanced without it. Where all others have
        ended, event time is complete.

        Raises:
            ConfigurationError: no duration, or none of a millisecond or more.
        """
        return replace(self, idle_after_ms=_positive(timeout, "with_idleness"))

    def with_watermark_alignment(
        self, group: str, max_drift: Duration, update_interval: Duration = "1s"
    ) -> WatermarkStrategy:
        """Stop reading splits that are too far ahead of the others, so that little waits in state. For `from_source`.

        A split that has no watermark yet holds the whole group, unless it ends or is idle (`with_idleness`).

        Args:
            group: sources with this name wait for each other, and so do the splits of one source.
            max_drift: how far a split may be ahead of the earliest one of the group.
            update_interval: how often subtasks in other processes learn how far the group is; the shortest of a
                group counts. Longer than it takes to read `max_drift` of event time slows reading down.

        Raises:
            ConfigurationError: an empty name, a duration that is none, or a strategy without watermarks.
        """
        if not isinstance(group, str) or not group:
            raise ConfigurationError(f"with_watermark_alignment: the group's name is a text, not {group!r}")
        if isinstance(self.generation, NoWatermarks):
            raise ConfigurationError("with_watermark_alignment: a strategy without watermarks would stop its group")
        drift = parse_duration(max_drift, "with_watermark_alignment max_drift")
        interval = _positive(update_interval, "with_watermark_alignment update_interval")
        return replace(self, alignment=WatermarkAlignment(group, drift, interval))

    @property
    def has_timestamps(self) -> bool:
        """Whether it says where timestamps come from."""
        return self.assigner is not None or isinstance(self.generation, ByClock)

    def describe(self) -> str:
        """The strategy for `explain()`."""
        assigner = self.assigner if self.assigner is None or isinstance(self.assigner, str) else _name(self.assigner)
        idle = None if self.idle_after_ms is None else f"idle after {format_duration(self.idle_after_ms)}"
        return ", ".join(str(part) for part in (assigner, self.generation, idle, self.alignment) if part is not None)


_IN_ORDER: Final = BoundedOutOfOrderness(0)


def _positive(value: Duration, option: str) -> int:
    milliseconds = parse_duration(value, option)
    if milliseconds < 1:
        raise ConfigurationError(f"{option} must be a millisecond or more, not {value!r}")
    return milliseconds


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
