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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.checkpointing.coordinator import CheckpointCoordinator
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.instructions import AbortReason, Place
from penstock.engine.checkpointing.store import Claim
from penstock.engine.config import JobConfig
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError, ClusterError, FencedError, JobError, PenstockError
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.attempts import Attempts, Deployment
from penstock.engine.job.checkpoints import JobCheckpoints, Purpose, Wanted
from penstock.engine.job.ending import Ending
from penstock.engine.job.failover import (
    ATTEMPTS,
    RETRY_SECONDS,
    TERMINAL_ERRORS,
    RestartPolicy,
    default_strategy,
)
from penstock.engine.job.layout import Layout, Planner, taken_parallelism
from penstock.engine.job.requests import Requests
from penstock.engine.job.restarts import Restart, RestartLog
from penstock.engine.job.status import JobStatus, transition

_Subtask: TypeAlias = tuple[Place, int]
"""A subtask and its attempt."""


@dataclass(frozen=True, slots=True)
class Storage:
    """That a job has a folder for checkpoints.

    Args:
        job_id: names it.
        start: what a job without a checkpoint of its own is restored from: the user's savepoint.
    """

    job_id: str
    start: CompletedCheckpoint | None = None


@dataclass(slots=True)
class _Restart:
    """Subtasks are to start anew: not before `due`, nor before all that ran has ended.

    Args:
        places: which.
        due: monotonic seconds.
        layout: another than the one that runs, where the job is rescaled.
    """

    places: set[Place]
    due: float
    layout: Layout | None = None


