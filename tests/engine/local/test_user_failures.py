"""Whatever a function of the user raises ends its job as any error does: place, row, and the user's own lines."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.connectors import ConnectorContext, LookupTable, SinkWriter, Split
from penstock.engine.errors import JobFailedError, LifeCycleError, SplitsError, SubtaskError, UserCodeError
from penstock.engine.functions import (
    Context,
    KeyedProcessFunction,
    OnTimerContext,
    ProcessFunction,
    ProcessWindowFunction,
    Rows,
    RuntimeContext,
)
from penstock.engine.windows.assigners import tumbling
from penstock.error_report import report
from penstock.recovery import fixed_delay
from tests.engine.helpers import RecordingSink, Row, ScriptedSource, local_environment

pytestmark = pytest.mark.usefixtures("as_a_process_of_its_own")


class Stop(BaseException):
    """A program's own."""


KINDS = [ValueError, SystemExit, Stop, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt]
AT_HAND: dict[str, Any] = {}


def fails(*_: Any) -> Any:
    AT_HAND["calls"] += 1
    raise AT_HAND["kind"]("gone")


async def fails_later(row: Row) -> Row:
    await asyncio.sleep(0)
    return dict(fails() if row["x"] == 2 else row)


def fails_as_generator(row: Row) -> Any:
    yield row
    fails()


class Fails(ProcessFunction):
    """At a row."""

    def process_element(self, row: Row, ctx: Context) -> Rows:
        yield row
        fails()


class FailsToOpen(ProcessFunction):
    """Before any."""

    def open(self, context: RuntimeContext) -> None:
        fails()

    def process_element(self, row: Row, ctx: Context) -> Rows:
        yield row


class FailsToClose(FailsToOpen):
    """Behind all."""

    def open(self, context: RuntimeContext) -> None:
        return

    def close(self) -> None:
        fails()


class FailsAtTimer(KeyedProcessFunction):
    """At event time 5."""

    def process_element(self, row: Row, ctx: Context) -> None:
        ctx.timer_service.register_event_time_timer(5)

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
        yield {"timestamp": timestamp}
        fails()


class FailsAtWindow(ProcessWindowFunction):
    """At each."""

    def process(self, key: Any, context: Any, rows: Any) -> Rows:
        fails()
        yield {}


class FailsToLookUp(LookupTable):
    """Has no rows."""

    schema = pa.schema([("k", pa.int64()), ("name", pa.string())])
    keys = ("k",)

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        return fails()

    def describe(self) -> str:
        return "names"


class FailingSink(RecordingSink):
    """At the first row."""

    def open(self, context: ConnectorContext) -> SinkWriter:
        writer = super().open(context)
        writer.write = fails  # type: ignore[method-assign]
        return writer


class FailingSource(ScriptedSource):
    """At the first batch."""

    def open(self, split: Any, context: ConnectorContext) -> Any:
        reader = super().open(split, context)
        reader.next_batch = fails  # type: ignore[method-assign]
        return reader


def _rows(env: Any) -> Any:
    return env.from_collection([{"k": 1, "x": 2}])


def _timed(env: Any) -> Any:
    return _rows(env).assign_timestamps("x").key_by("k")


