"""What a running job counts: written by each subtask's own thread, read and added up by whoever asks.

Counters are plain attributes, updated a few times a batch and never a row.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.engine.elements import MIN_TIMESTAMP, LatencyMarker
from penstock.engine.metric_types import (
    MOST_METRICS,
    Counter,
    Gauge,
    Histogram,
    Meter,
    MetricGroup,
    MetricReading,
    plain_name,
    read_together,
)

_Holder = TypeVar("_Holder")


@dataclass(slots=True)
class OperatorMetrics:
    """Counters of one operator in one subtask.

    Args:
        rows_in, rows_out, late_rows: so far.
        watermark: the event time (int64 ms) that it has passed on.
        input_watermark: the event time that has come to it.
        group: the metrics that its function, source or sink has made.
        latency: ages of latency markers when they came, in ms: a histogram for each source, by its name in plain
            characters.
        keys: of how many keys each state holds something, where that is known at once: a gauge for each, by the name
            that the state is stored by. Always a new mapping, as whoever reads the counters has another thread.
    """

    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    watermark: int = MIN_TIMESTAMP
    input_watermark: int = MIN_TIMESTAMP
    group: MetricGroup = field(default_factory=MetricGroup, compare=False)
    latency: MetricGroup = field(default_factory=MetricGroup, compare=False)
    keys: Mapping[str, Gauge] = field(default_factory=dict, compare=False)

    def count_keys(self, state: str, holder: _Holder, count: Callable[[_Holder], int]) -> None:
        """Have the keys of a state counted whenever the counters are read.

        Args:
            state: its name, as it is stored.
            holder: who has the keys; counters that somebody keeps do not keep it.
            count: counts them at once, and may be called from another thread; where it raises, they are not known.
        """
        there = weakref.ref(holder)

        def read() -> float:
            found = there()
            return math.nan if found is None else count(found)

        if len(self.keys) < MOST_METRICS:
            self.keys = {**self.keys, state: Gauge(read)}

    def note_latency(self, marker: LatencyMarker, now_ms: int) -> None:
        """Count the age of a marker that has come; clocks of two machines may differ, so it is 0 at least."""
        self.latency.histogram(plain_name(marker.source)).update(max(0, now_ms - marker.marked_ms))

    def counter(self, name: str) -> Counter:
        """A counter of the operator's function; see `MetricGroup`."""
        return self.group.counter(name)

    def meter(self, name: str) -> Meter:
        """A meter of the operator's function."""
        return self.group.meter(name)

    def histogram(self, name: str) -> Histogram:
        """A histogram of the operator's function."""
        return self.group.histogram(name)

    def gauge(self, name: str, read: Callable[[], float] | None = None) -> Gauge:
        """A gauge of the operator's function."""
        return self.group.gauge(name, read)


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """The input of a subtask as of now.

    Args:
        channels: how many there are.
        messages: how many wait to be taken.
        aligning: channels that wait for the barriers of others.
        splits: of a source, how many of its splits are not at their end: files left, or partitions.
        slowest: of a source with event time, those of its splits that are furthest behind, and hold its watermark back.
        behind_ms: by how much event time they are behind the furthest of its splits that are being read.
    """

    channels: int = 0
    messages: int = 0
    aligning: int = 0
    splits: int = 0
    slowest: tuple[str, ...] = ()
    behind_ms: int = 0


@dataclass(frozen=True, slots=True)
class OutputStatistics:
    """The buffers and channels behind a subtask, added up.

    Args:
        channels: how many there are.
        rows, bytes: how much waits in the buffers now.
        under_way: messages that receivers have not taken.
        full: channels that take no more rows now.
        messages_sent, bytes_sent: so far.
    """

    channels: int = 0
    rows: int = 0
    bytes: int = 0
    under_way: int = 0
    full: int = 0
    messages_sent: int = 0
    bytes_sent: int = 0


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """One channel behind a subtask, as of now.

    Args:
        task, subtask: that receive; no task: the client of the job.
        rows: that have come into it so far, those that wait in its buffer included.
        output: what waits in the buffer, is under way and has been sent.
        credits: how many more messages may be under way; less than none behind a barrier that was sent without.
    """

    task: int | None
    subtask: int
    rows: int
    output: OutputStatistics
    credits: int = 0


@dataclass(slots=True)
class SubtaskMetrics:
    """Counters of one subtask.

    Args:
        task: id of the task.
        subtask: index of the subtask, from 0.
        operators: name and counters of each operator of the chain, source first.
        busy_seconds, blocked_seconds, idle_seconds: where the time went: working, waiting for credit, for input.
        alignment_ms, sync_ms, start_delay_ms: of its part in the last checkpoint: how long the barriers of its channels
            were apart, how long the data waited for the capture, and how long the first barrier was on its way.
        gate, output: its queues when it was read.
        garbage_seconds: how long its process has looked for garbage meanwhile, of all its threads; 0 where not known.
    """

    task: int
    subtask: int
    operators: list[tuple[str, OperatorMetrics]] = field(default_factory=list)
    busy_seconds: float = 0.0
    blocked_seconds: float = 0.0
    idle_seconds: float = 0.0
    alignment_ms: float = 0.0
    sync_ms: float = 0.0
    start_delay_ms: float = 0.0
    gate: GateStatistics = GateStatistics()
    output: OutputStatistics = OutputStatistics()
    garbage_seconds: float = 0.0


def held_keys(operators: Iterable[OperatorMetrics]) -> Mapping[str, int]:
    """Of how many keys each state of an operator holds something, its subtasks added up; see `OperatorMetrics.keys`.

    A state of which some subtask does not know is left out.
    """
    counts: dict[str, float] = {}
    for operator in operators:
        for name, gauge in operator.keys.items():
            counts[name] = counts.get(name, 0) + gauge.value
    return {name: int(count) for name, count in counts.items() if not math.isnan(count)}


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
        current_input_watermark: the lowest one that has come to them; None before the first, and at a source.
        metrics: what its functions have counted themselves, by name.
        latency: of each source, by its name in plain characters, how long its latency markers were under way, in ms.
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
    current_input_watermark: int | None = None
    metrics: tuple[MetricReading, ...] = ()
    latency: tuple[MetricReading, ...] = ()

    def metric(self, name: str) -> MetricReading:
        """The metric of that name that the operator's function has made.

        Raises:
            KeyError: it has made none.
        """
        found = next((metric for metric in self.metrics if metric.name == name), None)
        if found is None:
            there = ", ".join(metric.name for metric in self.metrics) or "none"
            raise KeyError(f"operator {self.name!r} has no metric {name!r}; it has: {there}")
        return found


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
    # A subtask that is being started knows of no operators yet.
    known = [subtask.operators for subtask in subtasks if subtask.operators]
    for number, (name, _) in enumerate(known[0] if known else ()):
        counters = [operators[number][1] for operators in known]
        is_whole = len(known) == len(subtasks)
        watermark = min(counter.watermark for counter in counters) if is_whole else MIN_TIMESTAMP
        input_watermark = min(counter.input_watermark for counter in counters) if is_whole else MIN_TIMESTAMP
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
            current_input_watermark=None if input_watermark == MIN_TIMESTAMP else input_watermark,
            metrics=read_together(counter.group for counter in counters),
            latency=read_together(counter.latency for counter in counters),
        )
