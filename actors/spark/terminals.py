"""What leaves a batch job: rows for the client, and what transactional sinks have prepared, which the driver commits.

Each subtask of such a sink prepares what it wrote when its input ends, and emits the committables as rows. When all
subtasks of the job have ended, the driver commits them all: a job that fails has committed nothing, and what it had
prepared is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import tenacity

from penstock.engine.clock import SystemClock
from penstock.engine.connectors import ConnectorContext, Sink, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.errors import JobFailedError
from penstock.engine.exchange.partitioners import Forward
from penstock.engine.graph.physical import Exchange, OperatorPlan, PhysicalGraph, TaskPlan
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.sink import (
    SinkOperator,
    committables_of,
    committables_table,
    connector_context,
)
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder

_LOG = logging.getLogger(__name__)
_EPOCH: Final = 0
"""The number of the only checkpoint of a batch job, its end; as of jobs without checkpoints elsewhere."""
_COMMIT_SECONDS: Final = 60.0
"""How long a commit is tried: a server may be restarting, and all the work is done."""


@dataclass(frozen=True, slots=True)
class PreparingSinkSpec(OperatorSpec):
    """Creates the operator that prepares what `sink` is to commit."""

    sink: TransactionalSink

    def create(self) -> Operator:
        return PreparingSink(self.sink)

    def describe(self) -> str:
        return f"prepare {self.sink.describe()}"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(self.sink.changelog_modes,), sink=self.sink)


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

    def before_suspend(self, out: Collector) -> None:
        self.finish(out)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@dataclass(frozen=True, slots=True)
class EndingSinkSpec(OperatorSpec):
    """Creates the operator that writes to the plain sink `sink`."""

    sink: Sink

    def create(self) -> Operator:
        return EndingSink(self.sink)

    def describe(self) -> str:
        return self.sink.describe()

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(self.sink.changelog_modes,), sink=self.sink)


class EndingSink(SinkOperator):
    """Ends what it writes also where the job ends with a savepoint: its input has ended all the same."""

    def before_suspend(self, out: Collector) -> None:
        self.finish(out)


@dataclass(frozen=True, slots=True)
class PendingSink:
    """A transactional sink whose committables come to the driver."""

    sink: TransactionalSink
    operator: str
    parallelism: int
    identity: str

    @property
    def context(self) -> ConnectorContext:
        """The operator as the sink sees it from the driver."""
        return ConnectorContext(self.operator, 0, self.parallelism, SystemClock(), self.identity)


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
    """Let the transactional sinks of a job send what they have prepared to the driver, and plain ones end alone."""
    pending: dict[int, PendingSink] = {}
    tasks = tuple(_with_preparing_sinks(graph, task, pending) for task in graph.tasks)
    return Terminals(replace(graph, tasks=tasks), pending)


def _with_preparing_sinks(graph: PhysicalGraph, task: TaskPlan, pending: dict[int, PendingSink]) -> TaskPlan:
    operators: list[OperatorPlan] = []
    outputs = list(task.outputs)
    for operator in task.operators:
        plan = operator
        match operator.spec.traits.sink:
            case TransactionalSink() as sink:
                number = -1 - len(pending)
                identity = graph.identity(plan.uid)
                pending[number] = PendingSink(sink, plan.name, task.parallelism, identity)
                outputs.append(Exchange(task.id, None, Forward(), 0, f"operator {plan.name!r}", number))
                plan = replace(plan, spec=PreparingSinkSpec(sink), outputs=(len(outputs) - 1,))
            case Sink() as sink:
                plan = replace(plan, spec=EndingSinkSpec(sink))
        operators.append(plan)
    return replace(task, operators=tuple(operators), outputs=tuple(outputs))


def commit(pending: Mapping[int, PendingSink], prepared: Mapping[int, Sequence[Batch]]) -> None:
    """Make the output of all sinks visible, one after another. Each is tried for a minute, as it may be repeated.

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
        except BaseException as error:
            done = f"{', '.join(committed)} had committed before" if committed else "no other sink had committed before"
            raise JobFailedError(
                f"all rows were written, and operator {sink.operator!r} ({sink.sink.describe()}) could not commit "
                f"within {_COMMIT_SECONDS:g} s: {type(error).__name__}: {error}; {done}. A batch job keeps nothing to "
                "resume from: mend the cause, remove what these sinks show of it, and run the job again, which writes "
                "all rows"
            ) from error
        committed.append(repr(sink.operator))


def discard(pending: Iterable[PendingSink]) -> None:
    """Let the sinks of a job that is over remove what nobody commits; what they cannot remove is told in the log."""
    for sink in pending:
        try:
            sink.sink.discard(sink.context)
        except BaseException as error:
            _LOG.warning(
                "operator %r (%s) leaves behind what was not committed: %s", sink.operator, sink.sink.describe(), error
            )


def _commit_one(sink: PendingSink, batches: Sequence[Batch]) -> None:
    context = sink.context
    # What one writer has prepared may have come in several parcels, and is one committable all the same.
    tables = [pa.Table.from_batches([batch.data]) for batch in batches]
    committables = committables_of(pa.concat_tables(tables, promote_options="default"))

    told = set[str]()

    def tell(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if str(error) not in told:
            told.add(str(error))
            _LOG.warning(
                "operator %r could not commit, and tries again for %g s: %s", sink.operator, _COMMIT_SECONDS, error
            )

    again = tenacity.Retrying(
        stop=tenacity.stop_after_delay(_COMMIT_SECONDS),
        wait=tenacity.wait_random_exponential(0.2, max=5),
        before_sleep=tell,
        reraise=True,
    )
    again(sink.sink.commit, committables, context)
