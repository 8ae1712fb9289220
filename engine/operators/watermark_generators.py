"""Runs watermark strategies: one `TimedInput` gives timestamps and watermarks to the rows of one split or one subtask.

The operator of `assign_timestamps` has one, a source with a strategy one for each split. Watermarks advance strictly,
and stand exactly where the generator put them: behind a batch, or between two rows of it.

Source: Flink's documentation, "Writing WatermarkGenerators".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, NO_TIMESTAMP, Batch, Watermark, WatermarkStatus
from penstock.engine.errors import ConfigurationError
from penstock.engine.operators.base import USER_FAILURES, Collector, OperatorContext
from penstock.engine.operators.timestamp_assigners import create_assigner
from penstock.engine.rows import batch_rows
from penstock.engine.windows.watermarks import (
    BoundedOutOfOrderness,
    ByClock,
    CustomGenerator,
    Generation,
    NoWatermarks,
    Punctuated,
    Row,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)


class TimedInput:
    """Event time of one input.

    Args:
        strategy: has timestamps.
        context: of the operator or source that the rows are read by.
        error_column: rows that have a value there have no event time (`Source.error_column`); None: all have.

    Raises:
        UserCodeError, ConfigurationError: the generator cannot be made.
    """

    def __init__(self, strategy: WatermarkStrategy, context: OperatorContext, error_column: str | None = None) -> None:
        # By the clock, any row has its time.
        self._error_column = None if isinstance(strategy.generation, ByClock) else error_column
        clock = MonotonousClock(context.clock)
        self._context = context
        self._assign = create_assigner(strategy, context, clock)
        self._generator = _create(strategy.generation, context, clock)
        self.by_row: Final = _overrides(self._generator, "on_event")
        self.periodic: Final = _overrides(self._generator, "on_periodic_emit")
        self._said = _Output()
        self._timed_out = False
        self.watermark = MIN_TIMESTAMP
        self.idle = False

    def resume(self, watermark: int) -> None:
        """Event time had come to `watermark` (int64 ms) before a restore: it goes on from there."""
        self.watermark = self._said.watermark = watermark

    def process(self, batch: Batch, out: Collector) -> None:
        """Emit the rows with timestamps, and what they say about event time. A row ends idleness."""
        if not self.has_time(batch.data):
            # As no row, for what event time goes by.
            out.collect(Batch(batch.data, pa.array(np.full(batch.num_rows, NO_TIMESTAMP)), batch.kinds))
            return
        good = self._good_rows(batch.data)
        times = self._assign(batch.data if good is None else batch.data.filter(good))
        timed = Batch(batch.data, times if good is None else _spread(times, good), batch.kinds)
        self._timed_out = self._said.idle = False
        self._emit(out)
        if self.by_row:
            self._watch_rows(timed, out)
        else:
            out.collect(timed)
            data = timed.data if good is None else timed.data.filter(good)
            self._ask(lambda: self._generator.on_batch(data, times, self._said))
            self._emit(out)
        self.emit_periodically(out)

    def has_time(self, data: pa.RecordBatch) -> bool:
        """Whether any of the rows has event time."""
        return self._error_column is None or data.column(self._error_column).null_count > 0

    def _good_rows(self, data: pa.RecordBatch) -> pa.BooleanArray | None:
        """Which rows have event time; None: all."""
        if self._error_column is None:
            return None
        errors = data.column(self._error_column)
        return None if errors.null_count == len(errors) else errors.is_null()

    def _watch_rows(self, batch: Batch, out: Collector) -> None:
        begin = 0
        rows = batch_rows(batch.data, self._context.where)
        assert batch.timestamps is not None
        for end, (row, timestamp) in enumerate(zip(rows, batch.timestamps.to_pylist(), strict=True), start=1):
            if timestamp == NO_TIMESTAMP:
                continue
            if self.idle:
                # The generator said so at the row before; wherever batches end, a row ends idleness.
                self._said.idle = False
                self._emit(out)
            try:
                self._generator.on_event(row, timestamp, self._said)
            except USER_FAILURES as error:
                raise self._context.user_code_error(error, row) from error
            if self._has_news:
                out.collect(batch.slice(begin, end - begin))
                self._emit(out)
                begin = end
        if begin < batch.num_rows:
            out.collect(batch.slice(begin))

    def emit_periodically(self, out: Collector) -> None:
        """Ask the generator; not while no row comes, since then nothing is known about event time."""
        if self.periodic and not self._timed_out:
            self._ask(lambda: self._generator.on_periodic_emit(self._said))
            self._emit(out)

    def time_out(self, out: Collector) -> None:
        """No row has come for so long that nobody should wait for one."""
        self._timed_out = True
        self._emit(out)

    def _ask(self, call: Callable[[], None]) -> None:
        try:
            call()
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, self._generator) from error

    @property
    def _has_news(self) -> bool:
        return self._said.watermark > self.watermark or self._idle_now != self.idle

    @property
    def _idle_now(self) -> bool:
        return self._timed_out or self._said.idle

    def _emit(self, out: Collector) -> None:
        """Pass on what is new: a watermark never comes while idle."""
        status_changes = self._idle_now != self.idle
        self.idle = self._idle_now
        if status_changes and not self.idle:
            out.broadcast(WatermarkStatus(False))
        if self._said.watermark > self.watermark:
            self.watermark = self._said.watermark
            out.broadcast(Watermark(self.watermark, self.by_row))
        if status_changes and self.idle:
            out.broadcast(WatermarkStatus(True))


def _spread(times: pa.Int64Array, good: pa.BooleanArray) -> pa.Int64Array:
    """The times of the good rows at their places, and `NO_TIMESTAMP` at the others."""
    spread = np.full(len(good), NO_TIMESTAMP)
    spread[good.to_numpy(zero_copy_only=False)] = times.to_numpy()
    return pa.array(spread)


class _Output:
    """What a generator said last; the `WatermarkOutput` that it is given."""

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.idle = False

    def emit_watermark(self, timestamp: int) -> None:
        if not isinstance(timestamp, int | np.integer) or isinstance(timestamp, bool):
            raise TypeError(f"emit_watermark takes an int of milliseconds since the epoch, not {timestamp!r}")
        if not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            raise ValueError(f"emit_watermark: {timestamp} is not within int64")
        self.watermark = max(self.watermark, int(timestamp))
        self.idle = False

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False


class MonotonousClock:
    """A clock whose civil time never goes back, so that ingestion time does not either."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest = MIN_TIMESTAMP

    def now_ms(self) -> int:
        self._latest = max(self._latest, self._clock.now_ms())
        return self._latest

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wait_until(self, deadline: float) -> None:
        self._clock.wait_until(deadline)


