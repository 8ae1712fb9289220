"""The checkpoints of a job on Ray: carries out what the coordinator says, and tells it what happens.

Lives in the job manager and runs on its event loop; calls to storage run in threads, so that the loop never waits. One
pending call to each subtask of a checkpoint returns its acknowledgement, so the manager owns what it is made of.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray.exceptions import RayActorError, RayError

from penstock.actors.capture_writer import Declined
from penstock.actors.deployment import places
from penstock.actors.execution import Execution
from penstock.actors.running_task import Restore
from penstock.engine.checkpointing.coordinator import (
    AbortReason,
    CheckpointCoordinator,
    CheckpointRecord,
    Delete,
    FailJob,
    Instruction,
    NotifyAborted,
    NotifyComplete,
    Place,
    Store,
    Trigger,
)
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.store import Claim, JobFolder
from penstock.engine.config import JobConfig
from penstock.engine.elements import Barrier, SnapshotKind
from penstock.engine.errors import CheckpointError, FencedError, PenstockError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.restarts import RestartLog
from penstock.engine.job.status import JobStatus
from penstock.savepoints.restore import url_of

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A checkpoint or savepoint that somebody waits for: its URL, or why there is none."""

    kind: SnapshotKind
    folder: str | None
    url: asyncio.Future[str]


