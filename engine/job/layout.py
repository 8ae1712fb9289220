"""What the brain knows of a job's graph: which subtasks there are, and how they depend on each other.

A `Layout` is small and plain, so that it can stand in the stimulus log; shells get the whole graph for it from the
`GraphPlanner` that made it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.connectors import TransactionalSink
from penstock.engine.elements import FEEDBACK_INPUT
from penstock.engine.errors import PenstockError
from penstock.engine.graph.physical import JobProgram, PhysicalGraph, TaskPlan
from penstock.engine.graph.rescaling import scale_for
from penstock.engine.graph.scale import ParallelismRequest, Scale
from penstock.engine.job.failover import regions

A_LOOP: Final = "the job has a loop"
"""Why nothing of it stops while the rest runs on."""


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """One task.

    Args:
        id, name, parallelism: as in `TaskPlan`.
        commits: whether something in it waits for each checkpoint to count.
        is_end: whether all of its rows leave the job.
        source: uid of the source at its head; None: it has none.
        split_parallelism: the parallelism that the splits of the source were made for.
        restarts: why a rescale of it restarts the job, in words; empty: it can be rescaled while the others run on.
            A move of its subtasks to other processes is no rescale.
    """

    id: int
    name: str
    parallelism: int
    commits: bool
    is_end: bool
    source: str | None
    split_parallelism: int
    restarts: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The subtasks of a job at one scale.

    Args:
        scale: what it has been rescaled to since it was submitted.
        tasks: by id, upstream first.
        regions: the parts that can restart by themselves; one, if they are not to.
        commits_last: whether sinks hold rows back until a checkpoint, so that the job ends with one.
        has_loop: whether rows come back to where they were, so that no task stops while others run on.
    """

    scale: Scale
    tasks: tuple[TaskLayout, ...]
    regions: tuple[frozenset[Place], ...]
    commits_last: bool
    has_loop: bool = False

    @property
    def places(self) -> list[Place]:
        """All subtasks, upstream first."""
        return [(task.id, subtask) for task in self.tasks for subtask in range(task.parallelism)]

    @property
    def subtasks(self) -> int:
        """How many there are."""
        return sum(task.parallelism for task in self.tasks)

    @property
    def parallelisms(self) -> dict[int, int]:
        """That of each task, by id."""
        return {task.id: task.parallelism for task in self.tasks}

    @property
    def split_parallelism(self) -> dict[str, int]:
        """Of each source, by uid."""
        return {task.source: task.split_parallelism for task in self.tasks if task.source is not None}

    def task(self, task_id: int) -> TaskLayout:
        """A task by its id."""
        return self.tasks[task_id - 1]

    def name(self, place: Place) -> str:
        """A subtask in words."""
        return f"task {self.task(place[0]).name!r}, subtask {place[1]}"

    def committing(self, places: Sequence[Place]) -> list[Place]:
        """Those of `places` in which something waits for checkpoints to count."""
        return [place for place in places if self.task(place[0]).commits]


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """How a layout differs from the one that runs.

    Args:
        replaced: ids of the tasks that get another number of subtasks while any others run on; none: the job restarts.
        reason: why it does.
    """

    replaced: frozenset[int] = frozenset()
    reason: str = ""

    @property
    def is_none(self) -> bool:
        """Whether the same subtasks run."""
        return not self.replaced and not self.reason


def layout_change(running: Layout, wanted: Layout) -> LayoutChange:
    """What must be replaced to come from one layout to the other."""
    if [task.name for task in running.tasks] != [task.name for task in wanted.tasks]:
        return LayoutChange(reason="operators come together in tasks, or apart")
    pairs = zip(running.tasks, wanted.tasks, strict=True)
    changed = [new for old, new in pairs if old.parallelism != new.parallelism]
    if changed and wanted.has_loop:
        return LayoutChange(reason=A_LOOP)
    if reason := next((task.restarts for task in changed if task.restarts), ""):
        return LayoutChange(reason=reason)
    return LayoutChange(frozenset(task.id for task in changed))


class Planner(Protocol):
    """Plans a job at a scale."""

    def plan(self, scale: Scale, split_parallelism: Mapping[str, int]) -> Layout:
        """The layout.

        Args:
            scale: as in `Layout`.
            split_parallelism: for sources (by uid) that have been read before, the parallelism that their splits were
                made for.

        Raises:
            GraphError, ConfigurationError: the program cannot run so.
        """
        ...

    def scale_for(self, wanted: ParallelismRequest, running: Scale) -> Scale:
        """The scale that somebody asks for of a job that runs at another; see `graph.rescaling.scale_for`."""
        ...


@dataclass(slots=True)
class GraphPlanner:
    """Plans a program; keeps what it has planned, so that the same layout is the same graph.

    Args:
        program: the job.
    """

    program: JobProgram
    _graphs: dict[tuple[Scale, tuple[tuple[str, int], ...]], PhysicalGraph] = field(default_factory=dict)

    def plan(self, scale: Scale, split_parallelism: Mapping[str, int]) -> Layout:
        graph = self.program.rescaled(scale).physical(split_parallelism)
        places = frozenset((task.id, subtask) for task in graph.tasks for subtask in range(task.parallelism))
        layout = Layout(
            scale,
            tuple(_task_layout(task) for task in graph.tasks),
            tuple(regions(graph)) if graph.config.failover.regions else (places,),
            any(isinstance(sink, TransactionalSink) for sink in graph.sinks),
            any(exchange.input_index == FEEDBACK_INPUT for task in graph.tasks for exchange in task.outputs),
        )
        self._graphs.setdefault(_key(layout), graph)
        return layout

    def scale_for(self, wanted: ParallelismRequest, running: Scale) -> Scale:
        return scale_for(self.program, wanted, running)

    def graph(self, layout: Layout) -> PhysicalGraph:
        """The whole graph of a layout that was planned here."""
        return self._graphs[_key(layout)]


def taken_scale(planner: Planner, latest: CompletedCheckpoint) -> Scale:
    """The scale that a checkpoint was taken at, where the job had been rescaled or ran smaller for want of room."""
    if latest.scale is None and _fits(planner, latest, Scale()):
        return Scale()
    operators = {one.uid: subtask.parallelism for subtask in latest.subtasks for one in subtask.operators}
    counts = sorted({subtask.parallelism for subtask in latest.subtasks})
    told: tuple[Scale, ...] = () if latest.scale is None else (latest.scale,)
    for candidate in (*told, *map(Scale, counts), Scale(None, tuple(sorted(operators.items())))):
        # A parallelism that one operator was given may not be possible for the others.
        with contextlib.suppress(PenstockError):
            if _fits(planner, latest, candidate):
                return candidate
    return Scale()


def _fits(planner: Planner, latest: CompletedCheckpoint, scale: Scale) -> bool:
    taken = {subtask.task: subtask.parallelism for subtask in latest.subtasks}
    return planner.plan(scale, latest.split_parallelism).parallelisms == taken


def _key(layout: Layout) -> tuple[Scale, tuple[tuple[str, int], ...]]:
    return layout.scale, tuple(sorted(layout.split_parallelism.items()))


def _task_layout(task: TaskPlan) -> TaskLayout:
    own = f"task {task.name!r} has resources of its own, by which slots are made"
    return TaskLayout(
        id=task.id,
        name=task.name,
        parallelism=task.parallelism,
        commits=task.commits,
        is_end=all(exchange.downstream is None for exchange in task.outputs),
        source=None if task.source is None else task.source.uid,
        split_parallelism=0 if task.source is None else task.source.split_parallelism,
        restarts="" if task.resources is None else own,
    )
