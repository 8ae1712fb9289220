"""The restarts of a job: each with its cause and how long it took; for people and the chaos report.

The brain keeps the log, and whoever shows the job reads it. Times within a restart are seconds of one monotonic clock,
so the clock of the machine may jump.
"""

from __future__ import annotations

import contextlib
import enum
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.engine.checkpointing.handles import JobStory
from penstock.engine.checkpointing.history import STORED
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.job.events import Moment

KEPT: Final = 100
"""How many restarts are kept."""
LONGEST_CAUSE: Final = 160
_DETECTED: Final = "detected_monotonic"
_MEMBERS: Final = (
    "kind", "cause", "at_ms", _DETECTED, "subtasks", "attempt", "checkpoint", "restore_ms", "first_output_ms",
    "failures", "last_cause",
)  # fmt: skip


class RestartKind(enum.Enum):
    """Why subtasks were started anew."""

    FAILURE = "failure"
    """Something failed."""
    TAKEOVER = "takeover"
    """Another job manager took the job over: the one before died, or could not be reached."""
    RESCALE = "rescale"
    """Somebody has asked for another parallelism."""
    MOVE = "move"
    """Nodes are about to leave, and their subtasks went elsewhere."""


@dataclass(slots=True, eq=False)
class Restart:
    """One restart.

    Args:
        kind: whether anything had failed.
        cause: the error as text; or what was asked for.
        places: the subtasks that were restarted.
        at_ms: when it was noticed, civil time in ms UTC.
        detected: the same, monotonic seconds.
        attempt: number of the attempt that followed; 0 while there is none.
        checkpoint: what that was restored from; 0 for none.
        restored: when all subtasks ran again, monotonic seconds.
        first_output: when the first rows came to an end of the job behind that.
        failures: how often something failed before all ran again; 0 where nothing had.
        last_cause: the newest of these errors; None where there is none but `cause`.
    """

    kind: RestartKind
    cause: str
    places: Sequence[Place]
    at_ms: int
    detected: float
    attempt: int = 0
    checkpoint: int = 0
    restored: float | None = None
    first_output: float | None = None
    failures: int = 0
    last_cause: str | None = None

    def to_dict(self) -> Mapping[str, Any]:
        """As JSON has it; durations are in milliseconds from when it was noticed."""
        return {
            "kind": self.kind.value,
            "cause": self.cause,
            "at_ms": self.at_ms,
            _DETECTED: self.detected,
            "subtasks": len(self.places),
            "attempt": self.attempt,
            "checkpoint": self.checkpoint,
            "restore_ms": _ms(self.detected, self.restored),
            "first_output_ms": _ms(self.detected, self.first_output),
            "failures": self.failures,
            "last_cause": self.last_cause,
        }


@dataclass(slots=True, eq=False)
class RestartLog:
    """The restarts of a job.

    Args:
        failures: how many it had to get over, without deaths of job managers.
        kept: the newest restarts under this manager, also those that were asked for.
        before: those under managers before it, as JSON has them; their monotonic times mean nothing any more.
        current: the one under way, if one is.
    """

    failures: int = 0
    kept: deque[Restart] = field(default_factory=lambda: deque(maxlen=KEPT))
    before: Sequence[Mapping[str, Any]] = ()
    current: Restart | None = None
    _unexplained: dict[tuple[Place, int], tuple[Restart, int, str]] = field(default_factory=dict)
    _rows: dict[int, float] = field(default_factory=dict)

    def resume_from(self, story: JobStory) -> None:
        """Take on what the manager before had in its log."""
        self.failures += story.restarts
        told = []
        for text in story.restart_records:
            # What another version has written may be anything.
            with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
                record = {**dict.fromkeys(_MEMBERS), **json.loads(text)}
                told.append(record | {"cause": str(record["cause"] or ""), "attempt": int(record["attempt"] or 0)})
        self.before = told

    def add_to(self, story: JobStory) -> JobStory:
        """The story of the job with its restarts so far."""
        newest = [_to_text(restart) for restart in self.to_dicts()[-STORED:]]
        return replace(story, restarts=self.failures, restart_records=tuple(newest))

    @property
    def rescale_seconds(self) -> float | None:
        """How long the job stood still for its newest rescale under this manager; None: there was none."""
        rescales = [one for one in self.kept if one.kind is RestartKind.RESCALE and one.restored is not None]
        return None if not rescales else (rescales[-1].restored or 0.0) - rescales[-1].detected

    def to_dicts(self) -> Sequence[Mapping[str, Any]]:
        """The newest restarts as JSON has them, oldest first."""
        return [*self.before, *(restart.to_dict() for restart in self.kept)][-KEPT:]

    def on_failure(
        self, cause: str, places: Sequence[Place], detected: Moment, unexplained: tuple[Place, int] | None = None
    ) -> None:
        """Something failed: a restart begins, or the one under way, which has not come to its end, is tried again.

        Args:
            cause, places: what, and which subtasks start anew.
            detected: when it was noticed.
            unexplained: the subtask and attempt of which `on_explained` will tell more.
        """
        restart = self.current
        if restart is None:
            self.failures += 1
            restart = self.begin(RestartKind.FAILURE, cause, places, detected)
        else:
            restart.last_cause = cause
        restart.failures += 1
        if unexplained is not None:
            self._unexplained[unexplained] = restart, restart.failures, cause

    def on_explained(self, failed: tuple[Place, int], cause: str) -> bool:
        """What is known of a failure in the end; whether that is more than the log says of it."""
        noted = self._unexplained.pop(failed, None)
        if noted is None:
            return False
        restart, number, short = noted
        if number == 1 and restart.kind is RestartKind.FAILURE:
            restart.cause = cause
        elif number == restart.failures:
            restart.last_cause = cause
        return cause != short

    def on_takeover(self, places: Sequence[Place], began: Moment) -> None:
        """The job resumes under another manager, which began at that time."""
        self.begin(
            RestartKind.TAKEOVER,
            "another job manager took the job over: the one before died, or could not be reached",
            places,
            began,
        )

    def begin(self, kind: RestartKind, cause: str, places: Sequence[Place], detected: Moment) -> Restart:
        """The job, or these subtasks of it, stop at that time for a cause in words; of a failure, see `on_failure`."""
        restart = Restart(kind, cause, tuple(places), detected.ms, detected.monotonic)
        self.kept.append(restart)
        self.current = restart
        return restart

    def on_resumed(self, attempt: int, checkpoint: int, at: float) -> None:
        """All subtasks run again since `at`, monotonic seconds, from `checkpoint`."""
        if self.current is not None:
            self.current.attempt, self.current.checkpoint, self.current.restored = attempt, checkpoint, at
            self.current.first_output = self._rows.get(attempt)
            self.current = None

    def on_rows(self, attempt: int, at: float) -> None:
        """Rows have come to an end of the job, in subtasks of `attempt`, all of which may not run yet."""
        if self.current is not None:
            self._rows = {attempt: self._rows.get(attempt, at)}
        for restart in self.kept:
            if restart.attempt == attempt and restart.first_output is None:
                restart.first_output = at


def _to_text(restart: Mapping[str, Any]) -> str:
    causes = {name: _short(restart[name]) for name in ("cause", "last_cause") if restart[name] is not None}
    kept = {name: restart[name] for name in _MEMBERS if name != _DETECTED}
    return json.dumps({**kept, **causes}, separators=(",", ":"))


def _short(cause: Any) -> str:
    return str(cause).partition("\n")[0][:LONGEST_CAUSE]


def _ms(since: float, until: float | None) -> float | None:
    return None if until is None else round((until - since) * 1000, 1)
