"""Errors come out of Spark's texts as they went in."""

from __future__ import annotations

import base64
import pickle

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from penstock.actors.spark.failures import is_of_stage, job_error, stage_error
from penstock.engine.errors import (
    ClusterError,
    PenstockError,
    RecordError,
    SubtaskError,
    UserCodeError,
    WorkerLostError,
)

SECRET = "5ec2e7"


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
    wrapped = RuntimeError(f"Job aborted\nPythonException: {stage_error(error, 'm', 1, SECRET)}\n\tat java.lang.Thread")
    came = job_error(wrapped, SECRET)
    assert type(came) is type(error)
    assert str(came) == str(error)


def test_any_other_error_tells_its_place() -> None:
    came = job_error(RuntimeError(str(stage_error(OSError("disk full"), "sink files", 2, SECRET))), SECRET)
    assert isinstance(came, SubtaskError)
    assert str(came).startswith("task 'sink files', subtask 2: OSError: disk full")


def test_what_cannot_travel_is_told_by_its_text() -> None:
    came = job_error(RuntimeError(str(stage_error(NotPicklable(1, 2), "map", 0, SECRET))), SECRET)
    assert "NotPicklable: no way" in str(came)


def test_what_spark_says_itself_is_kept_short() -> None:
    came = job_error(RuntimeError("x" * 100_000), SECRET)
    assert "RuntimeError" in str(came)
    assert len(str(came)) < 3_000


def test_what_spark_says_itself_is_told_without_javas_frames() -> None:
    raised = RuntimeError(
        "An error occurred while calling o339.collectToPython.\n: SparkException: Job aborted\n\tat a.B.c(B.java:1)\n"
        "Caused by: SparkException: task 3 failed\n\tat a.B.d(B.java:2)\n\t... 1 more\n"
        "Caused by: SparkArithmeticException: [ARITHMETIC_OVERFLOW] long overflow\n== SQL ==\nc4 * 10\n\n\tat e.F.g"
    )
    told = str(job_error(raised, SECRET))
    assert told.endswith(
        "RuntimeError: SparkArithmeticException: [ARITHMETIC_OVERFLOW] long overflow\n== SQL ==\nc4 * 10"
    )


def test_a_function_that_does_not_load_in_spark_is_told_in_a_line() -> None:
    frame = '  File "/lib/python3.11/site-packages/pyspark/{}", line 90, in {}\n    f(file)\n    ^^^\n'
    raised = RuntimeError(
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        + 30 * frame.format("worker.py", "read_command")
        + frame.format("serializers.py", "loads")
        + "ModuleNotFoundError: No module named 'only_here'\n\n\tat a.B.c(B.java:1)"
    )
    came = job_error(raised, SECRET)
    assert isinstance(came, ClusterError)
    assert str(came).startswith("the program does not load on the cluster: ModuleNotFoundError: No module named 'only_")
    assert "install modules on every machine" in str(came)


def test_a_lost_executor_is_named_as_such() -> None:
    assert isinstance(job_error(RuntimeError("ExecutorLostFailure (executor 3 exited)"), SECRET), WorkerLostError)


@pytest.mark.parametrize(
    "raised",
    [
        Py4JError("An error occurred while calling o42.collectToPython"),
        Py4JNetworkError("Answer from Java side is empty"),
        RuntimeError("SparkException: Job 3 cancelled because SparkContext was shut down\n\tat a.B.c(B.java:1)"),
    ],
)
def test_spark_that_ends_during_a_job_is_told_with_what_to_do(raised: Exception) -> None:
    came = job_error(raised, SECRET)
    assert isinstance(came, WorkerLostError)
    assert "its JVM or its application master died" in str(came)
    assert "stop_spark()" in str(came)
    # Nothing would come of the job's running again by the engine's own operators.
    assert is_of_stage(raised, SECRET)


class Opened:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a row was unpickled",)


@pytest.mark.parametrize("marked_with", ["", f"{SECRET[:-1]}0 "])
def test_what_a_row_says_is_never_unpickled(marked_with: str) -> None:
    packed = base64.b64encode(pickle.dumps(Opened())).decode()
    row = f"<<penstock-error {marked_with}{packed}>>"
    error = UserCodeError("map", 1, row, f"ValueError: {row}", "Traceback")
    came = job_error(RuntimeError(str(stage_error(error, "map", 1, SECRET))), SECRET)
    assert str(came) == str(error)


def test_an_error_that_cannot_be_read_here_is_told_as_spark_tells_it() -> None:
    came = job_error(RuntimeError(f"PythonException: <<penstock-error {SECRET} AAAA>>"), SECRET)
    assert "PythonException" in str(came)
