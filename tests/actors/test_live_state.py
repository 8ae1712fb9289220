"""Subtasks that are asked for their state directly: what becomes of answers that are errors."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError

from penstock.actors.live_state import answers_of
from penstock.engine.errors import StateError, StateNotReadyError


def raised(cause: Exception) -> RayTaskError:
    """What Ray raises for a method of an actor that has raised `cause`."""
    return RayTaskError("read_state", str(cause), cause)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The answers that were taken; a call stands for its answer."""
    seen: list[Any] = []

    def get(call: Any, timeout: float) -> Any:
        seen.append(call)
        if isinstance(call, Exception):
            raise call
        return call

    monkeypatch.setattr(ray, "get", get)
    return seen


def test_answers_come_in_the_order_of_the_questions(taken: list[Any]) -> None:
    assert answers_of(["a", "b"], "op", "give its state", StateError, 1.0) == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "told", "message"),
    [
        (raised(StateNotReadyError("has 4 requests")), StateNotReadyError, "has 4 requests"),
        (raised(KeyError("x")), StateError, "operator 'op' cannot give its state"),
        (ActorDiedError(), StateNotReadyError, "a process has died"),
        (GetTimeoutError("late"), StateNotReadyError, "busy with one batch"),
    ],
)
def test_the_errors_of_all_are_taken_and_the_first_is_told(
    taken: list[Any], error: Exception, told: type[Exception], message: str
) -> None:
    calls = ["a", error, raised(StateNotReadyError("the second")), "d"]
    with pytest.raises(told, match=message):
        answers_of(calls, "op", "give its state", StateError, 1.0)
    assert taken == calls, "Ray prints the traceback of an error that nobody takes"
