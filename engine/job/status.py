"""Where a job is in its life, and what may come next.

The brain moves it; handles, the registry and the console show it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class JobStatus(enum.Enum):
    """The life of a job:

    CREATED -> DEPLOYING -> RUNNING -> FINISHED
        |          |         |   ^
        |          |         v   |
        |          +----> RESTARTING
        +----------+---------+---+--> FAILED | CANCELLED
    """

    CREATED = "created"
    DEPLOYING = "deploying"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return not TRANSITIONS[self]


_ENDS: Final = frozenset({JobStatus.FAILED, JobStatus.CANCELLED})

TRANSITIONS: Final[Mapping[JobStatus, frozenset[JobStatus]]] = {
    JobStatus.CREATED: _ENDS | {JobStatus.DEPLOYING},
    JobStatus.DEPLOYING: _ENDS | {JobStatus.RUNNING, JobStatus.RESTARTING},
    JobStatus.RUNNING: _ENDS | {JobStatus.FINISHED, JobStatus.RESTARTING},
    JobStatus.RESTARTING: _ENDS | {JobStatus.RUNNING},
    JobStatus.FINISHED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
}
"""Which status may follow which."""


def transition(current: JobStatus, following: JobStatus) -> JobStatus:
    """The following status; a step that the table does not have is an error of the runtime."""
    assert following in TRANSITIONS[current], f"a job that is {current.value} cannot become {following.value}"
    return following
