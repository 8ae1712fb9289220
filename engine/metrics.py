"""What a running job counts: written by each subtask's own thread, read and added up by whoever asks.

Counters are plain attributes, updated a few times a batch and never a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.engine.elements import MIN_TIMESTAMP


@dataclass(slots=True)
class OperatorMetrics:
    """Counters of one operator in one subtask, and the event time (int64 ms) that it has passed on."""

    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    watermark: int = MIN_TIMESTAMP


@dataclass(slots=True)
class SubtaskMetrics:
    """Counters of one subtask.

    Args:
        task: id of the task.
        subtask: index of the subtask, from 0.
        operators: name and counters of each operator of the chain, source first.
        busy_seconds, blocked_seconds, idle_seconds: where the time went: working, waiting for credit, for input.
    """

    task: int
    subtask: int
    operators: list[tuple[str, OperatorMetrics]] = field(default_factory=list)
    busy_seconds: float = 0.0
    blocked_seconds: float = 0.0
    idle_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """One operator, its subtasks added up.

    Args:
        task: id of the task that runs it.
        number: its place in the task, from 0; names may repeat.
        name: the operator's name.
        parallelism: how many subtasks were counted.
        rows_in, rows_out: rows taken and emitted so far (a source takes none).
        late_rows: rows that came too late and were dropped; those given to a side output do not count, as in Flink.
        busy, backpressured: share of the task's time, from 0 to 1.
        current_watermark: the lowest watermark that its subtasks have passed on, int64 ms; None before the first.
    """

    task: int
    number: int
    name: str
    parallelism: int
    rows_in: int
    rows_out: int
    late_rows: int
    busy: float
    backpressured: float
    current_watermark: int | None


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """A job's operators, upstream first."""

    operators: tuple[OperatorReport, ...]

    @property
    def late_rows(self) -> int:
        """Rows that came too late, over all operators."""
        return sum(operator.late_rows for operator in self.operators)


def report(subtasks: Iterable[SubtaskMetrics]) -> JobMetrics:
    """Add up the subtasks of each task."""
    by_task: dict[int, list[SubtaskMetrics]] = {}
    for subtask in subtasks:
        by_task.setdefault(subtask.task, []).append(subtask)
    return JobMetrics(tuple(line for task in sorted(by_task) for line in _report_task(task, by_task[task])))


def _report_task(task: int, subtasks: Sequence[SubtaskMetrics]) -> Iterable[OperatorReport]:
    busy = sum(subtask.busy_seconds for subtask in subtasks)
    blocked = sum(subtask.blocked_seconds for subtask in subtasks)
    total = busy + blocked + sum(subtask.idle_seconds for subtask in subtasks) or 1.0
    for number, (name, _) in enumerate(subtasks[0].operators):
        counters = [subtask.operators[number][1] for subtask in subtasks]
        watermark = min(counter.watermark for counter in counters)
        yield OperatorReport(
            task=task,
            number=number,
            name=name,
            parallelism=len(subtasks),
            rows_in=sum(counter.rows_in for counter in counters),
            rows_out=sum(counter.rows_out for counter in counters),
            late_rows=sum(counter.late_rows for counter in counters),
            busy=busy / total,
            backpressured=blocked / total,
            current_watermark=None if watermark == MIN_TIMESTAMP else watermark,
        )