ROW = "{'k': 1, 'x': 2}"
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "map": (lambda env: _rows(env).map(fails), ROW),
    "flat_map": (lambda env: _rows(env).flat_map(fails_as_generator), ROW),
    "filter": (lambda env: _rows(env).filter(fails), ROW),
    "map_batches": (lambda env: _rows(env).map_batches(fails), "batch of 1 rows"),
    "map_async": (lambda env: _rows(env).map_async(fails_later), ROW),
    "process": (lambda env: _rows(env).process(Fails()), ROW),
    "timer": (lambda env: _timed(env).process(FailsAtTimer()), "on_timer at 5, key 1"),
    "window": (lambda env: _timed(env).window(tumbling("10ms")).process(FailsAtWindow()), "key 1"),
    "lookup": (lambda env: _rows(env).lookup_join(FailsToLookUp(), on="k"), "[{'k': 1}]"),
    "open": (lambda env: _rows(env).process(FailsToOpen()), "open(context)"),
    "close": (lambda env: _rows(env).process(FailsToClose()), "close()"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_function_raises_is_told_with_place_row_and_line(kind: type[BaseException], call: str) -> None:
    AT_HAND.update(kind=kind, calls=0)
    build, given = CALLS[call]
    env = local_environment()
    build(env).sink_to(RecordingSink())
    with pytest.raises(JobFailedError) as caught:
        env.execute("orders")
    cause = caught.value.__cause__
    assert isinstance(cause, UserCodeError)
    assert isinstance(cause, LifeCycleError) is (call in ("open", "close"))
    assert given in cause.given
    assert _files(caught.value) == {__file__}
    shown = report(caught.value).splitlines()
    assert kind.__name__ in " ".join(shown)
    assert '    raise AT_HAND["kind"]("gone")' in shown
    assert len(shown) < 26
    assert shown[-2].startswith("what to do: ")


def _files(error: BaseException) -> set[str]:
    """Those that what a program catches shows lines of."""
    return set(re.findall(r'File "([^"]+)"', str(error)))


def test_all_frames_are_there_for_who_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TRACEBACK", "full")
    AT_HAND.update(kind=ValueError, calls=0)
    env = local_environment()
    _rows(env).sink_to(FailingSink())
    with pytest.raises(JobFailedError) as caught:
        env.execute("orders")
    assert len(_files(caught.value)) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_so_is_what_sinks_and_sources_raise(kind: type[BaseException]) -> None:
    AT_HAND.update(kind=kind, calls=0)
    for is_sink in (True, False):
        env = local_environment()
        rows = _rows(env) if is_sink else env.from_source(FailingSource({"one": []}))
        rows.sink_to(FailingSink())
        with pytest.raises(JobFailedError) as caught:
            env.execute("orders")
        cause = caught.value.__cause__
        assert isinstance(cause, SubtaskError)
        assert (cause.subtask, cause.error) == (0, f"{kind.__name__}: gone")
        assert _files(caught.value) == {__file__}
        assert len(report(caught.value).splitlines()) < 26


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_restarted_whatever_its_function_raised(kind: type[BaseException]) -> None:
    AT_HAND.update(kind=kind, calls=0)
    env = local_environment(restart=fixed_delay(attempts=2, delay="0s"))
    _rows(env).map(fails).sink_to(RecordingSink())
    with pytest.raises(JobFailedError):
        env.execute("orders")
    assert AT_HAND["calls"] == 3


def test_an_exit_within_map_async_leaves_nothing_behind_in_asyncio(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """So it is of a call for a row, and of a task that nobody awaits."""

    async def exits(row: Row) -> Row:
        await asyncio.sleep(0 if row["x"] == 2 else 60)
        return dict(fails())

    async def leaves_a_task(row: Row) -> Row:
        asyncio.get_running_loop().create_task(exits({"x": 2}))
        await asyncio.sleep(60)
        return row

    AT_HAND.update(kind=SystemExit, calls=0)
    for function, given in ((exits, "{'x': 2}"), (leaves_a_task, "a task that process(row) has begun")):
        env = local_environment()
        env.from_collection([{"x": x} for x in range(9)]).map_async(function).sink_to(RecordingSink())
        with pytest.raises(JobFailedError) as caught:
            env.execute("orders")
        assert isinstance(caught.value.__cause__, UserCodeError)
        assert caught.value.__cause__.given == given
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    assert capfd.readouterr() == ("", "")


class Unsplit(ScriptedSource):
    """Cannot say what there is to read."""

    def splits(self, parallelism: int) -> Sequence[Split]:
        raise Stop("the folder is gone")


def test_a_source_without_splits_is_told_before_the_job_begins() -> None:
    env, sink = local_environment(), RecordingSink()
    env.from_source(Unsplit({})).name("events").sink_to(sink)
    with pytest.raises(SplitsError) as caught:
        env.execute("orders")
    shown = report(caught.value)
    assert shown.startswith("Stop: the folder is gone")
    assert "where: source 'events'\nin:    splits(1)\nwhat to do: Mend splits()" in shown
    assert "in splits\n" in shown
    assert "/engine/graph/" not in shown
    assert sink.events == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_second_interrupt_ends_a_function_that_does_not_return(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engine.local.interrupts._STUCK_SECONDS", 0.0)
    cleaned: list[str] = []

    def hangs(row: Row) -> Row:
        try:
            while True:
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            cleaned.append("up")
            raise

    async def hangs_later(row: Row) -> Row:
        return hangs(row)

    env = local_environment(restart=fixed_delay(attempts=2, delay="0s"))
    rows = _rows(env)
    (rows.map_async(hangs_later) if is_async else rows.map(hangs)).sink_to(RecordingSink())
    with pytest.raises(KeyboardInterrupt) as caught:
        env.execute("orders")
    assert type(caught.value) is KeyboardInterrupt, "else Python would not end as by Ctrl-C"
    assert cleaned == ["up"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_sigterm_ends_a_function_as_the_first_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.local.interrupts._STUCK_SECONDS", 0.0)

    def hangs(row: Row) -> Row:
        while True:
            signal.raise_signal(signal.SIGTERM)

    env = local_environment()
    _rows(env).map(hangs).sink_to(RecordingSink())
    with pytest.raises(SystemExit) as ended:
        env.execute("orders")
    assert ended.value.code == 143