@dataclass(slots=True)
class _Rescale:
    """Somebody wants another parallelism.

    Args:
        request: who.
        parallelism: which.
        layout: once the checkpoint that it needs is there, and processes are being prepared for it.
        prepared: whether they are.
        stopped: when the job was stopped for it.
        before: the layout that ran then.
    """

    request: int
    parallelism: int
    layout: Layout | None = None
    prepared: bool = False
    stopped: float | None = None
    before: Layout | None = None


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
        planner: plans it at a parallelism.
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
        self._restart: _Restart | None = None
        self._unexplained: dict[_Subtask, tuple[Restart, str]] = {}
        self._rescale: _Rescale | None = None
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
                self._on_unclaimed(error)
            case ev.Deployed(attempt, are_open):
                self._on_deployed(attempt, are_open)
            case ev.DeployFailed(attempt, error):
                self._on_deploy_failed(attempt, error)
            case ev.Cancelled(number):
                self.attempts.on_cancelled(number)
            case ev.RowsCame(place, attempt):
                self._on_rows(place, attempt)
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
                self._on_prepared(request)
            case ev.PrepareFailed(request, error):
                self._on_prepare_failed(request, error)
            case ev.Ticked():
                if self.checkpoints is not None and self._ending is None:
                    self.checkpoints.tick(self._now)
            case _:
                self._on_checkpoint_event(event)

    def _on_checkpoint_event(self, event: ev.Event) -> None:
        checkpoints = self.checkpoints
        assert checkpoints is not None, "no job without a folder has checkpoints"
        match event:
            case ev.Acknowledged():
                checkpoints.acknowledge(event, self._now)
            case ev.Declined():
                checkpoints.decline(event, self._now)
            case ev.Stored(number, url):
                checkpoints.on_stored(number, url, self._now)
            case ev.StoreFailed(number, error):
                self._on_store_failed(checkpoints, number, error)
            case ev.Committed(number, place, attempt):
                if self.attempts.is_current(place, attempt):
                    checkpoints.on_committed(number, place)

    def _on_store_failed(self, checkpoints: JobCheckpoints, number: int, error: PenstockError) -> None:
        if not isinstance(error, FencedError):
            checkpoints.on_store_failed(number, str(error), self._now)
            return
        checkpoints.on_fenced(number)
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
        rescale, now = self._rescale, self._now.monotonic
        if rescale is not None and rescale.prepared and rescale.stopped is None and self.attempts.deployment is None:
            self._stop_for_rescale(rescale)
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
        config, job_id = self._config, self._storage.job_id
        coordinator = CheckpointCoordinator(
            config.checkpoints, job_id, self._name, config.max_parallelism, claim.next_checkpoint, claim.retained
        )
        self.checkpoints = JobCheckpoints(
            coordinator,
            claim.epoch,
            self.restarts,
            self._said.append,
            self._on_outcome,
            lambda error: self._on_failure(ev.TaskFailed(None, 0, error)),
        )
        self.attempts.number = claim.epoch * ATTEMPTS
        latest = coordinator.latest
        if latest is not None and latest.story is not None:
            self.restarts.resume_from(latest.story)
        if claim.ended is not None or claim.message:
            self._find_ended(claim)
        elif self._ending is None:
            self._plan_and_deploy(latest)

    def _on_unclaimed(self, error: PenstockError) -> None:
        if self._ending is None:
            self._end(JobStatus.FAILED, error)
        assert self._ending is not None
        self._ending.writes = False

    def _find_ended(self, claim: Claim) -> None:
        """The job has ended under a manager before, which may not have removed what was not to be kept."""
        if self._ending is not None:
            self._ending.writes = False
            return
        status = JobStatus.FAILED if claim.message or claim.ended is None else JobStatus(claim.ended)
        unknown = "the job failed; the job manager that knew why has died since" if status is JobStatus.FAILED else ""
        message = claim.message or unknown
        self._end(status, JobError(message) if message else None)

    def _plan_and_deploy(self, latest: CompletedCheckpoint | None) -> None:
        try:
            parallelism = None if latest is None else taken_parallelism(self._planner, latest)
            self.layout = self._plan(parallelism)
        except PenstockError as error:
            self._end(JobStatus.FAILED, error)
            return
        if self.attempts.number > ATTEMPTS:
            self.restarts.on_takeover(self.layout.places, self._began)
        self._deploy(self.layout.places)

    def _plan(self, parallelism: int | None) -> Layout:
        latest = None if self.checkpoints is None else self.checkpoints.latest
        if latest is None and self._storage is not None:
            latest = self._storage.start
        return self._planner.plan(parallelism, latest.split_parallelism if latest is not None else {})

    # Attempts

    @property
    def _all_places(self) -> list[Place]:
        assert self.layout is not None
        return self.layout.places

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
        rescale = self._rescale
        if rescale is not None and rescale.stopped is not None:
            self._rescale = self.restarts.current = None
            self._requests.answer(rescale.request, error)
            if isinstance(error, ClusterError):
                # There was room for what ran before.
                self.layout = rescale.before
                error = JobError(f"the job could not be rescaled: {error}")
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
        rescale = self._rescale
        if rescale is not None and rescale.stopped is not None:
            self._rescale = None
            self._requests.answer(rescale.request, self._now.monotonic - rescale.stopped)

    def _on_rows(self, place: Place, attempt: int) -> None:
        assert self.layout is not None
        if self.attempts.is_current(place, attempt) and self.layout.task(place[0]).is_end:
            self.restarts.on_rows(attempt, self._now.monotonic)

    # Failures

    def _on_failure(self, failure: ev.TaskFailed) -> None:
        place = failure.place
        if self._ending is not None or (place is not None and not self.attempts.is_current(place, failure.attempt)):
            return
        if self.attempts.deployment is not None:
            self._on_failed_deployment(self.attempts.deployment, failure)
            return
        unexplained = None if failure.is_explained or place is None else (place, failure.attempt)
        self._recover(place, failure.error, unexplained)

    def _on_failed_deployment(self, deployment: Deployment, failure: ev.TaskFailed) -> None:
        deployment.failures.append(failure)
        if deployment.awaits_failure:
            self._on_deployed(deployment.attempt, are_open=False)

    def _recover(self, place: Place | None, error: PenstockError, unexplained: _Subtask | None = None) -> None:
        """Restart what has failed, if the restart strategy allows that; or else end the job."""
        region = self._region(place)
        if not self._interrupt(error):
            return
        delay = None if self._is_terminal(error) else self._policy.on_failure(self._now.monotonic)
        if delay is None:
            self._end(JobStatus.FAILED, error, unexplained=unexplained)
            return
        self._said.append(
            say.Warn(f"job {self._name!r} failed and is restarted (restart-strategy.type sets how often): {error}")
        )
        self.error = error
        self._note_failure(error, region, unexplained)
        self._restart_behind(delay, region)

    def _is_terminal(self, error: PenstockError) -> bool:
        never_ran = not self._has_run and self.attempts.number <= ATTEMPTS + 1
        return isinstance(error, TERMINAL_ERRORS) or (isinstance(error, ClusterError) and never_ran)

    def _note_failure(self, error: PenstockError, region: Sequence[Place], unexplained: _Subtask | None) -> None:
        record = self.restarts.on_failure(str(error), region, self._now)
        if unexplained is not None:
            self._unexplained[unexplained] = record, str(error)

    def _region(self, place: Place | None) -> Sequence[Place]:
        # While the job is drained, a region that resumed would be at its end, and the other in the middle.
        if place is None or self._drain is not None:
            return self._all_places
        assert self.layout is not None
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
            self._restart = _Restart(set(places), due)
        else:
            self._restart.places.update(places)
            self._restart.due = max(self._restart.due, due)

    @property
    def _may_restart(self) -> bool:
        """Whether nothing but time is in the way of a restart."""
        prepares = self._rescale is not None and self._rescale.layout is not None and not self._rescale.prepared
        stored = self.checkpoints is None or self.checkpoints.settled
        return stored and not prepares and not self.attempts.is_changing

    def _begin_restart(self, restart: _Restart) -> None:
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
        if (noted := self._unexplained.pop(key, None)) is not None:
            record, text = noted
            record.cause = str(event.error) + record.cause.removeprefix(text)
            self._said.append(say.Warn(f"job {self._name!r}: {event.error}"))

    # The end of the input

    @property
    def _awaits_last(self) -> bool:
        """Whether all subtasks have emitted everything, and the checkpoint that ends the job has yet to be taken."""
        is_over = self.layout is not None and len(self.attempts.finished) == len(self._all_places)
        runs = self.status is JobStatus.RUNNING and self._restart is None and self.attempts.deployment is None
        return is_over and runs and not (self.checkpoints is not None and self.checkpoints.ends_the_job)

    def _take_last(self) -> None:
        """A last checkpoint commits what sinks hold back, then the job ends."""
        assert self.layout is not None
        checkpoints, drain = self.checkpoints, self._drain
        commits = self._config.checkpoints.enabled or self.layout.commits_last
        if checkpoints is None or not (commits or drain is not None):
            self._end(JobStatus.FINISHED)
            return
        wanted = Wanted(SnapshotKind.CHECKPOINT, Purpose.LAST)
        if drain is not None:
            wanted = Wanted(SnapshotKind.SUSPEND, Purpose.DRAIN, drain.folder, drain.request)
        try:
            checkpoints.want(wanted, self._now)
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
                case ev.RescaleJob(parallelism):
                    self._ask_for_rescale(request, parallelism)
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
            match command:
                case ev.TakeSavepoint():
                    wanted = Wanted(SnapshotKind.SAVEPOINT, Purpose.ANSWER, event.folder, event.request)
                    checkpoints.want(wanted, self._now)
                case ev.StopJob():
                    wanted = Wanted(SnapshotKind.SUSPEND, Purpose.STOP, event.folder, event.request)
                    checkpoints.want(wanted, self._now)
                case ev.DrainJob():
                    checkpoints.drain(self._now)
                    self._drain = _Drain(event.request, event.folder)
                    self._said.append(say.EndInput())
        except CheckpointError as error:
            self._requests.answer(event.request, error)

    def _with_checkpoints(self) -> JobCheckpoints:
        """The checkpoints, where one can be asked for now."""
        if self._storage is None:
            raise CheckpointError(f"job {self._name!r} has no checkpoint storage; run it with checkpoints(storage=...)")
        status = self.status if self._ending is None else self._ending.status
        if status.ended:
            raise CheckpointError(f"job {self._name!r} has ended: it is {status.value}")
        if status is not JobStatus.RUNNING or self.checkpoints is None:
            raise CheckpointError(f"job {self._name!r} is {status.value}; try again once it runs")
        if self._drain is not None:
            raise CheckpointError(f"job {self._name!r} is being drained; its last checkpoint is the next")
        if self.checkpoints.ends_the_job or self._awaits_last:
            raise CheckpointError(f"job {self._name!r} is coming to its end; its last checkpoint is the next")
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
                self._on_rescale_checkpoint(outcome)

    # Rescaling

    def _ask_for_rescale(self, request: int, parallelism: int) -> None:
        checkpoints = self._with_checkpoints()
        if self._rescale is not None:
            raise JobError(
                f"job {self._name!r} is being rescaled to {self._rescale.parallelism}; try again behind that"
            )
        if self._plan(parallelism).places == self._all_places:
            self._requests.answer(request, 0.0)
            return
        self._rescale = _Rescale(request, parallelism)
        try:
            checkpoints.want(Wanted(SnapshotKind.CHECKPOINT, Purpose.RESCALE), self._now)
        except CheckpointError:
            self._rescale = None
            raise

    def _on_rescale_checkpoint(self, outcome: str | CheckpointError) -> None:
        rescale, checkpoints = self._rescale, self.checkpoints
        if rescale is None or checkpoints is None:
            return
        latest = checkpoints.latest
        if isinstance(outcome, CheckpointError) or latest is None:
            self._refuse_rescale(outcome if isinstance(outcome, CheckpointError) else CheckpointError("no checkpoint"))
            return
        try:
            rescale.layout = self._plan(rescale.parallelism)
        except PenstockError as error:
            self._refuse_rescale(error)
            return
        self._said.append(say.Prepare(rescale.request, rescale.layout, latest))

    def _refuse_rescale(self, error: PenstockError) -> None:
        rescale, self._rescale = self._rescale, None
        if rescale is not None:
            self._requests.answer(rescale.request, error)

    def _on_prepared(self, request: int) -> None:
        if self._rescale is not None and self._rescale.request == request:
            self._rescale.prepared = True

    def _on_prepare_failed(self, request: int, error: PenstockError) -> None:
        if self._rescale is not None and self._rescale.request == request:
            self._refuse_rescale(error)

    def _stop_for_rescale(self, rescale: _Rescale) -> None:
        """Stop all subtasks; the job resumes from the newest checkpoint with as many as are wanted now."""
        assert rescale.layout is not None
        layout, running = rescale.layout, self._all_places
        if self._restart is None and not self._interrupt(JobError("the job is rescaled")):
            return
        rescale.stopped, rescale.before = self._now.monotonic, self.layout
        if self.restarts.current is None:
            self.restarts.on_rescale(rescale.parallelism, layout.places, self._now)
        self._restart_behind(0.0, running)
        assert self._restart is not None
        self._restart.places, self._restart.layout = set(layout.places), layout

    # The end of the job

    def _end(
        self,
        status: JobStatus,
        error: PenstockError | None = None,
        retains: bool = False,
        unexplained: _Subtask | None = None,
    ) -> None:
        if self._ending is not None:
            return
        self.error = error
        retains |= status is JobStatus.FAILED
        retains |= status is JobStatus.CANCELLED and self._config.checkpoints.retain_on_cancel
        self._ending = Ending(status, error, retains, self._storage is not None, unexplained)
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
        self._rescale = self._drain = None
        self._requests.answer_all(self._name, ending.status, ending.error)
        self._said.append(say.End(ending.status, ending.error))

    def _move(self, status: JobStatus) -> None:
        if status is not self.status:
            self.status = transition(self.status, status)
            self.since_ms = self._now.ms