class _BoundedGenerator(WatermarkGenerator):
    """Stays behind the largest timestamp."""

    def __init__(self, behind_ms: int) -> None:
        self._behind = behind_ms

    def on_batch(self, batch: pa.RecordBatch, timestamps: pa.Int64Array, output: WatermarkOutput) -> None:
        output.emit_watermark(int(timestamps.to_numpy().max()) - self._behind)


class _PunctuatedGenerator(WatermarkGenerator):
    """Asks the user's function for each row."""

    def __init__(self, function: Callable[[Row, int], int | None]) -> None:
        self._function = function

    def on_event(self, row: Row, timestamp: int, output: WatermarkOutput) -> None:
        watermark = self._function(row, timestamp)
        if watermark is not None:
            output.emit_watermark(watermark)


class _ClockGenerator(WatermarkGenerator):
    """Stays a millisecond behind the clock that the rows get their timestamps from."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self._clock.now_ms() - 1)


def _create(generation: Generation, context: OperatorContext, clock: Clock) -> WatermarkGenerator:
    match generation:
        case BoundedOutOfOrderness(delay_ms):
            return _BoundedGenerator(delay_ms + 1)
        case Punctuated(function):
            return _PunctuatedGenerator(function)
        case ByClock():
            return _ClockGenerator(clock)
        case NoWatermarks():
            return WatermarkGenerator()
        case CustomGenerator(make):
            return _create_custom(make, context)


def _create_custom(make: Callable[[], WatermarkGenerator], context: OperatorContext) -> WatermarkGenerator:
    try:
        generator = make()
    except USER_FAILURES as error:
        raise context.user_code_error(error, make) from error
    if not isinstance(generator, WatermarkGenerator):
        raise ConfigurationError(
            f"{context.where}: for_generator was given {make!r}, which made {generator!r} and no WatermarkGenerator"
        )
    if _overrides(generator, "on_event") and _overrides(generator, "on_batch"):
        raise ConfigurationError(
            f"{context.where}: {type(generator).__name__} overrides on_event and on_batch; keep one: each row is "
            "given to one of them"
        )
    return generator


def _overrides(generator: WatermarkGenerator, method: str) -> bool:
    return getattr(type(generator), method) is not getattr(WatermarkGenerator, method)
