"""A rescale of a job into another layout, or a move of subtasks to other processes: live, or by a restart.

    live:     preparations while the job runs -> what is there is taken in, from a checkpoint; again if that took long
              -> a checkpoint behind which tasks stop -> new subtasks in their places, which read what has changed since
    restart:  a checkpoint -> preparations while the job runs -> all subtasks are stopped, and restored

What prevents a live one, before it begins or on the way, makes it one by a restart. The brain asks how far it is, and
does the rest; here is whom it is for, and what it is answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import ClusterError, JobError, PenstockError
from penstock.engine.graph.scale import ParallelismRequest, Scale, describe_request
from penstock.engine.job.events import Moment
from penstock.engine.job.instructions import Preload, Prepare
from penstock.engine.job.layout import A_LOOP, Layout, LayoutChange, Planner, layout_change
from penstock.engine.job.requests import Requests
from penstock.engine.job.restarts import RestartKind

_OF_THE_BRAIN: Final = 0
"""The request of one that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Preloading:
    """Processes take in state for a live rescale.

    Args:
        rounds: the how manieth time, from 1.
        began: monotonic seconds: what has changed since has yet to be taken in.
        before_s: how long the time before took.
        checkpoint: what is taken in; 0 as long as that is being taken.
    """

    rounds: int
    began: float
    before_s: float = math.inf
    checkpoint: int = 0


