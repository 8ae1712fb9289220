"""Errors of a batch job on their way through Spark, which keeps nothing of them but a text.

A stage packs its error into the text, and the driver finds it in whatever Spark raises: users get the same errors as
from other runtimes. What comes without one is Spark's own, and is told in short.
"""

from __future__ import annotations

import base64
import pickle
import re
from typing import Final

from penstock.engine.errors import PenstockError, SubtaskError, WorkerLostError, located

_PACKED: Final = re.compile(r"<<penstock-error ([A-Za-z0-9+/=]+)>>")
_LOST: Final = ("ExecutorLostFailure", "FetchFailed", "MetadataFetchFailed", "Master removed our application")
_MOST_OF_SPARK: Final = 2_000


class StageError(Exception):
    """What a stage raises inside Spark; its text holds the error of the job."""


def stage_error(error: BaseException, task: str, subtask: int) -> StageError:
    """The error as one that survives the way to the driver.

    Args:
        error: what ended the subtask.
        task, subtask: name of the task, and index of the subtask.
    """
    placed = located(error, task, subtask)
    try:
        packed = pickle.dumps(placed)
        pickle.loads(packed)  # noqa: S301 - made here
    except Exception:
        # A subclass of the user's that cannot travel.
        packed = pickle.dumps(SubtaskError(task, subtask, f"{type(error).__name__}: {error}", ""))
    return StageError(f"{placed}\n<<penstock-error {base64.b64encode(packed).decode('ascii')}>>")


def job_error(raised: BaseException) -> PenstockError:
    """The error of the job that Spark failed with."""
    if isinstance(raised, PenstockError):
        return raised
    text = str(raised)
    found = _PACKED.search(text)
    if found:
        # Written by a stage of this job, through a connection that Spark authenticates.
        error = pickle.loads(base64.b64decode(found[1]))  # noqa: S301
        assert isinstance(error, PenstockError), "stages pack nothing else"
        return error
    short = text if len(text) <= _MOST_OF_SPARK else f"{text[:_MOST_OF_SPARK]}... ({len(text)} characters)"
    if any(sign in text for sign in _LOST):
        return WorkerLostError(
            f"an executor of Spark was lost more often than it tries again, perhaps for want of memory; raise memory= "
            f"of SparkOptions, or parallelism, for smaller parts ({short})"
        )
    return PenstockError(f"Spark ended the job: {type(raised).__name__}: {short}")
