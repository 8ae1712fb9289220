"""State of a running job on Ray: where the subtasks of an operator are, and how they are asked without their manager.

The manager gives a `StateRoute`; whoever asks keeps it and calls the subtask actors themselves, until one of them has
died or runs another attempt. Arrow travels as it is: small answers within the call, large ones by Ray's object store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
import ray
from ray.exceptions import RayError, RayTaskError

from penstock.actors.deaths import remark
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import JobError, PenstockError, StateError, StateNotReadyError, UnknownStateError, nearest
from penstock.engine.graph.physical import OperatorPlan, PhysicalGraph, SourcePlan, TaskPlan
from penstock.savepoints.live_rows import LiveRows, ScanFilter
from penstock.savepoints.live_state import LiveState

_Named = TypeVar("_Named", OperatorPlan, SourcePlan, OperatorPlan | SourcePlan)
_ANSWER_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 10.0
"""How long a query waits for a job that recovers."""


@dataclass(frozen=True, slots=True)
class StateRoute:
    """Where the state of an operator is.

    Args:
        uid: the operator's.
        actors: of its subtasks, in order, each with the attempt that it runs.
        keys: its key columns.
        max_parallelism: number of key groups.
    """

    uid: str
    actors: tuple[tuple[Any, int], ...]
    keys: tuple[str, ...]
    max_parallelism: int


def state_route(
    uid: str, graph: PhysicalGraph, actors: Mapping[Place, Any], attempts: Mapping[Place, int]
) -> StateRoute:
    """Where the state of an operator is.

    Args:
        uid: the operator's, or its name, where no other is called so.
        graph: what runs.
        actors, attempts: of the subtasks that run.

    Raises:
        UnknownStateError: there is no such operator.
        StateNotReadyError: some of its subtasks do not run.
    """
    task, operator = one_called(uid, [(task, operator) for task in graph.tasks for operator in task.operators])
    keys = operator.spec.traits.keys
    return StateRoute(
        operator.uid,
        subtask_actors(task, uid, actors, attempts),
        tuple(keys[0]) if keys else (),
        graph.config.max_parallelism,
    )


def one_called(uid: str, among: Sequence[tuple[TaskPlan, _Named]]) -> tuple[TaskPlan, _Named]:
    """The operator of that uid, or name where no other is called so, with its task.

    Raises:
        UnknownStateError: there is none.
    """
    found = [one for one in among if one[1].uid == uid] or [one for one in among if one[1].name == uid]
    if len(found) != 1:
        uids = [operator.uid for _, operator in among]
        raise UnknownStateError(f"the job has no operator {uid!r}{nearest(uid, uids)}; there are {', '.join(uids)}")
    return found[0]


def subtask_actors(
    task: TaskPlan, uid: str, actors: Mapping[Place, Any], attempts: Mapping[Place, int]
) -> tuple[tuple[Any, int], ...]:
    """The actors of a task's subtasks, in order, each with the attempt that it runs.

    Raises:
        StateNotReadyError: some do not run.
    """
    places = [(task.id, subtask) for subtask in range(task.parallelism)]
    if any(place not in actors or place not in attempts for place in places):
        raise StateNotReadyError(f"operator {uid!r} does not run just now; try again")
    return tuple((actors[place], attempts[place]) for place in places)


class RaySubtasks:
    """The subtasks of one operator, asked directly; see `Subtasks`."""

    def __init__(self, route: StateRoute) -> None:
        self._route = route

    @property
    def keys(self) -> Sequence[str]:
        return self._route.keys

    @property
    def parallelism(self) -> int:
        return len(self._route.actors)

    @property
    def max_parallelism(self) -> int:
        return self._route.max_parallelism

    def read(self, asked: Mapping[int, pa.RecordBatch | None], state: str, wanted: ScanFilter) -> list[LiveRows | None]:
        calls = []
        for subtask, keys in asked.items():
            actor, attempt = self._route.actors[subtask]
            calls.append(actor.read_state.remote(attempt, self._route.uid, state, keys, wanted))
        answers: list[LiveRows | None] = answers_of(
            calls, self._route.uid, "give its state", StateError, _ANSWER_SECONDS
        )
        return answers


def answers_of(calls: Sequence[Any], uid: str, what: str, failed: type[PenstockError], seconds: float) -> list[Any]:
    """What the subtasks of an operator answer, all of them.

    Args:
        calls: to each.
        uid: the operator's, for messages.
        what: it was asked to do, for messages.
        failed: raised where one cannot, by an error that is none of the engine's.
        seconds: to wait at the most.

    Raises:
        StateNotReadyError: one does not answer.
        PenstockError: what one has raised.
    """
    answers: list[Any] = []
    problems: list[RayError] = []
    deadline = time.monotonic() + seconds
    for call in calls:
        # Each is taken, also behind one that has failed: Ray prints errors that nobody takes, with their tracebacks.
        try:
            answers.append(ray.get(call, timeout=max(0.0, deadline - time.monotonic())))
        except RayError as error:
            problems.append(error)
    if not problems:
        return answers
    first = problems[0]
    if not isinstance(first, RayTaskError):
        raise StateNotReadyError(
            f"operator {uid!r} does not answer: a process has died, or is busy with one batch; try again{remark(first)}"
        ) from first
    if isinstance(first.cause, PenstockError):
        raise first.cause from None
    raise failed(f"operator {uid!r} cannot {what}: {first}") from first


def live_state(manager: Any, job: str, uid: str, name: str, patience: float = PATIENCE_SECONDS) -> LiveState:
    """One state of an operator of a job.

    Args:
        manager: handle of the job's manager.
        job: its name, for messages.
        uid, name: which state.
        patience: for how long (seconds) to wait for a job that recovers.
    """

    def connect() -> RaySubtasks:
        try:
            return RaySubtasks(ray.get(manager.state_route.remote(uid), timeout=_ANSWER_SECONDS))
        except RayTaskError as error:
            if isinstance(error.cause, PenstockError):
                raise error.cause from None
            raise JobError(f"job {job!r}: {error}") from error
        except RayError as error:
            raise StateNotReadyError(f"the manager of job {job!r} does not answer; try again{remark(error)}") from error

    return LiveState(f"job {job!r}, operator {uid!r}, state {name!r}", name, connect, patience)
