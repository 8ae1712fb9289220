"""Questions for live state, from a client's thread to the operator and back: together, through links, by calls."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
import ray

from penstock.actors import live_state
from penstock.actors.links import LinkServer, WaitingLink
from penstock.actors.live_state import RaySubtasks, StateRoute
from penstock.actors.state_answers import SharedAnswer, StateAnswers, answer_frame, listening_id
from penstock.engine.errors import PenstockError, StateError, StateNotReadyError
from penstock.engine.operators.windows import window_aggregate
from penstock.engine.state import heap
from penstock.engine.state.request import StateRequest
from penstock.savepoints import live_rows
from penstock.savepoints.live_rows import LiveRows, Question, ScanFilter, StateAnswer
from penstock.savepoints.live_state import LiveState
from tests.savepoints.by_hand import RunByHand
from tests.savepoints.test_live_state import BUILDS, VISITS

_IDS = itertools.count()
Visit: TypeAlias = tuple[str, str, int]


class Subtask:
    """One subtask that is read by hand: its commands wait until `work`, or are done at once by `busy=False`."""

    def __init__(
        self, build: str, loop: asyncio.AbstractEventLoop, busy: bool = True, rows: Sequence[Visit] = VISITS
    ) -> None:
        self.run = RunByHand(BUILDS[build], parallelism=1).take(rows)
        self.reads = 0
        self.sent: list[int] = []
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

    def let_others_work(self) -> None:
        """What the thread of the task has left to others."""
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(self.loop.shutdown_default_executor())

    def ask(self, state: str, question: Question, given: list[StateAnswer]) -> None:
        place = len(given)
        given.append(None)

        def answered(shared: SharedAnswer, begin: int, end: int) -> None:
            given[place] = shared.rows(begin, end)
            self.sent.append(len(shared.packed))

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
@pytest.mark.parametrize(
    "names",
    [
        ["user 7", "nobody", "user 3", "user 7", "user 21"],
        ["user 7", "user 3", "user 21"],
        # Two rows in a map, and two who ask for both.
        ["user 7", "user 7"],
    ],
)
def test_lookups_that_wait_together_take_one_look_and_each_gets_the_rows_of_its_key(
    build: str, state: str, names: list[str], loop: asyncio.AbstractEventLoop
) -> None:
    subtask = Subtask(build, loop)
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


class _Overtaken(deque[Any]):
    """Questions that wait, to which another thread adds one while the first is added."""

    meanwhile: Callable[[], None] | None = None

    def append(self, question: Any) -> None:
        super().append(question)
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            meanwhile()


def test_questions_that_come_at_once_are_both_answered(loop: asyncio.AbstractEventLoop) -> None:
    subtask, given = Subtask("process", loop), list[StateAnswer]()
    overtaken = subtask.answers._waiting = _Overtaken()
    overtaken.meanwhile = lambda: subtask.ask("count", Question(users("user 3")), given)
    subtask.ask("count", Question(users("user 7")), given)
    subtask.work()
    assert len(given) == 2
    assert None not in given


def test_what_is_too_much_together_is_given_to_each_alone(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    subtask, given = Subtask("process", loop), list[StateAnswer]()
    subtask.ask("count", Question(users("user 1")), given)
    subtask.work()
    assert isinstance(given[0], LiveRows)
    monkeypatch.setattr(live_rows, "MOST_BYTES", 2 * given[0].data.nbytes)
    for name in ("user 1", "user 2", "user 3"):
        subtask.ask("count", Question(users(name)), given)
    subtask.work()
    assert [row["value"] for rows in given for row in shown(rows)] == [3] * 4


def test_each_is_sent_its_own_rows_alone_where_those_of_all_are_large(loop: asyncio.AbstractEventLoop) -> None:
    names = ["ann", "bob", "cid"]
    subtask = Subtask("process", loop, rows=[(name, name * 10_000, 1) for name in names])
    given: list[StateAnswer] = []
    for name in (*names, "nobody"):
        subtask.ask("pages", Question(users(name)), given)
    subtask.work()
    subtask.let_others_work()
    assert [[row["map_key"] for row in shown(rows)] for rows in given] == [*([name * 10_000] for name in names), []]
    assert max(subtask.sent) < 40_000
    assert subtask.reads == 1


@pytest.mark.parametrize(
    ("build", "state", "module"),
    [
        ("process", "count", heap),
        ("process", "times", heap),
        ("process", "pages", heap),
        ("windows", "window_aggregate", window_aggregate),
    ],
)
def test_the_thread_of_the_task_leaves_what_has_many_entries_to_another(
    build: str, state: str, module: Any, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    subtask = Subtask(build, loop)
    few: list[StateAnswer] = []
    subtask.ask(state, Question(users("user 1")), few)
    subtask.work()
    assert shown(few[0])
    monkeypatch.setattr(module, "FEW_ENTRIES", 0)
    many: list[StateAnswer] = []
    for _ in range(2):
        subtask.ask(state, Question(users("user 1")), many)
    subtask.work()
    assert many == [None, None]
    subtask.let_others_work()
    assert [shown(rows) for rows in many] == [shown(few[0])] * 2


def test_the_thread_of_the_task_sends_no_large_answer(loop: asyncio.AbstractEventLoop) -> None:
    subtask = Subtask("process", loop, rows=[("ann", "a" * 100_000, 1)])
    given: list[StateAnswer] = []
    subtask.ask("pages", Question(users("ann")), given)
    subtask.work()
    assert given == [None]
    subtask.let_others_work()
    assert len(shown(given[0])) == 1


def test_a_question_that_does_not_fit_harms_no_other(loop: asyncio.AbstractEventLoop) -> None:
    subtask = Subtask("process", loop)
    given: list[StateAnswer] = []
    subtask.ask("count", Question(users("user 1")), given)
    subtask.ask("count", Question(pa.record_batch({"who": pa.array(["user 1"])})), given)
    subtask.work()
    assert [row["value"] for row in shown(given[0])] == [3]
    assert isinstance(given[1], PenstockError)


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

    def interrupted(link: WaitingLink, deadline: float) -> bytearray:
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


class OfAnotherProgram(int):
    """Is sent by a name that the other process does not find, as classes of `__main__` are."""

    def __reduce__(self) -> Any:
        return _is_not_there, ()


def _is_not_there() -> None:
    raise AttributeError("no such class here")


@links_only
@pytest.mark.parametrize("has_a_name", [True, False])
def test_a_question_that_pickle_cannot_bring_goes_by_a_call(has_a_name: bool, served: Served) -> None:
    assert served.state.get("user 7") == 3

    class Local(int):
        pass

    three = OfAnotherProgram(3) if has_a_name else Local(3)
    assert served.state.scan(["user 7"], where={"value": three}).num_rows == 1
    assert served.actor.calls == 1
    # The link is as good as before.
    assert served.state.get("user 7") == 3
    assert served.actor.calls == 1


class Called:
    """An actor on another machine, whose answers are those that `ray.get` gives."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._actor_id = f"called-{os.getpid()}-{next(_IDS)}".encode()

    @property
    def read_state(self) -> Any:
        return self

    def remote(self, *question: Any) -> int:
        return self.number


