"""What a batch job tells of itself while it runs: the counters of its subtasks, and how far Spark has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark import AccumulatorParam, SparkContext
from pyspark.status import SparkStageInfo

from penstock.actors.spark.stage import Counters
from penstock.engine.job import StageProgress


class CountersParam(AccumulatorParam[Counters]):
    """Adds up the counters that stages report: the last ones of each subtask count."""

    def zero(self, value: Counters) -> Counters:
        return {}

    def addInPlace(self, value1: Counters, value2: Counters) -> Counters:  # noqa: N802 - Spark's name
        value1.update(value2)
        return value1


def stage_progress(context: SparkContext, job_group: str) -> Sequence[StageProgress]:
    """How far the stages of a group of Spark's jobs have come, in order; none before it has begun.

    Args:
        context: Spark's.
        job_group: the id of the job.
    """
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(job_group)]
    numbers = sorted({stage for job in jobs if job is not None for stage in job.stageIds})
    return progress_of(info for number in numbers if (info := tracker.getStageInfo(number)))


def progress_of(stages: Iterable[SparkStageInfo]) -> Sequence[StageProgress]:
    """What Spark tells of stages, as ours.

    Example:
        >>> progress_of([SparkStageInfo(2, 0, "second", 8, 2, 3, 0)])
        [StageProgress(tasks=8, done=3, active=2)]
    """
    return [StageProgress(one.numTasks, one.numCompletedTasks, one.numActiveTasks) for one in stages]
