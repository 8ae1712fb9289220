"""Which subtask runs which attempt: started, stopped, finished. Bookkeeping of the brain, which decides.

An attempt is one execution between two failures; where only a region restarts, the others keep their older number. What
is heard of an attempt that a subtask no longer runs means nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import PenstockError
from penstock.engine.job.events import TaskFailed
from penstock.engine.job.instructions import Cancel, Deploy
from penstock.engine.job.layout import Layout


@dataclass(slots=True)
class Deployment:
    """Subtasks are being started.

    Args:
        attempt: as which.
        failures: what has failed meanwhile.
        awaits_failure: whether some are not open, and why has yet to be heard.
    """

    attempt: int
    failures: list[TaskFailed] = field(default_factory=list)
    awaits_failure: bool = False


@dataclass(slots=True)
class PendingRestart:
    """Subtasks are to start anew: not before `due`, nor before all that ran has ended.

    Args:
        places: which.
        due: monotonic seconds.
        layout: another than the one that runs, where the job is rescaled.
    """

    places: set[Place]
    due: float
    layout: Layout | None = None


class Attempts:
    """The attempts of one job under one manager.

    Attributes:
        number: of the newest.
        deployed: of each subtask, the attempt that it belongs to and the checkpoint that this was restored from.
        finished: the subtasks that have emitted everything.
        deployment: the one under way; None: none is.
        pending: the restart that is to come; None: none is.
        has_deployed: whether there has been one that reached the subtasks.
    """

    def __init__(self) -> None:
        self.number = 0
        self.deployed: dict[Place, tuple[int, int]] = {}
        self.finished: set[Place] = set()
        self.deployment: Deployment | None = None
        self.pending: PendingRestart | None = None
        self._stopped: set[Place] = set()
        self.has_deployed = False
        self._cancels = itertools.count(1)
        self._cancelling: set[int] = set()

    @property
    def is_changing(self) -> bool:
        """Whether subtasks are being started or ended."""
        return self.deployment is not None or bool(self._cancelling)

    @property
    def is_calm(self) -> bool:
        """Whether nothing is being started or ended, nor about to be."""
        return not self.is_changing and self.pending is None

    @property
    def restored(self) -> int:
        """The checkpoint that the newest attempt was restored from, 0 for none."""
        return max((restored for attempt, restored in self.deployed.values() if attempt == self.number), default=0)

    def is_current(self, place: Place, attempt: int) -> bool:
        """Whether the subtask runs this attempt."""
        return place not in self._stopped and self.deployed.get(place, (0, 0))[0] == attempt

    def deploy(self, layout: Layout, places: Iterable[Place], latest: CompletedCheckpoint | None, epoch: int) -> Deploy:
        """Start subtasks as a new attempt."""
        chosen = tuple(sorted(places))
        self.number += 1
        self.finished.difference_update(chosen)
        self._stopped.difference_update(chosen)
        for place in chosen:
            self.deployed[place] = (self.number, 0 if latest is None else latest.checkpoint)
        self.deployment = Deployment(self.number)
        return Deploy(self.number, layout, chosen, latest, epoch, latest is None and not self.has_deployed)

    def end_deployment(self, attempt: int, deployed: bool) -> Sequence[TaskFailed] | None:
        """The deployment of `attempt` has ended: what failed meanwhile and still counts. None: it is another one."""
        deployment = self.deployment
        if deployment is None or deployment.attempt != attempt:
            return None
        self.deployment = None
        self.has_deployed |= deployed
        return [
            failure
            for failure in deployment.failures
            if failure.place is None or self.is_current(failure.place, failure.attempt)
        ]

    def on_explained(self, place: Place, attempt: int, error: PenstockError) -> None:
        """The cause of a failure that came while subtasks were being started is known now: it is reported once."""
        if self.deployment is not None:
            self.deployment.failures = [
                TaskFailed(place, attempt, error) if (failed.place, failed.attempt) == (place, attempt) else failed
                for failed in self.deployment.failures
            ]

    def stop(self, places: Iterable[Place]) -> Sequence[Cancel]:
        """End what subtasks run, those that do not end already."""
        running = tuple(sorted(set(places) - self._stopped))
        if not running:
            return ()
        number = next(self._cancels)
        self._stopped.update(running)
        self._cancelling.add(number)
        return (Cancel(number, running),)

    def on_cancelled(self, number: int) -> None:
        """What a `Cancel` named runs no more."""
        self._cancelling.discard(number)

    def on_finished(self, place: Place, attempt: int) -> None:
        """A subtask has emitted everything."""
        if self.is_current(place, attempt):
            self.finished.add(place)

    def forget(self, places: Iterable[Place]) -> None:
        """There are no such subtasks any more."""
        for place in places:
            self.deployed.pop(place, None)
            self.finished.discard(place)
            self._stopped.discard(place)

    def clear(self) -> None:
        """Other subtasks are about to take the place of all."""
        self.deployed.clear()
        self.finished.clear()
        self._stopped.clear()
