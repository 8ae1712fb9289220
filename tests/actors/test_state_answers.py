"""Questions for live state, from a client's thread to the operator and back: together, through links, by calls."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import ray

from penstock.actors import live_state
from penstock.actors.links import LinkServer, WaitingLink
from penstock.actors.live_state import RaySubtasks, StateRoute
from penstock.actors.state_answers import SharedAnswer, StateAnswers, answer_frame, listening_id
from penstock.engine.errors import PenstockError, StateError, StateNotReadyError
from penstock.engine.state.request import StateRequest
from penstock.savepoints.live_rows import Question, ScanFilter, StateAnswer
from penstock.savepoints.live_state import LiveState
from tests.savepoints.by_hand import RunByHand
from tests.savepoints.test_live_state import BUILDS, VISITS

_IDS = itertools.count()


class Subtask:
    """One subtask that is read by hand: its commands wait until `work`, or are done at once by `busy=False`."""

    def __init__(self, build: str, loop: asyncio.AbstractEventLoop, busy: bool = True) -> None:
        self.run = RunByHand(BUILDS[build], parallelism=1).take(VISITS)
        self.reads = 0
        self.commands: list[Callable[[], None]] = []
        act = self.commands.append if busy else lambda command: command()
        self.loop = loop
        self.answers = StateAnswers("task", 0, self._read, act, loop)

    def _read(self, uid: str, request: StateRequest) -> Any:
        self.reads += 1
        return self.run.operators[0].read_state(request)

    def work(self) -> None:
        while self.commands:
            self.commands.pop(0)()

    def ask(self, state: str, question: Question, given: list[StateAnswer]) -> None:
        place = len(given)
        given.append(None)

        def answered(shared: SharedAnswer, begin: int, end: int) -> None:
            given[place] = shared.rows(begin, end)

        self.answers.ask("op", state, question, answered)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    one = asyncio.new_event_loop()
    yield one
    one.close()


def users(*names: str) -> pa.RecordBatch:
    return pa.record_batch({"user": pa.array(names, pa.string())})


def shown(answer: StateAnswer) -> Any:
    return answer if answer is None or isinstance(answer, PenstockError) else answer.data.to_pylist()


@pytest.mark.parametrize(
    ("build", "state"), [("aggregate", "accumulators"), ("process", "pages"), ("process", "count")]
)
def test_lookups_that_wait_together_take_one_look_and_each_gets_the_rows_of_its_key(
    build: str, state: str, loop: asyncio.AbstractEventLoop
) -> None:
    subtask = Subtask(build, loop)
    names = ["user 7", "nobody", "user 3", "user 7", "user 21"]
    questions = [Question(users(name)) for name in names]
    alone: list[StateAnswer] = []
    for question in questions:
        subtask.ask(state, question, alone)
        subtask.work()
    assert [len(rows) > 0 for rows in map(shown, alone)] == [name != "nobody" for name in names]
    subtask.reads = 0
    together: list[StateAnswer] = []
    for question in questions:
        subtask.ask(state, question, together)
    # Others wait among them.
    subtask.ask(state, Question(users("user 1", "user 2")), together)
    subtask.ask(state, Question(users("user 1"), ScanFilter(limit=0)), together)
    subtask.work()
    assert [shown(one) for one in together[: len(names)]] == [shown(one) for one in alone]
    assert {row["user"] for row in shown(together[-2])} == {"user 1", "user 2"}
    assert shown(together[-1]) == []
    assert subtask.reads == 3


def test_an_error_is_the_answer_to_each_and_the_end_of_the_subtask_to_those_that_wait(
    loop: asyncio.AbstractEventLoop,
) -> None:
    subtask = Subtask("process", loop)
    given: list[StateAnswer] = []
    for name in ("user 1", "user 2"):
        subtask.ask("cuont", Question(users(name)), given)
    subtask.work()
    assert [str(one).partition("(")[0] for one in given] == ["there is no state 'cuont' "] * 2
    given.clear()
    subtask.ask("count", Question(users("user 1")), given)
    subtask.answers.end()
    subtask.ask("count", Question(users("user 1")), given)
    assert [type(one) for one in given] == [StateNotReadyError] * 2


class Actor:
    """What a client knows of a subtask; it counts its calls, which are answered as links are."""

    def __init__(self, subtask: Subtask) -> None:
        self.calls = 0
        self._subtask = subtask
        self._actor_id = f"answers-{os.getpid()}-{next(_IDS)}".encode()

    @property
    def read_state(self) -> Any:
        return self

    def remote(self, attempt: int, uid: str, state: str, question: Question) -> Any:
        self.calls += 1
        given, come = list[StateAnswer](), threading.Event()

        def answered(shared: SharedAnswer, begin: int, end: int) -> None:
            given.append(shared.rows(begin, end))
            come.set()

        self._subtask.answers.ask(uid, state, question, answered)
        assert come.wait(10)
        return given[0]


class Served:
    """A subtask in another thread, which listens, and its state as a client has it."""

    def __init__(self, build: str) -> None:
        self.subtask = Subtask(build, asyncio.new_event_loop(), busy=False)
        self.actor = Actor(self.subtask)
        self._thread = threading.Thread(target=self._serve)
        self._listens = threading.Event()
        self._thread.start()
        assert self._listens.wait(10)
        route = StateRoute("op", ((self.actor, 1),), ("user",), 128)
        self.state = LiveState("state", "count", lambda: RaySubtasks(route), 0.0)

    def _serve(self) -> None:
        def ask(attempt: int, uid: str, *question: Any) -> None:
            self.subtask.answers.ask(uid, *question)

        async def listen() -> None:
            self._end = asyncio.Event()
            server = LinkServer(
                listening_id(self.actor._actor_id.hex()), lambda frame, reply: answer_frame(frame, reply, ask)
            )
            self._listens.set()
            await self._end.wait()
            server.close()

        self.subtask.loop.run_until_complete(listen())
        self.subtask.loop.close()

    def end(self) -> None:
        if self._thread.is_alive():
            self.subtask.loop.call_soon_threadsafe(self._end.set)
            self._thread.join(10)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(ray, "get", lambda given, timeout: given)
    one = Served("process")
    yield one
    one.end()


links_only = pytest.mark.skipif(not os.path.exists("/proc/net/unix"), reason="the abstract namespace is Linux's")


@links_only
def test_few_keys_are_asked_by_links_and_all_else_by_calls(served: Served) -> None:
    assert served.state.get("user 7") == 3
    assert served.state.get("nobody") is None
    assert served.state.scan(["user 7", "user 8"]).num_rows == 2
    assert served.actor.calls == 0
    assert served.state.scan().num_rows == 40
    assert served.actor.calls == 1


@links_only
def test_who_was_interrupted_gets_the_answer_to_its_next_question(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert served.state.get("user 7") == 3

    def interrupted(link: WaitingLink) -> bytearray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(WaitingLink, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            served.state.scan(["user 7", "user 8"])
    assert served.state.get("nobody") is None


@links_only
def test_a_subtask_that_has_ended_may_be_asked_again_later(served: Served) -> None:
    assert served.state.get("user 7") == 3
    served.end()
    with pytest.raises(StateNotReadyError, match="does not answer"):
        served.state.get("user 7")


def test_without_a_link_to_be_had_the_actor_is_called(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_state, "_MOST_LINKS", 0)
    assert served.state.get("user 7") == 3
    assert served.actor.calls > 0


def test_what_pickle_cannot_send_comes_by_a_call(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert served.state.get("user 7") == 3

    class OfTheProgram(StateError):
        """Has no name by which another process finds it."""

    def fail(request: StateRequest) -> Any:
        raise OfTheProgram("it keeps no such thing")

    monkeypatch.setattr(served.subtask.run.operators[0], "read_state", fail)
    with pytest.raises(OfTheProgram, match="keeps no such thing"):
        served.state.get("user 7")
