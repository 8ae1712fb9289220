"""Detached jobs of a cluster that have ended: how, when and why, when their processes have gone.

The manager of a job writes it down at the job's end; `penstock list`, `info` and the handles on jobs read it. The
newest hundred stay, as long as the cluster lives.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.actors.cluster_notes import Notes
from penstock.engine.errors import encodable
from penstock.engine.job.info import JobInfo

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEPT: Final = 100
_PREFIX: Final = "ended:"


@functools.cache
def info_adapter() -> TypeAdapter[JobInfo]:
    """Makes JSON of a job, and a job of it."""
    # Few processes do that, and it takes as long to load as a fifth of all that a job manager loads.
    from pydantic import TypeAdapter

    return TypeAdapter(JobInfo)


def info_text(info: JobInfo) -> str:
    """A job in one line; a lone surrogate in its error, which JSON cannot have, is written as its escape."""
    if info.error is not None:
        info = replace(info, error=encodable(info.error))
    return info_adapter().dump_json(info).decode()


def info_from(text: str | bytes) -> JobInfo:
    """The job that `info_text` gave.

    Raises:
        ValueError: it is none.
    """
    return info_adapter().validate_json(text)


def note_end(notes: Notes, manager: str, info: JobInfo) -> None:
    """Write down how a job ended, and forget the oldest.

    Args:
        notes: the cluster's.
        manager: id of the manager's actor, by which handles find it.
        info: of the job.
    """
    notes.put(f"{_PREFIX}{info.since_ms:015d}:{manager}", info_text(info))
    for name in notes.names(_PREFIX)[:-KEPT]:
        notes.remove(name)


def ended_jobs(notes: Notes) -> Iterator[JobInfo]:
    """The jobs that have ended, the last first."""
    for name in reversed(notes.names(_PREFIX)):
        text = notes.get(name)
        if text is not None:
            yield info_from(text)


def end_of(notes: Notes, manager: str) -> JobInfo | None:
    """How the job of a manager ended; None: it has not, or nobody knows any more."""
    for name in notes.names(_PREFIX):
        if name.endswith(f":{manager}"):
            text = notes.get(name)
            return None if text is None else info_from(text)
    return None
