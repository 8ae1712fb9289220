"""The job brain decides a whole job's life: events in, instructions out; it knows no clock, thread, storage or cluster.

Two shells feed it and carry out what it says: the local manager (one process, tests, the simulation) and the job
manager on Ray. What is decided about a job's status, attempts or checkpoints stands here or in the coordinator.

    Began -> TakeOver -> Claimed -> Deploy -> Deployed -> (runs) -> all TaskFinished -> last checkpoint -> End
                                      ^                     |
                                      |            TaskFailed, rescale
                                      +--- Cancel, Cancelled, a delay, manifests written
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.instructions import AbortReason, Place
from penstock.engine.checkpointing.store import Claim
from penstock.engine.config import JobConfig
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError, ClusterError, FencedError, JobError, PenstockError
from penstock.engine.graph.scale import ParallelismRequest, Scale
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.attempts import Attempts, PendingRestart
from penstock.engine.job.checkpoints import JobCheckpoints, Purpose, Storage, Wanted
from penstock.engine.job.ending import Ending
from penstock.engine.job.failover import ATTEMPTS, RETRY_SECONDS, TERMINAL_ERRORS, RestartPolicy, default_strategy
from penstock.engine.job.layout import Layout, Planner, taken_scale
from penstock.engine.job.requests import Requests
from penstock.engine.job.rescaling import Rescaling
from penstock.engine.job.restarts import RestartLog
from penstock.engine.job.status import JobStatus, transition

_Subtask: TypeAlias = tuple[Place, int]
"""A subtask and its attempt."""
_SAVEPOINTS: Final[Mapping[type[ev.Command], tuple[SnapshotKind, Purpose]]] = {
    ev.TakeSavepoint: (SnapshotKind.SAVEPOINT, Purpose.ANSWER),
    ev.StopJob: (SnapshotKind.SUSPEND, Purpose.STOP),
}
"""What is taken for a command, and what for."""


@dataclass(slots=True)
class _Drain:
    """The sources were made to end; the job ends with a savepoint in `folder`, or nothing has happened."""

    request: int
    folder: str


class JobBrain:
    """Decides about one job under one manager.

    Args:
        name: of the job.
        config: its settings.
        planner: plans it at a scale.
        chosen: the random numbers of restart delays.
        storage: None: the job takes no checkpoints, and cannot.

    Attributes:
        status, since_ms: where the job is in its life, and since when (civil ms).
        error: why it fails, is being restarted or has failed; None: nothing is wrong.
        layout: what runs, or is to run; None before it is planned.
        attempts: which subtask runs what.
        restarts: those of the job so far.
        checkpoints: None before the job's folder has been taken over.

    Rules, in addition to those of `CheckpointCoordinator`:
        A failure restarts its region, or the whole job, as often as the restart strategy allows; while the job is
        drained, always the whole job.
        A restart waits for manifests that are being written: one may make a newer checkpoint count.
        A drain is whole or has not happened: until its savepoint is complete no checkpoint is, so whatever fails, in
        this manager or by its death, the job resumes from before the drain. Where the savepoint itself cannot be taken,
        it does so at once.
        Behind a complete savepoint that stops the job it never runs again; a failure there ends it, and says so.
        For a job that has run before, missing room on the cluster is a failure like another.
    """

    def __init__(
        self, name: str, config: JobConfig, planner: Planner, chosen: random.Random, storage: Storage | None
    ) -> None:
        self.status = JobStatus.CREATED
        self.since_ms = 0
        self.error: PenstockError | None = None
        self.layout: Layout | None = None
        self.attempts = Attempts()
        self.restarts = RestartLog()
        self.checkpoints: JobCheckpoints | None = None
        self._name = name
        self._config = config
        self._planner = planner
        self._storage = storage
        self._policy = RestartPolicy(default_strategy(config), chosen)
        self._said: list[say.Instruction] = []
        self._requests = Requests(self._said)
        self._now = ev.Moment(0.0, 0)
        self._began = self._now
        self._has_run = False
        self._restart: PendingRestart | None = None
        self._rescaling = Rescaling(self._requests, planner, self._plan)
        self._drain: _Drain | None = None
        self._last_due = 0.0
        self._ending: Ending | None = None

    # What there is

    @property
    def ended(self) -> bool:
        """Whether the job has ended, and nothing is left to be done for it."""
        return self._ending is not None and self._ending.is_told

    @property
    def completed(self) -> int:
        """The newest checkpoint that counts, 0 for none: rows for the client that belong to it are final."""
        if self.checkpoints is None:
            return 0
        return self.checkpoints.final_rows if self.ended else self.checkpoints.completed

    @property
    def kept(self) -> CompletedCheckpoint | None:
        """The newest checkpoint, unless it went with the job."""
        discarded = self._ending is not None and self._ending.is_told and not self._ending.retains
        return None if discarded or self.checkpoints is None else self.checkpoints.latest

    @property
    def deadline(self) -> float | None:
        """When a `Ticked` has something to do, monotonic seconds; may be past. None: not before another event."""
        if self._ending is not None:
            return None
        times = [self.checkpoints.deadline if self.checkpoints is not None else None]
        if self._restart is not None and self._may_restart:
            times.append(self._restart.due)
        if self._awaits_last:
            times.append(self._last_due)
        return min((time for time in times if time is not None), default=None)

    # Events

    def handle(self, event: ev.Event, now: ev.Moment) -> Sequence[say.Instruction]:
        """Something has happened: what is to be done, in this order.

        Args:
            event: what.
            now: when.
        """
        self._now = now
        self._hear(event)
        self._proceed()
        said = tuple(self._said)
        self._said.clear()
        return said

    def _hear(self, event: ev.Event) -> None:
        match event:
            case ev.Began():
                self._on_began()
            case ev.Claimed(claim):
                self._on_claimed(claim)
            case ev.ClaimFailed(error):
                self._end(JobStatus.FAILED, error, writes=False)
            case ev.Deployed(attempt, are_open):
                self._on_deployed(attempt, are_open)
            case ev.DeployFailed(attempt, error):
                self._on_deploy_failed(attempt, error)
            case ev.Cancelled(number):
                self.attempts.on_cancelled(number)
            case ev.RowsCame(place, attempt):
                is_end = self.layout is not None and self.layout.task(place[0]).is_end
                if is_end and self.attempts.is_current(place, attempt):
                    self.restarts.on_rows(attempt, self._now.monotonic)
            case ev.TaskFinished(place, attempt):
                self.attempts.on_finished(place, attempt)
            case ev.TaskFailed():
                self._on_failure(event)
            case ev.Explained():
                self._on_explained(event)
            case ev.TakenDown(problem):
                if self._ending is not None:
                    self._ending.on_taken_down(problem)
            case ev.EndWritten(problem):
                self._on_end_written(problem)
            case ev.Asked(request, command):
                self._on_asked(request, command)
            case ev.FolderChecked() | ev.FolderRefused():
                self._on_folder(event)
            case ev.Prepared(request):
                self._rescaling.on_prepared(request)
            case ev.PrepareFailed(request, error):
                self._rescaling.on_prepare_failed(request, error)
            case ev.Ticked():
                if self.checkpoints is not None and self._ending is None:
                    self.checkpoints.tick(self._now)
            case ev.StoreFailed(number, error):
                self._on_store_failed(number, error)
            case ev.Acknowledged() | ev.Declined() | ev.Stored() | ev.Committed():
                # Only of a job with a folder any of these is heard, when that is claimed.
                assert self.checkpoints is not None
                if not isinstance(event, ev.Committed) or self.attempts.is_current(event.place, event.attempt):
                    self.checkpoints.hear(event, self._now)

    def _on_store_failed(self, number: int, error: PenstockError) -> None:
        assert self.checkpoints is not None, "manifests are those of a job with a folder"
        if not isinstance(error, FencedError):
            self.checkpoints.on_store_failed(number, str(error), self._now)
            return
        self.checkpoints.on_fenced(number)
        if self._ending is None:
            self._recover(None, error)
        else:
            self._ending.error = error

    def _proceed(self) -> None:
        """Do what has become possible, whatever it had waited for."""
        if self._ending is None:
            self._proceed_with_job()
        if self._ending is not None:
            if (step := self._ending.proceed(self.checkpoints)) is not None:
                self._said.append(step)
            if self._ending.is_to_be_told:
                self._tell_end(self._ending)

    def _proceed_with_job(self) -> None:
        now = self._now.monotonic
        if self._rescaling.is_ready and self.attempts.deployment is None:
            self._stop_for_rescale()
        restart = self._restart
        if restart is not None and self._may_restart and now >= restart.due:
            self._begin_restart(restart)
        elif self.checkpoints is not None and self.checkpoints.is_over:
            self._end(JobStatus.FINISHED)
        elif self._awaits_last and now >= self._last_due:
            self._take_last()

    # The beginning

    def _on_began(self) -> None:
        self._began = self._now
        if self._ending is None:
            self._move(JobStatus.DEPLOYING)
            if self._storage is None:
                self._plan_and_deploy(None)
        if self._storage is not None:
            self._said.append(say.TakeOver())

    def _on_claimed(self, claim: Claim) -> None:
        assert self._storage is not None
        self.checkpoints = JobCheckpoints(
            self._storage.coordinator(self._name, self._config, claim),
            claim.epoch,
            self.restarts,
            self._said.append,
            self._on_outcome,
            lambda error: self._on_failure(ev.TaskFailed(None, 0, error)),
        )
        self.attempts.number = claim.epoch * ATTEMPTS
        latest = self.checkpoints.latest
        if latest is not None and latest.story is not None:
            self.restarts.resume_from(latest.story)
        if claim.ended is not None or claim.message:
            self._find_ended(claim)
        elif self._ending is None:
            self._plan_and_deploy(latest)

    def _find_ended(self, claim: Claim) -> None:
        """The job has ended under a manager before, which may not have removed what was not to be kept."""
        status = JobStatus.FAILED if claim.message or claim.ended is None else JobStatus(claim.ended)
        unknown = "the job failed; the job manager that knew why has died since" if status is JobStatus.FAILED else ""
        message = claim.message or unknown
        self._end(status, JobError(message) if message else None, writes=self._ending is None)

    def _plan_and_deploy(self, latest: CompletedCheckpoint | None) -> None:
        try:
            scale = Scale() if latest is None else taken_scale(self._planner, latest)
            self.layout = self._plan(scale)
        except PenstockError as error:
            self._end(JobStatus.FAILED, error)
            return
        if self.attempts.number > ATTEMPTS:
            self.restarts.on_takeover(self.layout.places, self._began)
        self._deploy(self.layout.places)

    def _plan(self, scale: Scale) -> Layout:
        latest = None if self.checkpoints is None else self.checkpoints.latest
        if latest is None and self._storage is not None:
            latest = self._storage.start
        return self._planner.plan(scale, latest.split_parallelism if latest is not None else {})

    # Attempts

    def _deploy(self, places: Iterable[Place]) -> None:
        assert self.layout is not None
        latest = None if self.checkpoints is None else self.checkpoints.latest
        epoch = 0 if self.checkpoints is None else self.checkpoints.epoch
        self._said.append(self.attempts.deploy(self.layout, places, latest, epoch))

    def _on_deployed(self, attempt: int, are_open: bool) -> None:
        deployment = self.attempts.deployment
        if deployment is not None and deployment.attempt == attempt and not are_open and not deployment.failures:
            deployment.awaits_failure = True
            return
        failures = self.attempts.end_deployment(attempt, deployed=True)
        if failures is None or self._ending is not None:
            return
        if not failures:
            self._on_running()
        for failure in failures:
            self._on_failure(failure)

    def _on_deploy_failed(self, attempt: int, error: PenstockError) -> None:
        if self.attempts.end_deployment(attempt, deployed=False) is None or self._ending is not None:
            return
        assert self.layout is not None
        error, self.layout = self._rescaling.on_deploy_failed(error, self.layout)
        self._recover(None, error)

    def _on_running(self) -> None:
        assert self.layout is not None
        self._move(JobStatus.RUNNING)
        self.error = None
        self._has_run = True
        self._policy.on_running(self._now.monotonic)
        if self.checkpoints is not None:
            self.checkpoints.start_attempt(self.attempts.number, self.layout, self._now)
        if self._config.failover.restart is not None or self._config.checkpoints.enabled:
            self._said.append(say.FillStandbys())
        self.restarts.on_resumed(self.attempts.number, self.attempts.restored, self._now.monotonic)
        self._rescaling.on_running(self._now.monotonic)

    # Failures

    def _on_failure(self, failure: ev.TaskFailed) -> None:
        place = failure.place
        if self._ending is not None or (place is not None and not self.attempts.is_current(place, failure.attempt)):
            return
        deployment = self.attempts.deployment
        if deployment is not None:
            deployment.failures.append(failure)
            if deployment.awaits_failure:
                self._on_deployed(deployment.attempt, are_open=False)
            return
        unexplained = None if failure.is_explained or place is None else (place, failure.attempt)
        self._recover(place, failure.error, unexplained)

    def _recover(self, place: Place | None, error: PenstockError, unexplained: _Subtask | None = None) -> None:
        """Restart what has failed, if the restart strategy allows that; or else end the job."""
        region = self._region(place)
        if not self._interrupt(error):
            return
        never_ran = not self._has_run and self.attempts.number <= ATTEMPTS + 1
        is_terminal = isinstance(error, TERMINAL_ERRORS) or (isinstance(error, ClusterError) and never_ran)
        delay = None if is_terminal else self._policy.on_failure(self._now.monotonic)
        if delay is None:
            self._end(JobStatus.FAILED, error, unexplained=unexplained)
            return
        self._said.append(
            say.Warn(f"job {self._name!r} failed and is restarted (restart-strategy.type sets how often): {error}")
        )
        self.error = error
        self.restarts.on_failure(str(error), region, self._now, unexplained)
        self._restart_behind(delay, region)

    def _region(self, place: Place | None) -> Sequence[Place]:
        assert self.layout is not None
        # While the job is drained, a region that resumed would be at its end, and the other in the middle.
        if place is None or self._drain is not None:
            return self.layout.places
        return sorted(next(region for region in self.layout.regions if place in region))

    def _interrupt(self, error: PenstockError) -> bool:
        """The attempt is over: nothing that was under way for it comes to an end. False: nor does the job run again."""
        drain, self._drain = self._drain, None
        if drain is not None:
            refused = CheckpointError(f"the job failed while it was drained, and resumes from before that: {error}")
            self._requests.answer(drain.request, refused)
        if self.checkpoints is None:
            return True
        self.checkpoints.end_attempt(self._now)
        return not self._ends_as_suspended(error)

    def _ends_as_suspended(self, error: PenstockError | None) -> bool:
        """End a job that a complete savepoint had stopped: sinks may have committed more than its checkpoints have."""
        url = None if self.checkpoints is None else self.checkpoints.suspended_url
        if url is None:
            return False
        why = f": {error}" if error is not None else ""
        message = (
            f"savepoint {url} is complete, but the job failed before it had stopped behind it; start it again from "
        )
        failure = JobError(f"{message}that savepoint{why}")
        failure.__cause__ = error
        self._end(JobStatus.FAILED, failure)
        return True

    def _restart_behind(self, delay: float, places: Sequence[Place]) -> None:
        if self.status is not JobStatus.RESTARTING:
            self._move(JobStatus.RESTARTING)
        self._said += self.attempts.stop(places)
        due = self._now.monotonic + delay
        if self._restart is None:
            self._restart = PendingRestart(set(places), due)
        else:
            self._restart.places.update(places)
            self._restart.due = max(self._restart.due, due)

    @property
    def _may_restart(self) -> bool:
        """Whether nothing but time is in the way of a restart."""
        stored = self.checkpoints is None or self.checkpoints.settled
        return stored and not self._rescaling.is_preparing and not self.attempts.is_changing

    def _begin_restart(self, restart: PendingRestart) -> None:
        self._restart = None
        # A savepoint that was being written when the attempt ended may have stopped the job since.
        if self._ends_as_suspended(self.error):
            return
        if restart.layout is not None:
            self.layout = restart.layout
            self.attempts.clear()
        self._deploy(restart.places)

    def _on_explained(self, event: ev.Explained) -> None:
        key = (event.place, event.attempt)
        if self._ending is not None and self._ending.unexplained == key:
            self._ending.on_explained(event.error)
        if self.restarts.on_explained(key, str(event.error)):
            self._said.append(say.Warn(f"job {self._name!r}: {event.error}"))

    # The end of the input

    @property
    def _awaits_last(self) -> bool:
        """Whether all subtasks have emitted everything, and the checkpoint that ends the job has yet to be taken."""
        is_over = self.layout is not None and len(self.attempts.finished) == self.layout.subtasks
        runs = self.status is JobStatus.RUNNING and self._restart is None and self.attempts.deployment is None
        return is_over and runs and not (self.checkpoints is not None and self.checkpoints.ends_the_job)

    def _take_last(self) -> None:
        """A last checkpoint commits what sinks hold back, then the job ends."""
        assert self.layout is not None
        commits = self._config.checkpoints.enabled or self.layout.commits_last
        if self.checkpoints is None or not (commits or self._drain is not None):
            self._end(JobStatus.FINISHED)
            return
        wanted = Wanted(SnapshotKind.CHECKPOINT, Purpose.LAST)
        if self._drain is not None:
            wanted = Wanted(SnapshotKind.SUSPEND, Purpose.DRAIN, self._drain.folder, self._drain.request)
        try:
            self.checkpoints.want(wanted, self._now)
        except CheckpointError:
            self._last_due = self._now.monotonic + RETRY_SECONDS

    # What users ask for

    def _on_asked(self, request: int, command: ev.Command) -> None:
        self._requests.add(request, command)
        try:
            match command:
                case ev.CancelJob(retain):
                    self._cancel(request, retain)
                case ev.TakeCheckpoint():
                    wanted = Wanted(SnapshotKind.CHECKPOINT, Purpose.ANSWER, None, request)
                    self._with_checkpoints().want(wanted, self._now)
                case ev.TakeSavepoint(directory) | ev.StopJob(directory) | ev.DrainJob(directory):
                    self._with_checkpoints()
                    self._said.append(say.CheckFolder(request, directory))
                case ev.RescaleJob(wanted):
                    self._ask_for_rescale(request, wanted)
        except PenstockError as error:
            self._requests.answer(request, error)

    def _cancel(self, request: int, retain: bool) -> None:
        if self._ending is not None:
            self._requests.downgrade(request)
            if self._ending.is_told:
                self._requests.answer(request, False)
            return
        self._end(JobStatus.CANCELLED, retains=retain)

    def _on_folder(self, event: ev.FolderChecked | ev.FolderRefused) -> None:
        command = self._requests.command(event.request)
        if command is None:
            return
        if isinstance(event, ev.FolderRefused):
            self._requests.answer(event.request, event.error)
            return
        try:
            # The job may have failed, finished or been drained meanwhile.
            checkpoints = self._with_checkpoints()
            if isinstance(command, ev.DrainJob):
                checkpoints.drain(self._now)
                self._drain = _Drain(event.request, event.folder)
                self._said.append(say.EndInput())
            else:
                kind, purpose = _SAVEPOINTS[type(command)]
                checkpoints.want(Wanted(kind, purpose, event.folder, event.request), self._now)
        except CheckpointError as error:
            self._requests.answer(event.request, error)

    def _with_checkpoints(self) -> JobCheckpoints:
        """The checkpoints, where one can be asked for now."""
        name, status = f"job {self._name!r}", self.status if self._ending is None else self._ending.status
        if self._storage is None:
            raise CheckpointError(f"{name} has no checkpoint storage; run it with checkpoints(storage=...)")
        if status.ended:
            raise CheckpointError(f"{name} has ended: it is {status.value}")
        if status is not JobStatus.RUNNING or self.checkpoints is None:
            raise CheckpointError(f"{name} is {status.value}; try again once it runs")
        if self._drain is not None or self.checkpoints.ends_the_job or self._awaits_last:
            how = "being drained" if self._drain is not None else "coming to its end"
            raise CheckpointError(f"{name} is {how}; its last checkpoint is the next")
        return self.checkpoints

    def _on_outcome(self, wanted: Wanted, outcome: str | CheckpointError) -> None:
        """What became of a checkpoint that somebody waits for."""
        failed = isinstance(outcome, CheckpointError)
        match wanted.purpose:
            case Purpose.ANSWER:
                self._requests.answer(wanted.request, outcome)
            case Purpose.STOP | Purpose.DRAIN if not failed:
                self._requests.promise(wanted.request, str(outcome))
            case Purpose.STOP:
                self._requests.answer(wanted.request, outcome)
            case Purpose.DRAIN if self._drain is not None and self._ending is None:
                self._recover(None, CheckpointError(f"the savepoint of the drain could not be taken: {outcome}"))
            case Purpose.LAST if failed:
                self._last_due = self._now.monotonic + RETRY_SECONDS
            case Purpose.RESCALE:
                latest = None if self.checkpoints is None else self.checkpoints.latest
                self._said += self._rescaling.on_checkpoint(outcome, latest)

    # Rescaling

    def _ask_for_rescale(self, request: int, wanted: ParallelismRequest) -> None:
        checkpoints = self._with_checkpoints()
        assert self.layout is not None
        if not self._rescaling.ask(self._name, request, wanted, self.layout):
            return
        try:
            checkpoints.want(Wanted(SnapshotKind.CHECKPOINT, Purpose.RESCALE), self._now)
        except CheckpointError as error:
            self._rescaling.refuse(error)

    def _stop_for_rescale(self) -> None:
        """Stop all subtasks; the job is restored from the newest checkpoint with as many as are wanted now."""
        assert self.layout is not None
        if self._restart is None and not self._interrupt(JobError("the job is rescaled")):
            return
        layout, wanted = self._rescaling.stop(self._now.monotonic, self.layout)
        if self.restarts.current is None:
            self.restarts.on_rescale(wanted, layout.places, self._now)
        self._restart_behind(0.0, self.layout.places)
        assert self._restart is not None
        self._restart.places, self._restart.layout = set(layout.places), layout

    # The end of the job

    def _end(
        self,
        status: JobStatus,
        error: PenstockError | None = None,
        unexplained: _Subtask | None = None,
        *,
        retains: bool = False,
        writes: bool = True,
    ) -> None:
        if self._ending is not None:
            self._ending.writes &= writes
            return
        self.error = error
        retains |= status is JobStatus.FAILED
        retains |= status is JobStatus.CANCELLED and self._config.checkpoints.retain_on_cancel
        self._ending = Ending(status, error, retains, writes and self._storage is not None, unexplained)
        self._restart = None
        if self.checkpoints is not None:
            self.checkpoints.end_attempt(self._now, AbortReason.JOB_ENDED)

    def _on_end_written(self, problem: str) -> None:
        if self._ending is not None:
            self._ending.on_written()
        if problem:
            # The job has ended as it has; what is left costs storage, and is begun again only if this manager dies.
            self._said.append(say.Warn(f"the end of job {self._name!r} could not be written down: {problem}"))

    def _tell_end(self, ending: Ending) -> None:
        ending.on_told()
        self.error = ending.error
        self.status, self.since_ms = ending.status, self._now.ms
        self._drain = None
        self._rescaling.forget()
        self._requests.answer_all(self._name, ending.status, ending.error)
        self._said.append(say.End(ending.status, ending.error))

    def _move(self, status: JobStatus) -> None:
        if status is not self.status:
            self.status = transition(self.status, status)
            self.since_ms = self._now.ms
