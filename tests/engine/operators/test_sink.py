"""Sinks: plain ones write and finish; transactional ones make rows visible once their checkpoint counts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.clock import ManualClock
from penstock.engine.config import JobConfig
from penstock.engine.connectors import Committable, ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.sink import SinkOperator, SinkSpec, TransactionalSinkOperator
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable, share
from tests.engine.helpers import RecordingCollector, RecordingSink, numbers


class Ledger(TransactionalSink):
    """A table that is committed to; `fails` makes the next commit fail half way."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], list[int]] = {}
        self.events: list[str] = []
        self.fails = False

    @property
    def visible(self) -> list[int]:
        return [n for rows in self.rows.values() for n in rows]

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        self.events.append(f"open {context.subtask}")
        return LedgerWriter(f"writer {context.subtask}")

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        self.events.append(f"commit {', '.join(f'{one.writer} {one.checkpoint}' for one in committables)}")
        for committable in committables:
            self.rows[committable.writer, committable.checkpoint] = committable.data.column("n").to_pylist()
            if self.fails:
                raise OSError("the ledger is closed")

    def describe(self) -> str:
        return "ledger"


class LedgerWriter(TransactionalWriter):
    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[int] = []

    def write(self, batch: Batch) -> None:
        self._rows += batch.data.column("n").to_pylist()

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        rows, self._rows = self._rows, []
        return [Committable(self._name, checkpoint, pa.table({"n": pa.array(rows, pa.int64())}))] if rows else []

    def finish(self) -> None:
        raise AssertionError("a transactional writer is not finished")


class Writing:
    """The operator of one subtask, opened."""

    def __init__(
        self, sink: Ledger, restored: OperatorSnapshot | None = None, subtask: int = 0, interval_ms: int = 1000
    ) -> None:
        config = JobConfig(checkpoints=CheckpointConfig(interval_ms=interval_ms))
        self.operator = SinkSpec(sink).create()
        assert isinstance(self.operator, TransactionalSinkOperator)
        context = OperatorContext("ledger", subtask, 2, ManualClock(), config=config, restored=restored)
        self.operator.open(context)
        if restored is not None:
            self.operator.restore(restored)

    def write(self, *values: int) -> None:
        self.operator.process_batch(numbers(values), 0, RecordingCollector())

    def capture(self, checkpoint: int) -> OperatorSnapshot:
        captured = self.operator.capture(CaptureRequest(checkpoint, CaptureScope.CHANGES))
        tables = {name: StateTable(table.redistribution, table.rows()) for name, table in captured.tables.items()}
        return OperatorSnapshot(tables)

    def finish(self) -> None:
        self.operator.finish(RecordingCollector())


def test_rows_become_visible_when_their_checkpoint_counts() -> None:
    ledger = Ledger()
    writing = Writing(ledger)
    writing.write(1, 2)
    writing.capture(1)
    writing.write(3)
    assert ledger.visible == []
    writing.operator.on_checkpoint_complete(1)
    assert ledger.visible == [1, 2]


def test_a_checkpoint_that_counts_makes_those_before_it_visible() -> None:
    ledger = Ledger()
    writing = Writing(ledger)
    for checkpoint in (1, 2, 3):
        writing.write(checkpoint)
        writing.capture(checkpoint)
    writing.operator.on_checkpoint_complete(2)
    assert ledger.visible == [1, 2]
    assert ledger.events[1:] == ["commit writer 0 1, writer 0 2"]


def test_what_is_not_committed_is_in_every_checkpoint_until_it_is() -> None:
    writing = Writing(Ledger())
    writing.write(1)
    writing.capture(1)
    writing.write(2)
    table = writing.capture(2).tables["committables"]
    assert table.redistribution is Redistribution.WHOLE
    assert table.data.to_pylist() == [
        {"__writer": "writer 0", "__checkpoint": 1, "n": 1},
        {"__writer": "writer 0", "__checkpoint": 2, "n": 2},
    ]
    writing.operator.on_checkpoint_complete(2)
    assert writing.capture(3).tables == {}


def test_a_restore_commits_what_the_checkpoint_holds_before_a_writer_is_opened() -> None:
    ledger = Ledger()
    writing = Writing(ledger)
    writing.write(1, 2)
    snapshot = writing.capture(1)
    ledger.events.clear()
    again = Writing(ledger, snapshot)
    assert ledger.events == ["commit writer 0 1", "open 0"]
    assert ledger.visible == [1, 2]
    assert again.capture(2).tables == {}


def test_a_restore_at_another_parallelism_commits_under_the_old_writers() -> None:
    ledger = Ledger()
    snapshots = []
    for subtask in (0, 1):
        writing = Writing(ledger, subtask=subtask)
        writing.write(subtask)
        snapshots.append(writing.capture(1))
    Writing(ledger, share(snapshots, 0, 1, 128))
    assert ledger.rows == {("writer 0", 1): [0], ("writer 1", 1): [1]}


def test_a_commit_that_fails_fails_the_task_and_is_made_again() -> None:
    ledger = Ledger()
    writing = Writing(ledger)
    writing.write(1, 2)
    snapshot = writing.capture(1)
    ledger.fails = True
    with pytest.raises(OSError, match="the ledger is closed"):
        writing.operator.on_checkpoint_complete(1)
    ledger.fails = False
    Writing(ledger, snapshot)
    assert ledger.visible == [1, 2]


def test_the_end_of_input_commits_nothing_where_a_last_checkpoint_does() -> None:
    ledger = Ledger()
    writing = Writing(ledger)
    writing.write(1)
    writing.finish()
    assert ledger.visible == []
    writing.capture(1)
    writing.operator.on_checkpoint_complete(1)
    assert ledger.visible == [1]


def test_without_checkpoints_the_end_of_input_commits_everything() -> None:
    ledger = Ledger()
    writing = Writing(ledger, interval_ms=0)
    writing.write(1)
    writing.capture(1)
    writing.write(2)
    writing.finish()
    assert ledger.visible == [1, 2]


def test_a_plain_sink_writes_and_finishes() -> None:
    sink = RecordingSink()
    operator = SinkSpec(sink).create()
    assert isinstance(operator, SinkOperator)
    operator.open(OperatorContext("plain", 1, 2, ManualClock()))
    operator.process_batch(numbers([1]), 0, RecordingCollector())
    operator.finish(RecordingCollector())
    operator.close()
    assert sink.by_subtask == {1: [{"n": 1}]}
    assert sink.events == ["open 1", "finish 1", "close 1"]
