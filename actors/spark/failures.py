"""Errors of a batch job on their way through Spark, which keeps nothing of them but a text.

A stage packs its error into the text, and the driver finds it in whatever Spark raises: users get the same errors as
from other runtimes. What comes without one is Spark's own, and is told in short. Texts hold rows, which anybody may
have written: the driver reads only what is marked with the secret that it gave the stages of the job.
"""

from __future__ import annotations

import base64
import pickle
import re
from typing import Final

from penstock.actors.tracebacks import in_a_line, program_not_loaded
from penstock.engine.errors import PenstockError, SubtaskError, WorkerLostError, located, named

_LOST: Final = (
    "ExecutorLostFailure",
    "FetchFailed",
    "MetadataFetchFailed",
    "Master removed our application",
    "Python worker exited unexpectedly",
)
_NO_ANSWER: Final = ("Py4JError", "Py4JNetworkError")
"""What py4j raises where the JVM behind it is gone; an error in Java has a class of its own."""
_STOPPED: Final = ("SparkContext was shut down", "stopped SparkContext")
_UNLOADABLE: Final = "in read_command\n"
"""Where Spark's Python unpickles a function."""
_MOST_OF_SPARK: Final = 2_000


class StageError(Exception):
    """What a stage raises inside Spark; its text holds the error of the job."""


def stage_error(error: BaseException, task: str, subtask: int, secret: str) -> StageError:
    """The error as one that survives the way to the driver.

    Args:
        error: what ended the subtask.
        task, subtask: name of the task, and index of the subtask.
        secret: of the job; letters and digits.
    """
    placed = located(error, task, subtask)
    try:
        packed = pickle.dumps(placed)
        pickle.loads(packed)  # noqa: S301 - made here
    except Exception:
        # A subclass of the user's that cannot travel.
        packed = pickle.dumps(SubtaskError(task, subtask, named(error), ""))
    return StageError(f"{placed}\n<<penstock-error {secret} {base64.b64encode(packed).decode('ascii')}>>")


def is_of_stage(raised: BaseException, secret: str) -> bool:
    """Whether Spark failed with what a stage of the job has raised, or because it lost a process, or is gone itself."""
    text = str(raised)
    return f"<<penstock-error {secret} " in text or any(sign in text for sign in _LOST) or _is_gone(raised)


def _is_gone(raised: BaseException) -> bool:
    return type(raised).__name__ in _NO_ANSWER or any(sign in str(raised) for sign in _STOPPED)


def in_short(raised: BaseException) -> str:
    """What Spark says went wrong at first, without frames of Java and of Python.

    Example:
        >>> in_short(RuntimeError("Job aborted\\n\\tat a.B.c\\nCaused by: overflow\\n\\tat a.D.e"))
        'overflow'
    """
    innermost = str(raised).rpartition("\nCaused by: ")[2]
    text = in_a_line(innermost.partition("\n\tat ")[0].strip())
    return text if len(text) <= _MOST_OF_SPARK else f"{text[:_MOST_OF_SPARK]}... ({len(text)} characters)"


def job_error(raised: BaseException, secret: str) -> PenstockError:
    """The error of the job that Spark failed with; `secret` as for `stage_error`."""
    if isinstance(raised, PenstockError):
        return raised
    text = str(raised)
    found = re.search(rf"<<penstock-error {secret} ([A-Za-z0-9+/=]+)>>", text)
    if found and (error := _unpacked(found[1])) is not None:
        return error
    short = in_short(raised)
    if any(sign in text for sign in _LOST):
        return WorkerLostError(
            f"a process of Spark was lost more often than it tries again, perhaps for want of memory; raise memory= of "
            f"SparkOptions, leave more beside it for Python, or raise parallelism, for smaller parts ({short})"
        )
    if _is_gone(raised):
        return WorkerLostError(
            "the Spark of this process has ended while the job ran: its JVM or its application master died, perhaps "
            "for want of memory on the node of the driver, or somebody has stopped it; call penstock.stop_spark(), and "
            f"the next batch job starts another one ({short})"
        )
    if _UNLOADABLE in text:
        return program_not_loaded(short)
    return PenstockError(f"Spark ended the job: {type(raised).__name__}: {short}")


def _unpacked(packed: str) -> PenstockError | None:
    """The error that a stage packed; None where it cannot be read here."""
    try:
        # It has the job's secret, so that a stage of this job has written it.
        error = pickle.loads(base64.b64decode(packed))  # noqa: S301
    except Exception:
        return None
    return error if isinstance(error, PenstockError) else None
