"""How far Spark has come, in words, and counters that count each subtask once."""

from __future__ import annotations

from pyspark.status import SparkStageInfo

from penstock.actors.spark.reports import CountersParam, progress_text
from penstock.engine.metrics import SubtaskMetrics


def stage(number: int, tasks: int, done: int) -> SparkStageInfo:
    return SparkStageInfo(number, 0, "stage", tasks, 0, done, 0)


def test_progress_counts_stages_and_tasks() -> None:
    assert progress_text(0, []) == ""
    assert progress_text(3, [stage(1, 4, 4), stage(2, 8, 3)]) == "stage 2 of 3, 7 of 12 tasks"
    assert progress_text(1, [stage(1, 4, 4)]) == "stage 1 of 1, 4 of 4 tasks"


def test_a_subtask_that_ran_twice_counts_once() -> None:
    first, again, other = SubtaskMetrics(1, 0), SubtaskMetrics(1, 0), SubtaskMetrics(1, 1)
    added = CountersParam().addInPlace({(1, 0): first}, {(1, 0): again, (1, 1): other})
    assert added == {(1, 0): again, (1, 1): other}
    assert added[1, 0] is again
