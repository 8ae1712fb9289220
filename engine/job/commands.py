"""What users ask of a job, and what comes of it: checkpoints, savepoints, the ways to stop it, another parallelism.

The brain hands requests over, and what its storage says to them. Each request gets one answer; what cannot be done now
is refused with the reason, and the job runs on as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError, NotRunningError, PenstockError, summary
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.checkpoints import JobCheckpoints, Purpose, Wanted
from penstock.engine.job.finish import Finish
from penstock.engine.job.life import Drain, Life
from penstock.engine.job.rescaling import Rescaling
from penstock.engine.job.status import JobStatus

_TAKEN: Final[Mapping[type[ev.Command], tuple[SnapshotKind, Purpose]]] = {
    ev.TakeCheckpoint: (SnapshotKind.CHECKPOINT, Purpose.ANSWER),
    ev.TakeSavepoint: (SnapshotKind.SAVEPOINT, Purpose.ANSWER),
    ev.StopJob: (SnapshotKind.SUSPEND, Purpose.STOP),
}
"""What is taken for a command, and what for."""


class Commands:
    """The commands of one job.

    Args:
        life: of the job.
        finish: whether the job is at its end, so that nothing but its last checkpoint is taken.
        rescaling: carries rescales out.
    """

    def __init__(self, life: Life, finish: Finish, rescaling: Rescaling) -> None:
        self._life = life
        self._finish = finish
        self._rescaling = rescaling
        self._held: list[tuple[int, str | None]] = []

    @property
    def holds_any(self) -> bool:
        """Whether some wait for tasks that are being replaced."""
        return bool(self._held)

    def proceed(self) -> None:
        """Take what was held, if it may be taken now."""
        held, self._held = self._held, []
        for request, folder in held:
            self._take(request, folder)

    def on_asked(self, request: int, command: ev.Command) -> None:
        """Somebody asks for something."""
        life = self._life
        life.requests.add(request, command)
        try:
            match command:
                case ev.CancelJob(retain):
                    self._cancel(request, retain)
                case ev.TakeCheckpoint():
                    self._take(request, None)
                case ev.TakeSavepoint(directory) | ev.StopJob(directory) | ev.DrainJob(directory):
                    self._checkpoints()
                    life.said.append(say.CheckFolder(request, directory))
                case ev.RescaleJob(wanted):
                    self._rescale(request, wanted)
        except PenstockError as error:
            life.requests.answer(request, error)

    def on_folder(self, event: ev.FolderChecked | ev.FolderRefused) -> None:
        """The folder for a savepoint can be written, or not."""
        if isinstance(event, ev.FolderRefused):
            self._life.requests.answer(event.request, event.error)
        else:
            self._take(event.request, event.folder)

    def _take(self, request: int, folder: str | None) -> None:
        """Take the checkpoint or savepoint of a request, or hold it until no task is being replaced."""
        life, command = self._life, self._life.requests.command(request)
        if command is None:
            return
        try:
            # The job may have failed, finished or been drained since it was asked.
            checkpoints = self._checkpoints()
            if self._must_wait(command, checkpoints):
                self._held.append((request, folder))
            elif isinstance(command, ev.DrainJob):
                assert folder is not None, "its folder has been checked"
                checkpoints.drain(life.now)
                life.drain = Drain(request, folder)
                life.said.append(say.EndInput())
            else:
                kind, purpose = _TAKEN[type(command)]
                checkpoints.want(Wanted(kind, purpose, folder, request), life.now)
        except CheckpointError as error:
            life.requests.answer(request, error)

    def _must_wait(self, command: ev.Command, checkpoints: JobCheckpoints) -> bool:
        """Whether tasks of the job, which runs, are being replaced; a drain comes before those that may yet not be."""
        may_yet_not_be = isinstance(command, ev.DrainJob) and checkpoints.settled
        is_next = self._rescaling.is_switching and not may_yet_not_be
        return is_next or not self._life.attempts.is_calm

    def on_room(self) -> None:
        """There is room again for a job that runs smaller than it should."""
        layout = self._life.layout
        # A job that is about to end, or was rescaled meanwhile, stays as it is.
        with contextlib.suppress(CheckpointError):
            checkpoints = self._checkpoints()
            if layout is not None and layout.scale.most is not None and not self._rescaling.is_under_way:
                self._rescaling.widen(layout)
                self._take_for_rescale(checkpoints)

    def on_leaving(self, places: Sequence[Place]) -> None:
        """The nodes of subtasks are about to leave: these move, if nothing else is being done to the job."""
        layout = self._life.layout
        moved = [place for place in places if layout is not None and place in layout.places]
        # The shell repeats the event; a job without checkpoints, or about to end, stays where it is.
        with contextlib.suppress(CheckpointError):
            checkpoints = self._checkpoints()
            if layout is not None and moved and not self._rescaling.is_under_way and self._life.attempts.is_calm:
                self._rescaling.move(moved, layout)
                self._take_for_rescale(checkpoints)

    def _cancel(self, request: int, retain: bool) -> None:
        life = self._life
        if life.ending is None:
            life.end(JobStatus.CANCELLED, retains=retain)
            return
        life.requests.downgrade(request)
        if life.ended:
            life.requests.answer(request, False)

    def _rescale(self, request: int, wanted: ParallelismRequest) -> None:
        checkpoints, layout = self._checkpoints(), self._life.layout
        assert layout is not None
        chosen = self._rescaling.ask(self._life.name, request, wanted, layout)
        if chosen is None:
            self._take_for_rescale(checkpoints)
        elif chosen.scale != layout.scale:
            # As many as run, for want of room, are what is wanted now: no more room than theirs is awaited.
            self._life.layout = chosen
            checkpoints.on_scale(chosen)
            self._life.said.append(say.AwaitRoom(chosen))

    def _take_for_rescale(self, checkpoints: JobCheckpoints) -> None:
        if self._rescaling.goes_live:
            self._life.said += self._rescaling.prepare(checkpoints.latest)
            return
        try:
            checkpoints.want(Wanted(SnapshotKind.CHECKPOINT, Purpose.RESCALE), self._life.now)
        except CheckpointError as error:
            self._rescaling.refuse(error)

    def _checkpoints(self) -> JobCheckpoints:
        """The checkpoints, where one can be asked for now."""
        life = self._life
        name, status = f"job {life.name!r}", life.status if life.ending is None else life.ending.status
        if status.ended:
            raise CheckpointError(f"{name} has ended: it is {status.value}")
        if life.storage is None:
            raise CheckpointError(f"{name} has no checkpoint storage; run it with checkpoints(storage=...)")
        if status is not JobStatus.RUNNING or life.checkpoints is None:
            why = "" if life.error is None else f" after {summary(life.error)}"
            raise NotRunningError(f"{name} is {status.value}{why}; try again once it runs")
        if life.is_about_to_end or self._finish.is_near:
            how = "being drained" if life.drain is not None else "coming to its end"
            raise CheckpointError(f"{name} is {how}; its last checkpoint is the next")
        return life.checkpoints
