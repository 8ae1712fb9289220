"""The last rows of a stream of a job on Ray: the subtasks of the operator are asked themselves, all at once.

`JobControl.tail` calls it. A subtask that does not answer, since it has died or is busy with one batch, fails the call:
it is asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.actors.live_state import answers_of, one_called, subtask_actors
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import ConfigurationError, JobError, StateError
from penstock.engine.graph.physical import OperatorPlan, PhysicalGraph, SourcePlan, TaskPlan
from penstock.engine.task.tap import LONGEST_SECONDS, MOST_ROWS, TappedRows, newest_of_all

_MOST_SUBTASKS: Final = 32
_ANSWER_SECONDS: Final = 30.0
_Subtask = TypeVar("_Subtask")


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """Where a stream comes from.

    Args:
        uid: of the operator that emits it.
        actors: of its subtasks, in order, each with the attempt that it runs.
    """

    uid: str
    actors: tuple[tuple[Any, int], ...]


def stream_route(
    uid: str, graph: PhysicalGraph, actors: Mapping[Place, Any], attempts: Mapping[Place, int]
) -> StreamRoute:
    """Where the stream of an operator or a source comes from; arguments and errors as for `state_route`.

    Raises:
        StateError: the operator is a sink.
    """
    emitting: list[tuple[TaskPlan, OperatorPlan | SourcePlan]] = []
    for task in graph.tasks:
        emitting += [(task, task.source)] if task.source is not None else []
        emitting += [(task, operator) for operator in task.operators]
    task, found = one_called(uid, emitting)
    if isinstance(found, OperatorPlan) and found.spec.traits.sink is not None:
        raise StateError(f"{uid!r} is a sink, and emits no rows; ask for the operator before it")
    return StreamRoute(found.uid, subtask_actors(task, uid, actors, attempts))


def tail(route: StreamRoute, side: str, rows: int, seconds: float) -> TappedRows:
    """The newest rows that an operator emits from now on.

    Args:
        route: where its subtasks are; of many, 32 are asked, evenly spread.
        side: tag of its side output; empty for its results.
        rows: how many, 1,000 at most.
        seconds: for how long to look at the most, a minute; it is over sooner where so many rows have come.

    Raises:
        ConfigurationError: out of these limits.
        StateError: there is no such side output, or values are hidden.
        StateNotReadyError: a subtask does not answer.
    """
    if not 1 <= rows <= MOST_ROWS or not 0 < seconds <= LONGEST_SECONDS:
        raise ConfigurationError(
            f"tail takes from 1 to {MOST_ROWS} rows and up to {LONGEST_SECONDS:g} seconds, not {rows} rows and "
            f"{seconds:g} seconds"
        )
    actors = evenly_spread(route.actors)
    each = -(-rows // len(actors))
    calls = [actor.tail.remote(attempt, route.uid, side, rows, each, seconds) for actor, attempt in actors]
    given: list[TappedRows] = answers_of(calls, route.uid, "show its rows", JobError, seconds + _ANSWER_SECONDS)
    return newest_of_all(given, rows)


def evenly_spread(subtasks: Sequence[_Subtask]) -> list[_Subtask]:
    """Of many subtasks 32, from all parts of them: so many answer a question to all at once."""
    count = min(len(subtasks), _MOST_SUBTASKS)
    return [subtasks[place * len(subtasks) // count] for place in range(count)]
