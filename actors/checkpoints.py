"""The checkpoints of a job on Ray: carries out what the brain says about them, and reports what came of it.

Lives in the job manager and runs on its event loop; calls to storage run in threads, so that the loop never waits. One
pending call to each subtask of a checkpoint returns its acknowledgement, so the manager owns what it is made of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from ray.exceptions import RayActorError, RayError

from penstock.actors.capture_writer import Declined
from penstock.actors.deployment import Restore
from penstock.actors.execution import Execution
from penstock.actors.preloading import preload
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.store import JobFolder, RestorePlan
from penstock.engine.elements import Barrier
from penstock.engine.errors import CheckpointError, PenstockError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.savepoints.restore import url_of

_LOG = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one job under one manager.

    Args:
        folder: where they are.
        name: of the job.
        execution: its subtasks.
        handle: takes events.
        discard_rows: removes what sinks have prepared and nobody will commit, in a thread; the problems that it had.

    Attributes:
        restored_url: where the newest checkpoint is that subtasks were restored from.
    """

    def __init__(
        self,
        folder: JobFolder,
        name: str,
        execution: Execution,
        handle: Callable[[ev.Event], None],
        discard_rows: Callable[[], Sequence[str]],
    ) -> None:
        self.restored_url: str | None = None
        self._folder = folder
        self._store = folder.store
        self._name = name
        self._execution = execution
        self._handle = handle
        self._discard_rows = discard_rows
        self._targets: dict[int, str] = {}
        self._background: set[asyncio.Task[None]] = set()

    @property
    def start_url(self) -> str | None:
        """Where the savepoint or retained checkpoint is that the job began with."""
        return None if self._folder.start is None else url_of(self._folder.start)

    def carry_out(self, instruction: say.CheckpointInstruction) -> None:
        """Carry out an instruction of the brain, in the background."""
        match instruction:
            case say.TakeOver():
                self._spawn(self._claim())
            case say.Inject():
                self._inject(instruction)
            case say.WriteManifest():
                self._spawn(self._write(instruction))
            case say.Commit(checkpoint, places):
                self._to_subtasks(places, lambda actor, place, attempt: self._commit(actor, place, attempt, checkpoint))
            case say.AbortCheckpoint(checkpoint, places):
                self._to_subtasks(places, lambda actor, place, attempt: self._abort(actor, attempt, checkpoint))
            case say.DeleteFiles():
                self._spawn(self._delete(instruction))
            case say.CheckFolder(request, directory):
                self._spawn(self._check_folder(request, directory))

    def write_end(self, write: say.WriteEnd) -> None:
        """Write down how the job has ended, and remove what is not kept, in the background."""
        self._spawn(self._write_end(write))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # Storage

    async def _claim(self) -> None:
        try:
            claimed: ev.Event = ev.Claimed(await asyncio.to_thread(self._store.claim))
        except Exception as error:
            claimed = ev.ClaimFailed(_as_error(error))
        self._handle(claimed)

    async def restore(self, graph: PhysicalGraph, checkpoint: CompletedCheckpoint | None, epoch: int) -> Restore:
        """How the subtasks of an attempt begin.

        Raises:
            RestoreError, CheckpointError: the checkpoint does not fit, or cannot be read.
            FencedError: another manager has taken the job over.
        """
        await asyncio.to_thread(self._store.check_claim, epoch)
        if checkpoint is None:
            return Restore(self._store, self._folder.start)
        plan = await self.plan(graph, checkpoint)
        self.restored_url = url_of(plan)
        return Restore(self._store, plan, checkpoint.checkpoint)

    async def preload(self, graph: PhysicalGraph, wanted: say.Preload) -> None:
        """Have state taken in for a rescale, as far as that can be done."""
        number = wanted.checkpoint.checkpoint
        # Whatever fails here, the deployment reads all, or reports it; a rescale that heard nothing would never end.
        with contextlib.suppress(Exception):
            restore = Restore(self._store, await self.plan(graph, wanted.checkpoint), number)
            await preload(self._execution, graph, wanted.places, restore)
        self._handle(ev.Preloaded(wanted.request, number))

    async def plan(self, graph: PhysicalGraph, checkpoint: CompletedCheckpoint) -> RestorePlan:
        """The plan for restoring a checkpoint of the job; errors as for `restore`."""
        return await asyncio.to_thread(self._store.plan, graph, checkpoint)

    async def _write(self, write: say.WriteManifest) -> None:
        number = write.checkpoint.checkpoint
        target = self._targets.get(number)
        try:
            url = await asyncio.to_thread(self._store.complete, write.epoch, write.checkpoint, target)
        except Exception as error:
            self._handle(ev.StoreFailed(number, _as_error(error)))
        else:
            self._handle(ev.Stored(number, url))

    async def _delete(self, delete: say.DeleteFiles) -> None:
        target = self._targets.get(delete.savepoint)
        try:
            await asyncio.to_thread(self._store.delete, delete.checkpoints, delete.files, target)
        except Exception as error:
            # Files that are left cost storage and nothing else.
            _LOG.warning("files of old checkpoints of job %r could not be deleted: %s", self._name, error)

    async def _check_folder(self, request: int, directory: str | None) -> None:
        try:
            folder = await asyncio.to_thread(self._store.savepoint_folder, directory)
        except Exception as error:
            self._handle(ev.FolderRefused(request, _as_error(error)))
        else:
            self._handle(ev.FolderChecked(request, folder))

    async def _write_end(self, write: say.WriteEnd) -> None:
        problem = ""
        try:
            status, retains = write.status.value, not write.discards
            await asyncio.to_thread(self._store.finish, write.epoch, status, write.message, retains=retains)
            # Nothing is removed before the end is written down.
            if write.discards:
                await asyncio.to_thread(self._store.discard)
            if write.discards_rows:
                for left in await asyncio.to_thread(self._discard_rows):
                    _LOG.warning("job %r: what was not committed is left behind: %s", self._name, left)
        except Exception as error:
            problem = str(error)
        self._handle(ev.EndWritten(problem))

    # Subtasks

    def _to_subtasks(
        self, places: Sequence[Place], call: Callable[[Any, Place, int], Coroutine[Any, Any, None]]
    ) -> None:
        """Call subtasks at once and in order; what runs there no more is passed over."""
        for place in places:
            attempt, actor = self._execution.attempts.get(place), self._execution.actors.get(place)
            if attempt is not None and actor is not None:
                # The actor of now: when the call is made another may be in its place, or none.
                self._spawn(call(actor, place, attempt))

    def _inject(self, inject: say.Inject) -> None:
        # At once and in order: a source that has given a barrier has no place for an older one.
        barrier, number = inject.barrier, inject.barrier.checkpoint
        if inject.directory is not None:
            self._targets[number] = self._store.savepoint_target(inject.directory, number)
            barrier = replace(barrier, target=self._targets[number])
        self._to_subtasks(inject.places, lambda actor, place, attempt: self._ask(actor, place, attempt, barrier))

    async def _ask(self, actor: Any, place: Place, attempt: int, barrier: Barrier) -> None:
        try:
            answer = await actor.checkpoint.remote(attempt, barrier)
        except RayActorError:
            # The watch call reports that the process has died.
            return
        except RayError as error:
            answer = Declined(str(error))
        number = barrier.checkpoint
        if isinstance(answer, Declined):
            self._handle(ev.Declined(number, place, answer.message, answer.reason))
        else:
            self._handle(ev.Acknowledged(number, place, answer))

    async def _commit(self, actor: Any, place: Place, attempt: int, checkpoint: int) -> None:
        try:
            committed = await actor.complete.remote(attempt, checkpoint)
        except RayError:
            return
        if committed:
            self._handle(ev.Committed(checkpoint, place, attempt))

    async def _abort(self, actor: Any, attempt: int, checkpoint: int) -> None:
        with contextlib.suppress(RayError):
            await actor.abort.remote(attempt, checkpoint)


def _as_error(error: Exception) -> PenstockError:
    return error if isinstance(error, PenstockError) else CheckpointError(f"{type(error).__name__}: {error}")
