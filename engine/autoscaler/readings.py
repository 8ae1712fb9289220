"""What the autoscaler sees of a job: one reading of all counters, from which rates are made.

The runtime makes a `JobReading` every few seconds (`reading_of`); simulated workloads make them without any job.
Counters are totals since the attempt began; times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.exchange.partial_aggregates import PartialAggregates
from penstock.engine.exchange.partitioners import Broadcast, Forward, Global, Rebalance, Rescale
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan
from penstock.engine.metric_types import pending_records
from penstock.engine.metrics import SubtaskMetrics


@dataclass(frozen=True, slots=True)
class SubtaskCounters:
    """What one subtask has done so far.

    Args:
        rows_in: taken; at a source, read.
        rows_out: emitted.
        busy, blocked, idle: seconds of work, of waiting for who takes its rows, and of waiting for rows.
    """

    rows_in: int = 0
    rows_out: int = 0
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskReading:
    """One task.

    Args:
        id, name: which.
        uids: of its operators, the first one first.
        operators: their names.
        inputs: ids of the tasks that send to it; none at a source.
        tied: ids of tasks with one parallelism, itself among them, as rows go between them one to one.
        most: the most subtasks that it can have.
        divides: what its subtasks share out evenly, key groups or splits; 0: nothing of the kind.
        subtasks: by index.
        pending: rows that wait for a source; None: it does not say.
    """

    id: int
    name: str
    uids: tuple[str, ...]
    operators: tuple[str, ...]
    inputs: tuple[int, ...]
    tied: tuple[int, ...]
    most: int
    divides: int
    subtasks: tuple[SubtaskCounters, ...]
    pending: float | None = None

    @property
    def parallelism(self) -> int:
        """How many subtasks it has."""
        return len(self.subtasks)


@dataclass(frozen=True, slots=True)
class JobReading:
    """A job that runs.

    Args:
        at: when, monotonic seconds.
        at_ms: the same, civil time, int64 ms UTC.
        attempt: number of the newest one; behind another, counters begin anew.
        tasks: upstream first.
        rescale_seconds: how long the last rescale took; None: none has been seen.
        slot_cpus: CPUs that each slot reserves.
    """

    at: float
    at_ms: int
    attempt: int
    tasks: tuple[TaskReading, ...]
    rescale_seconds: float | None = None
    slot_cpus: float = 1.0


def reading_of(
    graph: PhysicalGraph,
    metrics: Iterable[SubtaskMetrics],
    at: float,
    at_ms: int,
    attempt: int,
    rescale_seconds: float | None,
) -> JobReading:
    """A reading of a job.

    Args:
        graph: what runs.
        metrics: the counters of its subtasks; those that are missing have counted nothing yet.
        at, at_ms, attempt, rescale_seconds: as in `JobReading`.
    """
    by_place = {(one.task, one.subtask): one for one in metrics}
    inputs = _inputs(graph)
    tied = _tied(graph)
    tasks = []
    for task in graph.tasks:
        subtasks = [by_place.get((task.id, subtask)) for subtask in range(task.parallelism)]
        most, divides = _limits(graph, task)
        tasks.append(
            TaskReading(
                task.id,
                task.name,
                tuple(task.uids),
                tuple(task.operator_names),
                inputs.get(task.id, ()),
                tied[task.id],
                most,
                divides,
                tuple(SubtaskCounters() if one is None else _counters(one) for one in subtasks),
                _pending(subtasks) if task.source is not None else None,
            )
        )
    return JobReading(at, at_ms, attempt, tuple(tasks), rescale_seconds, graph.config.slot_cpus)


def _counters(metrics: SubtaskMetrics) -> SubtaskCounters:
    operators = [counters for _, counters in metrics.operators]
    taken = (operators[0].rows_in or operators[0].rows_out) if operators else 0
    given = operators[-1].rows_out if operators else 0
    return SubtaskCounters(taken, given, metrics.busy_seconds, metrics.blocked_seconds, metrics.idle_seconds)


def _pending(subtasks: Sequence[SubtaskMetrics | None]) -> float | None:
    return pending_records(one.operators[0][1].group for one in subtasks if one is not None and one.operators)


def _inputs(graph: PhysicalGraph) -> Mapping[int, tuple[int, ...]]:
    inputs: dict[int, tuple[int, ...]] = {}
    for task in graph.tasks:
        for exchange in task.outputs:
            # What comes back in a loop is no input that the head has to keep pace with.
            if exchange.downstream is not None and exchange.downstream > task.id:
                inputs[exchange.downstream] = (*inputs.get(exchange.downstream, ()), task.id)
    return inputs


def _tied(graph: PhysicalGraph) -> Mapping[int, tuple[int, ...]]:
    tied = {task.id: {task.id} for task in graph.tasks}
    for task in graph.tasks:
        for exchange in task.outputs:
            if exchange.downstream is not None and isinstance(exchange.partitioner, Forward):
                joined = tied[task.id] | tied[exchange.downstream]
                tied.update(dict.fromkeys(joined, joined))
    return {task: tuple(sorted(others)) for task, others in tied.items()}


def _limits(graph: PhysicalGraph, task: TaskPlan) -> tuple[int, int]:
    """The most subtasks, and what they share out evenly."""
    most = graph.config.max_parallelism
    if task.source is not None:
        splits, limit = sum(map(len, task.source.splits)), task.source.source.max_parallelism
        return min(most, most if limit is None else limit, splits or most), splits
    into = [exchange.partitioner for one in graph.tasks for exchange in one.outputs if exchange.downstream == task.id]
    spread = [one.inner if isinstance(one, PartialAggregates) else one for one in into]
    if any(isinstance(one, Global) for one in spread):
        return 1, 0
    is_keyed = any(not isinstance(one, Forward | Rebalance | Rescale | Broadcast) for one in spread)
    return most, most if is_keyed else 0