def test_all_subtasks_together_have_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = 0.0, list[float]()

    def get(call: int, timeout: float) -> None:
        nonlocal now
        waits.append(timeout)
        now += 25

    monkeypatch.setattr(live_state, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(ray, "get", get)
    route = StateRoute("op", tuple((Called(number), 1) for number in range(4)), ("user",), 128)
    RaySubtasks(route).read(dict.fromkeys(range(4)), "count", ScanFilter())
    assert waits == [60, 35, 10, 0]


def test_a_link_waits_for_all_chunks_together() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\x00\x00")
        with pytest.raises(BlockingIOError):
            WaitingLink(ours).receive(time.monotonic() - 1)


def test_where_a_subtask_cannot_be_asked_the_answers_of_others_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    ours, theirs = socket.socketpair()
    theirs.close()
    route = StateRoute("op", tuple((Called(number), 1) for number in range(3)), ("user",), 128)
    of_second = listening_id(route.actors[1][0]._actor_id.hex())
    monkeypatch.setattr(live_state, "connected", lambda actor_id: ours if actor_id == of_second else None)
    monkeypatch.setattr(ray, "get", lambda call, timeout: taken.append(call))
    with pytest.raises(StateNotReadyError, match="does not answer"):
        RaySubtasks(route).read(dict.fromkeys(range(3), users("user 1")), "count", ScanFilter())
    assert taken == [0, 2]
