"""What leaves a batch job: rows for the client, and what transactional sinks have prepared, which the driver commits.

Each subtask of such a sink prepares what it wrote when its input ends, and emits the committables as rows. When all
subtasks of the job have ended, the driver commits them all: a job that fails has committed nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from penstock.engine.clock import SystemClock
from penstock.engine.connectors import ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.errors import JobFailedError
from penstock.engine.graph.physical import Exchange, OperatorPlan, PhysicalGraph, TaskPlan
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.sink import SinkFactory, committables_of, committables_table, connector_context
from penstock.engine.task.partitioners import Forward

_LOG = logging.getLogger(__name__)
_EPOCH: Final = 0
"""The number of the only checkpoint of a batch job, its end; as of jobs without checkpoints elsewhere."""
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class PreparingSinkFactory:
    """Creates the operator that prepares what `sink` is to commit."""

    sink: TransactionalSink

    def __call__(self) -> Operator:
        return PreparingSink(self.sink)


class PreparingSink(Operator):
    """Writes every row; at the end of its input emits what is prepared, for the driver."""

    def __init__(self, sink: TransactionalSink) -> None:
        self._sink = sink
        self._writer: TransactionalWriter | None = None

    def open(self, context: OperatorContext) -> None:
        self._metrics = context.metrics
        self._writer = self._sink.open(connector_context(context))

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert self._writer is not None
        self._writer.write(batch)

    def finish(self, out: Collector) -> None:
        assert self._writer is not None
        prepared = self._writer.prepare(_EPOCH)
        if prepared:
            out.collect(Batch(table_to_record_batch(committables_table(prepared))))
            # Committables are no rows of the stream.
            self._metrics.rows_out = 0

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@dataclass(frozen=True, slots=True)
class PendingSink:
    """A transactional sink whose committables come to the driver."""

    sink: TransactionalSink
    operator: str
    parallelism: int
    identity: str


@dataclass(frozen=True, slots=True)
class Terminals:
    """A graph whose transactional sinks prepare and do not commit, and those sinks.

    Args:
        graph: the job.
        pending: the sinks by the number of the results that are their committables: below zero, as no node's is.
    """

    graph: PhysicalGraph
    pending: Mapping[int, PendingSink] = field(default_factory=dict)


def terminals(graph: PhysicalGraph) -> Terminals:
    """Let the transactional sinks of a job send what they have prepared to the driver."""
    pending: dict[int, PendingSink] = {}
    tasks = tuple(_with_preparing_sinks(graph, task, pending) for task in graph.tasks)
    return Terminals(replace(graph, tasks=tasks), pending)


def _with_preparing_sinks(graph: PhysicalGraph, task: TaskPlan, pending: dict[int, PendingSink]) -> TaskPlan:
    operators: list[OperatorPlan] = []
    outputs = list(task.outputs)
    for operator in task.operators:
        plan, factory = operator, operator.factory
        if isinstance(factory, SinkFactory) and isinstance(factory.sink, TransactionalSink):
            number = -1 - len(pending)
            identity = graph.identity(plan.uid)
            pending[number] = PendingSink(factory.sink, plan.name, task.parallelism, identity)
            outputs.append(Exchange(task.id, None, Forward(), 0, f"operator {plan.name!r}", number))
            plan = replace(plan, factory=PreparingSinkFactory(factory.sink), outputs=(len(outputs) - 1,))
        operators.append(plan)
    return replace(task, operators=tuple(operators), outputs=tuple(outputs))


def commit(pending: Mapping[int, PendingSink], prepared: Mapping[int, Sequence[Batch]]) -> None:
    """Make the output of all sinks visible. Each is tried a few times, as a commit may be repeated.

    Args:
        pending: the sinks.
        prepared: their committables, by the same numbers; what one writer has prepared is in one place.

    Raises:
        JobFailedError: names the sinks that could not commit, and those that had.
    """
    committed: list[str] = []
    for number, sink in pending.items():
        batches = prepared.get(number, ())
        if not batches:
            continue
        try:
            _commit_one(sink, batches)
        except Exception as error:
            done = f"; committed before that: {', '.join(committed)}" if committed else "; no sink has committed"
            raise JobFailedError(
                f"all rows were written, and operator {sink.operator!r} ({sink.sink.describe()}) could not commit: "
                f"{type(error).__name__}: {error}{done}; mend the cause and run the job again"
            ) from error
        committed.append(repr(sink.operator))


def _commit_one(sink: PendingSink, batches: Sequence[Batch]) -> None:
    context = ConnectorContext(sink.operator, 0, sink.parallelism, SystemClock(), sink.identity)
    committables = [one for batch in batches for one in committables_of(pa.Table.from_batches([batch.data]))]
    for tried in range(1, _TRIES + 1):
        try:
            sink.sink.commit(committables, context)
            return
        except Exception as error:
            if tried == _TRIES:
                raise
            _LOG.warning("operator %r could not commit, and tries again: %s", sink.operator, error)
