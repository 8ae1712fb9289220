"""What a rescale would do, without doing it: whether it goes live, what it reserves, how busy tasks would be then.

Job managers answer with it, for `penstock preview-rescale` and REST. Pure: of two readings and the layouts before and
after. The rates are the autoscaler's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.autoscaler.evaluation import JobFigures, TaskFigures, evaluate
from penstock.engine.autoscaler.readings import JobReading
from penstock.engine.autoscaler.scaling import worth
from penstock.engine.errors import PenstockError, StateNotReadyError
from penstock.engine.graph.scale import ParallelismRequest, describe_request
from penstock.engine.job.layout import GraphPlanner, Layout, Planner, layout_change

MOST_PREVIEWS: Final = 100
"""So many can be asked for at once."""


@dataclass(frozen=True, slots=True)
class TaskPreview:
    """One task behind a rescale.

    Args:
        name: its name.
        before, after: its subtasks.
        busy: the share of its time for which its fullest subtask would have work, 1.5 where it would have half as much
            again as it can do; None: it has done too little to tell.
    """

    name: str
    before: int
    after: int
    busy: float | None


@dataclass(frozen=True, slots=True)
class RescalePreview:
    """What would come of one request.

    Args:
        wanted: what is asked for, in words.
        outcome: `live`: only the tasks that change stop; `restart`: all do; `nothing`: it runs so already; `refused`.
        reason: why it would be a restart, or refused.
        tasks: all tasks; none where it would be refused.
        slots, cpus: that the job would reserve.
    """

    wanted: str
    outcome: str
    reason: str = ""
    tasks: tuple[TaskPreview, ...] = ()
    slots: int = 0
    cpus: float = 0.0

    @property
    def busiest(self) -> TaskPreview | None:
        """The task that would hold the job up first; None: that cannot be told."""
        told = [task for task in self.tasks if task.busy is not None]
        return max(told, key=lambda task: task.busy or 0.0, default=None)


def previews(
    wanted: Sequence[ParallelismRequest],
    planner: GraphPlanner,
    running: Layout | None,
    readings: tuple[JobReading | None, JobReading | None],
) -> list[RescalePreview]:
    """What requests would do, each by itself.

    Args:
        wanted: each as for `JobHandle.rescale`.
        planner: plans the job.
        running: what runs; None: nothing was planned yet.
        readings: two, between which its rates are taken; None where it did not run.

    Raises:
        StateNotReadyError: it does not run, or was restarted between the readings.
    """
    first, last = readings
    if running is None or first is None or last is None or first.attempt != last.attempt:
        name = planner.program.name
        raise StateNotReadyError(f"job {name!r} does not run now, or was restarted just now; try again later")
    figures = evaluate(first, last, planner.program.config.autoscaler)
    return [preview(one, planner, running, figures, last.slot_cpus) for one in wanted]


def preview(
    wanted: ParallelismRequest, planner: Planner, running: Layout, figures: JobFigures, slot_cpus: float
) -> RescalePreview:
    """What a request would do.

    Args:
        wanted: as for `JobHandle.rescale`.
        planner: plans the job.
        running: what runs.
        figures: of the tasks that run.
        slot_cpus: CPUs that each slot reserves.
    """
    words = describe_request(wanted)
    try:
        layout = planner.plan(planner.scale_for(wanted, running.scale), running.split_parallelism)
    except PenstockError as error:
        return RescalePreview(words, "refused", str(error))
    known = {one.task.id: one for one in figures.tasks}
    before = running.parallelisms
    # Where operators come together, or apart, tasks are others.
    is_same = [task.name for task in running.tasks] == [task.name for task in layout.tasks]
    tasks = tuple(
        TaskPreview(
            task.name,
            before[task.id] if is_same else task.parallelism,
            task.parallelism,
            _busy(known.get(task.id), task.parallelism) if is_same else None,
        )
        for task in layout.tasks
    )
    slots = max(task.parallelism for task in layout.tasks)
    change = layout_change(running, layout)
    outcome = "nothing" if change.is_none else "live" if change.replaced else "restart"
    return RescalePreview(words, outcome, change.reason, tasks, slots, slots * slot_cpus)


def _busy(figures: TaskFigures | None, parallelism: int) -> float | None:
    """How busy the fullest subtask would be; more subtasks than there are key groups or splits do no more."""
    if figures is None or not figures.true_rate:
        return None
    task = figures.task
    gained = worth(parallelism, task.divides) / worth(task.parallelism, task.divides)
    busy = figures.target_rate / (figures.true_rate * gained)
    return round(busy, 3) if math.isfinite(busy) else None


def requests_of(operators: Sequence[str], ranges: Sequence[range]) -> list[ParallelismRequest]:
    """One request for each number of each range.

    Args:
        operators: by uid or name, one for each range; none: the ranges are of the whole job.
        ranges: of subtasks.

    Example:
        >>> requests_of(["window"], [range(2, 4)]), requests_of([], [range(1, 3)])
        ([{'window': 2}, {'window': 3}], [1, 2])
    """
    if not operators:
        return [number for one in ranges for number in one]
    return [{name: number} for name, one in zip(operators, ranges, strict=True) for number in one]


def range_of(text: str) -> range | None:
    """`3`, or `2..8`, both ends included; None: it is neither.

    Example:
        >>> range_of("2..4"), range_of("3"), range_of("4..2"), range_of("x")
        (range(2, 5), range(3, 4), None, None)
    """
    first, _, last = text.partition("..")
    last = last or first
    digits = all(one.isascii() and one.isdigit() and len(one) < 6 for one in (first, last))
    if not digits or text.endswith("..") or not 1 <= int(first) <= int(last):
        return None
    return range(int(first), int(last) + 1)