@dataclass(slots=True)
class _Rescale:
    """Somebody wants another parallelism, or subtasks somewhere else.

    Args:
        request, kind, wanted: who, and what was asked for, in words.
        scale: what the job is to have then.
        replaced: ids of the tasks that get other subtasks while the others run on; none: the job is restarted.
        reason: why it is.
        moved: the subtasks that are to be in other processes.
        layout: once processes are being prepared for it.
        is_prepared: whether they are.
        preloading: the attempt to take in what is there that is under way; None: none is.
        is_switching: whether the checkpoint is under way behind which the tasks are replaced.
        has_switched: whether it was, for nothing: tasks may have stopped.
        stopped: when the job, or part of it, was stopped for it, or was first asked to.
        before: the layout that ran then.
    """

    request: int
    kind: RestartKind
    wanted: str
    scale: Scale
    replaced: frozenset[int]
    reason: str
    moved: frozenset[Place] = field(default_factory=frozenset)
    layout: Layout | None = None
    is_prepared: bool = False
    preloading: Preloading | None = None
    is_switching: bool = False
    has_switched: bool = False
    stopped: Moment | None = None
    before: Layout | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What a job changes to.

    Args:
        kind, words: what was asked for.
        layout: that is to be deployed.
        replaced: ids of the tasks that are, where it is live.
        since: when what is replaced was stopped, or was first asked to.
    """

    kind: RestartKind
    words: str
    layout: Layout
    replaced: frozenset[int]
    since: Moment


class Rescaling:
    """The rescale or move that is under way, one at a time.

    Args:
        requests: take the answers.
        planner: says which scale is asked for.
        plan: plans the job at a scale.
    """

    def __init__(self, requests: Requests, planner: Planner, plan: Callable[[Scale], Layout]) -> None:
        self._requests = requests
        self._planner = planner
        self._plan = plan
        self._rescale: _Rescale | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether somebody waits for one."""
        return self._rescale is not None

    @property
    def wanted(self) -> str | None:
        """What somebody waits for, in words; None: nothing."""
        return None if self._rescale is None else self._rescale.wanted

    @property
    def is_preparing(self) -> bool:
        """Whether slots and processes are being changed, so that nothing may be deployed."""
        rescale = self._rescale
        return rescale is not None and rescale.layout is not None and not rescale.is_prepared

    @property
    def is_ready(self) -> bool:
        """Whether all is there, and the job runs as before."""
        rescale = self._rescale
        waits = rescale is None or rescale.is_switching or rescale.preloading is not None
        return not waits and rescale is not None and rescale.is_prepared and rescale.before is None

    @property
    def is_switching(self) -> bool:
        """Whether the checkpoint is under way behind which tasks are replaced."""
        return self._rescale is not None and self._rescale.is_switching

    @property
    def may_wait(self) -> bool:
        """Whether the job runs on as long as nothing is done for it."""
        return self._rescale is None or not self._rescale.has_switched

    @property
    def preloading(self) -> Preloading | None:
        """What is being taken in for it."""
        return None if self._rescale is None else self._rescale.preloading

    def begin_preload(self, preloading: Preloading) -> None:
        """All is there, or state has been taken in: what is there now is to be."""
        assert self._rescale is not None, "only what is ready begins"
        self._rescale.preloading = preloading

    def preload(self, checkpoint: CompletedCheckpoint) -> Preload:
        """The checkpoint is there: what is to be taken in now."""
        rescale = self._rescale
        assert rescale is not None, "who waits for a checkpoint is there when it comes"
        assert rescale.layout is not None, "what is prepared was planned"
        if rescale.preloading is not None:
            rescale.preloading = replace(rescale.preloading, checkpoint=checkpoint.checkpoint)
        places = tuple(place for place in rescale.layout.places if place[0] in rescale.replaced)
        return Preload(rescale.request, rescale.layout, places, checkpoint)

    def awaits_preload(self, request: int, checkpoint: int) -> bool:
        """Whether this is what is being taken in."""
        rescale, preloading = self._rescale, self.preloading
        is_meant = rescale is not None and rescale.request == request
        return is_meant and preloading is not None and preloading.checkpoint == checkpoint

    @property
    def goes_live(self) -> bool:
        """Whether only single tasks are to be stopped for it."""
        return self._rescale is not None and bool(self._rescale.replaced)

    def replaces(self, task: int) -> bool:
        """Whether this task is to be stopped for it while others run on."""
        return self._rescale is not None and task in self._rescale.replaced

    def ask(self, name: str, request: int, wanted: ParallelismRequest, running: Layout) -> Layout | None:
        """Somebody asks job `name` for another parallelism: the layout where its subtasks run already, else None.

        Raises:
            JobError: another rescale is under way.
            GraphError, ConfigurationError: the program cannot run so.
        """
        if self._rescale is not None:
            raise JobError(f"job {name!r} is being changed ({self._rescale.wanted}); try again later")
        scale = self._planner.scale_for(wanted, running.scale)
        layout = self._plan(scale)
        if layout_change(running, layout).is_none:
            self._requests.answer(request, 0.0)
            return layout
        self._rescale = self._new(request, wanted, running, layout)
        return None

    @staticmethod
    def _new(request: int, wanted: ParallelismRequest, running: Layout, layout: Layout) -> _Rescale:
        change, words = layout_change(running, layout), f"rescale {describe_request(wanted)}"
        return _Rescale(request, RestartKind.RESCALE, words, layout.scale, change.replaced, change.reason)

    def move(self, places: Collection[Place], running: Layout) -> None:
        """These subtasks are to go to other processes, at the same parallelism; see `goes_live`."""
        tasks = frozenset(task for task, _ in places)
        change = LayoutChange(reason=A_LOOP) if running.has_loop else LayoutChange(tasks)
        words = f"move {len(places)} subtasks off nodes that leave"
        self._rescale = _Rescale(
            _OF_THE_BRAIN, RestartKind.MOVE, words, running.scale, change.replaced, change.reason, frozenset(places)
        )

    def widen(self, running: Layout) -> None:
        """There is room again for what a job should have that runs smaller; a checkpoint is to be taken for it."""
        scale = replace(running.scale, most=None)
        layout = self._plan(scale)
        self._rescale = self._new(_OF_THE_BRAIN, max(layout.parallelisms.values()), running, layout)

    def on_checkpoint(self, outcome: str | PenstockError, latest: CompletedCheckpoint | None) -> Sequence[Prepare]:
        """What became of the checkpoint: what is to be prepared now, if anything."""
        if self._rescale is None or latest is None or isinstance(outcome, PenstockError):
            self.refuse(outcome if isinstance(outcome, PenstockError) else JobError("the rescale has been given up"))
            return ()
        return self.prepare(latest)

    def prepare(self, latest: CompletedCheckpoint | None) -> Sequence[Prepare]:
        """What is to be prepared for it; `latest`: the newest checkpoint."""
        rescale = self._rescale
        assert rescale is not None, "somebody asks for it"
        try:
            rescale.layout = self._plan(rescale.scale)
        except PenstockError as error:
            self.refuse(error)
            return ()
        return (Prepare(rescale.request, rescale.layout, latest, tuple(sorted(rescale.moved))),)

    def refuse(self, error: PenstockError) -> None:
        """It will not be."""
        rescale, self._rescale = self._rescale, None
        if rescale is not None:
            self._requests.answer(rescale.request, error)

    def on_prepared(self, request: int) -> None:
        """All is there."""
        if self._rescale is not None and self._rescale.request == request:
            self._rescale.is_prepared = True

    def on_prepare_failed(self, request: int, error: PenstockError) -> None:
        """It is not to be had."""
        if self._rescale is not None and self._rescale.request == request:
            self.refuse(error)

    def begin_switch(self, now: Moment) -> frozenset[int]:
        """The checkpoint for a live rescale is about to be taken: the ids of the tasks that are replaced behind it."""
        rescale = self._rescale
        assert rescale is not None, "only what is ready begins"
        rescale.preloading, rescale.is_switching, rescale.stopped = None, True, now
        return rescale.replaced

    def restart_instead(self, reason: str) -> None:
        """It cannot be live: it is done by a restart."""
        if self._rescale is not None:
            self._rescale.replaced, self._rescale.reason = frozenset(), reason
            self._rescale.preloading, self._rescale.is_switching, self._rescale.stopped = None, False, None

    def give_up_switch(self, reason: str) -> None:
        """Nothing changes at the checkpoint behind which tasks have stopped: the job is restarted, and that at once."""
        if self._rescale is not None:
            self._rescale.has_switched = True
        self.restart_instead(reason)

    def switch(self, running: Layout) -> Change:
        """The checkpoint counts: what the job changes to."""
        rescale = self._rescale
        assert rescale is not None, "who waits for a checkpoint is there when it comes"
        assert rescale.layout is not None, "what is prepared was planned"
        assert rescale.stopped is not None, "it has begun"
        rescale.is_switching, rescale.before = False, running
        how = "live" if len(rescale.replaced) < len(running.tasks) else "all at a checkpoint"
        return Change(rescale.kind, f"{rescale.wanted}, {how}", rescale.layout, rescale.replaced, rescale.stopped)

    def stop(self, now: Moment, running: Layout) -> Change:
        """The job is stopped at `now`: what it changes to."""
        rescale = self._rescale
        assert rescale is not None, "only what is ready is stopped for"
        assert rescale.layout is not None, "what is prepared was planned"
        rescale.stopped, rescale.before = now, running
        words = f"{rescale.wanted}, by a restart: {rescale.reason}"
        return Change(rescale.kind, words, rescale.layout, rescale.replaced, now)

    def on_running(self, now: float) -> None:
        """The job runs again."""
        rescale = self._rescale
        if rescale is not None and rescale.before is not None and rescale.stopped is not None:
            self._rescale = None
            self._requests.answer(rescale.request, now - rescale.stopped.monotonic)

    def on_deploy_failed(self, error: PenstockError, running: Layout) -> tuple[PenstockError, Layout]:
        """The job could not be deployed: the error to recover from, and the layout to recover to."""
        rescale = self._rescale
        # Whatever else is in the way, the job is deployed so again, and whoever has asked for it waits for that.
        if rescale is None or rescale.before is None or not isinstance(error, ClusterError):
            return error, running
        self.refuse(error)
        # There was room for what ran before.
        failure = JobError(f"the job could not be rescaled: {error}")
        failure.__cause__ = error
        return failure, rescale.before
