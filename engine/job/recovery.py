"""How a job is deployed, and gets over failures: which part of it starts anew, when, and from where.

The brain tells it what happens to subtasks. It says what is to be started and ended, and moves the job's life; how
often a job may restart says the `RestartPolicy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import CheckpointError, ClusterError, JobError, PenstockError
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.attempts import PendingRestart
from penstock.engine.job.failover import ATTEMPTS, TERMINAL_ERRORS, RestartPolicy
from penstock.engine.job.layout import Layout
from penstock.engine.job.life import Life
from penstock.engine.job.live_rescale import LiveRescale
from penstock.engine.job.rescaling import Rescaling
from penstock.engine.job.shortage import Shortage
from penstock.engine.job.status import JobStatus

_Subtask: TypeAlias = tuple[Place, int]
"""A subtask and its attempt."""


class Recovery:
    """Deploys one job, and restarts it.

    Args:
        life: of the job.
        policy: how often, and after which delay.
        rescaling: the rescale that a restart may be for.
        live: replaces single tasks instead.

    Attributes:
        shortage: where the job runs smaller than it should, as there is no room for more.
    """

    def __init__(self, life: Life, policy: RestartPolicy, rescaling: Rescaling, live: LiveRescale) -> None:
        self._life = life
        self._policy = policy
        self._rescaling = rescaling
        self._live = live
        self.shortage = Shortage(life, rescaling)
        self._has_run = False
        self._refusal: tuple[int, CheckpointError] | None = None
        """The answer to a drain, given once it is sure that its savepoint does not count."""

    @property
    def deadline(self) -> float | None:
        """When `proceed` has something to do, monotonic seconds; None: not before another event."""
        pending = self._life.attempts.pending
        return pending.due if pending is not None and self._may_restart else None

    def proceed(self) -> None:
        """Begin what has become possible."""
        life = self._life
        self._live.check()
        # A job that is told to end does so, rescaled or not.
        waits = life.is_about_to_end and self._rescaling.may_wait
        if self._rescaling.is_ready and life.attempts.deployment is None and not waits:
            if self._rescaling.goes_live:
                self._live.begin()
            if self._rescaling.is_ready:
                self._stop_for_rescale()
        pending = life.attempts.pending
        if pending is not None and self._may_restart and life.now.monotonic >= pending.due:
            self._begin_restart(pending)
        self.shortage.proceed()

    # Deployment

    def deploy(self, places: Iterable[Place]) -> None:
        """Start subtasks as a new attempt, from the newest checkpoint."""
        life = self._life
        assert life.layout is not None
        latest = None if life.checkpoints is None else life.checkpoints.latest
        epoch = 0 if life.checkpoints is None else life.checkpoints.epoch
        self.shortage.on_deploy()
        life.said.append(life.attempts.deploy(life.layout, places, latest, epoch))

    def on_deployed(self, attempt: int, are_open: bool) -> None:
        """All subtasks of a deployment are open, or a failure says why not."""
        deployment = self._life.attempts.deployment
        if deployment is not None and deployment.attempt == attempt and not are_open and not deployment.failures:
            deployment.awaits_failure = True
            return
        failures = self._life.attempts.end_deployment(attempt, deployed=True)
        if failures is None or self._life.ending is not None:
            return
        if not failures:
            self._on_running()
        for failure in failures:
            self.on_failure(failure)

    def on_deploy_failed(self, attempt: int, error: PenstockError, room: int | None) -> None:
        """Some subtasks of a deployment could not even be asked; `room`: as in the event."""
        life = self._life
        if life.attempts.end_deployment(attempt, deployed=False) is None or life.ending is not None:
            return
        assert life.layout is not None
        refused = life.layout
        failure, life.layout = self._rescaling.on_deploy_failed(error, refused)
        # What only the refused layout has would be waited for when the job finishes.
        given_up = set(refused.places) - set(life.layout.places)
        life.said += life.attempts.stop(given_up)
        life.attempts.forget(given_up)
        if failure is error:
            self.recover(None, error)
        elif self._interrupt(failure):
            # That a rescale found no room is no failure of the job, which may have no restarts left.
            life.said.append(say.Warn(f"job {life.name!r} is restarted as it was: {failure}"))
            self._restart(life.layout.places, failure, 0.0)
        smaller = None if life.attempts.pending is None else self.shortage.layout_for(room)
        if smaller is not None:
            self._restart_into(smaller)

    def _on_running(self) -> None:
        life, now = self._life, self._life.now.monotonic
        assert life.layout is not None
        life.move(JobStatus.RUNNING)
        life.error = None
        self._has_run = True
        self._policy.on_running(now)
        if life.checkpoints is not None:
            life.checkpoints.start_attempt(life.attempts.number, life.layout, life.now)
        if life.config.failover.restart is not None or life.config.checkpoints.enabled:
            life.said.append(say.FillStandbys())
        life.restarts.on_resumed(life.attempts.number, life.attempts.restored, now)
        self._rescaling.on_running(now)

    # Failures

    def on_failure(self, failure: ev.TaskFailed) -> None:
        """A subtask has failed, or the job as a whole; while subtasks are being started, it waits until they are."""
        attempts, place = self._life.attempts, failure.place
        if self._life.ending is not None or (place is not None and not attempts.is_current(place, failure.attempt)):
            return
        deployment = attempts.deployment
        if deployment is not None:
            deployment.failures.append(failure)
            if deployment.awaits_failure:
                self.on_deployed(deployment.attempt, are_open=False)
            return
        unexplained = None if failure.is_explained or place is None else (place, failure.attempt)
        self.recover(place, failure.error, unexplained)

    def recover(self, place: Place | None, error: PenstockError, unexplained: _Subtask | None = None) -> None:
        """Restart what has failed, if the restart strategy allows that; or else end the job."""
        life, region = self._life, self._region(place)
        if not self._interrupt(error):
            return
        never_ran = not self._has_run and life.attempts.number <= ATTEMPTS + 1
        is_terminal = isinstance(error, TERMINAL_ERRORS) or (isinstance(error, ClusterError) and never_ran)
        delay = None if is_terminal else self._policy.on_failure(life.now.monotonic)
        if delay is None:
            life.end(JobStatus.FAILED, error, unexplained=unexplained)
            return
        life.said.append(
            say.Warn(f"job {life.name!r} failed and is restarted (restart-strategy.type sets how often): {error}")
        )
        self._restart(region, error, delay, unexplained)

    def _restart(
        self, region: Sequence[Place], error: PenstockError, delay: float, unexplained: _Subtask | None = None
    ) -> None:
        life = self._life
        life.error = error
        life.restarts.on_failure(str(error), region, life.now, unexplained)
        self._restart_behind(delay, region)

    def on_explained(self, event: ev.Explained) -> None:
        """More has become known of why a subtask failed."""
        life, key = self._life, (event.place, event.attempt)
        life.attempts.on_explained(event.place, event.attempt, event.error)
        if life.ending is not None and life.ending.unexplained == key:
            life.ending.on_explained(event.error)
        if life.restarts.on_explained(key, str(event.error)):
            life.said.append(say.Warn(f"job {life.name!r}: {event.error}"))

    def _region(self, place: Place | None) -> Sequence[Place]:
        layout = self._life.layout
        assert layout is not None
        # While the job is drained, a region that resumed would be at its end, and the other in the middle.
        if place is None or self._life.drain is not None:
            return layout.places
        return sorted(next(region for region in layout.regions if place in region))

    def _interrupt(self, error: PenstockError) -> bool:
        """The attempt is over: nothing that was under way for it comes to an end. False: nor does the job run again."""
        life = self._life
        drain, life.drain = life.drain, None
        if drain is not None:
            refused = CheckpointError(f"the job failed while it was drained, and resumes from before that: {error}")
            self._refusal = (drain.request, refused)
        if life.checkpoints is None:
            return True
        life.checkpoints.end_attempt(life.now)
        if life.ends_as_suspended(error):
            return False
        if life.checkpoints.settled:
            self._refuse_drain()
        return True

    def _refuse_drain(self) -> None:
        """A drain has not happened, and cannot have: no savepoint of it is being written any more."""
        if self._refusal is not None:
            self._life.requests.answer(*self._refusal)
            self._refusal = None

    # Restarts

    def _restart_behind(self, delay: float, places: Sequence[Place]) -> None:
        life, attempts = self._life, self._life.attempts
        life.move(JobStatus.RESTARTING)
        life.said += attempts.stop(places)
        due = life.now.monotonic + delay
        if attempts.pending is None:
            attempts.pending = PendingRestart(set(places), due)
        else:
            if attempts.pending.layout is None:
                attempts.pending.places.update(places)
            attempts.pending.due = max(attempts.pending.due, due)

    @property
    def _may_restart(self) -> bool:
        """Whether nothing but time is in the way of a restart."""
        checkpoints = self._life.checkpoints
        stored = checkpoints is None or checkpoints.settled
        return stored and not self._rescaling.is_preparing and not self._life.attempts.is_changing

    def _begin_restart(self, restart: PendingRestart) -> None:
        life = self._life
        life.attempts.pending = None
        # A savepoint that was being written when the attempt ended may have stopped the job since.
        if life.ends_as_suspended(life.error):
            return
        self._refuse_drain()
        if restart.layout is not None:
            life.layout = restart.layout
            life.attempts.clear()
        self.deploy(restart.places)

    def _stop_for_rescale(self) -> None:
        """Stop all subtasks; the job is restored from the newest checkpoint with as many as are wanted now."""
        life = self._life
        assert life.layout is not None
        if life.attempts.pending is None and not self._interrupt(JobError("the job is rescaled")):
            return
        change = self._rescaling.stop(life.now, life.layout)
        if life.restarts.current is None:
            life.restarts.begin(change.kind, change.words, change.layout.places, life.now)
        self._restart_behind(0.0, life.layout.places)
        self._restart_into(change.layout)

    def _restart_into(self, layout: Layout) -> None:
        """The restart that is to come is that of the whole job, into another layout."""
        pending = self._life.attempts.pending
        assert pending is not None, "who asks for it has seen to that"
        pending.places, pending.layout = set(layout.places), layout
