"""Subtasks that are replaced while others run on, as actors of this process: both ends of each channel are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError

import penstock as ps
from penstock import DataGenSource, Sequence, StreamEnvironment
from penstock.actors.execution import Execution
from penstock.actors.process_end import Process
from penstock.engine.config import JobConfig
from penstock.engine.errors import WorkerLostError
from penstock.engine.graph.physical import ChannelPlan, Parallelism, plan
from tests.actors.fakes import FakeActor, fails, never

SOURCE, COUNT, SECOND_COUNT = (1, 0), (2, 0), (2, 1)
FIRST_NEW = 2
"""The number of the first channel that a receiver adds: it has had two."""


def subtask(**answers: Callable[..., Any]) -> FakeActor:
    usual: dict[str, Callable[..., Any]] = {
        "deploy": lambda *_: Process("another node", 1),
        "start": lambda *_: True,
        "watch": never,
        "replace_inputs": lambda *_: FIRST_NEW,
        "connect": lambda *_: True,
    }
    return FakeActor(**{**usual, **answers})


def run(use: Callable[[Execution], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, **changed: FakeActor) -> Any:
    """The actors of a source and of two subtasks that count its rows, all of which run attempt 3."""
    monkeypatch.setattr(ray, "kill", lambda actor: None)
    env = StreamEnvironment(runtime="local", parallelism=2)
    numbers = env.from_source(DataGenSource({"n": Sequence()}, rows=10)).set_parallelism(1)
    numbers.key_by("n").aggregate(count=ps.count()).collect()
    graph = plan("counts", env._program.graph.build(), Parallelism(2, None, 1), JobConfig()).physical()
    actors = {name: changed.get(name) or subtask() for name in ("source", "count", "second")}

    async def main() -> None:
        execution = Execution("job", JobConfig(), lambda event: None)
        execution.graph = graph
        execution.actors = dict(zip((SOURCE, COUNT, SECOND_COUNT), actors.values(), strict=True))
        execution.attempts = dict.fromkeys(execution.actors, 3)
        try:
            await asyncio.wait_for(use(execution), 30)
        finally:
            await execution.stop(5.0)

    asyncio.run(main())
    return actors


def named(actor: FakeActor, method: str) -> list[Any]:
    return [call for call in actor.calls if call[0] == method]


def test_who_runs_on_and_sends_is_connected_when_the_new_one_takes_messages_and_before_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def noting(what: str, answer: Any) -> Callable[..., Any]:
        return lambda *_: order.append(what) or answer

    source = subtask(connect=noting("connect", True))
    count = subtask(deploy=noting("deploy", Process("another node", 1)), start=noting("start", True))

    async def use(execution: Execution) -> None:
        assert await execution.deploy([COUNT], 4, None)
        assert execution.attempts == {SOURCE: 3, COUNT: 4, SECOND_COUNT: 3}

    actors = run(use, monkeypatch, source=source, count=count)
    assert order == ["deploy", "connect", "start"]
    ((_, attempt, _, targets),) = named(source, "connect")
    assert (attempt, list(targets)) == (3, [0])
    assert [(target.actor, target.attempt) for target in targets[0]] == [(count, 4), (actors["second"], 3)]
    assert not named(actors["second"], "deploy")


def test_who_runs_on_and_is_sent_to_says_the_numbers_of_its_new_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(execution: Execution) -> None:
        assert await execution.deploy([SOURCE], 4, None)

    actors = run(use, monkeypatch)
    for name in ("count", "second"):
        ((_, attempt, _, added),) = named(actors[name], "replace_inputs")
        assert (attempt, added) == (3, [ChannelPlan(*SOURCE, 0, 0)])
    ((_, _, deployment),) = named(actors["source"], "deploy")
    assert [target.channel for target in deployment.targets[0]] == [FIRST_NEW, FIRST_NEW]


@pytest.mark.parametrize(
    ("answer", "told"), [(lambda *_: None, "ended while others were rescaled"), (fails(RayActorError()), "died")]
)
def test_who_was_to_run_on_and_does_not_is_a_lost_worker(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any], told: str
) -> None:
    async def use(execution: Execution) -> None:
        with pytest.raises(WorkerLostError, match=told):
            await execution.deploy([SOURCE], 4, None)
        assert execution.attempts[SECOND_COUNT] == 3

    actors = run(use, monkeypatch, count=subtask(replace_inputs=answer))
    assert not named(actors["source"], "deploy")


def test_who_has_no_process_any_more_cannot_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(execution: Execution) -> None:
        execution.discard(SECOND_COUNT)
        with pytest.raises(WorkerLostError, match="died while others were rescaled"):
            await execution.deploy([SOURCE], 4, None)

    run(use, monkeypatch)