class Checkpoints:
    """The checkpoints of one job under one manager.

    Args:
        folder: where they are.
        name: of the job.
        config: the job's settings.
        execution: its subtasks.
        restarts: those of the job, which are told with its checkpoints.
        fail: called when the job has to fail: more checkpoints failed than are tolerable, or another manager took over.
    """

    def __init__(
        self,
        folder: JobFolder,
        name: str,
        config: JobConfig,
        execution: Execution,
        restarts: RestartLog,
        fail: Callable[[PenstockError], None],
    ) -> None:
        self._folder = folder
        self._store = folder.store
        self._name = name
        self._config = config
        self._execution = execution
        self._restarts = restarts
        self._fail = fail
        self._coordinator: CheckpointCoordinator | None = None
        self._claiming: asyncio.Future[Claim] | None = None
        self._epoch = 0
        self._attempt = 0
        self._commits: frozenset[int] = frozenset()
        self._targets: dict[int, str] = {}
        self._wanted: dict[int, _Wanted] = {}
        self._committing: dict[int, asyncio.Future[None]] = {}
        self._storing: set[asyncio.Task[None]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._fenced = False
        self._discarded = False
        self._is_suspended = False
        self.completed = 0
        self.latest_url: str | None = None

    async def claim(self) -> Claim:
        """Take the job's folder over.

        Raises:
            CheckpointError: it cannot be used, or the newest checkpoint cannot be read.
        """
        if self._claiming is None:
            self._claiming = asyncio.ensure_future(asyncio.to_thread(self._store.claim))
        # A thread goes on when who waits for it is cancelled: there must be only one claim.
        claim = await asyncio.shield(self._claiming)
        self._epoch = claim.epoch
        self._coordinator = CheckpointCoordinator(
            self._config.checkpoints,
            self._folder.job_id,
            self._name,
            self._config.max_parallelism,
            claim.next_checkpoint,
            claim.retained,
        )
        self.completed = self.latest.checkpoint if self.latest else 0
        if self.latest is not None and self.latest.story is not None:
            self._restarts.go_on_from(self.latest.story)
        return claim

    @property
    def coordinator(self) -> CheckpointCoordinator:
        assert self._coordinator is not None, "claim comes first"
        return self._coordinator

    @property
    def claimed(self) -> bool:
        """Whether the folder has been taken over."""
        return self._coordinator is not None

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """What the job goes on from after a failure."""
        return self.coordinator.latest

    @property
    def kept(self) -> CompletedCheckpoint | None:
        """The newest checkpoint, unless it went with the job."""
        return None if self._discarded else self.latest

    @property
    def restored_url(self) -> str | None:
        """Where the savepoint or retained checkpoint is that the job began with."""
        return None if self._folder.start is None else url_of(self._folder.start)

    @property
    def savepoint_url(self) -> str | None:
        """Where the newest savepoint is, of those in the history that this manager has taken."""
        urls = [url for record in self.coordinator.history if (url := self.savepoint_of(record)) is not None]
        return urls[-1] if urls else None

    def savepoint_of(self, record: CheckpointRecord) -> str | None:
        """Where a savepoint is; None: it is not there, or it was taken under a manager before."""
        return None if record.reason is not None else self._targets.get(record.checkpoint)

    async def restore(self, graph: PhysicalGraph) -> Restore:
        """How the subtasks of an attempt begin.

        Raises:
            RestoreError, CheckpointError: the newest checkpoint does not fit, or cannot be read.
            FencedError: another manager has taken the job over, and its subtasks may be why this one's have died.
        """
        await asyncio.to_thread(self._store.check_claim, self._epoch)
        latest = self.latest
        if latest is None:
            return Restore(self._store, self._folder.start)
        plan = await asyncio.to_thread(self._store.plan, graph, latest)
        self.latest_url = url_of(plan)
        return Restore(self._store, plan, latest.checkpoint)

    # Attempts

    def start_attempt(self, attempt: int, graph: PhysicalGraph) -> None:
        """All subtasks of an attempt run."""
        self._attempt = attempt
        self._commits = frozenset(task.id for task in graph.tasks if task.commits)
        split = {task.source.uid: task.source.split_parallelism for task in graph.tasks if task.source is not None}
        self._obey(self.coordinator.start_attempt(attempt, places(graph), split, time.monotonic()))

    def end_attempt(self, reason: AbortReason = AbortReason.ATTEMPT_ENDED) -> None:
        """The attempt is over: what is under way is given up, but for a manifest that is being written."""
        if self._coordinator is not None:
            self._obey(self.coordinator.end_attempt(time.monotonic(), reason))
        for number, committing in self._committing.items():
            if not committing.done():
                committing.set_exception(
                    CheckpointError(
                        f"savepoint {self.url_of(number)} is complete, but the job failed before all of its sinks had "
                        "committed what belongs to it; a job that starts from it commits that"
                    )
                )
        self._committing.clear()

    def url_of(self, savepoint: int) -> str:
        """Where a savepoint is; its number, where it has not come so far that this is known."""
        return self._targets.get(savepoint, str(savepoint))

    def drain(self) -> None:
        """The sources are about to end one after another: no checkpoint but the last may be taken meanwhile."""
        self._obey(self.coordinator.drain(time.monotonic()))

    async def settled(self) -> None:
        """Return when no manifest is being written: what is newest then is what the job goes on from."""
        while self._storing:
            await asyncio.wait(list(self._storing))

    async def check_folder(self, directory: str | None) -> str:
        """The URL of the folder that holds savepoints: they can be written there.

        Raises:
            CheckpointError: there is no directory, or it cannot be written.
        """
        return await asyncio.to_thread(self._store.savepoint_folder, directory)

    async def take(self, kind: SnapshotKind, directory: str | None = None) -> str:
        """Take a checkpoint or savepoint now; its URL.

        Raises:
            CheckpointError: it could not be taken.
        """
        return await self._request(kind, await self._folder_for(kind, directory))[1]

    async def take_last(self, kind: SnapshotKind, directory: str | None = None) -> str:
        """Take one that ends the job: its URL, when it is complete and all sinks have committed what belongs to it.

        Raises:
            CheckpointError: it could not be taken, or a sink could not commit.
        """
        number, wanted = self._request(kind, await self._folder_for(kind, directory))
        committing = self._committing[number] = _future()
        url = await wanted
        await committing
        return url

    async def _folder_for(self, kind: SnapshotKind, directory: str | None) -> str | None:
        return None if kind is SnapshotKind.CHECKPOINT else await self.check_folder(directory)

    def _request(self, kind: SnapshotKind, folder: str | None) -> tuple[int, asyncio.Future[str]]:
        wanted = _Wanted(kind, folder, _future())
        return self._ask_for(wanted), wanted.url

    def _ask_for(self, wanted: _Wanted) -> int:
        number, instructions = self.coordinator.request(wanted.kind, time.monotonic(), _now_ms(), wanted.folder)
        self._wanted[number] = wanted
        asyncio.get_running_loop().call_soon(self._obey, instructions)
        return number

    # Instructions

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Trigger():
                    self._trigger(instruction)
                case Store(checkpoint):
                    storing = self._spawn(self._write(checkpoint))
                    self._storing.add(storing)
                    storing.add_done_callback(self._storing.discard)
                case NotifyComplete(checkpoint, told):
                    self._spawn(self._complete(checkpoint, told))
                case NotifyAborted(checkpoint, reason, message, told):
                    self._give_up(checkpoint, reason, message)
                    for place in told:
                        self._spawn(self._abort(place, checkpoint))
                case Delete():
                    self._spawn(self._delete(instruction))
                case FailJob(message):
                    self._fail(CheckpointError(message))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.coordinator.deadline
        if deadline is not None:
            wait = max(0.0, deadline - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._obey(self.coordinator.tick(time.monotonic(), _now_ms()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _trigger(self, trigger: Trigger) -> None:
        """Tell the subtasks, at once and in order: a source that has given a barrier has no place for an older one."""
        barrier, number = trigger.barrier, trigger.barrier.checkpoint
        if trigger.directory is not None:
            self._targets[number] = self._store.savepoint_target(trigger.directory, number)
            barrier = replace(barrier, target=self._targets[number])
        for place in trigger.places:
            self._spawn(self._ask(place, self._attempt, barrier))

    async def _ask(self, place: Place, attempt: int, barrier: Barrier) -> None:
        actor, running = self._execution.actors.get(place), self._execution.attempts.get(place)
        if actor is None or running is None:
            return
        try:
            answer = await actor.checkpoint.remote(running, barrier)
        except RayActorError:
            # Of a process that died, the watch tells.
            return
        except RayError as error:
            answer = Declined(str(error))
        self._on_answer(attempt, barrier.checkpoint, place, answer)

    def _on_answer(self, attempt: int, checkpoint: int, place: Place, answer: Any) -> None:
        now = time.monotonic()
        if isinstance(answer, Declined):
            self._obey(self.coordinator.decline(attempt, checkpoint, place, answer.message, now, answer.reason)[1])
        else:
            self._obey(self.coordinator.acknowledge(attempt, checkpoint, place, answer, now, _now_ms())[1])

    async def _write(self, checkpoint: CompletedCheckpoint) -> None:
        number = checkpoint.checkpoint
        if checkpoint.story is not None:
            checkpoint = replace(checkpoint, story=self._restarts.add_to(checkpoint.story))
        try:
            url = await asyncio.to_thread(self._store.complete, self._epoch, checkpoint, self._targets.get(number))
        except FencedError as error:
            self._fenced = True
            self._give_up(number, AbortReason.STORE_FAILED, str(error))
            self._fail(error)
            return
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._obey(self.coordinator.on_store_failed(number, message, time.monotonic()))
            return
        if checkpoint.kind is SnapshotKind.CHECKPOINT:
            self.completed = max(self.completed, number)
            self.latest_url = url
        self._obey(self.coordinator.on_stored(number, time.monotonic()))
        if (wanted := self._wanted.pop(number, None)) is not None and not wanted.url.done():
            wanted.url.set_result(url)

    async def _complete(self, checkpoint: int, told: Sequence[Place]) -> None:
        # To the others it means nothing, and each call takes a millisecond or two from the data.
        waiting = [(task, subtask) for task, subtask in told if task in self._commits]
        committed = await asyncio.gather(*(self._commit(place, checkpoint) for place in waiting))
        # Otherwise the failure that kept one from it ends the attempt, which tells whoever waits.
        committing = self._committing.pop(checkpoint, None) if all(committed) else None
        if committing is not None and not committing.done():
            committing.set_result(None)

    async def _commit(self, place: Place, checkpoint: int) -> bool:
        actor, running = self._execution.actors.get(place), self._execution.attempts.get(place)
        if actor is None or running is None:
            return False
        try:
            return bool(await actor.complete.remote(running, checkpoint))
        except RayError:
            return False

    async def _abort(self, place: Place, checkpoint: int) -> None:
        actor, running = self._execution.actors.get(place), self._execution.attempts.get(place)
        if actor is not None and running is not None:
            try:
                await actor.abort.remote(running, checkpoint)
            except RayError:
                return

    def _give_up(self, checkpoint: int, reason: AbortReason, message: str) -> None:
        """Tell who waits for it; one that came too late to a subtask, as calls may, is asked for again instead."""
        committing, wanted = self._committing.pop(checkpoint, None), self._wanted.pop(checkpoint, None)
        if wanted is None or wanted.url.done():
            return
        try:
            if reason is not AbortReason.OVERTAKEN:
                raise CheckpointError(message)
            number = self._ask_for(wanted)
        except CheckpointError as error:
            wanted.url.set_exception(error)
            return
        if committing is not None:
            self._committing[number] = committing

    async def _delete(self, deletion: Delete) -> None:
        try:
            target = self._targets.get(deletion.savepoint)
            await asyncio.to_thread(self._store.delete, deletion.checkpoints, deletion.files, target)
        except Exception as error:
            # It costs storage and nothing else.
            _LOG.warning("files of old checkpoints of job %r could not be deleted: %s", self._name, error)

    # End

    def close(self) -> None:
        """The job has ended: whoever waits for a checkpoint is told, and nothing is triggered any more."""
        if self._coordinator is not None:
            self.end_attempt(AbortReason.JOB_ENDED)
        if self._timer is not None:
            self._timer.cancel()

    def keep(self) -> None:
        """Somebody is going to go on from the newest checkpoint: it stays if the job is cancelled."""
        self._is_suspended = True

    async def finish(self, status: JobStatus, message: str = "") -> None:
        """Write down that the job has ended, so that no manager begins it again, and remove what is not kept.

        Args:
            status: how it has ended.
            message: why, where it failed.
        """
        if self._fenced or (self._coordinator is None and status is not JobStatus.CANCELLED):
            return
        retains = self._config.checkpoints.retain_on_cancel or self._is_suspended
        kept = status is JobStatus.FAILED or (status is JobStatus.CANCELLED and retains)
        try:
            # One that was cancelled before it had begun ends what the manager before it has left.
            if self._coordinator is None and (await self.claim()).ended is not None:
                return
            await self.settled()
            await asyncio.to_thread(self._store.finish, self._epoch, status.value, message)
            if not kept:
                self._discarded = True
                await asyncio.to_thread(self._store.discard)
        except Exception as error:
            # The job has ended as it has; what is left costs storage, and is begun again only if this manager dies.
            _LOG.warning("the end of job %r could not be written down: %s", self._name, error)


def _future() -> asyncio.Future[Any]:
    """A future whose error is no news where nobody waits for it any more."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
