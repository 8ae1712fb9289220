"""The moment of a live rescale: a checkpoint behind which single tasks are replaced while all others run on.

Before it, those who will own the state take in what is there (`Preload`), again and again as long as that gets shorter:
so behind that checkpoint they read only what has changed since. Whatever becomes of that, nothing is decided by it.

The brain tells it what became of checkpoints, and `Recovery` when all is prepared. Until the checkpoint counts the
job is in its old layout, from then on in the new one; there is no mixture.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.engine.job.attempts import PendingRestart
from penstock.engine.job.checkpoints import JobCheckpoints, Purpose, Wanted
from penstock.engine.job.life import Life
from penstock.engine.job.rescaling import Preloading, Rescaling
from penstock.engine.job.status import JobStatus

MOST_ROUNDS: Final = 4
"""How often state is taken in before tasks stop."""
SHORT_SECONDS: Final = 0.25
"""What has changed within so short a time is read while they stand still."""
SHORTER: Final = 0.7
"""Of what the time before took; or else it would not get shorter."""


class LiveRescale:
    """Replaces tasks of one job.

    Args:
        life: of the job.
        rescaling: the rescale that it is for; where it cannot be live, it is done by a restart.
    """

    def __init__(self, life: Life, rescaling: Rescaling) -> None:
        self._life = life
        self._rescaling = rescaling

    def begin(self) -> None:
        """All is prepared: have what is there taken in by those who will own it, while the job runs."""
        self._preload(1, math.inf)

    def _preload(self, rounds: int, before_s: float) -> None:
        checkpoints = self._life.checkpoints
        if checkpoints is None or not self._can_go_on():
            return
        now = self._life.now
        self._rescaling.begin_preload(Preloading(rounds, now.monotonic, before_s))
        try:
            checkpoints.want(Wanted(SnapshotKind.CHECKPOINT, Purpose.PRELOAD), now)
        except CheckpointError:
            self._begin_switch()

    def on_preload_checkpoint(self, outcome: str | CheckpointError) -> None:
        """What became of the checkpoint that is to be taken in: without it, all is read behind the one to come."""
        checkpoints, preloading = self._life.checkpoints, self._rescaling.preloading
        if preloading is None:
            return
        latest = None if checkpoints is None else checkpoints.latest
        if isinstance(outcome, CheckpointError) or latest is None:
            self._begin_switch()
        else:
            self._life.said.append(self._rescaling.preload(latest))

    def on_preloaded(self, request: int, checkpoint: int) -> None:
        """What was there has been taken in: once more, if much has changed meanwhile; or else the tasks stop."""
        preloading = self._rescaling.preloading
        if preloading is None or not self._rescaling.awaits_preload(request, checkpoint):
            return
        took = self._life.now.monotonic - preloading.began
        gets_shorter = took < SHORTER * preloading.before_s
        if preloading.rounds < MOST_ROUNDS and took > SHORT_SECONDS and gets_shorter:
            self._preload(preloading.rounds + 1, took)
        else:
            self._begin_switch()

    def check(self) -> None:
        """What is taken in for a job that has failed meanwhile is taken in for nothing: it restarts anyway."""
        if self._rescaling.preloading is not None:
            self._can_go_on()

    def _can_go_on(self) -> bool:
        life = self._life
        if life.attempts.pending is None and life.checkpoints is not None and life.status is JobStatus.RUNNING:
            return True
        self._rescaling.restart_instead("the job was restarted while it was prepared")
        return False

    def _begin_switch(self) -> None:
        """Have the tasks stop behind a checkpoint, which all others only pass."""
        life = self._life
        if life.checkpoints is None or not self._can_go_on():
            return
        replaced = self._rescaling.begin_switch(life.now)
        try:
            life.checkpoints.want(Wanted(SnapshotKind.CHECKPOINT, Purpose.SWITCH, replaced=replaced), life.now)
        except CheckpointError as error:
            self._rescaling.restart_instead(str(error))

    def on_gathered(self, checkpoint: CompletedCheckpoint) -> None:
        """Tasks have stopped: what has changed is taken in while the manifest is written, as it will count, mostly."""
        if self._rescaling.goes_live:
            self._life.said.append(self._rescaling.preload(checkpoint))

    def on_checkpoint(self, outcome: str | CheckpointError) -> None:
        """What became of the checkpoint: its URL, or why it was given up."""
        life, checkpoints = self._life, self._life.checkpoints
        latest = None if checkpoints is None else checkpoints.latest
        if isinstance(outcome, CheckpointError) or latest is None or checkpoints is None:
            self._rescaling.give_up_switch(str(outcome))
        elif life.attempts.pending is not None or checkpoints.latest_url != outcome:
            self._rescaling.give_up_switch("the job failed on the way")
        elif life.drain is not None:
            self._rescaling.give_up_switch("the job was drained meanwhile")
        elif self._leaves_an_end(latest):
            self._rescaling.give_up_switch("some of its subtasks had come to their end")
        else:
            self._replace(checkpoints)

    def _leaves_an_end(self, latest: CompletedCheckpoint) -> bool:
        """Whether a subtask that is replaced had come to its end, which those that run on have been told."""
        replaced = [one for one in latest.subtasks if self._rescaling.replaces(one.task)]
        return len(replaced) < len(latest.subtasks) and any(one.finished for one in replaced)

    def _replace(self, checkpoints: JobCheckpoints) -> None:
        """End the old subtasks of the tasks that have stopped; new ones are deployed once they are gone."""
        life, attempts, running = self._life, self._life.attempts, self._life.layout
        assert running is not None, "it runs"
        change = self._rescaling.switch(running)
        layout = change.layout
        checkpoints.end_attempt(life.now)
        old, new = ([place for place in one.places if place[0] in change.replaced] for one in (running, layout))
        life.restarts.begin(change.kind, change.words, new, change.since)
        life.said += attempts.stop(old)
        attempts.forget(set(old) - set(new))
        life.layout = layout
        attempts.pending = PendingRestart(set(new), life.now.monotonic)
