"""The operator of `assign_timestamps`: gives rows event timestamps, and replaces what upstream says about event time.

The stream API makes its spec. The last watermark passes, so that event time is complete at the end of the input;
every other watermark, and idleness, is the strategy's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.engine.changelog import ANY_MODE
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Watermark, WatermarkStatus
from penstock.engine.errors import GraphError
from penstock.engine.operators.base import Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.relational import EventTime
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.operators.timestamp_assigners import check_assigner
from penstock.engine.operators.watermark_generators import TimedInput
from penstock.engine.windows.watermarks import WatermarkStrategy

_PARTS: Final = 4
"""Into how many parts the time without rows is cut, see `_IdleTimer`."""


def complete_strategy(column: object, strategy: object) -> WatermarkStrategy:
    """The strategy that `assign_timestamps(column, strategy)` means; arguments and errors as there."""
    if isinstance(column, WatermarkStrategy) and strategy is None:
        column, strategy = None, column
    if column is not None and not isinstance(column, str):
        raise GraphError(
            f"assign_timestamps takes the name of a column, not {column!r}; compute the column with "
            "with_columns(at=...) first, or give a strategy with a timestamp assigner"
        )
    chosen = WatermarkStrategy.for_monotonous_timestamps() if strategy is None else strategy
    if not isinstance(chosen, WatermarkStrategy):
        raise GraphError(
            f"assign_timestamps: {strategy!r} is no WatermarkStrategy; for rows out of order, give "
            'WatermarkStrategy.for_bounded_out_of_orderness("5s")'
        )
    if chosen.alignment is not None:
        raise GraphError(
            "assign_timestamps cannot hold a source back, and so takes no strategy with watermark alignment; "
            "give it to from_source(..., watermarks=strategy)"
        )
    if column is None:
        if not chosen.has_timestamps:
            raise GraphError(
                "assign_timestamps: the strategy does not say where event time is; name a column before it, or add "
                '.with_timestamp_assigner("at")'
            )
        return chosen
    if chosen.has_timestamps:
        raise GraphError(
            f"assign_timestamps: the strategy ({chosen.describe()}) has timestamps already, and so takes no column "
            f"{column!r} beside it"
        )
    return chosen.with_timestamp_assigner(column)


@dataclass(frozen=True, slots=True)
class TimestampSpec(OperatorSpec):
    """Creates the operator that runs `strategy`, which has timestamps."""

    strategy: WatermarkStrategy

    def create(self) -> TimestampOperator:
        return TimestampOperator(self.strategy)

    def describe(self) -> str:
        return f"assign_timestamps({self.strategy.describe()})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=None, relational=EventTime(self.strategy))

    def bind(self, schema: SchemaOrUnknown, where: str) -> None:
        """Check the stream's columns, where they are known."""
        check_assigner(self.strategy, schema, where)


class TimestampOperator(Operator):
    """Runs a watermark strategy on the rows of one subtask."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy

    def open(self, context: OperatorContext) -> None:
        self._clock = context.clock
        self._input = TimedInput(self._strategy, context)
        self._ended = False
        now = self._clock.monotonic()
        after = self._strategy.idle_after_ms
        self._idle = _IdleTimer(math.inf if after is None else after / 1000, now)
        interval = context.config.auto_watermark_interval_ms
        self._interval = interval / 1000 if interval and self._input.periodic else math.inf
        self._next_emit = now + self._interval

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._input.process(batch, out)
        now = self._clock.monotonic()
        self._next_emit = now + self._interval
        self._idle.restart(now)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._ended = watermark.timestamp == MAX_TIMESTAMP
        return watermark if self._ended else None

    def on_watermark_status(self, status: WatermarkStatus, out: Collector) -> WatermarkStatus | None:
        return None

    @property
    def next_processing_time(self) -> int | None:
        deadline = min(self._next_emit, self._idle.deadline)
        if self._ended or deadline == math.inf:
            return None
        return self._clock.now_ms() + math.ceil((deadline - self._clock.monotonic()) * 1000)

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        now = self._clock.monotonic()
        if self._idle.has_run_out(now):
            self._input.time_out(out)
        if now >= self._next_emit:
            self._next_emit = now + self._interval
            self._input.emit_periodically(out)


class _IdleTimer:
    """Tells when no row has come for `timeout` seconds in which the subtask could have taken one.

    The timeout is cut into parts, and one that ends late by a part begins anew: there the subtask was held up, by
    backpressure above all, and rows may wait in front of it.
    """

    def __init__(self, timeout: float, now: float) -> None:
        self._part = timeout / _PARTS
        self.restart(now)

    def restart(self, now: float) -> None:
        """A row has come."""
        self._left = _PARTS
        self.deadline = now + self._part

    def has_run_out(self, now: float) -> bool:
        """Whether the timeout is over, as of now; to be asked when `deadline` has come."""
        if now < self.deadline:
            return False
        if now >= self.deadline + self._part:
            self.restart(now)
            return False
        self._left -= 1
        self.deadline = now + self._part if self._left else math.inf
        return not self._left
