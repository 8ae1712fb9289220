"""Splits that come while the job runs: read once, by one subtask, also across restarts and rescales."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.connectors import (
    ConnectorContext,
    Position,
    Source,
    SourceReader,
    Split,
    SplitDiscovery,
    SplitOrder,
    Wait,
)
from penstock.engine.elements import Batch, EndOfInput, Watermark, WatermarkStatus
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.snapshot import OperatorSnapshot, StateTable
from penstock.engine.task.source_head import SPLITS_TABLE, SourceHead
from penstock.engine.task.source_time import TimedSplits
from penstock.engine.windows.watermarks import WatermarkStrategy
from tests.engine.helpers import numbers


@dataclass
class Log:
    """What there is outside: partitions of numbers."""

    partitions: dict[str, list[int]] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    """Those that the program does not name."""
    open_looks: int = 0

    @property
    def read(self) -> list[str]:
        return sorted(self.partitions.keys() - self.unread)


@dataclass(frozen=True)
class Partition:
    split_id: str


class LogSource(Source):
    """Reads partitions of a log without end; what the plan finds begins at its newest number, what is new at 0."""

    schema = pa.schema([("n", pa.int64())])
    bounded = False
    split_order = SplitOrder.INTERLEAVED

    def __init__(self, log: Log) -> None:
        self.log = log

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [Partition(name) for name in self.log.read]

    def split(self, split_id: str) -> Split | None:
        return None if split_id in self.log.unread else Partition(split_id)

    def discover(self, context: ConnectorContext) -> SplitDiscovery:
        self.log.open_looks += 1
        return _Looks(self.log)

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return _Reader(self.log, split.split_id, 0, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return _Reader(self.log, split.split_id, json.loads(json.dumps(position))["row"], context)

    def describe(self) -> str:
        return "log"


class _Looks(SplitDiscovery):
    def __init__(self, log: Log) -> None:
        self._log = log

    def poll(self) -> Sequence[Split]:
        return [Partition(name) for name in self._log.read]

    def close(self) -> None:
        self._log.open_looks -= 1


class _Reader(SourceReader):
    def __init__(self, log: Log, name: str, row: int, context: ConnectorContext) -> None:
        self._log, self._name, self._row, self._context = log, name, row, context

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait:
        values = self._log.partitions[self._name][self._row : self._row + max_rows]
        self._row += len(values)
        return numbers(values).data if values else Wait(self._context.clock.monotonic() + 60)

    def position(self) -> Position:
        return {"row": self._row}


class Subtasks:
    """The heads of all subtasks of a source over a log."""

    def __init__(
        self, log: Log, parallelism: int, snapshot: OperatorSnapshot | None = None, timed: bool = False
    ) -> None:
        source = LogSource(log)
        splits = source.splits(parallelism)
        self.clock = ManualClock()
        self.heads = []
        for subtask in range(parallelism):
            context = ConnectorContext("log", subtask, parallelism, self.clock)
            mine, ids = splits[subtask::parallelism], [split.split_id for split in splits]
            head = (
                SourceHead(source, mine, context, 3, 1_000_000, self._timed, all_splits=ids)
                if timed
                else SourceHead(source, mine, context, 3, 1_000_000, all_splits=ids)
            )
            head.restore(snapshot)
            self.heads.append(head)

    def _timed(self, out: Any) -> TimedSplits:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("n")
        return TimedSplits(strategy, OperatorContext("log", 0, 1, self.clock), out)

    def read(self) -> list[Any]:
        """All that there is now, rows as numbers."""
        given: list[Any] = []
        for head in self.heads:
            while (item := head.next()) is not None:
                if isinstance(item, Wait):
                    if item.until > self.clock.monotonic():
                        break
                    continue
                given += item[1].data.column("n").to_pylist() if isinstance(item[1], Batch) else [item[1]]
        self.clock.advance(2)
        return given

    def capture(self) -> OperatorSnapshot:
        tables = [head.capture().tables[SPLITS_TABLE] for head in self.heads]
        return OperatorSnapshot(
            {SPLITS_TABLE: StateTable(tables[0].redistribution, pa.concat_tables([table.rows() for table in tables]))}
        )

    def close(self) -> None:
        for head in self.heads:
            head.close()


def test_a_new_split_is_read_by_one_subtask_from_its_first_row() -> None:
    log = Log({"a": [1, 2]})
    subtasks = Subtasks(log, 3)
    assert subtasks.read() == [1, 2]
    log.partitions |= {"b": [3, 4], "c": [5], "d": []}
    assert sorted(subtasks.read()) == [3, 4, 5]
    log.partitions["d"].append(6)
    log.partitions["a"].append(7)
    subtasks.clock.advance(60)
    assert sorted(subtasks.read()) == [6, 7]
    subtasks.close()
    assert log.open_looks == 0


def test_a_subtask_that_has_no_split_yet_goes_on() -> None:
    subtasks = Subtasks(Log(), 2)
    assert subtasks.read() == []
    for head in subtasks.heads:
        head.drain()
    assert [type(given) for given in subtasks.read()] == [Watermark, EndOfInput] * 2


def test_a_subtask_without_splits_holds_back_no_event_time_until_it_gets_one() -> None:
    log = Log()
    subtasks = Subtasks(log, 1, timed=True)
    assert subtasks.read() == [WatermarkStatus(True)]
    log.partitions["a"] = [10]
    assert subtasks.read() == [WatermarkStatus(False), 10, Watermark(9)]


def test_a_split_that_came_between_checkpoint_and_plan_is_new() -> None:
    log = Log({"a": [1]})
    before = Subtasks(log, 1)
    assert before.read() == [1]
    snapshot = before.capture()
    log.partitions["b"] = [2]
    after = Subtasks(log, 2, snapshot)
    log.partitions["a"].append(3)
    assert sorted(after.read()) == [2, 3]


def test_a_split_that_was_found_and_not_begun_is_kept() -> None:
    log = Log({"a": [1]})
    unread = Subtasks(log, 1).capture()
    assert unread.tables[SPLITS_TABLE].data.to_pylist() == [
        {"split_id": "a", "position": None, "finished": False, "watermark": None}
    ]
    assert Subtasks(log, 1, unread).read() == [1]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_split_that_the_program_no_longer_reads_is_dropped_and_named(
    parallelism: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log({"a": [1], "b": [2]})
    before = Subtasks(log, 2)
    assert sorted(before.read()) == [1, 2]
    snapshot = before.capture()
    log.partitions["a"].append(3)
    del log.partitions["b"]
    log.unread.add("b")
    after = Subtasks(log, parallelism, snapshot)
    assert after.read() == [3]
    assert [row["split_id"] for row in after.capture().tables[SPLITS_TABLE].data.to_pylist()] == ["a"]
    assert [record.getMessage().count("split 'b'") for record in caplog.records] == [1]


_Action = Callable[[Log, int], None]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("partition"), st.sampled_from("abcdef")),
            st.tuples(st.just("rows"), st.sampled_from("abcdef")),
            st.tuples(st.just("read"), st.just("")),
            st.tuples(st.just("checkpoint"), st.just("")),
            st.tuples(st.just("crash"), st.integers(1, 4).map(str)),
        ),
        max_size=25,
    )
)
def test_every_row_is_read_once_behind_the_last_checkpoint(steps: Iterable[tuple[str, str]]) -> None:
    log, count = Log({"a": []}), 0
    subtasks, snapshot = Subtasks(log, 2), None
    seen: list[Any] = []
    safe: list[Any] = []
    for step, what in [*steps, ("read", ""), ("read", "")]:
        if step == "partition":
            log.partitions.setdefault(what, [])
        elif step == "rows" and what in log.partitions:
            log.partitions[what] += range(count, count + 4)
            count += 4
        elif step == "read":
            subtasks.clock.advance(60)
            seen += subtasks.read()
        elif step == "checkpoint":
            snapshot, safe = subtasks.capture(), list(seen)
        elif step == "crash":
            subtasks.close()
            subtasks, seen = Subtasks(log, int(what), snapshot), list(safe)
    assert sorted(seen) == list(range(count))


def test_a_source_that_cannot_make_its_splits_again_says_so() -> None:
    log = Log({"a": [1]})
    snapshot = Subtasks(log, 1).capture()
    source = LogSource(Log())
    head = SourceHead(source, [], ConnectorContext("log", 0, 1, ManualClock()), 3, 1_000)
    source.split = lambda split_id: Source.split(source, split_id)  # type: ignore[method-assign]
    with pytest.raises(NotImplementedError, match="has no split"):
        head.restore(snapshot)
