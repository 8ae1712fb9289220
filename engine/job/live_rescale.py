"""The moment of a live rescale: a checkpoint behind which single tasks are replaced while all others run on.

The brain tells it what became of that checkpoint, and `Recovery` when all is prepared. Until the checkpoint counts the
job is in its old layout, from then on in the new one; there is no mixture.
"""

from __future__ import annotations

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.engine.job.attempts import PendingRestart
from penstock.engine.job.checkpoints import JobCheckpoints, Purpose, Wanted
from penstock.engine.job.life import Life
from penstock.engine.job.rescaling import Rescaling
from penstock.engine.job.status import JobStatus


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
        """All is prepared: have the tasks stop behind a checkpoint, which all others only pass."""
        life = self._life
        if life.attempts.pending is not None or life.checkpoints is None or life.status is not JobStatus.RUNNING:
            self._rescaling.restart_instead("the job was restarted while it was prepared")
            return
        replaced = self._rescaling.begin_switch(life.now)
        try:
            life.checkpoints.want(Wanted(SnapshotKind.CHECKPOINT, Purpose.SWITCH, replaced=replaced), life.now)
        except CheckpointError as error:
            self._rescaling.restart_instead(str(error))

    def on_checkpoint(self, outcome: str | CheckpointError) -> None:
        """What became of the checkpoint: its URL, or why it was given up."""
        life, checkpoints = self._life, self._life.checkpoints
        latest = None if checkpoints is None else checkpoints.latest
        if isinstance(outcome, CheckpointError) or latest is None or checkpoints is None:
            self._rescaling.restart_instead(str(outcome))
        elif life.attempts.pending is not None or checkpoints.latest_url != outcome:
            self._rescaling.restart_instead("the job failed on the way")
        elif life.drain is not None:
            self._rescaling.restart_instead("the job was drained meanwhile")
        elif self._leaves_an_end(latest):
            self._rescaling.restart_instead("some of its subtasks had come to their end")
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
