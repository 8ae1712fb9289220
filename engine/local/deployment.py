"""Puts the subtasks of a local job where the brain wants them, and takes them away: deploys, cancels, prepares, ends.

Belongs to the local manager, which calls it when the mail with the instruction is taken; what came of it is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.store import RestorePlan
from penstock.engine.errors import NoRoomError, PenstockError, located
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.layout import GraphPlanner
from penstock.engine.local.execution import LocalExecution
from penstock.engine.local.room import Room

if TYPE_CHECKING:
    from penstock.engine.local.checkpoints import LocalCheckpoints


class LocalDeployment:
    """What runs of one job under one manager.

    Args:
        planner: has the graphs of all layouts.
        execution: the subtasks.
        checkpoints: None: the job takes none.
        room: where subtasks run.
        report: takes what came of it.
        fail: takes what a subtask has raised.
    """

    def __init__(
        self,
        planner: GraphPlanner,
        execution: LocalExecution,
        checkpoints: LocalCheckpoints | None,
        room: Room,
        report: Callable[[ev.Event], None],
        fail: Callable[[Place, BaseException], None],
    ) -> None:
        self._planner = planner
        self._execution = execution
        self._checkpoints = checkpoints
        self._room = room
        self._report = report
        self._fail = fail
        self._is_down = False

    def deploy(self, deploy: say.Deploy) -> None:
        """Run an attempt of some subtasks, restored from a checkpoint; nothing, once the job has been taken down."""
        if self._is_down:
            return
        graph = self._planner.graph(deploy.layout)
        try:
            plan = None if self._checkpoints is None else self._checkpoints.restore_plan(graph, deploy)
            self._room.provide(deploy.layout)
            if deploy.prepares_sinks:
                graph.prepare_sinks()
        except PenstockError as error:
            room = error.room if isinstance(error, NoRoomError) else None
            self._report(ev.DeployFailed(deploy.attempt, error, room))
            return
        restored = 0 if deploy.checkpoint is None else deploy.checkpoint.checkpoint
        self._execution.deploy(graph, deploy.places, deploy.attempt, restored)
        are_open = all(self._open(graph, place, deploy.attempt, plan) for place in deploy.places)
        self._report(ev.Deployed(deploy.attempt, are_open))

    def _open(self, graph: PhysicalGraph, place: Place, attempt: int, plan: RestorePlan | None) -> bool:
        try:
            restored = None if self._checkpoints is None else self._checkpoints.open(graph, place, attempt, plan)
            self._execution.open(place, restored)
        except BaseException as error:
            self._fail(place, error)
            return False
        return True

    def cancel(self, number: int, places: Sequence[Place]) -> None:
        """End what these subtasks run."""
        self._close(places)
        self._report(ev.Cancelled(number))

    def take_down(self) -> None:
        """End everything, and what has not begun."""
        self._is_down = True
        self._report(ev.TakenDown(self._close(self._execution.places)))

    def _close(self, places: Sequence[Place]) -> PenstockError | None:
        """End what subtasks run; the first error of those that could not be closed."""
        first: PenstockError | None = None
        for place, error in self._execution.close(places):
            first = first or located(error, self._execution.name(place), place[1])
        if self._checkpoints is not None:
            self._checkpoints.close(places)
        return first

    def prepare(self, prepare: say.Prepare) -> None:
        """See that the job can run in another layout, while it runs in this one."""
        try:
            if self._checkpoints is not None:
                self._checkpoints.check(self._planner.graph(prepare.layout), prepare)
            self._room.prepare(prepare.layout)
        except PenstockError as error:
            self._report(ev.PrepareFailed(prepare.request, error))
        else:
            self._report(ev.Prepared(prepare.request))
