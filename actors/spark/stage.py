"""One task of the job as Spark runs it: in each partition, one subtask, the engine's own.

`translate.py` puts a stage into `mapInArrow`. It feeds the subtask the parcels of its partition, in event-time
order (`time_order.py`, `orders.py`), then what its end is like (`endings.py`), and gives what it emits as parcels for
the stages behind.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import pyarrow as pa

from penstock.actors.spark.edges import edge_numbers, incoming
from penstock.actors.spark.endings import Ending
from penstock.actors.spark.failures import stage_error
from penstock.actors.spark.murmur import routes
from penstock.actors.spark.orders import mixes_inputs
from penstock.actors.spark.outbox import Outbox
from penstock.actors.spark.parcels import Arrival, Parcel, Phase, called, to_arrow
from penstock.actors.spark.time_order import TimeMerger
from penstock.engine.clock import SystemClock
from penstock.engine.elements import Batch, Element
from penstock.engine.exchange.outputs import Channel
from penstock.engine.exchange.partitioners import Broadcast, Rebalance, Rescale
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan
from penstock.engine.interruption import closes_generator
from penstock.engine.metrics import SubtaskMetrics
from penstock.engine.task.build import OpenChannel, build_task
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Progress, Task

Counters = dict[tuple[int, int], SubtaskMetrics]
"""The counters of subtasks by task and subtask: a subtask that ran twice counts once."""
Dealt = dict[tuple[int, int], frozenset[int]]
"""`Outbox.dealt` of each run of each subtask, by task and subtask."""


_T_contra = TypeVar("_T_contra", contravariant=True)


class Taker(Protocol[_T_contra]):
    """An accumulator of Spark, as a stage sees it."""

    def add(self, term: _T_contra, /) -> None:
        """Tell the driver."""
        ...


@contextlib.contextmanager
def _never_interrupted() -> Iterator[None]:
    """Take no Ctrl-C, which is the driver's: a `KeyboardInterrupt` in a process of Spark is what a function raises."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        # A generator may be collected in another thread; and Python does not know of each handler.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)


@dataclass(frozen=True)
class StageReports:
    """What stages tell the driver, each subtask when it has ended.

    Args:
        counters: of each subtask.
        dealt: how it has dealt out its rows.
    """

    counters: Taker[Counters]
    dealt: Taker[Dealt]


