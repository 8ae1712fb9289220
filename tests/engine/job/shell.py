"""A shell for tests of the brain: feeds it events one by one, and keeps what it says."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from penstock.engine.checkpoint_config import CheckpointConfig, FailoverConfig, FixedDelay
from penstock.engine.checkpointing.handles import CompletedCheckpoint, OperatorHandle, SubtaskHandle
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.store import Claim
from penstock.engine.config import LARGEST_MAX_PARALLELISM, JobConfig
from penstock.engine.errors import PenstockError, WorkerLostError
from penstock.engine.graph.scale import ParallelismRequest, Scale
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.checkpoints import Storage
from penstock.engine.job.layout import Layout, TaskLayout
from penstock.engine.job.log import StimulusLog

I = TypeVar("I", bound=say.Instruction)  # noqa: E741 - an instruction
DEAD = WorkerLostError("the process died")


class TwoTasks:
    """Plans a source and a sink behind it.

    Args:
        regions: whether each subtask is a region of its own with its counterpart.
        commits: whether the sink does.
        has_loop: whether rows come back, so that nothing is replaced while the rest runs on.
    """

    def __init__(self, regions: bool = False, commits: bool = True, has_loop: bool = False) -> None:
        self.regions = regions
        self.commits = commits
        self.has_loop = has_loop

    def plan(self, scale: Scale, split_parallelism: Mapping[str, int]) -> Layout:
        most = scale.most or LARGEST_MAX_PARALLELISM
        count = min(2 if scale.default is None else scale.default, most)
        sinks = min(dict(scale.operators).get("sink", count), most)
        tasks = (
            TaskLayout(1, "source", count, False, False, "s", split_parallelism.get("s", count)),
            TaskLayout(2, "sink", sinks, self.commits, True, None, 0),
        )
        pairs = [frozenset({(1, subtask), (2, subtask)}) for subtask in range(count)]
        places = frozenset((task.id, subtask) for task in tasks for subtask in range(task.parallelism))
        regions = pairs if self.regions else [places]
        return Layout(scale, tasks, tuple(regions), self.commits, self.has_loop)

    def scale_for(self, wanted: ParallelismRequest, running: Scale) -> Scale:
        if isinstance(wanted, Mapping):
            return Scale(running.default, tuple(wanted.items()))
        return Scale(wanted)


class Shell:
    """Runs a brain by hand.

    Attributes:
        said: all instructions so far, oldest first.
        new: those of the last event.
        log: of all events.
    """

    def __init__(
        self,
        planner: TwoTasks | None = None,
        *,
        interval_ms: int = 1000,
        restarts: int | None = 10,
        storage: bool = True,
        start: CompletedCheckpoint | None = None,
        min_parallelism: int | None = None,
        tolerable_failures: int = 0,
    ) -> None:
        restart = None if restarts is None else FixedDelay(restarts, 100)
        config = JobConfig(
            checkpoints=CheckpointConfig(interval_ms=interval_ms, tolerable_failures=tolerable_failures),
            failover=FailoverConfig(restart=restart, min_parallelism=min_parallelism),
        )
        folder = Storage("job-1", start) if storage else None
        self.log = StimulusLog("job", config, planner or TwoTasks(), random.Random(0), folder)
        self.brain = JobBrain("job", config, self.log.planner, self.log.chosen, folder)
        self.now = 0.0
        self.said: list[say.Instruction] = []
        self.new: Sequence[say.Instruction] = ()
        self._requests = 0

    def handle(self, *events: ev.Event) -> Sequence[say.Instruction]:
        """Tell the brain; what it says to the last event."""
        for event in events:
            moment = ev.Moment(self.now, round(self.now * 1000))
            self.new = self.brain.handle(event, moment)
            self.log.add(event, moment, self.new)
            self.said += self.new
        return self.new

    def wait(self, seconds: float) -> Sequence[say.Instruction]:
        """Let time pass."""
        self.now += seconds
        return self.handle(ev.Ticked())

    def last(self, kind: type[I]) -> I:
        """The newest instruction of a kind."""
        return next(one for one in reversed(self.said) if isinstance(one, kind))

    def count(self, kind: type[say.Instruction]) -> int:
        """How many of a kind there were."""
        return sum(isinstance(one, kind) for one in self.said)

    # Common stories

    def run(self, claim: Claim | None = None) -> Shell:
        """Begin, take over and deploy."""
        self.handle(ev.Began())
        if self.count(say.TakeOver):
            self.handle(ev.Claimed(claim or Claim(1, 1)))
        return self.deployed()

    def deployed(self) -> Shell:
        """What was told to be deployed runs."""
        self.handle(ev.Deployed(self.last(say.Deploy).attempt))
        return self

    def cancelled(self) -> Shell:
        """What was told to be cancelled runs no more."""
        self.handle(*[ev.Cancelled(one.number) for one in self.said if isinstance(one, say.Cancel)])
        return self

    def fail(self, place: Place | None = (2, 1), error: PenstockError = DEAD) -> Sequence[say.Instruction]:
        """A subtask fails."""
        attempt = 0 if place is None else self.brain.attempts.deployed[place][0]
        return self.handle(ev.TaskFailed(place, attempt, error))

    def restart(self) -> Shell:
        """What failed has ended, and runs again."""
        self.cancelled()
        self.wait(0.2)
        return self.deployed()

    def finish(self) -> Sequence[say.Instruction]:
        """All subtasks emit everything."""
        assert self.brain.layout is not None
        for place in self.brain.layout.places:
            self.handle(ev.TaskFinished(place, self.brain.attempts.deployed[place][0]))
        return self.new

    def ask(self, command: ev.Command) -> int:
        """A user asks for something; the number of the request."""
        self._requests += 1
        self.handle(ev.Asked(self._requests, command))
        return self._requests

    def answers(self, request: int) -> list[object]:
        """What was answered."""
        return [one.outcome for one in self.said if isinstance(one, say.Answer) and one.request == request]

    def acknowledge(self) -> say.WriteManifest:
        """All subtasks take their part in the newest checkpoint: its manifest is to be written."""
        inject = self.last(say.Inject)
        uids = {1: "source", 2: "sink"}
        for task, subtask in inject.places:
            parallelism = sum(place[0] == task for place in inject.places)
            handle = SubtaskHandle(task, subtask, parallelism, (OperatorHandle(uids[task], uids[task]),))
            self.handle(ev.Acknowledged(inject.barrier.checkpoint, (task, subtask), handle))
        return self.last(say.WriteManifest)

    def store(self) -> int:
        """The newest checkpoint is taken, and its manifest written; its number."""
        number = self.acknowledge().checkpoint.checkpoint
        self.handle(ev.Stored(number, f"memory://{number}"))
        return number

    def preloaded(self) -> Shell:
        """The state of a live rescale is taken in: the checkpoint is under way behind which its tasks stop."""
        self.store()
        preload = self.last(say.Preload)
        self.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
        return self

    def commit(self) -> Sequence[say.Instruction]:
        """Those who were told to commit have done so."""
        commit = self.last(say.Commit)
        for place in commit.places:
            self.handle(ev.Committed(commit.checkpoint, place, self.brain.attempts.deployed[place][0]))
        return self.new

    def take_down(self) -> Shell:
        """The job's end is carried out."""
        self.handle(ev.TakenDown())
        if isinstance(self.said[-1], say.WriteEnd):
            self.handle(ev.EndWritten())
        return self
