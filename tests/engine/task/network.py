"""A small network of tasks under a random scheduler: takes checkpoints, restores from them, and tells what was seen.

Two sources feed `first`, which feeds `last`. Rows carry a key, their split and a number that ascends in the split; both
operators keep what they have seen for each key, in order. So a cut that is not consistent shows as a row that is
missing, double or in the wrong order.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.restored import RestoredTask, share_in_flight
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.clock import ManualClock
from penstock.engine.config import JobConfig
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, SplitOrder, Wait
from penstock.engine.elements import Barrier, Batch
from penstock.engine.exchange.outputs import Message
from penstock.engine.exchange.partitioners import Hash, Partitioner
from penstock.engine.graph.physical import Exchange, OperatorPlan, PhysicalGraph, SourcePlan, TaskPlan
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, complete_table
from penstock.engine.state.snapshot import OperatorSnapshot, StateTable, keyed_table, share
from penstock.engine.task.build import build_task
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Finished, Task

KEYS = 5
SCHEMA = pa.schema([("key", pa.int64()), ("split", pa.string()), ("n", pa.int64())])
BY_KEY = Hash(("key",))
Seen = dict[int, list[tuple[str, int]]]
"""The (split, number) of the rows of each key, in order."""


@dataclass(frozen=True)
class CountedSplit:
    """Rows 0 to `rows` - 1."""

    split_id: str
    rows: int


@dataclass(frozen=True)
class CountingSource(Source):
    """Splits of numbered rows, read in turn."""

    name: str
    sizes: tuple[int, ...]

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def split_order(self) -> SplitOrder:
        return SplitOrder.INTERLEAVED

    def splits(self, parallelism: int) -> Sequence[CountedSplit]:
        return [CountedSplit(f"{self.name}{place}", size) for place, size in enumerate(self.sizes)]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return self.open_at(split, {"n": 0}, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, CountedSplit)
        return _CountingReader(split, position)

    def describe(self) -> str:
        return self.name


def key_of(split: str, n: int) -> int:
    return (n * n + len(split) + ord(split[-1])) % KEYS


class _CountingReader(SourceReader):
    def __init__(self, split: CountedSplit, position: Position) -> None:
        self._split = split
        begin = position["n"]
        assert isinstance(begin, int)
        self._next = begin

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        numbers = range(self._next, min(self._split.rows, self._next + max_rows))
        if not numbers:
            return None
        self._next = numbers.stop
        split = self._split.split_id
        rows = [{"key": key_of(split, n), "split": split, "n": n} for n in numbers]
        return pa.RecordBatch.from_pylist(rows, SCHEMA)

    def position(self) -> Position:
        return {"n": self._next}


class Remembering(Operator):
    """Keeps what it has seen, and passes it on."""

    def __init__(self) -> None:
        self.seen: Seen = {}
        self.finished = 0

    def open(self, context: OperatorContext) -> None:
        self._max_parallelism = context.config.max_parallelism

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        for row in batch.data.to_pylist():
            self.seen.setdefault(row["key"], []).append((row["split"], row["n"]))
        out.collect(batch)

    def finish(self, out: Collector) -> None:
        self.finished += 1

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        rows = [{"key": key, "split": s, "n": n} for key, seen in self.seen.items() for s, n in seen]
        table = pa.Table.from_pylist(rows, SCHEMA)
        return OperatorCapture({"seen": complete_table(keyed_table(table, ["key"], self._max_parallelism))})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        for row in snapshot.tables["seen"].data.to_pylist() if "seen" in snapshot.tables else ():
            self.seen.setdefault(row["key"], []).append((row["split"], row["n"]))


@dataclass(frozen=True, slots=True)
class RememberingSpec(OperatorSpec):
    """Creates the operator that keeps what it has seen."""

    def create(self) -> Operator:
        return Remembering()

    def describe(self) -> str:
        return "remember"


@dataclass(frozen=True)
class Shape:
    """A network: parallelism of its tasks, how they are connected, and how much they read."""

    sizes: tuple[tuple[int, ...], tuple[int, ...]] = ((20, 13), (17,))
    parallelism: tuple[int, int, int, int] = (2, 1, 2, 2)
    into_first: tuple[Partitioner, Partitioner] = (BY_KEY, BY_KEY)
    into_last: Partitioner = BY_KEY
    credits: int = 2
    batch_rows: int = 3

    def graph(self) -> PhysicalGraph:
        config = JobConfig(channel_credits=self.credits, max_batch_rows=self.batch_rows, buffer_timeout_ms=0)
        tasks = [
            self._source_task(number, self.sizes[number - 1], self.parallelism[number - 1], partitioner)
            for number, partitioner in enumerate(self.into_first, start=1)
        ]
        onwards = Exchange(3, 4, self.into_last, 0, "last", uid="first->last")
        first = OperatorPlan("first", RememberingSpec(), (), (0,), (), "first")
        last = OperatorPlan("last", RememberingSpec(), (), (), (), "last")
        tasks.append(TaskPlan(3, "first", self.parallelism[2], None, (first,), (onwards,), None))
        tasks.append(TaskPlan(4, "last", self.parallelism[3], None, (last,), (), None))
        return PhysicalGraph("network", config, tuple(tasks))

    def _source_task(self, number: int, sizes: tuple[int, ...], parallelism: int, partitioner: Partitioner) -> TaskPlan:
        name = "ab"[number - 1]
        source = CountingSource(name, sizes)
        splits = source.splits(parallelism)
        shares = tuple(tuple(splits[subtask::parallelism]) for subtask in range(parallelism))
        plan = SourcePlan(name, source, shares, (), (0,), None, name, parallelism)
        exchange = Exchange(number, 3, partitioner, number - 1, "first", uid=f"{name}->first")
        return TaskPlan(number, name, parallelism, plan, (), (exchange,), None)

    def oracle(self) -> dict[int, list[tuple[str, int]]]:
        """What each operator must have seen of each key, sorted."""
        seen: Seen = {}
        for name, sizes in zip("ab", self.sizes, strict=True):
            for place, size in enumerate(sizes):
                for n in range(size):
                    seen.setdefault(key_of(f"{name}{place}", n), []).append((f"{name}{place}", n))
        return {key: sorted(rows) for key, rows in sorted(seen.items())}


class _Wire:
    """A channel whose messages arrive when the scheduler says so."""

    def __init__(self, credit: int, deliver: Callable[[Message, Callable[[], None]], None]) -> None:
        self.credits = credit
        self.wanted_rows = math.inf
        self.under_way = 0
        self.sent: deque[Message] = deque()
        self._deliver = deliver

    def send(self, message: Message) -> None:
        is_barrier = len(message) == 1 and isinstance(message[0], Barrier)
        assert self.credits > 0 or is_barrier, "sent without credit"
        self.credits -= 1
        self.under_way += 1
        self.sent.append(message)

    def arrive(self) -> None:
        self._deliver(self.sent.popleft(), self._give_back)

    def _give_back(self) -> None:
        self.credits += 1
        self.under_way -= 1


@dataclass
class Network:
    """The tasks of a shape, opened, under one seeded scheduler."""

    shape: Shape
    chosen: random.Random
    restored: dict[Place, RestoredTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.graph = self.shape.graph()
        self.places: list[Place] = [(task.id, sub) for task in self.graph.tasks for sub in range(task.parallelism)]
        self.wires: list[_Wire] = []
        self.outgoing = self.graph.output_channels()
        self.gates = {place: self._gate(place) for place in self.places}
        self.tasks = {place: self._build(place) for place in self.places}
        self.finished: set[Place] = set()
        self.told: list[tuple[Place, Callable[[Task], None]]] = []
        self.captures: dict[int, dict[Place, TaskCapture]] = {}
        for place, task in self.tasks.items():
            task.open(self.restored.get(place))

    def _gate(self, place: Place) -> InputGate:
        indexes = [channel.input_index for channel in self.graph.input_channels(*place)]
        return InputGate(indexes, self.chosen.choice if self.chosen.random() < 0.5 else None)

    def _build(self, place: Place) -> Task:
        plan = self.graph.task(place[0])

        def open_channel(output: int, index: int) -> _Wire:
            receiver, number = self.outgoing[place][output][index]
            gate = self.gates[receiver]
            self.wires.append(_Wire(self.shape.credits, lambda message, back: gate.put(number, message, back)))
            return self.wires[-1]

        gate = None if plan.source is not None else self.gates[place]
        return build_task(self.graph, plan, place[1], gate, open_channel, self.clock)

    def trigger(self, barrier: Barrier) -> None:
        """Tell all tasks, some time, to take part in a checkpoint."""
        self.captures[barrier.checkpoint] = {}
        self.told.extend((place, lambda task: task.expect(barrier)) for place in self.places)

    def abort(self, checkpoint: int) -> None:
        """Tell all tasks, some time, that a checkpoint will not be."""
        self.captures.pop(checkpoint, None)
        self.told.extend((place, lambda task: task.abort(checkpoint)) for place in self.places)

    def act(self) -> None:
        """Do one thing, at random."""
        dice = self.chosen.random()
        if dice < 0.2 and self.told:
            place, tell = self.told.pop(self._next_told())
            tell(self.tasks[place])
            self._take_captures(place)
        elif dice < 0.5 and (under_way := [wire for wire in self.wires if wire.sent]):
            self.chosen.choice(under_way).arrive()
        elif dice < 0.55:
            self.clock.advance(0.01)
        elif running := [place for place in self.places if place not in self.finished]:
            place = self.chosen.choice(running)
            if isinstance(self.tasks[place].step(), Finished):
                self.finished.add(place)
            self._take_captures(place)

    def _next_told(self) -> int:
        """What each task is told comes in its order, with few exceptions."""
        number = self.chosen.randrange(len(self.told))
        if self.chosen.random() < 0.02:
            return number
        place = self.told[number][0]
        return next(first for first, (other, _) in enumerate(self.told) if other == place)

    def _take_captures(self, place: Place) -> None:
        for capture in self.tasks[place].take_captures():
            checkpoint = capture.barrier.checkpoint
            if checkpoint in self.captures:
                assert place not in self.captures[checkpoint], "captured twice"
                self.captures[checkpoint][place] = capture

    @property
    def complete(self) -> list[int]:
        """The checkpoints of which each subtask has given its part."""
        return [number for number, parts in self.captures.items() if len(parts) == len(self.places)]

    def run(self) -> None:
        """Act until all tasks have finished and know all that they were told."""
        for _ in range(10):
            for _ in range(5_000):
                if len(self.finished) == len(self.places) and not self.told:
                    return
                self.act()
            # What takes too long is aborted: a source may have given a later barrier when it was told.
            for number in set(self.captures) - set(self.complete):
                self.abort(number)
        raise AssertionError("the network hangs")

    def seen(self, task: int) -> Seen:
        """What the subtasks of `first` (3) or `last` (4) have seen together."""
        together: Seen = {}
        for (number, _), running in self.tasks.items():
            if number == task:
                operator = running._links[0].operator
                assert isinstance(operator, Remembering)
                for key, rows in operator.seen.items():
                    together.setdefault(key, []).extend(rows)
        return dict(sorted(together.items()))


def restored(parts: dict[Place, TaskCapture], shape: Shape) -> dict[Place, RestoredTask]:
    """What each subtask of `shape`, whose parallelism may be another, resumes from."""
    tasks: dict[Place, RestoredTask] = {}
    unchanged = {(task.id, sub) for task in shape.graph().tasks for sub in range(task.parallelism)} == set(parts)
    for task in shape.graph().tasks:
        old = [part for (number, _), part in sorted(parts.items()) if number == task.id]
        names = {exchange.uid for exchange in task.outputs}
        for subtask in range(task.parallelism):
            operators = {
                uid: share([_snapshot(part.operators[place][2]) for part in old], subtask, task.parallelism, 128)
                for place, (uid, _, _) in enumerate(old[0].operators)
            }
            receivers_first = [part.in_flight for _, part in sorted(parts.items(), reverse=True)]
            shared = share_in_flight(receivers_first, subtask, task.parallelism)
            in_flight = {uid: rows for uid, rows in shared.items() if uid in names}
            # Where anything is rescaled, a subtask that had finished may get rows from others than before.
            finished = old[subtask].finished if unchanged else all(part.finished for part in old)
            tasks[task.id, subtask] = RestoredTask(operators, in_flight, finished)
    return tasks


def _snapshot(capture: OperatorCapture) -> OperatorSnapshot:
    tables = {name: StateTable(table.redistribution, table.rows()) for name, table in capture.tables.items()}
    return OperatorSnapshot(tables, capture.watermark)


def rescaled(shape: Shape, parallelism: tuple[int, int, int, int]) -> Shape:
    """The same network at another parallelism."""
    return replace(shape, parallelism=parallelism)
