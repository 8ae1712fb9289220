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
from collections.abc import Sequence

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.store import Claim
from penstock.engine.config import JobConfig
from penstock.engine.errors import CheckpointError, FencedError, JobError, PenstockError
from penstock.engine.graph.scale import Scale
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.attempts import Attempts
from penstock.engine.job.checkpoints import JobCheckpoints, Purpose, Storage, Wanted
from penstock.engine.job.commands import Commands
from penstock.engine.job.ending import CLOSING_SECONDS
from penstock.engine.job.failover import ATTEMPTS, RestartPolicy, default_strategy
from penstock.engine.job.finish import Finish
from penstock.engine.job.layout import Layout, Planner, taken_scale
from penstock.engine.job.life import Life
from penstock.engine.job.live_rescale import LiveRescale
from penstock.engine.job.recovery import Recovery
from penstock.engine.job.rescaling import Rescaling
from penstock.engine.job.restarts import RestartLog
from penstock.engine.job.status import JobStatus


class JobBrain:
    """Decides about one job under one manager.

    Args:
        name: of the job.
        config: its settings.
        planner: plans it at a scale.
        chosen: the random numbers of restart delays.
        storage: None: the job takes no checkpoints, and cannot.

    Rules, in addition to those of `CheckpointCoordinator`:
        A failure restarts its region, or the whole job, as often as the restart strategy allows; while the job is
        drained, always the whole job.
        A restart waits for manifests that are being written: one may make a newer checkpoint count.
        A drain is whole or has not happened: until its savepoint is complete no checkpoint is, so whatever fails, in
        this manager or by its death, the job resumes from before the drain. Where the savepoint itself cannot be taken,
        it does so at once.
        Behind a complete savepoint that stops the job it never runs again; a failure there ends it, and says so.
        A rescale or move that is ready while the job is stopped, drained or at its end waits for what becomes of that.
        Subtasks on nodes that are about to leave move to others at a checkpoint, behind which the old ones do nothing.
        For a job that has run before, missing room on the cluster is a failure like another; where it is allowed to, it
        restarts with as many subtasks as there is room for, and gets the others back by a rescale once there is room.

    Attributes:
        deadline: when a `Ticked` has something to do, monotonic seconds; may be past. None: not before another event.
        ended: whether the job has ended, and nothing is left to be done for it.

    Shells ask for these at each step, and only an event changes them.
    """

    def __init__(
        self, name: str, config: JobConfig, planner: Planner, chosen: random.Random, storage: Storage | None
    ) -> None:
        self._life = life = Life(name, config, planner, storage)
        self._planner = planner
        self._rescaling = Rescaling(life.requests, planner, life.plan)
        self._live = LiveRescale(life, self._rescaling)
        self._recovery = Recovery(life, RestartPolicy(default_strategy(config), chosen), self._rescaling, self._live)
        self._finish = Finish(life)
        self._commands = Commands(life, self._finish, self._rescaling)
        self._began = life.now
        self.deadline: float | None = None
        self.ended = False

    # What there is

    @property
    def status(self) -> JobStatus:
        """Where the job is in its life."""
        return self._life.status

    @property
    def runs(self) -> bool:
        """Whether all subtasks run."""
        return self._life.status is JobStatus.RUNNING

    @property
    def is_coming_back(self) -> bool:
        """Whether it does not run, and has not ended: what only a running job can do, such as a savepoint, may wait."""
        return not self.runs and not self.ended

    @property
    def is_beginning(self) -> bool:
        """Whether it has yet to run for the first time under this manager, or to end."""
        return self._life.status in (JobStatus.CREATED, JobStatus.DEPLOYING) and not self.ended

    @property
    def has_finished(self) -> bool:
        """Whether it has come to its end as it should: all rows for the client are final."""
        return self._life.status is JobStatus.FINISHED

    @property
    def closing_seconds(self) -> float:
        """How long (seconds) subtasks may take to be closed as the job ends, before their processes are killed."""
        ending = self._life.ending
        return CLOSING_SECONDS if ending is None else ending.closing_seconds

    @property
    def is_whole(self) -> bool:
        """Whether all subtasks run, and none is being replaced while the others do."""
        attempts = self._life.attempts
        return self.runs and attempts.pending is None and attempts.deployment is None

    def runs_anew(self, seen: int) -> bool:
        """Whether it runs an attempt behind number `seen`."""
        return self.is_whole and self._life.attempts.number > seen

    @property
    def changing(self) -> str | None:
        """The rescale or move that is under way, in words: from the request until all run again."""
        return None if self.ended else self._rescaling.wanted

    @property
    def since_ms(self) -> int:
        """Since when it is there, civil ms."""
        return self._life.since_ms

    @property
    def error(self) -> PenstockError | None:
        """Why it fails, is being restarted or has failed; None: nothing is wrong."""
        return self._life.error

    @property
    def layout(self) -> Layout | None:
        """What runs, or is to run; None before it is planned."""
        return self._life.layout

    @property
    def attempts(self) -> Attempts:
        """Which subtask runs what."""
        return self._life.attempts

    @property
    def restarts(self) -> RestartLog:
        """Those of the job so far."""
        return self._life.restarts

    @property
    def checkpoints(self) -> JobCheckpoints | None:
        """Its checkpoints; None before the job's folder has been taken over."""
        return self._life.checkpoints

    @property
    def completed(self) -> int:
        """The newest checkpoint that counts, 0 for none: rows for the client that belong to it are final."""
        checkpoints = self._life.checkpoints
        if checkpoints is None:
            return 0
        return checkpoints.final_rows if self.ended else checkpoints.completed

    @property
    def was_drained(self) -> bool:
        """Whether the job has finished because its sources were made to end."""
        return self.has_finished and self._life.drain is not None

    @property
    def kept(self) -> CompletedCheckpoint | None:
        """The newest checkpoint, unless it went with the job."""
        checkpoints, ending = self._life.checkpoints, self._life.ending
        discarded = ending is not None and ending.is_reported and not ending.retains
        return None if discarded or checkpoints is None else checkpoints.latest

    def _next_deadline(self) -> float | None:
        checkpoints = self._life.checkpoints
        if self._life.ending is not None:
            return None
        taken = None if checkpoints is None else checkpoints.deadline
        if self._is_steady:
            return taken
        times = (taken, self._recovery.deadline, self._finish.deadline)
        return min((time for time in times if time is not None), default=None)

    # Events

    def handle(self, event: ev.Event, now: ev.Moment) -> Sequence[say.Instruction]:
        """Something has happened: what is to be done, in this order.

        Args:
            event: what.
            now: when.
        """
        life = self._life
        life.now = now
        match event:
            case ev.Acknowledged() | ev.Declined() | ev.Stored() | ev.Committed():
                self._on_checkpoint(event)
            case ev.Ticked():
                self._on_tick()
            case _:
                self._handle(event)
        if not self._is_steady:
            self._proceed()
        self.deadline = self._next_deadline()
        said = tuple(life.said)
        life.said.clear()
        return said

    @property
    def _is_steady(self) -> bool:
        """Whether the job just runs, and does not end, restart or change: nothing more is made possible by an event.

        So it is nearly always, and each of ten thousand subtasks acknowledges each checkpoint.
        """
        life = self._life
        if life.status is not JobStatus.RUNNING or life.ending is not None or self._rescaling.is_under_way:
            return False
        attempts, layout, checkpoints = life.attempts, life.layout, life.checkpoints
        changes = attempts.pending is not None or attempts.deployment is not None
        ends = len(attempts.finished) == len(attempts.deployed) or (
            checkpoints is not None and checkpoints.ends_the_job
        )
        is_small = layout is None or layout.scale.most is not None
        return not (changes or ends or is_small or self._commands.holds_any)

    def _proceed(self) -> None:
        """Do what an event has made possible."""
        life = self._life
        if life.ending is None:
            self._recovery.proceed()
        if life.ending is None:
            self._commands.proceed()
            self._finish.proceed()
        life.proceed_to_end()
        self.ended = life.ended

    def _on_tick(self) -> None:
        checkpoints, now = self._life.checkpoints, self._life.now
        if checkpoints is not None and self._life.ending is None:
            if self._rescaling.preloading is not None:
                checkpoints.postpone(now)
            checkpoints.tick(now)

    def _on_checkpoint(self, event: ev.Acknowledged | ev.Declined | ev.Stored | ev.Committed) -> None:
        life = self._life
        assert life.checkpoints is not None, "only a job whose folder is claimed has checkpoints"
        if not isinstance(event, ev.Committed) or life.attempts.is_current(event.place, event.attempt):
            life.checkpoints.handle(event, life.now)

    def _handle(self, event: ev.Event) -> None:
        """What does not happen all the time."""
        life = self._life
        match event:
            case ev.Began():
                self._on_began()
            case ev.Claimed(claim):
                self._on_claimed(claim)
            case ev.ClaimFailed(error):
                life.end(JobStatus.FAILED, error, writes=False)
            case ev.Deployed(attempt, are_open):
                self._recovery.on_deployed(attempt, are_open)
            case ev.DeployFailed(attempt, error, room):
                self._recovery.on_deploy_failed(attempt, error, room)
            case ev.Cancelled(number):
                life.attempts.on_cancelled(number)
            case ev.RowsCame(place, attempt):
                is_end = life.layout is not None and life.layout.task(place[0]).is_end
                if is_end and life.attempts.is_current(place, attempt):
                    life.restarts.on_rows(attempt, life.now.monotonic)
            case ev.TaskFinished(place, attempt):
                life.attempts.on_finished(place, attempt)
            case ev.TaskFailed():
                self._recovery.on_failure(event)
            case ev.Explained():
                self._recovery.on_explained(event)
            case ev.TakenDown(problem):
                if life.ending is not None:
                    life.ending.on_taken_down(problem)
            case ev.EndWritten(problem):
                life.on_end_written(problem)
            case ev.Asked(request, command):
                self._commands.on_asked(request, command)
            case ev.FolderChecked() | ev.FolderRefused():
                self._commands.on_folder(event)
            case ev.Prepared(request):
                self._rescaling.on_prepared(request)
            case ev.PrepareFailed(request, error):
                self._rescaling.on_prepare_failed(request, error)
            case ev.Preloaded(request, checkpoint):
                if life.ending is None:
                    self._live.on_preloaded(request, checkpoint)
            case ev.Leaving(places):
                self._commands.on_leaving(places)
            case ev.RoomFound():
                self._recovery.shortage.on_room()
                self._commands.on_room()
            case ev.StoreFailed(number, error):
                self._on_store_failed(number, error)

    # The beginning

    def _on_began(self) -> None:
        life = self._life
        self._began = life.now
        if life.ending is None:
            life.move(JobStatus.DEPLOYING)
            if life.storage is None:
                self._plan_and_deploy(None)
        if life.storage is not None:
            life.said.append(say.TakeOver())

    def _on_claimed(self, claim: Claim) -> None:
        life = self._life
        assert life.storage is not None
        life.checkpoints = JobCheckpoints(
            life.storage.coordinator(life.name, life.config, claim),
            claim,
            life.restarts,
            life.said.append,
            self._on_gathered,
            self._on_outcome,
            lambda error: self._recovery.on_failure(ev.TaskFailed(None, 0, error)),
        )
        life.attempts.number = claim.epoch * ATTEMPTS
        latest = life.checkpoints.latest
        if latest is not None and latest.story is not None:
            life.restarts.resume_from(latest.story)
        if claim.ended is not None or claim.message:
            self._find_ended(claim)
        elif life.ending is None:
            self._plan_and_deploy(latest)

    def _find_ended(self, claim: Claim) -> None:
        """The job has ended under a manager before, which may not have removed what was not to be kept."""
        status = JobStatus.FAILED if claim.message or claim.ended is None else JobStatus(claim.ended)
        unknown = "the job failed; the job manager that knew why has died since" if status is JobStatus.FAILED else ""
        message = claim.message or unknown
        error = JobError(message) if message else None
        self._life.end(status, error, retains=claim.retains, writes=self._life.ending is None)

    def _plan_and_deploy(self, latest: CompletedCheckpoint | None) -> None:
        life = self._life
        try:
            life.layout = life.plan(Scale() if latest is None else taken_scale(self._planner, latest))
        except PenstockError as error:
            life.end(JobStatus.FAILED, error)
            return
        if life.attempts.number > ATTEMPTS:
            life.restarts.on_takeover(life.layout.places, self._began)
        self._recovery.deploy(life.layout.places)

    # Checkpoints

    def _on_store_failed(self, number: int, error: PenstockError) -> None:
        life = self._life
        assert life.checkpoints is not None, "manifests are those of a job with a folder"
        if not isinstance(error, FencedError):
            life.checkpoints.on_store_failed(number, str(error), life.now)
            return
        life.checkpoints.on_fenced(number)
        if life.ending is None:
            self._recovery.recover(None, error)
        else:
            life.ending.error = error

    def _on_gathered(self, wanted: Wanted, checkpoint: CompletedCheckpoint) -> None:
        """All parts of a checkpoint that somebody waits for are there; its manifest is not."""
        if wanted.purpose is Purpose.SWITCH and self._life.ending is None:
            self._live.on_gathered(checkpoint)

    def _on_outcome(self, wanted: Wanted, outcome: str | CheckpointError) -> None:
        """What became of a checkpoint that somebody waits for."""
        life, failed = self._life, isinstance(outcome, CheckpointError)
        match wanted.purpose:
            case Purpose.ANSWER:
                life.requests.answer(wanted.request, outcome)
            case Purpose.STOP | Purpose.DRAIN if not failed:
                life.requests.promise(wanted.request, str(outcome))
            case Purpose.STOP:
                life.requests.answer(wanted.request, outcome)
            case Purpose.DRAIN if life.drain is not None and life.ending is None:
                refused = CheckpointError(f"the savepoint of the drain could not be taken: {outcome}")
                self._recovery.recover(None, refused)
            case Purpose.LAST if failed:
                self._finish.on_last_failed()
            case Purpose.RESCALE if life.ending is None:
                latest = None if life.checkpoints is None else life.checkpoints.latest
                life.said += self._rescaling.on_checkpoint(outcome, latest)
            case Purpose.PRELOAD if life.ending is None:
                self._live.on_preload_checkpoint(outcome)
            case Purpose.SWITCH if life.ending is None:
                self._live.on_checkpoint(outcome)
