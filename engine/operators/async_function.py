"""The operator of `map_async`: calls an asynchronous function for the rows of each batch, many rows at a time.

The stream API makes its spec. It runs an event loop of its own inside `process_batch` until every call of the batch
has come back, so nothing is in flight between elements, and watermarks and checkpoints need no care (`docs/adr/0007`).
Results are emitted slice by slice. Delays and timeouts are those of asyncio: real time, whatever clock the job runs on.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_threads
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar, get_args

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import APPEND_ONLY, WITH_BEFORE_IMAGES
from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, GraphError, RecordError, SerializationError, StateError
from penstock.engine.functions import AsyncFunction, Row, Rows
from penstock.engine.interruption import pass_interruption
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.rows import RowConverter, batch_rows
from penstock.engine.texts import function_name

Order: TypeAlias = Literal["ordered", "unordered"]
AsyncRowFunction: TypeAlias = "Callable[[Row], Awaitable[Mapping[str, Any] | Rows]]"
_Made = TypeVar("_Made")

_MOST_ATTEMPTS: Final = 100
_LARGEST_BACKOFF: Final = 100.0
_CANCEL_SECONDS: Final = 5.0
_SLICE_ROUNDS: Final = 16
"""How many times the capacity are worked on before what they gave is emitted: it idles once a slice."""


@dataclass(frozen=True, slots=True)
class AsyncRetry:
    """Calls that failed are made again, later and later, until the timeout of `map_async` ends them.

    Args:
        attempts: how many calls there may be for a row, the first included; 1 to 100.
        delay: how long to wait behind the first one that failed.
        backoff: each further wait is this many times as long as the one before; 1.0 to 100.0.
        on: the exceptions that are worth another call.

    Raises:
        ConfigurationError: names what cannot be used.

    Example:
        >>> list(AsyncRetry(attempts=4, delay="100ms", backoff=2.0).pauses())
        [0.1, 0.2, 0.4]
    """

    attempts: int = 3
    delay: Duration = "100ms"
    backoff: float = 2.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        attempts, backoff, on = self.attempts, self.backoff, self.on
        if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= _MOST_ATTEMPTS:
            raise ConfigurationError(
                f"AsyncRetry: attempts must be a whole number from 1 to {_MOST_ATTEMPTS}, not {attempts!r}"
            )
        if not isinstance(backoff, int | float) or not 1 <= backoff <= _LARGEST_BACKOFF:
            raise ConfigurationError(
                f"AsyncRetry: backoff must be a number from 1 to {_LARGEST_BACKOFF:g}, not {backoff!r}"
            )
        parse_duration(self.delay, "AsyncRetry: delay")
        if not isinstance(on, tuple) or not all(inspect.isclass(one) and issubclass(one, Exception) for one in on):
            raise ConfigurationError(f"AsyncRetry: on must be a tuple of exception classes, not {on!r}")

    def pauses(self) -> Iterator[float]:
        """The seconds to wait behind each attempt that failed, but the last."""
        seconds = parse_duration(self.delay, "AsyncRetry: delay") / 1000
        for _ in range(self.attempts - 1):
            yield seconds
            seconds *= self.backoff


_ONCE: Final = AsyncRetry(attempts=1)


@dataclass(frozen=True, slots=True)
class AsyncFunctionSpec(OperatorSpec):
    """Creates the operator that calls `function` with each row.

    Args:
        function: an `AsyncFunction`, or a class of such, or an `async def` function of a row that returns a dict, a
            list of dicts, or None.
        schema: the declared columns of its result, or None to infer them.
        timeout: how long the work on a row may take, with all retries.
        capacity: how many rows are worked on at a time.
        order: whether rows are emitted in the order of the input, or in that in which they are done.
        retry: which calls are made again; None for none.

    Raises:
        GraphError: `function` is none of these.
        ConfigurationError: an option that cannot be used.
    """

    function: AsyncFunction | type[AsyncFunction] | AsyncRowFunction
    schema: SchemaOrUnknown = None
    timeout: Duration = "60s"
    capacity: int = 100
    order: Order = "ordered"
    retry: AsyncRetry | None = None

    def __post_init__(self) -> None:
        _check_function(self.function)
        if not parse_duration(self.timeout, "map_async: timeout"):
            raise ConfigurationError(f"map_async: timeout must be longer than nothing, not {self.timeout!r}")
        if not isinstance(self.capacity, int) or isinstance(self.capacity, bool) or self.capacity < 1:
            raise ConfigurationError(f"map_async: capacity must be a whole number of 1 or more, not {self.capacity!r}")
        if self.order not in get_args(Order):
            raise ConfigurationError(f'map_async: order must be "ordered" or "unordered", not {self.order!r}')
        if self.retry is not None and not isinstance(self.retry, AsyncRetry):
            raise ConfigurationError(f"map_async: retry must be an AsyncRetry, not {self.retry!r}")

    def create(self) -> Operator:
        return AsyncFunctionOperator(self)

    def describe(self) -> str:
        return f"map_async({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        # Results that overtake others of their batch would bring a delete before its insert.
        modes = WITH_BEFORE_IMAGES if self.order == "ordered" else APPEND_ONLY
        return OperatorTraits(order=RowOrder.NONE, accepts=(modes,), emits=None)


def _check_function(function: object) -> None:
    kind = function if inspect.isclass(function) else type(function)
    if inspect.isclass(function) and not issubclass(function, AsyncFunction):
        raise GraphError(f"map_async: class {function.__qualname__} is no AsyncFunction; derive it from that")
    if kind is not AsyncFunction and issubclass(kind, AsyncFunction) and kind.process is AsyncFunction.process:
        raise GraphError(f"map_async: {kind.__name__} does not implement `async def process(self, row)`")
    method = kind.process if issubclass(kind, AsyncFunction) else function
    if inspect.isasyncgenfunction(method):
        raise GraphError("map_async: the function yields its rows; let it return a list of them")
    if not inspect.iscoroutinefunction(method):
        raise GraphError(
            f"map_async takes an AsyncFunction or an `async def` function of a row, not {function!r:.200}; for a "
            "function that does not await anything use map or flat_map"
        )


class _RowFunction(AsyncFunction):
    """An `async def` function of a row."""

    def __init__(self, function: AsyncRowFunction) -> None:
        self._function = function

    async def process(self, row: Row) -> Any:
        return await self._function(row)


class AsyncRuntime:
    """The `RuntimeContext` of an `AsyncFunction`, which has no state: its calls end in no certain order."""

    def __init__(self, context: OperatorContext) -> None:
        self._where = context.where
        self.operator = context.operator
        self.subtask = context.subtask
        self.parallelism = context.parallelism
        self.is_restored = context.restored is not None
        self.metrics = context.metrics.group
        self.cached_file = context.cached_file

    def _no_state(self, descriptor: object) -> NoReturn:
        raise StateError(
            f"{self._where}: an AsyncFunction has no state; keep it in a process function before or behind map_async"
        )

    get_state = get_list_state = get_map_state = get_reducing_state = get_aggregating_state = _no_state
    get_operator_list_state = get_union_list_state = _no_state


class AsyncFunctionOperator(Operator):
    """Calls the subtask's own copy of the user's function."""

    def __init__(self, settings: AsyncFunctionSpec) -> None:
        self._settings = settings
        self._seconds = parse_duration(settings.timeout, "map_async: timeout") / 1000
        self._retry = settings.retry or _ONCE
        self._function: AsyncFunction | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = _Threads()

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._converter = RowConverter(self._settings.schema, context.where)
        self._check_thread()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(self._threads)
        self._function = self._create(context)
        try:
            self._run(lambda: _awaited(self._own.open, AsyncRuntime(context)))
        except USER_FAILURES as error:
            raise context.life_cycle_error(error, "open(context)") from error

    @property
    def _own(self) -> AsyncFunction:
        assert self._function is not None, "called before open"
        return self._function

    def _create(self, context: OperatorContext) -> AsyncFunction:
        given: Any = self._settings.function
        if isinstance(given, type):
            try:
                own: AsyncFunction = given()
                return own
            except USER_FAILURES as error:
                raise context.life_cycle_error(error, f"{given.__name__}()") from error
        try:
            copied = copy.deepcopy(given)
        except Exception as error:
            raise SerializationError(
                f"{context.where}: {given!r} cannot be copied ({type(error).__name__}: {error}); each subtask needs "
                "one of its own, so pass the class, or create in open(context) what cannot be copied"
            ) from error
        return copied if isinstance(copied, AsyncFunction) else _RowFunction(copied)

    def _check_thread(self) -> None:
        if _is_in_event_loop():
            raise ConfigurationError(
                f"{self._context.where}: map_async cannot run in the thread of an event loop, such as that of a "
                'notebook; use runtime="ray", or run the job in another thread: await asyncio.to_thread(env.execute)'
            )

    def _run(self, start: Callable[[], Coroutine[Any, Any, _Made]]) -> _Made:
        assert self._loop is not None, "called before open"
        self._check_thread()
        return self._loop.run_until_complete(start())

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        most = self._settings.capacity * _SLICE_ROUNDS
        for start in range(0, batch.num_rows, most):
            self._process_slice(batch.slice(start, most), out)

    def _process_slice(self, batch: Batch, out: Collector) -> None:
        rows = batch_rows(batch.data, self._context.where)
        done = self._call_in_loop(rows)
        if self._settings.order == "ordered":
            done.sort(key=lambda made: made[0])
        made = [row for _, some in done for row in some]
        if not made:
            return
        counts = [len(some) for _, some in done]
        origin = pa.array(np.repeat(np.array([index for index, _ in done], np.int64), counts))
        data = self._converter.convert(made)
        timestamps = None if batch.timestamps is None else batch.timestamps.take(origin)
        out.collect(Batch(data, timestamps, None if batch.kinds is None else batch.kinds.take(origin)))

    def _call_in_loop(self, rows: Sequence[Row]) -> list[tuple[int, Sequence[Any]]]:
        try:
            return self._run(lambda: self._call_all(rows))
        except Exception:
            raise
        except USER_FAILURES as error:
            # No call of a row has raised it.
            raise self._context.life_cycle_error(error, "a task that process(row) has begun") from error

    async def _call_all(self, rows: Sequence[Row]) -> list[tuple[int, Sequence[Any]]]:
        """What each row gave, with its index, in the order in which they were done."""
        waiting = iter(enumerate(rows))
        done: list[tuple[int, Sequence[Any]]] = []

        async def work() -> None:
            for index, row in waiting:
                done.append((index, await self._call(row)))

        workers = [asyncio.ensure_future(work()) for _ in range(min(self._settings.capacity, len(rows)))]
        try:
            await asyncio.gather(*workers)
        finally:
            await _cancelled(workers)
        return done

    async def _call(self, row: Row) -> Sequence[Any]:
        """The rows for one row."""
        call = asyncio.ensure_future(self._outcome(row))
        try:
            await asyncio.wait([call], timeout=self._seconds)
        finally:
            in_time = call.done()
            await _cancelled([call])
        if in_time and not call.cancelled() and (failure := call.exception()) is not None:
            if not isinstance(failure, Exception):
                # An interruption, which has left the loop already: this is its shutdown.
                raise asyncio.CancelledError from failure
            raise self._context.user_code_error(failure, row) from failure
        if not in_time and type(self._own).timeout is AsyncFunction.timeout:
            raise self._context.call_timeout_error(format_duration(round(self._seconds * 1000)), row)
        try:
            return _rows(call.result() if in_time else self._own.timeout(dict(row)), self._context.where)
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error

    async def _outcome(self, row: Row) -> Any:
        """What the attempts give. At an exit asyncio would leave its loop, and with it the calls for other rows."""
        try:
            return await self._attempts(row)
        except Exception:
            raise
        except asyncio.CancelledError as error:
            raise RuntimeError(
                "process() was cancelled by something that it called or awaited; handle asyncio.CancelledError in it"
            ) from error
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error

    async def _attempts(self, row: Row) -> Any:
        for pause in self._retry.pauses():
            try:
                return await self._own.process(dict(row))
            except self._retry.on:
                await asyncio.sleep(pause)
        return await self._own.process(dict(row))

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            if self._function is not None and not _is_in_event_loop():
                loop.run_until_complete(_awaited(self._function.close))
        except USER_FAILURES as error:
            raise self._context.life_cycle_error(error, "close()") from error
        finally:
            _shut_down(loop, self._threads)


class _Threads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`, which knows what they are doing."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="map_async")
        self._working: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., _Made], /, *args: Any, **kwargs: Any) -> Future[_Made]:
        """As that of `ThreadPoolExecutor`."""
        future = super().submit(fn, *args, **kwargs)
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        return future

    def leave(self, seconds: float) -> None:
        """Wait for what is being done, but no longer: asyncio would wait for ever for a call that never returns."""
        self.shutdown(wait=False, cancel_futures=True)
        wait_for_threads(list(self._working), timeout=seconds)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(hook: Callable[..., Any], *arguments: Any) -> None:
    """Call a hook where the loop runs, so that it can create clients that need one; it may be a coroutine function."""
    made = hook(*arguments)
    if inspect.isawaitable(made):
        await made


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel those that still run, and let them clean up; one that will not end is left behind after a while."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=_CANCEL_SECONDS)
    for task in tasks:
        if task.done() and not task.cancelled():
            # Asked for, so that asyncio does not report it as lost: the first error is the one that counts.
            task.exception()


def _rows(made: object, where: str) -> Sequence[Any]:
    if made is None:
        return ()
    if isinstance(made, Mapping):
        return (made,)
    if isinstance(made, str | bytes) or not isinstance(made, Iterable):
        raise RecordError(
            f"{where}: the function of map_async gave {made!r:.200} ({type(made).__name__}), not rows; return a dict, "
            "a list of dicts, or None for no rows"
        )
    return list(made)


def _run_out(loop: asyncio.AbstractEventLoop, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what ends things in the loop, again where asyncio leaves it because a task has raised an exit."""
    while True:
        try:
            loop.run_until_complete(start())
        except Exception:
            raise
        except USER_FAILURES as error:
            pass_interruption(error)
        else:
            return


def _shut_down(loop: asyncio.AbstractEventLoop, threads: _Threads) -> None:
    """Close the loop, as `asyncio.run` does: what still runs in it is cancelled first, and left after a while."""
    try:
        if _is_in_event_loop():
            return
        _run_out(loop, lambda: _cancelled(list(asyncio.all_tasks(loop))))
        _run_out(loop, loop.shutdown_asyncgens)
        threads.leave(_CANCEL_SECONDS)
    finally:
        loop.close()
