"""Watches event time in a running job: says which operator waits, for whom and since when, where it cannot advance.

Both runtimes give it the counters from time to time. A window that never fires looks healthy in every other respect, so
this is told as a warning while the job runs, and stands in `JobInfo`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan
from penstock.engine.job.info import EventTimeWait
from penstock.engine.metrics import OperatorMetrics, SubtaskMetrics
from penstock.engine.operators.relational import EventTime
from penstock.engine.operators.spec import OperatorTraits, RowOrder

FIRST_MS: Final = 20_000
"""How long rows may come before the first watermark."""
LATER_MS: Final = 60_000
"""How long rows may come while event time stands."""


@dataclass(slots=True)
class _Seen:
    """Where event time was at an operator, since when, and how many rows had come by then."""

    watermark: int
    since_ms: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who has not let event time pass."""

    operator: str
    subtask: int
    rows_out: int
    splits: tuple[str, ...] = ()


class EventTimeWatch:
    """Compares what the counters say of event time from look to look.

    Args:
        began_ms: when the job began, civil time in ms UTC; `begin` is told when it began to run.
    """

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._warned: set[tuple[str, str, int | None]] = set()

    def begin(self, began_ms: int) -> None:
        """The job runs since `began_ms`; if not since when it did, event time and the counters have begun anew."""
        if began_ms != self._began_ms:
            self._began_ms = began_ms
            self._seen.clear()

    def look(self, graph: PhysicalGraph, metrics: Sequence[SubtaskMetrics], now_ms: int) -> tuple[EventTimeWait, ...]:
        """The operators at which rows come while event time stands.

        Args:
            graph: what runs.
            metrics: the counters of all subtasks.
            now_ms: civil time, ms UTC.
        """
        by_task: dict[int, list[SubtaskMetrics]] = {}
        for one in metrics:
            by_task.setdefault(one.task, []).append(one)
        return tuple(self._waits(graph, by_task, now_ms))

    def news(self, waits: Sequence[EventTimeWait]) -> list[EventTimeWait]:
        """Those that were not told before."""
        new = [wait for wait in waits if (wait.operator, wait.holder, wait.watermark) not in self._warned]
        self._warned.update((wait.operator, wait.holder, wait.watermark) for wait in new)
        return new

    def _waits(
        self, graph: PhysicalGraph, metrics: Mapping[int, Sequence[SubtaskMetrics]], now_ms: int
    ) -> Iterator[EventTimeWait]:
        for task in graph.tasks:
            subtasks = metrics.get(task.id, ())
            for number, operator in enumerate(task.operators):
                if not _may_wait(operator.spec.traits) or not subtasks:
                    continue
                place = number + (task.source is not None)
                counters = [one.operators[place][1] for one in subtasks]
                slowest = min(range(len(counters)), key=lambda subtask: counters[subtask].input_watermark)
                watermark = counters[slowest].input_watermark
                rows = sum(counter.rows_in for counter in counters)
                seen = self._noted((task.id, place), watermark, rows, now_ms)
                if not _stands(seen, counters, now_ms):
                    continue
                holder = _holder(graph, metrics, task, number, slowest)
                yield EventTimeWait(
                    operator.name,
                    subtasks[slowest].subtask,
                    holder.operator,
                    holder.subtask,
                    holder.rows_out,
                    rows,
                    seen.since_ms,
                    None if watermark == MIN_TIMESTAMP else watermark,
                    holder.splits,
                )

    def _noted(self, place: tuple[int, int], watermark: int, rows: int, now_ms: int) -> _Seen:
        seen = self._seen.get(place)
        if seen is None and watermark == MIN_TIMESTAMP:
            seen = self._seen[place] = _Seen(watermark, self._began_ms, 0)
        elif seen is None or seen.watermark != watermark or rows < seen.rows:
            # Counters begin anew with an attempt.
            seen = self._seen[place] = _Seen(watermark, now_ms, rows)
        return seen


def has_event_time(graph: PhysicalGraph) -> bool:
    """Whether anything in the job assigns event time."""
    return any(
        (task.source is not None and task.source.watermarks is not None)
        or any(isinstance(operator.spec.traits.relational, EventTime) for operator in task.operators)
        for task in graph.tasks
    )


def _may_wait(traits: OperatorTraits) -> bool:
    """Whether rows may wait for event time in such an operator."""
    waits = traits.order is not RowOrder.NONE and traits.updates is None and not traits.waits_for_clock
    return waits and traits.sink is None and traits.feedback is None and traits.loop_head is None


def _stands(seen: _Seen, counters: Sequence[OperatorMetrics], now_ms: int) -> bool:
    came = sum(counter.rows_in for counter in counters) - seen.rows
    if came <= 0 or seen.watermark == MAX_TIMESTAMP:
        return False
    if seen.watermark == MIN_TIMESTAMP:
        # An operator that gives rows all the same waits for nothing.
        return now_ms - seen.since_ms >= FIRST_MS and not any(counter.rows_out for counter in counters)
    return now_ms - seen.since_ms >= LATER_MS


def _holder(
    graph: PhysicalGraph, metrics: Mapping[int, Sequence[SubtaskMetrics]], task: TaskPlan, number: int, subtask: int
) -> _Holder:
    """Upstream of an operator, the last one that has passed on no more than what came to this one."""
    while True:
        offset = task.source is not None
        one = metrics[task.id][subtask]
        parent = next((n for n, operator in enumerate(task.operators) if number in operator.chained), None)
        if parent is not None:
            name, counters = one.operators[parent + offset]
            if counters.watermark < counters.input_watermark or _makes_time(task, parent):
                return _Holder(name, one.subtask, counters.rows_out)
            number = parent
            continue
        if task.source is not None:
            return _source(one)
        found = _slowest_upstream(graph, metrics, task)
        if found is None:
            return _Holder(task.operators[number].name, one.subtask, 0)
        task, number, subtask, holder = found
        if holder is not None:
            return holder


def _slowest_upstream(
    graph: PhysicalGraph, metrics: Mapping[int, Sequence[SubtaskMetrics]], task: TaskPlan
) -> tuple[TaskPlan, int, int, _Holder | None] | None:
    """The subtask upstream with the lowest watermark: task, last operator, index, and the holder where it is that."""
    best: tuple[int, TaskPlan, int, int, _Holder | None] | None = None
    for upstream in graph.tasks:
        for output, exchange in enumerate(upstream.outputs):
            if exchange.downstream != task.id:
                continue
            sender = next((n for n, op in enumerate(upstream.operators) if output in op.outputs), -1)
            place = sender + (upstream.source is not None)
            for index, one in enumerate(metrics.get(upstream.id, ())):
                name, counters = one.operators[place]
                if best is None or counters.watermark < best[0]:
                    is_holder = sender < 0 or counters.watermark < counters.input_watermark
                    is_holder = is_holder or _makes_time(upstream, sender)
                    holder = None
                    if is_holder:
                        holder = _source(one) if sender < 0 else _Holder(name, one.subtask, counters.rows_out)
                    best = (counters.watermark, upstream, sender, index, holder)
    return None if best is None else best[1:]


def _source(one: SubtaskMetrics) -> _Holder:
    """The source of a subtask, with those of its splits that are furthest behind."""
    name, counters = one.operators[0]
    return _Holder(name, one.subtask, counters.rows_out, one.gate.slowest)


def _makes_time(task: TaskPlan, number: int) -> bool:
    """Whether an operator makes watermarks of its own."""
    return isinstance(task.operators[number].spec.traits.relational, EventTime)
