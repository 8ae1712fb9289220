"""Actors that live in this process: what an execution, a job's checkpoints and a client call instead of Ray's."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from penstock import DataGenSource, Sequence, StreamEnvironment
from penstock.engine.config import JobConfig
from penstock.engine.connectors import Sink
from penstock.engine.errors import NoRoomError
from penstock.engine.graph.physical import JobProgram, Parallelism, plan


class FakeMethod:
    """A method of an actor: `remote` gives an awaitable of what it answers."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer

    def remote(self, *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._answered(*arguments))

    async def _answered(self, *arguments: Any) -> Any:
        answer = self._answer(*arguments)
        return await answer if inspect.isawaitable(answer) else answer


class FakeActor:
    """An actor with the methods that it is given; all others answer None.

    Args:
        answers: by name of the method, a function of its arguments, or a coroutine function.

    Attributes:
        calls: the methods that were called, in order, with their arguments.
    """

    _actor_id = b"no process listens under this id"

    def __init__(self, **answers: Callable[..., Any]) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._answers = answers

    def __getattr__(self, name: str) -> FakeMethod:
        def answer(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            return self._answers.get(name, lambda *_: None)(*arguments)

        return FakeMethod(answer)


def fails(error: BaseException) -> Callable[..., Any]:
    """A method that fails."""

    def fail(*arguments: Any) -> Any:
        raise error

    return fail


async def never(*arguments: Any) -> None:
    """A method that does not answer."""
    await asyncio.Event().wait()


def program_of(parallelism: int = 1, sinks: Iterable[Sink] = (), **settings: Any) -> JobProgram:
    """One task with the numbers 0 to 9, whose rows go to the client and to these sinks."""
    env = StreamEnvironment(runtime="local", parallelism=parallelism)
    numbers = env.from_source(DataGenSource({"n": Sequence()}, rows=10))
    numbers.collect()
    for sink in sinks:
        numbers.sink_to(sink)
    return plan("numbers", env._program.graph.build(), Parallelism(parallelism, None, 1), JobConfig(**settings))


class FakeSlots:
    """Slots for which there is room."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.count = 2
        self.has_room = True

    def kept(self, bundles: list[Any]) -> int:
        return min(self.count, len(bundles))

    def lengthened(self, bundles: list[Any], count: int) -> list[Any]:
        return [*bundles, *(bundles[0] for _ in range(len(bundles), count))]

    async def find_others(self, slots: set[int]) -> None:
        self.said.append(("find_others", set(slots)))

    async def replace(self, slots: set[int], lost: set[str]) -> None:
        self.said.append(("replace", set(slots), set(lost)))
        if not self.has_room:
            raise NoRoomError("no room", 1)

    def move(self) -> None:
        self.said.append(("move",))

    async def resize(self, bundles: list[Any]) -> None:
        self.count = len(bundles)

    def shrink(self, kept: int) -> None:
        self.count = kept

    async def placed(self, slots: set[int]) -> None:
        pass

    def drop_others(self) -> None:
        pass

    def release(self) -> None:
        pass
