"""What a batch job tells of itself while it runs: the counters of its subtasks, and how far Spark has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from pyspark import AccumulatorParam, SparkContext
from pyspark.status import SparkStageInfo

from penstock.actors.spark.stage import Dealt
from penstock.engine.errors import JobFailedError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.handle import StageProgress

_T = TypeVar("_T")


class LastOfEach(AccumulatorParam[dict[tuple[int, int], _T]]):
    """Adds up what the subtasks of stages report, by task and subtask: of each what came last counts."""

    def zero(self, value: dict[tuple[int, int], _T]) -> dict[tuple[int, int], _T]:
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: dict[tuple[int, int], _T], value2: dict[tuple[int, int], _T]
    ) -> dict[tuple[int, int], _T]:
        value1.update(value2)
        return value1


class AllOfEach(AccumulatorParam[Dealt]):
    """Adds up what each run of a subtask reports, so that it shows where they differ."""

    def zero(self, value: Dealt) -> Dealt:
        return {}

    def addInPlace(self, value1: Dealt, value2: Dealt) -> Dealt:  # noqa: N802 - Spark's name
        for place, found in value2.items():
            value1[place] = value1.get(place, frozenset()) | found
        return value1


def check_dealt(graph: PhysicalGraph, dealt: Dealt) -> None:
    """Make sure that each subtask that ran again dealt its rows out as before: others may have had the first deal.

    Raises:
        JobFailedError: one did not; names its task.
    """
    names = sorted({graph.task(task).name for (task, _), found in dealt.items() if len(found) > 1})
    if names:
        raise JobFailedError(
            f"Spark ran parts of {', '.join(map(repr, names))} again, after a process was lost, and their rows came in "
            "another order: rows behind rebalance(), rescale() or a change of parallelism may be missing or come "
            "twice, so nothing was committed. Run the job again, or use key_by(...) there, which goes by what the rows "
            "hold"
        )


def stage_progress(context: SparkContext, job_group: str) -> Sequence[StageProgress]:
    """How far the stages of a group of Spark's jobs have come, in order; none before it begins, or of a dead Spark.

    Args:
        context: Spark's.
        job_group: the id of the job.
    """
    try:
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(job_group)]
        numbers = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
        return progress_of(info for number in numbers if (info := tracker.getStageInfo(number)))
    except Exception:
        # Who looks at the job is told by the job itself that Spark has ended.
        return ()


def progress_of(stages: Iterable[SparkStageInfo]) -> Sequence[StageProgress]:
    """What Spark tells of stages, as ours.

    Example:
        >>> progress_of([SparkStageInfo(2, 0, "second", 8, 2, 3, 0)])
        [StageProgress(tasks=8, done=3, active=2)]
    """
    return [StageProgress(one.numTasks, one.numCompletedTasks, one.numActiveTasks) for one in stages]