@dataclass(frozen=True)
class Stage:
    """A task, ready to be sent to the executors.

    Args:
        graph: the job, without what only other tasks need.
        task: id of the task.
        edges: number of each exchange that leaves the task.
        inputs: of each exchange that comes in, the channel that its rows take.
        input_indexes: which input of the head operator each channel feeds.
        reports: what it tells the driver.
        secret: of the job; marks its errors.
        ending: what comes behind the last row.
    """

    graph: PhysicalGraph
    task: int
    edges: Sequence[int]
    inputs: Mapping[int, int]
    input_indexes: Sequence[int]
    reports: StageReports
    secret: str
    ending: Ending

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the subtask of the partition that Spark calls this for."""
        given = iter(batches)
        subtask, parcels = called(given)
        try:
            with _never_interrupted():
                yield from to_arrow(self.run(subtask, parcels))
        except BaseException as error:
            if closes_generator(error):
                raise
            raise stage_error(error, self.graph.task(self.task).name, subtask, self.secret) from None
        # A source reads none of them. Spark ends a process that leaves some unread: the next one imports all anew.
        deque(given, maxlen=0)

    def run(self, subtask: int, parcels: Iterable[Arrival]) -> Iterator[Parcel]:
        """Run one subtask to its end.

        Args:
            subtask: its index.
            parcels: what came for it, in order.
        """
        watermarks: list[int] = []
        yield from self.run_on(subtask, self._in_order(_rows(parcels, watermarks)), watermarks)

    def run_on(
        self, subtask: int, rows: Iterable[tuple[int, Batch]], watermarks: Sequence[int] = ()
    ) -> Iterator[Parcel]:
        """Run one subtask to its end on the rows of its channels.

        Args:
            subtask: its index.
            rows: channel and rows, in the order in which they are to be read.
            watermarks: how far event time is at the senders, when all rows have been read.
        """
        outbox = Outbox(subtask)
        plan = self.graph.task(self.task)
        gate = None if plan.source is not None else InputGate(self.input_indexes)
        task = build_task(self.graph, plan, subtask, gate, self._opener(plan, subtask, outbox), SystemClock())
        try:
            task.open()
            self.ending.begin(task)
            for _ in self._steps(task, subtask, gate, rows, watermarks):
                yield from outbox.take()
            yield from outbox.finish()
        except BaseException:
            _close_after_error(task)
            raise
        task.close()
        self.reports.counters.add({(self.task, subtask): task.metrics})
        self.reports.dealt.add({(self.task, subtask): frozenset({outbox.dealt})})

    def _opener(self, plan: TaskPlan, subtask: int, outbox: Outbox) -> OpenChannel:
        def open_channel(output: int, index: int) -> Channel:
            exchange, edge = plan.outputs[output], self.edges[output]
            if exchange.downstream is None:
                return outbox.lane(edge, 0, is_timed=False)
            targets = self.graph.output_targets(plan, output, subtask)
            route = routes(self.graph.task(exchange.downstream).parallelism)[targets[index]]
            phase = Phase.BROADCAST if isinstance(exchange.partitioner, Broadcast) else Phase.ROWS
            is_dealt = isinstance(exchange.partitioner, Rebalance | Rescale) and len(targets) > 1
            return outbox.lane(edge, route, phase, is_dealt=is_dealt)

        return open_channel

    def _steps(
        self,
        task: Task,
        subtask: int,
        gate: InputGate | None,
        rows: Iterable[tuple[int, Batch]],
        watermarks: Sequence[int],
    ) -> Iterator[None]:
        """Step the task to its end, and say after each step that it was taken."""
        if gate is not None:
            for channel, batch in rows:
                for begin in range(0, batch.num_rows, self.graph.config.max_batch_rows):
                    _put(gate, channel, batch.slice(begin, self.graph.config.max_batch_rows))
                    yield from _step_while_it_goes(task)
            for channel in range(len(self.input_indexes)):
                _put(gate, channel, *self.ending.final_controls(min(watermarks, default=None)))
        yield from self.ending.end(task, self.graph, self.graph.task(self.task), subtask)

    def _in_order(self, parcels: Iterable[Arrival]) -> Iterator[tuple[int, Batch]]:
        """Channel and rows of what came, phase by phase: first what has no time, then by time."""
        for _, phase in itertools.groupby(parcels, key=lambda parcel: parcel.phase):
            merger = TimeMerger(len(self.input_indexes), mixes=mixes_inputs(self.graph.task(self.task)))
            for parcel in phase:
                channel = self.inputs[parcel.edge]
                if parcel.batch.timestamps is None:
                    yield channel, parcel.batch
                else:
                    yield from merger.add(channel, parcel)
            yield from merger.finish()


def stage_of(graph: PhysicalGraph, task: TaskPlan, reports: StageReports, secret: str, ending: Ending) -> Stage:
    """The stage of one task of the job; `reports`, `secret` and `ending` as for `Stage`."""
    numbers = edge_numbers(graph)
    indexes = sorted({exchange.input_index for _, exchange in incoming(graph, task)})
    inputs = {edge: indexes.index(exchange.input_index) for edge, exchange in incoming(graph, task)}
    edges = [numbers[task.id, output] for output in range(len(task.outputs))]
    others = (other if other is task else replace(other, source=None, operators=()) for other in graph.tasks)
    # No barrier and no reader waits for a batch of a stage to end, so that its time bounds none.
    config = replace(graph.config, buffer_debloat_target_ms=0, latency_interval_ms=0)
    slim = replace(graph, config=config, tasks=tuple(others))
    return Stage(slim, task.id, edges, inputs, indexes, reports, secret, ending)


def _rows(parcels: Iterable[Arrival], watermarks: list[int]) -> Iterator[Arrival]:
    """The parcels with rows; `watermarks` gets how far event time is at the senders."""
    for parcel in parcels:
        if parcel.phase == Phase.WATERMARK:
            watermarks.append(parcel.turn)
        else:
            yield parcel


def _put(gate: InputGate, channel: int, *elements: Element) -> None:
    gate.put(channel, elements, lambda: None)


def _step_while_it_goes(task: Task) -> Iterator[None]:
    while isinstance(task.step(), Progress):
        yield


def _close_after_error(task: Task) -> None:
    """Release what the task holds; what that raises is of no interest beside the error that has ended it."""
    try:
        task.close()
    except BaseException:
        return
