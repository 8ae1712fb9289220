"""What the tests of the engine share: batches from rows, channels and collectors that record, operators run by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.engine.clock import Clock, ManualClock
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter, Source, SourceReader, Split, SplitOrder, Wait
from penstock.engine.elements import Batch, Control, Element, Watermark
from penstock.engine.exchange.outputs import Message
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.environment import StreamEnvironment

Row = dict[str, Any]


def numbers(values: Iterable[int]) -> Batch:
    """A batch of one column `n`."""
    return Batch(pa.record_batch({"n": pa.array(list(values), pa.int64())}))


def numbers_in(elements: Iterable[Element]) -> list[int]:
    """The values of column `n` in the batches among `elements`."""
    return [n for element in elements if isinstance(element, Batch) for n in element.data.column("n").to_pylist()]


def timed(rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType], at: str = "at") -> Batch:
    """A batch of `rows` whose event timestamps are their `at`."""
    data = pa.record_batch({name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()})
    return Batch(data, pa.array([row[at] for row in rows], pa.int64()))


class RecordingCollector:
    """Keeps what was emitted, in order."""

    def __init__(self) -> None:
        self.elements: list[Element] = []

    def collect(self, batch: Batch) -> None:
        self.elements.append(batch)

    def broadcast(self, element: Control) -> None:
        self.elements.append(element)

    @property
    def batches(self) -> list[Batch]:
        return [element for element in self.elements if isinstance(element, Batch)]

    @property
    def watermarks(self) -> list[int]:
        return [element.timestamp for element in self.elements if isinstance(element, Watermark)]

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch.data.to_pylist()]

    @property
    def timestamps(self) -> list[int | None]:
        return [t for b in self.batches for t in (b.timestamps.to_pylist() if b.timestamps else [None] * b.num_rows)]


class RunningOperator:
    """An opened operator with its collector and counters, driven by hand."""

    def __init__(
        self, operator: Operator, name: str = "tested", subtask: int = 0, parallelism: int | None = None
    ) -> None:
        self.operator = operator
        self.out = RecordingCollector()
        self.metrics = OperatorMetrics()
        operator.open(OperatorContext(name, subtask, parallelism or subtask + 1, ManualClock(), self.metrics))

    def process(self, batch: Batch) -> None:
        self.operator.process_batch(batch, 0, self.out)

    def advance(self, watermark: int) -> None:
        """Bring event time to `watermark`, and pass on what the operator lets through."""
        passed_on = self.operator.on_watermark(Watermark(watermark), self.out)
        if passed_on is not None:
            self.out.broadcast(passed_on)

    def take_rows(self) -> list[Row]:
        """What was emitted since the last call."""
        rows = self.out.rows
        self.out.elements.clear()
        return rows


class RecordingChannel:
    """A sending end that keeps what was sent, and gets credit when the test says so."""

    def __init__(self, credit: int = 1_000_000) -> None:
        self.credits = credit
        self.wanted_rows = math.inf
        self.waiting = 0
        self.sent: list[Message] = []

    @property
    def under_way(self) -> int:
        """What the test says; a channel without credit has something under way in any case."""
        return self.waiting or int(self.credits == 0)

    def send(self, message: Message) -> None:
        assert self.credits > 0, "sent without credit"
        self.credits -= 1
        self.sent.append(message)

    @property
    def elements(self) -> list[Element]:
        return [element for message in self.sent for element in message]


class ScriptedSplit:
    """A split whose reader answers with `answers`, one a call.

    An exception among them is raised, and a `Wait` is repeated until its time has come.
    """

    def __init__(self, split_id: str, answers: Sequence[pa.RecordBatch | Wait | Exception]) -> None:
        self.split_id = split_id
        self.answers = answers


class _ScriptedReader(SourceReader):
    def __init__(self, split: ScriptedSplit, events: list[str], clock: Clock) -> None:
        self._split, self._events, self._clock = split, events, clock
        self._answers = list(split.answers)

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        answer = self._answers[0] if self._answers else None
        if isinstance(answer, Wait) and self._clock.monotonic() < answer.until:
            return answer
        if isinstance(answer, Wait):
            self._answers.pop(0)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def position(self) -> int:
        return len(self._split.answers) - len(self._answers)

    def close(self) -> None:
        self._events.append(f"close {self._split.split_id}")


class ScriptedSource(Source):
    """A source of scripted splits, which records when its readers are opened and closed."""

    def __init__(
        self, splits: Mapping[str, Sequence[pa.RecordBatch | Wait | Exception]], interleaved: bool = False
    ) -> None:
        self._splits = [ScriptedSplit(split_id, answers) for split_id, answers in splits.items()]
        self._order = SplitOrder.INTERLEAVED if interleaved else SplitOrder.SEQUENTIAL
        self.events: list[str] = []

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    @property
    def split_order(self) -> SplitOrder:
        return self._order

    def splits(self, parallelism: int) -> Sequence[Split]:
        return self._splits

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, ScriptedSplit)
        self.events.append(f"open {split.split_id}")
        return _ScriptedReader(split, self.events, context.clock)

    def describe(self) -> str:
        return "scripted"


class RecordingSink(Sink):
    """Keeps the rows of each subtask, and what happened to its writers."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.fails_after = fails_after
        self.rows: list[Row] = []
        self.by_subtask: dict[int, list[Row]] = {}
        self.events: list[str] = []

    def open(self, context: ConnectorContext) -> SinkWriter:
        self.events.append(f"open {context.subtask}")
        return _RecordingWriter(self, context.subtask)

    def describe(self) -> str:
        return "recording"


class _RecordingWriter(SinkWriter):
    def __init__(self, sink: RecordingSink, subtask: int) -> None:
        self._sink, self._subtask = sink, subtask

    def write(self, batch: Batch) -> None:
        rows = batch.data.to_pylist()
        self._sink.rows.extend(rows)
        self._sink.by_subtask.setdefault(self._subtask, []).extend(rows)
        if self._sink.fails_after is not None and len(self._sink.rows) > self._sink.fails_after:
            raise OSError("no space left on device")

    def finish(self) -> None:
        self._sink.events.append(f"finish {self._subtask}")

    def close(self) -> None:
        self._sink.events.append(f"close {self._subtask}")


def local_environment(
    parallelism: int | None = 1, seed: int = 0, clock: Clock | None = None, **settings: Any
) -> StreamEnvironment:
    """An environment whose jobs run in this process, on a clock that never waits."""
    return StreamEnvironment(
        parallelism=parallelism, runtime="local", seed=seed, clock=clock or ManualClock(), **settings
    )
