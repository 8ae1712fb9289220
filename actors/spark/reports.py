"""What a batch job tells of itself while it runs: the counters of its subtasks, and how far Spark has come."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark import AccumulatorParam, SparkContext
from pyspark.status import SparkStageInfo

from penstock.actors.spark.stage import Counters


class CountersParam(AccumulatorParam[Counters]):
    """Adds up the counters that stages report: the last ones of each subtask count."""

    def zero(self, value: Counters) -> Counters:
        return {}

    def addInPlace(self, value1: Counters, value2: Counters) -> Counters:  # noqa: N802 - Spark's name
        value1.update(value2)
        return value1


def stage_progress(context: SparkContext, job_group: str) -> str:
    """How far Spark has come with the jobs of a group; empty before it has begun.

    Args:
        context: Spark's.
        job_group: the id of the job.
    """
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(job_group)]
    numbers = [stage for job in jobs if job is not None for stage in job.stageIds]
    return progress_text(len(numbers), [stage for number in numbers if (stage := tracker.getStageInfo(number))])


def progress_text(stages: int, known: Iterable[SparkStageInfo]) -> str:
    """The progress in words.

    Args:
        stages: how many there are.
        known: those that Spark tells something of.

    Example:
        >>> progress_text(3, [SparkStageInfo(1, 0, "first", 4, 0, 4, 0), SparkStageInfo(2, 0, "second", 8, 2, 3, 0)])
        'stage 2 of 3, 7 of 12 tasks'
    """
    if not stages:
        return ""
    begun = list(known)
    ended = sum(stage.numCompletedTasks == stage.numTasks for stage in begun)
    tasks, done = sum(stage.numTasks for stage in begun), sum(stage.numCompletedTasks for stage in begun)
    return f"stage {min(ended + 1, stages)} of {stages}, {done} of {tasks} tasks"
