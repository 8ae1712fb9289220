"""State of a running job on Ray: where the subtasks of an operator are, and how they are asked without their manager.

The manager gives a `StateRoute`; whoever asks keeps it and asks the subtasks themselves, until one of them has died or
runs another attempt: for a few keys by a link where they are on the same machine, else by calls of their actors. Arrow
travels as it is: small answers within the call, large ones by Ray's object store.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakSet

import pyarrow as pa
import ray
from ray.exceptions import RayError, RayTaskError

from penstock.actors.deaths import remark
from penstock.actors.links import WaitingLink, connected
from penstock.actors.state_answers import FEW_KEYS, listening_id
from penstock.actors.state_frames import packed_question, unpacked_answer
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import JobError, PenstockError, StateError, StateNotReadyError, UnknownStateError, nearest
from penstock.engine.graph.physical import OperatorPlan, PhysicalGraph, SourcePlan, TaskPlan
from penstock.savepoints.live_rows import LiveRows, Question, ScanFilter, StateAnswer
from penstock.savepoints.live_state import LiveState

_Named = TypeVar("_Named", OperatorPlan, SourcePlan, OperatorPlan | SourcePlan)
_ANSWER_SECONDS: Final = 60.0
_MOST_LINKS: Final = 32
"""To one subtask: as many threads ask it at once, and more call its actor."""
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
        self._subtasks: dict[tuple[int, str], _Asked] = {}

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
        deadline = time.monotonic() + _ANSWER_SECONDS
        asking = [self._subtask(number, state).ask(Question(keys, wanted), deadline) for number, keys in asked.items()]
        answers = [_taken(answer) for answer in asking]
        for answer in answers:
            if isinstance(answer, PenstockError):
                raise answer
        return [answer for answer in answers if not isinstance(answer, PenstockError)]

    def _subtask(self, number: int, state: str) -> _Asked:
        found = self._subtasks.get((number, state))
        # Of two that are made at once, one is used.
        return found or self._subtasks.setdefault(
            (number, state), _Asked(*self._route.actors[number], self._route.uid, state)
        )


def _taken(answer: Callable[[], StateAnswer]) -> StateAnswer:
    """The answer, or why there is none."""
    try:
        return answer()
    except PenstockError as error:
        return error


class _Asked:
    """One attempt of a subtask and one of its states: few keys are asked by links where it is on this machine.

    Args:
        actor, attempt: which.
        uid, state: of the operator, and its state.
    """

    def __init__(self, actor: Any, attempt: int, uid: str, state: str) -> None:
        self._actor = actor
        self._where = attempt, uid, state
        self._links: WeakSet[WaitingLink] = WeakSet()
        self._free: deque[WaitingLink] = deque()

    def ask(self, question: Question, deadline: float) -> Callable[[], StateAnswer]:
        """Ask a question; what is returned waits for the answer. By any thread.

        Args:
            question: it.
            deadline: how long to wait, by `time.monotonic`.

        Returns:
            what gives the answer, or raises `StateNotReadyError` where the subtask does not answer.
        """
        few = question.keys is not None and question.keys.num_rows <= FEW_KEYS
        frame = packed_question(*self._where, question) if few else b""
        link = self._link() if frame else None
        if link is None:
            return self._called(question, deadline)
        try:
            link.send(frame, deadline)
        except OSError:
            # Others are asked before and after, and their answers are to be taken.
            return partial(_silent, self._where[1])
        return partial(self._receive, link, question, deadline)

    def _link(self) -> WaitingLink | None:
        """One that nobody uses just now; None: the actor is to be called."""
        try:
            return self._free.popleft()
        except IndexError:
            pass
        connection = connected(listening_id(self._actor._actor_id.hex())) if len(self._links) < _MOST_LINKS else None
        if connection is None:
            return None
        link = WaitingLink(connection)
        self._links.add(link)
        return link

    def _receive(self, link: WaitingLink, question: Question, deadline: float) -> StateAnswer:
        # A link whose answer was not received is not used again: what came later would be taken for another answer.
        try:
            frame = link.receive(deadline)
        except OSError as error:
            raise _silent(self._where[1]) from error
        self._free.append(link)
        try:
            return unpacked_answer(frame)
        except Exception:
            return self._called(question, deadline)()

    def _called(self, question: Question, deadline: float) -> Callable[[], StateAnswer]:
        call = self._actor.read_state.remote(*self._where, question)

        def answer() -> StateAnswer:
            answers: list[StateAnswer] = answers_of(
                [call], self._where[1], "give its state", StateError, deadline - time.monotonic()
            )
            return answers[0]

        return answer


def _silent(uid: str, why: str = "") -> StateNotReadyError:
    return StateNotReadyError(
        f"operator {uid!r} does not answer: a process has died, or is busy with one batch; try again{why}"
    )


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
        raise _silent(uid, remark(first)) from first
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
