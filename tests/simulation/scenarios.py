"""The jobs of the simulation, each with what its sink must show, computed without an engine."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, SplitOrder, Wait
from penstock.engine.graph.physical import JobProgram
from penstock.recovery import checkpoints
from penstock.testing.simulation import Scenario, Warehouse, WarehouseSink

LOGS = 3
EVENT = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("at", pa.int64())])


@dataclass(frozen=True, slots=True)
class LogSplit:
    """One log."""

    number: int

    @property
    def split_id(self) -> str:
        return f"log-{self.number}"


class LogSource(Source):
    """Logs that can be read from any offset, as those of Kafka."""

    def __init__(self, logs: Sequence[Sequence[tuple[int, int, int]]], pause: float = 0.0) -> None:
        self._logs = [list(log) for log in logs]
        self._pause = pause

    @property
    def schema(self) -> pa.Schema:
        return EVENT

    @property
    def split_order(self) -> SplitOrder:
        return SplitOrder.INTERLEAVED

    def splits(self, parallelism: int) -> Sequence[LogSplit]:
        return [LogSplit(number) for number in range(len(self._logs))]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return self.open_at(split, {"offset": 0}, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, LogSplit)
        offset = position["offset"]
        assert isinstance(offset, int)
        return _LogReader(self._logs[split.number], offset, self._pause, context)

    def describe(self) -> str:
        return "logs"


class _LogReader(SourceReader):
    def __init__(
        self, log: Sequence[tuple[int, int, int]], offset: int, pause: float, context: ConnectorContext
    ) -> None:
        self._log = log
        self._offset = offset
        self._pause = pause
        self._clock = context.clock
        self._again = context.clock.monotonic()

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        if self._offset >= len(self._log):
            return None
        if (now := self._clock.monotonic()) < self._again:
            return Wait(self._again)
        self._again = now + self._pause
        rows = self._log[self._offset : self._offset + min(max_rows, 4)]
        self._offset += len(rows)
        return pa.record_batch([pa.array(values, pa.int64()) for values in zip(*rows, strict=True)], schema=EVENT)

    def position(self) -> Position:
        return {"offset": self._offset}


def environment(chosen: random.Random, mode: Any) -> ps.StreamEnvironment:
    """An environment whose settings the seed chooses."""
    return ps.StreamEnvironment(
        parallelism=chosen.choice([1, 2, 3]),
        runtime="local",
        clock=ManualClock(),
        max_parallelism=8,
        buffer_timeout=chosen.choice(["0", "5ms"]),
        max_batch_rows=chosen.choice([1, 3, 100]),
        channel_credits=chosen.choice([1, 2, 4]),
        checkpoints=checkpoints(
            chosen.choice(["20ms", "100ms"]),
            "memory://unused",
            mode=mode,
            alignment_timeout=chosen.choice([None, "5ms"]) if mode == "exactly-once" else None,
            max_concurrent=1,
            min_pause=chosen.choice(["0", "10ms"]),
            timeout="1s",
            tolerable_failures=None,
            retained=chosen.choice([1, 2]),
            incremental=chosen.choice([True, True, False]),
        ),
    )


def logs(chosen: random.Random, rows: int = 60) -> list[list[tuple[int, int, int]]]:
    """Events of a few keys, in order of time within each log."""
    return [
        [(chosen.randrange(5), chosen.randrange(100), 10 * n + number) for n in range(rows)] for number in range(LOGS)
    ]


class Numbered(ps.KeyedProcessFunction):
    """Numbers the rows of each key: 1, 2, 3, ... A lost or repeated row breaks the sequence."""

    def open(self, context: ps.RuntimeContext) -> None:
        self._count = context.get_state(ps.ValueStateDescriptor("count", "int64"))

    def process_element(self, row: Any, context: Any) -> Any:
        number = (self._count.value() or 0) + 1
        self._count.update(number)
        yield {"key": row["key"], "number": number}


def sequences(mode: Any) -> Callable[[], Scenario]:
    """Every key's rows are numbered without a gap and without a repetition."""

    def make() -> Scenario:
        expected: Counter[int] = Counter()

        def build(sink: WarehouseSink, chosen: random.Random) -> JobProgram:
            written = logs(chosen)
            expected.update(key for log in written for key, _, _ in log)
            env = environment(chosen, mode)
            numbered = (
                env.from_source(LogSource(written, 0.003))
                .uid("logs")
                .key_by("key")
                .process(Numbered(), returns={"key": "int64", "number": "int64"})
            )
            numbered.uid("numbered").sink_to(sink)
            return env.program("sequences")

        def check(warehouse: Warehouse) -> list[str]:
            seen: defaultdict[int, list[int]] = defaultdict(list)
            for row in warehouse.rows:
                seen[row["key"]].append(row["number"])
            return [
                f"key {key}: {sorted(seen[key])} instead of 1..{count}"
                for key, count in expected.items()
                if sorted(seen[key]) != list(range(1, count + 1))
            ]

        return Scenario(build, check)

    return make
