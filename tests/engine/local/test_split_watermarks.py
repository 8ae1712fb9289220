"""Event time of splits over stops, savepoints and rescales: no window waits for rows that were there before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.aggregates.functions import count
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, SplitOrder, Wait
from penstock.engine.windows.assigners import tumbling
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.environment import StreamEnvironment
from penstock.recovery import checkpoints
from tests.engine.helpers import local_environment

ROWS = pa.schema([("k", pa.string()), ("ms", pa.timestamp("ms"))])
FIRST = {"a": range(0, 100, 5), "b": range(0, 40, 5)}
"""Times of the rows of each partition before the stop; behind it `b` alone goes on, up to 80."""
SECOND = {"a": FIRST["a"], "b": range(0, 85, 5)}
AT_ONCE = {("a", start): 2 for start in range(0, 80, 10)} | {("b", start): 2 for start in range(0, 80, 10)}


@dataclass(frozen=True)
class Partition:
    split_id: str
    times: Sequence[int]


class Log(Source):
    """Partitions which never end, read side by side."""

    bounded = False
    split_order = SplitOrder.INTERLEAVED

    def __init__(self, times: dict[str, range]) -> None:
        self._times = times

    @property
    def schema(self) -> pa.Schema:
        return ROWS

    def splits(self, parallelism: int) -> list[Split]:
        return [Partition(name, times) for name, times in self._times.items()]

    def split(self, split_id: str) -> Split:
        return Partition(split_id, self._times[split_id])

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return self.open_at(split, {"read": 0}, context)

    def open_at(self, split: Split, position: Any, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, Partition)
        return Reader(split, position["read"], context)

    def describe(self) -> str:
        return "log"


class Reader(SourceReader):
    def __init__(self, split: Partition, read: int, context: ConnectorContext) -> None:
        self._split, self._read, self._clock = split, read, context.clock

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        times = self._split.times[self._read : self._read + 1]
        if not times:
            return Wait(self._clock.monotonic() + 0.01)
        self._read += 1
        return pa.record_batch([[self._split.split_id], pa.array(times, pa.timestamp("ms"))], schema=ROWS)

    def position(self) -> Position:
        return {"read": self._read}


def windows(env: StreamEnvironment, times: dict[str, range], group: str | None) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ms")
    if group is not None:
        strategy = strategy.with_watermark_alignment(group, "70ms")
    read = env.from_source(Log(times), watermarks=strategy).uid("log")
    return read.key_by("k").window(tumbling("10ms")).aggregate(n=count()).uid("windows").collect()


@pytest.mark.parametrize(("before", "behind"), [(1, 1), (2, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize(("mode", "group"), [("exactly-once", None), ("unaligned", None), ("exactly-once", "group")])
def test_windows_fire_behind_a_savepoint_as_without_it(
    before: int, behind: int, mode: Any, group: str | None, tmp_path: Path
) -> None:
    found: dict[tuple[str, int], int] = {}

    def run(times: dict[str, range], parallelism: int, upto: int, savepoint: str | None) -> str:
        env = local_environment(parallelism, checkpoints=checkpoints("100ms", str(tmp_path), mode=mode))
        rows = windows(env, times, group)
        job = env.submit("log", savepoint=savepoint)
        for _ in range(500):
            if sum(found.values()) >= upto:
                break
            job.pump(0.01)
            for row in rows.take().to_pylist():
                found[row["k"], row["window_start"].microsecond // 1000] = row["n"]
        return str(job.stop(str(tmp_path / "saved")))

    saved = run(FIRST, before, 2 * 2 * 3, None)
    run(SECOND, behind, len(AT_ONCE) * 2, saved)
    assert found == AT_ONCE
