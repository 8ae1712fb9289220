"""How far Spark has come, and counters that count each subtask once."""

from __future__ import annotations

from unittest.mock import MagicMock

from py4j.protocol import Py4JNetworkError
from pyspark.status import SparkStageInfo

from penstock.actors.spark.reports import LastOfEach, progress_of, stage_progress
from penstock.engine.job.handle import StageProgress
from penstock.engine.metrics import SubtaskMetrics


def test_progress_is_that_of_the_tasks_of_each_stage() -> None:
    done, begun = SparkStageInfo(1, 0, "stage", 4, 0, 4, 0), SparkStageInfo(2, 0, "stage", 8, 2, 3, 1)
    assert progress_of([done, begun]) == [StageProgress(4, 4, 0), StageProgress(8, 3, 2)]


def test_a_spark_that_is_gone_tells_no_progress_and_ends_no_view() -> None:
    context = MagicMock()
    context.statusTracker.side_effect = Py4JNetworkError("Answer from Java side is empty")
    assert stage_progress(context, "job") == ()


def test_a_subtask_that_ran_twice_counts_once() -> None:
    first, again, other = SubtaskMetrics(1, 0), SubtaskMetrics(1, 0), SubtaskMetrics(1, 1)
    added = LastOfEach[SubtaskMetrics]().addInPlace({(1, 0): first}, {(1, 0): again, (1, 1): other})
    assert added == {(1, 0): again, (1, 1): other}
    assert added[1, 0] is again
