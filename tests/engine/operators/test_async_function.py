"""map_async: many calls at a time, results with their rows' timestamps, and every error with its row."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch
from penstock.engine.errors import (
    CallTimeoutError,
    ConfigurationError,
    GraphError,
    RecordError,
    StateError,
    UserCodeError,
)
from penstock.engine.functions import AsyncFunction, RuntimeContext
from penstock.engine.operators import async_function
from penstock.engine.operators.async_function import AsyncFunctionSpec, AsyncRetry
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.error_report import report
from tests.engine.helpers import RecordingCollector, Row, RunningOperator, local_environment, numbers, timed

N = {"n": pa.int64(), "at": pa.int64()}


@contextmanager
def running(function: Any, **options: Any) -> Iterator[RunningOperator]:
    operator = AsyncFunctionSpec(function, **options).create()
    try:
        yield RunningOperator(operator)
    finally:
        operator.close()


class Gate(AsyncFunction):
    """Lets a row go on when the row that it waits for is done."""

    def __init__(self, waits_for: Callable[[int], int | None]) -> None:
        self._waits_for = waits_for

    def open(self, context: RuntimeContext) -> None:
        self.done: dict[int, asyncio.Event] = {}
        self.at_once = self.most_at_once = 0

    def _event(self, n: int) -> asyncio.Event:
        return self.done.setdefault(n, asyncio.Event())

    async def process(self, row: Row) -> Row:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        before = self._waits_for(row["n"])
        if before is not None:
            await self._event(before).wait()
        self._event(row["n"]).set()
        self.at_once -= 1
        return {"n": row["n"]}


def from_last_to_first(n: int) -> int | None:
    return n + 1 if n < 9 else None


@pytest.mark.parametrize(
    ("order", "expected"), [("ordered", list(range(10))), ("unordered", list(reversed(range(10))))]
)
def test_all_rows_of_a_batch_are_worked_on_at_once(order: str, expected: list[int]) -> None:
    with running(Gate(from_last_to_first), order=order) as operator:
        operator.process(timed([{"n": n, "at": 100 + n} for n in range(10)], N))
        assert [row["n"] for row in operator.out.rows] == expected
        assert operator.out.timestamps == [100 + n for n in expected]


def test_no_more_rows_are_worked_on_than_the_capacity_allows() -> None:
    with running(Gate(lambda n: n + 1 if n % 3 < 2 else None), capacity=3) as operator:
        operator.process(numbers(range(30)))
        function: Any = operator.operator
        assert function._own.most_at_once == 3
        assert [row["n"] for row in operator.out.rows] == list(range(30))


def test_what_a_slice_of_a_batch_gave_is_emitted_before_the_next_is_worked_on() -> None:
    seen: list[int] = []

    async def count_emitted(row: Row) -> Row:
        return {"n": row["n"], "emitted": seen[-1] if seen else 0}

    class Counting(RecordingCollector):
        def collect(self, batch: Batch) -> None:
            super().collect(batch)
            seen.append(sum(some.num_rows for some in self.batches))

    operator = AsyncFunctionSpec(count_emitted, capacity=2).create()
    out = Counting()
    operator.open(OperatorContext("tested", 0, 1, ManualClock()))
    try:
        operator.process_batch(numbers(range(70)), 0, out)
    finally:
        operator.close()
    assert [row["n"] for row in out.rows] == list(range(70))
    assert [row["emitted"] for row in out.rows] == [0] * 32 + [32] * 32 + [64] * 6


async def as_often_as_it_says(row: Row) -> list[Row] | Row | None:
    await asyncio.sleep(0)
    if row["n"] == 0:
        return None
    return {"m": 1} if row["n"] == 1 else [{"m": row["n"]} for _ in range(row["n"])]


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(1, 5), st.sampled_from(["ordered", "unordered"])
)
def test_each_row_gives_any_number_of_rows_with_its_timestamp_and_kind(
    counts: list[int], capacity: int, order: str
) -> None:
    batch = numbers(counts)
    kinds, timestamps = pa.array([n % 2 for n in counts], pa.int8()), pa.array(range(len(counts)), pa.int64())
    with running(as_often_as_it_says, capacity=capacity, order=order) as operator:
        operator.process(Batch(batch.data, timestamps, kinds))
        made = [
            (row["m"], at, kind)
            for out in operator.out.batches
            for row, at, kind in zip(
                out.data.to_pylist(),
                out.timestamps.to_pylist(),
                out.kinds.to_pylist(),
                strict=True,  # type: ignore[union-attr]
            )
        ]
    expected = [(n, at, n % 2) for at, n in enumerate(counts) for _ in range(n)]
    assert (made if order == "ordered" else sorted(made)) == (expected if order == "ordered" else sorted(expected))


class Unsteady(AsyncFunction):
    """Fails as many times for each row as `failures` says, and changes the row that it is given."""

    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self._failures, self._error = failures, error
        self._calls: dict[int, int] = {}

    async def process(self, row: Row) -> Row:
        n = row.pop("n")
        self._calls[n] = self._calls.get(n, 0) + 1
        if self._calls[n] <= self._failures:
            raise self._error(f"call {self._calls[n]}")
        return {"n": n, "calls": self._calls[n]}


def test_calls_that_fail_are_made_again() -> None:
    retry = AsyncRetry(attempts=3, delay="0ms", on=(ConnectionError,))
    with running(Unsteady(2), retry=retry) as operator:
        operator.process(numbers([1, 2]))
        assert operator.out.rows == [{"n": 1, "calls": 3}, {"n": 2, "calls": 3}]


@pytest.mark.parametrize(
    ("function", "retry", "calls"),
    [
        (Unsteady(3), AsyncRetry(attempts=3, delay="0ms"), 3),
        (Unsteady(1), None, 1),
        (Unsteady(1, KeyError), AsyncRetry(delay="0ms", on=(ConnectionError,)), 1),
    ],
)
def test_the_last_failure_is_an_error_with_the_row(function: Unsteady, retry: AsyncRetry | None, calls: int) -> None:
    with running(function, retry=retry) as operator, pytest.raises(UserCodeError, match=f"call {calls}") as caught:
        operator.process(numbers([7]))
    assert caught.value.given == "{'n': 7}"
    assert "in process" in caught.value.traceback
    assert "async_function.py" not in caught.value.traceback.replace("test_async_function.py", "")


def test_pauses_grow_by_the_backoff() -> None:
    assert list(AsyncRetry(attempts=4, delay="100ms", backoff=3.0).pauses()) == pytest.approx([0.1, 0.3, 0.9])
    assert list(AsyncRetry(attempts=1).pauses()) == []


async def never(row: Row) -> Row:
    await asyncio.Event().wait()
    return row


def test_a_call_that_takes_too_long_is_an_error_that_says_what_to_do() -> None:
    with running(never, timeout="1ms") as operator, pytest.raises(CallTimeoutError) as caught:
        operator.process(numbers([7]))
    assert str(caught.value) == (
        "operator 'tested', subtask 0: the function of map_async took longer for a row than its timeout of 1ms\n"
        "  called with: {'n': 7}"
    )
    assert "timeout(row)" in report(caught.value)


async def refuses(row: Row) -> Row:
    raise ValueError("no such city")


def test_the_traceback_of_a_call_that_fails_begins_with_the_users_own_line() -> None:
    with running(refuses) as operator, pytest.raises(UserCodeError) as caught:
        operator.process(numbers([7]))
    assert caught.value.traceback.count("File ") == 1, caught.value.traceback
    assert "in refuses" in caught.value.traceback


class Late(AsyncFunction):
    """Never answers for even numbers; remembers which calls were cancelled."""

    def open(self, context: RuntimeContext) -> None:
        self.cancelled: list[int] = []

    async def process(self, row: Row) -> Row:
        if row["n"] % 2:
            return {"n": row["n"]}
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(row["n"])
            raise
        return row


class Defaulting(Late):
    def timeout(self, row: Row) -> list[Row]:
        return [{"n": -row["n"]}]


def test_timeout_may_give_rows_instead() -> None:
    with running(Defaulting, timeout="1ms") as operator:
        operator.process(numbers([1, 2, 3, 4]))
        assert [row["n"] for row in operator.out.rows] == [1, -2, 3, -4]
        function: Any = operator.operator
        assert function._own.cancelled == [2, 4]


class InThread(AsyncFunction):
    """Waits in a thread that nobody can cancel."""

    def __init__(self, released: threading.Event, ended: list[bool]) -> None:
        self._released, self._ended = released, ended

    def __deepcopy__(self, memo: object) -> InThread:
        return self

    async def process(self, row: Row) -> Row:
        await asyncio.to_thread(self._work)
        return row

    def _work(self) -> None:
        self._released.wait(20)
        self._ended.append(True)

    def timeout(self, row: Row) -> Row:
        return {"n": -1}


def test_a_thread_that_never_ends_does_not_keep_the_job_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_function, "_CANCEL_SECONDS", 0.05)
    released, ended = threading.Event(), list[bool]()
    try:
        with running(InThread(released, ended), timeout="10ms") as operator:
            operator.process(numbers([1]))
            assert operator.take_rows() == [{"n": -1}]
        assert ended == []
    finally:
        released.set()


def test_a_thread_that_ends_soon_is_waited_for() -> None:
    released, ended = threading.Event(), list[bool]()
    with running(InThread(released, ended), timeout="10ms") as operator:
        operator.process(numbers([1]))
        released.set()
    assert ended == [True]


def test_a_timeout_that_is_not_overridden_is_an_error() -> None:
    with running(Late, timeout="1ms") as operator, pytest.raises(CallTimeoutError, match="timeout of 1ms"):
        operator.process(numbers([2]))


def test_a_timeout_error_of_the_function_itself_is_no_timeout() -> None:
    async def raises(row: Row) -> Row:
        raise TimeoutError("the service said so")

    with running(raises) as operator, pytest.raises(UserCodeError, match="the service said so"):
        operator.process(numbers([1]))


class FailsBesideOthers(Late):
    async def process(self, row: Row) -> Row:
        if row["n"] == 5:
            raise ValueError("no")
        return await super().process(row)


def test_an_error_cancels_the_other_calls() -> None:
    with running(FailsBesideOthers) as operator:
        with pytest.raises(UserCodeError, match="ValueError: no"):
            operator.process(numbers([2, 4, 5, 6]))
        function: Any = operator.operator
        assert sorted(function._own.cancelled) == [2, 4, 6]


def test_a_call_that_cancels_itself_is_an_error_with_the_row() -> None:
    async def cancels(row: Row) -> Row:
        raise asyncio.CancelledError

    with running(cancels) as operator, pytest.raises(UserCodeError, match="was cancelled by something"):
        operator.process(numbers([1]))


@pytest.mark.parametrize("made", [3, "text", b"bytes"])
def test_what_is_no_row_is_refused(made: object) -> None:
    async def wrong(row: Row) -> Any:
        return made

    with running(wrong) as operator, pytest.raises(RecordError, match="not rows; return a dict"):
        operator.process(numbers([1]))


EVENTS: list[str] = []


class Client(AsyncFunction):
    """Holds a task in the background, as clients do that keep a connection alive."""

    async def open(self, context: RuntimeContext) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.alive = asyncio.get_running_loop().create_task(asyncio.Event().wait())
        self.place = (context.operator, context.subtask, context.parallelism)

    async def process(self, row: Row) -> Row:
        return {"place": str(self.place), "alive": not self.alive.done()}

    async def close(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        EVENTS.append(f"closed, alive: {not self.alive.done()}")


def test_open_and_close_run_in_the_loop_and_may_be_awaited() -> None:
    EVENTS.clear()
    with running(Client) as operator:
        operator.process(numbers([1]))
        operator.process(numbers([2]))
        assert operator.out.rows == [{"place": "('tested', 0, 1)", "alive": True}] * 2
    assert EVENTS == ["closed, alive: True"]


def test_state_is_refused() -> None:
    class Stateful(AsyncFunction):
        def open(self, context: RuntimeContext) -> None:
            context.get_state(ValueStateDescriptor("n", "int64"))

        async def process(self, row: Row) -> None:
            return None

    with pytest.raises(StateError, match="an AsyncFunction has no state"), running(Stateful):
        pass


def test_each_subtask_works_on_a_copy() -> None:
    given = Unsteady(1)
    retry = AsyncRetry(delay="0ms")
    for _ in range(2):
        with running(given, retry=retry) as operator:
            operator.process(numbers([1]))
            assert operator.out.rows == [{"n": 1, "calls": 2}]


def test_close_without_open_does_nothing() -> None:
    AsyncFunctionSpec(never).create().close()


def test_the_thread_of_an_event_loop_is_refused_with_the_remedy() -> None:
    env = local_environment()
    env.from_collection([{"n": 1}]).map_async(as_often_as_it_says).collect()

    async def notebook() -> None:
        env.execute()

    with pytest.raises(Exception, match=r"asyncio\.to_thread"):
        asyncio.run(notebook())


def plain(row: Row) -> Row:
    return row


async def yields(row: Row) -> Any:
    yield row


class NotAsync(AsyncFunction):
    def process(self, row: Row) -> Row:  # type: ignore[override]
        return row


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (plain, "for a function that does not await anything use map"),
        (NotAsync, "takes an AsyncFunction or an `async def` function"),
        (NotAsync(), "takes an AsyncFunction or an `async def` function"),
        (yields, "return a list of them"),
        (threading.Thread, "class Thread is no AsyncFunction"),
        (3, "takes an AsyncFunction or an `async def` function of a row, not 3"),
    ],
)
def test_what_cannot_be_awaited_is_refused_when_the_program_is_written(function: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        local_environment().from_collection([{"n": 1}]).map_async(function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": "0s"}, "timeout must be longer"),
        ({"timeout": 3}, "map_async: timeout: 3 is no duration"),
        ({"capacity": 0}, "capacity must be"),
        ({"order": "sorted"}, '"ordered" or "unordered"'),
        ({"retry": 3}, "must be an AsyncRetry"),
    ],
)
def test_options_are_checked_when_the_program_is_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        local_environment().from_collection([{"n": 1}]).map_async(never, **options)


@pytest.mark.parametrize(
    "options", [{"attempts": 0}, {"attempts": 101}, {"backoff": 0.5}, {"delay": "-1"}, {"on": (3,)}, {"on": OSError}]
)
def test_a_retry_that_cannot_be_used_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"AsyncRetry: {next(iter(options))}"):
        AsyncRetry(**options)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_gives_the_same_rows_at_each_parallelism(parallelism: int) -> None:
    env = local_environment(parallelism, max_batch_rows=4)
    stream = env.from_collection([{"n": n % 5} for n in range(40)]).rebalance()
    rows = stream.map_async(as_often_as_it_says, returns={"m": "int64"}, order="unordered").collect()
    assert sorted(row["m"] for row in rows) == sorted(n % 5 for n in range(40) for _ in range(n % 5))
