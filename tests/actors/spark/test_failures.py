"""Errors come out of Spark's texts as they went in."""

from __future__ import annotations

import pytest

from penstock.actors.spark.failures import job_error, stage_error
from penstock.engine.errors import PenstockError, RecordError, SubtaskError, UserCodeError, WorkerLostError


class NotPicklable(PenstockError):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("no way")


@pytest.mark.parametrize(
    "error",
    [
        RecordError("operator 'map', subtask 1: row 7"),
        UserCodeError("map", 1, "{'n': 7}", "ValueError: ä", "Traceback"),
    ],
)
def test_an_error_of_ours_comes_back_as_it_was(error: PenstockError) -> None:
    wrapped = RuntimeError(f"Job aborted\nPythonException: {stage_error(error, 'map', 1)}\n\tat java.lang.Thread")
    came = job_error(wrapped)
    assert type(came) is type(error)
    assert str(came) == str(error)


def test_any_other_error_tells_its_place() -> None:
    came = job_error(RuntimeError(str(stage_error(OSError("disk full"), "sink files", 2))))
    assert isinstance(came, SubtaskError)
    assert str(came).startswith("task 'sink files', subtask 2: OSError: disk full")


def test_what_cannot_travel_is_told_by_its_text() -> None:
    came = job_error(RuntimeError(str(stage_error(NotPicklable(1, 2), "map", 0))))
    assert "NotPicklable: no way" in str(came)


def test_what_spark_says_itself_is_kept_short() -> None:
    came = job_error(RuntimeError("x" * 100_000))
    assert "RuntimeError" in str(came)
    assert len(str(came)) < 3_000


def test_a_lost_executor_is_named_as_such() -> None:
    assert isinstance(job_error(RuntimeError("ExecutorLostFailure (executor 3 exited)")), WorkerLostError)
