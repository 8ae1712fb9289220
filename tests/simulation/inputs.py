"""What the simulated jobs read, and the settings that a seed chooses for them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

import penstock as ps
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, SplitOrder, Wait
from penstock.recovery import checkpoints

Event: TypeAlias = tuple[int, int, int]
"""Key, value, and time in milliseconds."""
Log: TypeAlias = list[Event]
Mode: TypeAlias = Literal["exactly-once", "unaligned", "at-least-once"]

LOGS = 3
PAUSE = 0.003
EVENT = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("at", pa.int64())])
EXACT: tuple[Mode, ...] = ("exactly-once", "unaligned")


@dataclass(frozen=True, slots=True)
class LogSplit:
    """One log, or a range of it."""

    number: int
    start: int
    end: int

    @property
    def split_id(self) -> str:
        return f"log-{self.number}-{self.start}-{self.end}"


class LogSource(Source):
    """Logs that can be read from any offset, as those of Kafka: there are as many splits at any parallelism.

    Args:
        logs: the events of each.
        pause: seconds between two batches of a log.
    """

    def __init__(self, logs: Sequence[Sequence[Event]], pause: float = PAUSE) -> None:
        self._logs = [list(log) for log in logs]
        self._pause = pause

    @property
    def schema(self) -> pa.Schema:
        return EVENT

    @property
    def split_order(self) -> SplitOrder:
        return SplitOrder.INTERLEAVED

    def splits(self, parallelism: int) -> Sequence[LogSplit]:
        return [LogSplit(number, 0, len(log)) for number, log in enumerate(self._logs)]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, LogSplit)
        return self.open_at(split, {"offset": split.start}, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, LogSplit)
        offset = position["offset"]
        assert isinstance(offset, int)
        return _LogReader(self._logs[split.number][: split.end], offset, self._pause, context)

    def describe(self) -> str:
        return "logs"


class RangeSource(LogSource):
    """Logs of which each subtask has a range, as of files and of generated rows: the parallelism makes the splits."""

    def splits(self, parallelism: int) -> Sequence[LogSplit]:
        return [
            LogSplit(number, len(log) * part // parallelism, len(log) * (part + 1) // parallelism)
            for part in range(parallelism)
            for number, log in enumerate(self._logs)
        ]


def source(logs: Sequence[Sequence[Event]]) -> LogSource:
    """A fifth of all logs are read by ranges: by the sum of their values, which no draw depends on."""
    kind = RangeSource if sum(value for _, value, _ in logs[0]) % 5 == 3 else LogSource
    return kind(logs)


class _LogReader(SourceReader):
    def __init__(self, log: Sequence[Event], offset: int, pause: float, context: ConnectorContext) -> None:
        columns = [pa.array(values, pa.int64()) for values in zip(*log, strict=True)] or [pa.array([], pa.int64())] * 3
        self._log = pa.record_batch(columns, schema=EVENT)
        self._offset = offset
        self._pause = pause
        self._clock = context.clock
        self._again = context.clock.monotonic()

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        if self._offset >= self._log.num_rows:
            return None
        if (now := self._clock.monotonic()) < self._again:
            return Wait(self._again)
        self._again = now + self._pause
        rows = self._log.slice(self._offset, min(max_rows, 4))
        self._offset += rows.num_rows
        return rows

    def position(self) -> Position:
        return {"offset": self._offset}


def environment(chosen: random.Random, modes: Sequence[Mode] = EXACT) -> ps.StreamEnvironment:
    """An environment whose settings the seed chooses."""
    mode = chosen.choice(modes)
    timeout = chosen.choice([None, "5ms"]) if mode == "exactly-once" else None
    overlaps = mode != "unaligned" and timeout is None
    concurrent = chosen.choice([1, 2]) if overlaps else 1
    return ps.StreamEnvironment(
        parallelism=chosen.choice([1, 2, 3]),
        runtime="local",
        clock=ManualClock(),
        max_parallelism=8,
        buffer_timeout=chosen.choice(["0", "5ms"]),
        max_batch_rows=chosen.choice([1, 3, 100]),
        channel_credits=chosen.choice([1, 2, 4]),
        auto_watermark_interval=chosen.choice(["0", "10ms"]),
        checkpoints=checkpoints(
            chosen.choice(["10ms", "20ms", "100ms"]),
            "memory://simulation",
            mode=mode,
            alignment_timeout=timeout,
            max_concurrent=concurrent,
            min_pause="0" if concurrent > 1 else chosen.choice(["0", "10ms"]),
            timeout="1s",
            tolerable_failures=None,
            retained=chosen.choice([1, 2]),
            incremental=chosen.choice([True, True, False]),
        ),
    )


def logs(chosen: random.Random, share: float = 1, rows: int = 60, disorder: int = 0, keys: int = 5) -> list[Log]:
    """Events of a few keys, 10 ms apart within each log, up to `disorder` ms out of order; a share of each log."""
    drawn = [
        [
            (
                chosen.randrange(keys),
                chosen.randrange(100),
                10 * n + number + chosen.randint(-disorder, disorder) + 1000,
            )
            for n in range(rows)
        ]
        for number in range(LOGS)
    ]
    return [log[: math.ceil(rows * share)] for log in drawn]


def hot_logs(chosen: random.Random, share: float) -> list[Log]:
    """As `logs`, first of many keys, then of a few: checkpoints hold little of what there is."""
    many, few = logs(chosen, share, rows=30, keys=50), logs(chosen, share, keys=6)
    return [
        [*first, *((key, value, at + 300) for key, value, at in then)] for first, then in zip(many, few, strict=True)
    ]


def flat(written: Sequence[Log]) -> list[Event]:
    """All events."""
    return [event for log in written for event in log]
