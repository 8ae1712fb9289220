"""Ctrl-C and SIGTERM at any moment: a local job stops between two steps, whole, and can be ended or moved on."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.connectors.datagen import DataGenSource, Sequence
from penstock.connectors.files.sink import FileSink
from penstock.engine.clock import ManualClock
from penstock.engine.job.status import JobStatus
from penstock.engine.job.termination import ProcessEnd, termination
from penstock.engine.local.interrupts import InterruptibleClock, Interrupts
from penstock.environment import StreamEnvironment
from penstock.recovery import checkpoints
from tests.engine.helpers import Row, local_environment

pytestmark = pytest.mark.usefixtures("as_a_process_of_its_own")

ROWS = 2_000
_INTERRUPTS = 500


class _Moments:
    """Interrupts the main thread at random calls of functions.

    Args:
        seed: chooses the calls.
        apart: the most calls from one to the next.
        most: how many interrupts at the most.
        number: the signal.
    """

    def __init__(self, seed: int, apart: int, most: int, number: int = signal.SIGINT) -> None:
        self._random = random.Random(seed)
        self._apart = apart
        self._calls = self._random.randint(1, apart)
        self.left = most
        self._number = number

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        # Not where it would end the process of the tests.
        if event not in ("call", "c_call") or not self.left or not callable(signal.getsignal(self._number)):
            return
        self._calls -= 1
        if not self._calls:
            self._calls = self._random.randint(1, self._apart)
            self.left -= 1
            signal.raise_signal(self._number)


def _program(folder: Path) -> StreamEnvironment:
    """Rows into Parquet files in random order of work, with a checkpoint for every 60 rows or so."""
    clock = ManualClock()

    def later(row: Row) -> Row:
        clock.advance(0.001)
        return row

    recovery = checkpoints("60ms", str(folder / "checkpoints"))
    env = local_environment(2, max_batch_rows=20, clock=clock, checkpoints=recovery)
    rows = env.from_source(DataGenSource({"i": Sequence()}, rows=ROWS))
    rows.rebalance().map(later).sink_to(FileSink(str(folder / "rows"), "parquet"))
    return env


def test_a_job_that_is_interrupted_500_times_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    job = _program(tmp_path).submit()
    moments = _Moments(seed=1, apart=200, most=_INTERRUPTS)
    heard, more = 0, True
    while more:
        try:
            with moments.interrupting():
                more = job.pump()
        except KeyboardInterrupt:
            heard += 1
    assert job.status() is JobStatus.FINISHED
    assert moments.left == 0, "the job was over before it had been interrupted as often as it should be"
    assert heard > 100, "those that come during one step are one"
    assert sorted(pq.read_table(tmp_path / "rows")["i"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize("seed", range(10))
def test_an_interrupt_at_any_moment_ends_the_job_of_a_call(seed: int, tmp_path: Path) -> None:
    env = _program(tmp_path)
    moments = _Moments(seed, apart=10_000, most=1)
    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), moments.interrupting():
        env.execute()
    assert list(tmp_path.rglob("*.inprogress")) == []
    assert set(threading.enumerate()) <= threads
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("seed", range(2))
def test_who_is_told_to_end_ends_the_job_of_a_call_whole_and_keeps_its_newest_checkpoint(
    seed: int, tmp_path: Path
) -> None:
    job = _program(tmp_path).submit("rows")
    job.checkpoint()
    with pytest.raises(SystemExit) as ended, _Moments(seed, 10_000, 1, signal.SIGTERM).interrupting(), job.attached():
        job.wait()
    assert ended.value.code == 143
    assert [name for name in os.listdir(tmp_path / "rows") if name.endswith(".inprogress")] == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    _program(tmp_path).execute("rows", resume="latest")
    assert [name for name in os.listdir(tmp_path / "rows") if name.startswith(".")] == []
    assert sorted(pq.read_table(tmp_path / "rows")["i"].to_pylist()) == list(range(ROWS))


def _interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_a_wait() -> None:
    class Waits(ManualClock):
        def wait_until(self, deadline: float) -> None:
            _interrupt()
            raise AssertionError("the wait goes on")

    interrupts = Interrupts("job")
    reached = []

    def wait() -> None:
        with interrupts.held():
            InterruptibleClock(Waits(), interrupts).wait_until(1.0)
            reached.append("behind the wait")

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert reached == ["behind the wait"]


def test_who_interrupts_again_ends_a_step_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.5, 1.0])
    monkeypatch.setattr("penstock.engine.local.interrupts.time.monotonic", lambda: next(now))
    reached = []

    def step() -> None:
        with Interrupts("job").held():
            for number in range(3):
                _interrupt()
                reached.append(number)

    with pytest.raises(KeyboardInterrupt):
        step()
    assert reached == [0, 1]


def test_who_interrupts_a_function_hears_what_the_job_waits_for_and_how_to_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def slow(row: Row) -> Row:
        _interrupt()
        _interrupt()
        return row

    env = local_environment(1)
    env.from_collection([{"i": 1}]).map(slow).print()
    with pytest.raises(KeyboardInterrupt):
        env.execute("orders")
    (said,) = [record.message for record in caplog.records if record.message.startswith("interrupted")]
    assert said == (
        "interrupted: job 'orders' stops as soon as operator 'map(slow)' has done what it is at; a second Ctrl-C, "
        "after a second or more, ends it there"
    )


@pytest.mark.parametrize("handler", [signal.default_int_handler, lambda *_: sys.exit("evicted")])
def test_a_step_that_takes_long_ends_between_two_calls_of_a_function(
    handler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"now": 0.0}
    clock = SimpleNamespace(monotonic=lambda: seconds["now"])
    monkeypatch.setattr("penstock.engine.local.interrupts.time", clock)
    calls: list[str] = []

    def slow(row: Row) -> Row:
        calls.append(f"{row['i']} begins")
        if row["i"] == 1:
            _interrupt()
        seconds["now"] += 0.4
        calls.append(f"{row['i']} ends")
        return row

    env = local_environment(1)
    env.from_collection([{"i": i} for i in range(100)]).map(slow).print()
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            env.execute()
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [f"{number} {what}" for number in range(4) for what in ("begins", "ends")]
    assert sys.gettrace() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_goes_on_where_a_handler_of_the_programs_own_does(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.local.interrupts._STUCK_SECONDS", 0.0)
    heard: list[int] = []

    def told(row: Row) -> Row:
        if row["i"] in (3, 5):
            signal.raise_signal(number)
        heard.append(row["i"])
        return row

    before = signal.signal(number, lambda number, frame: heard.append(-1))
    env = local_environment(1)
    rows = env.from_collection([{"i": i} for i in range(8)]).map(told).collect()
    try:
        env.execute()
    finally:
        signal.signal(number, before)
    assert [row["i"] for row in rows] == list(range(8))
    assert heard == [0, 1, 2, 3, -1, 4, 5, -1, 6, 7]
    assert sys.gettrace() is None


def test_a_handler_of_the_programs_own_is_called_between_two_steps() -> None:
    heard: list[str] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append("interrupt"))
    try:
        interrupts = Interrupts("job")
        with interrupts.held(), interrupts.held():
            _interrupt()
            heard.append("step")
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["step", "interrupt"]


def test_a_thread_is_not_interrupted_and_holds_nothing() -> None:
    with ThreadPoolExecutor(1) as pool:
        handler = pool.submit(_handler_while_held).result()
    assert handler is signal.default_int_handler


def _handler_while_held() -> object:
    with Interrupts("job").held():
        return signal.getsignal(signal.SIGINT)


def test_a_job_that_is_waited_for_within_another_keeps_its_newest_checkpoint_too(tmp_path: Path) -> None:
    outer, inner = (_program(tmp_path / name).submit(name) for name in ("outer", "inner"))
    inner.checkpoint()
    with pytest.raises(SystemExit), outer.attached(), inner.attached():
        signal.raise_signal(signal.SIGTERM)
    assert outer.status() is JobStatus.CANCELLED
    _program(tmp_path / "inner").execute("inner", resume="latest")
    assert sorted(pq.read_table(tmp_path / "inner" / "rows")["i"].to_pylist()) == list(range(ROWS))


def test_a_job_is_suspended_though_its_process_is_told_to_end_twice(tmp_path: Path) -> None:
    job = _program(tmp_path).submit("rows")
    job.checkpoint()
    suspend, told = job.suspend, []

    def suspended() -> None:
        signal.raise_signal(signal.SIGTERM)
        suspend()
        told.append(job.status())

    job.suspend = suspended  # type: ignore[method-assign]
    with pytest.raises(SystemExit), job.attached():
        signal.raise_signal(signal.SIGTERM)
    assert told == [JobStatus.CANCELLED]


@pytest.mark.parametrize("seed", range(4))
def test_a_program_that_ends_by_its_own_handler_ends_its_job_whole(seed: int, tmp_path: Path) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("evicted"))
    job = _program(tmp_path).submit("rows")
    job.checkpoint()
    with pytest.raises(SystemExit) as ended, _Moments(seed, 10_000, 1, signal.SIGTERM).interrupting(), job.attached():
        job.wait()
    assert ended.value.code == "evicted"
    assert job.status() is JobStatus.CANCELLED
    _program(tmp_path).execute("rows", resume="latest")
    assert sorted(pq.read_table(tmp_path / "rows")["i"].to_pylist()) == list(range(ROWS))


def test_a_program_that_goes_on_when_it_is_told_to_end_has_its_job_go_on(tmp_path: Path) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    with _Moments(0, 4_000, 20, signal.SIGTERM).interrupting():
        _program(tmp_path).execute("rows")
    assert len(heard) > 10, "those that come during one step are one"
    assert sorted(pq.read_table(tmp_path / "rows")["i"].to_pylist()) == list(range(ROWS))


def test_a_step_that_takes_long_is_not_ended_by_a_handler_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.5, 1.0, 1.5])
    monkeypatch.setattr("penstock.engine.local.interrupts.time.monotonic", lambda: next(now))
    heard: list[str] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append("told to end"))
    with Interrupts("job").held():
        for _ in range(4):
            signal.raise_signal(signal.SIGTERM)
            heard.append("step")
    assert heard == ["step", "step", "told to end", "step", "told to end", "step", "told to end"]


def test_one_that_comes_while_handlers_are_put_back_leaves_none_behind() -> None:
    interrupts, here = Interrupts("job"), signal.getsignal(signal.SIGINT)
    put_back = signal.signal

    def interrupted(number: int, handler: Any) -> Any:
        if handler is here:
            signal.raise_signal(signal.SIGTERM)
        return put_back(number, handler)

    patched = pytest.MonkeyPatch.context()
    with termination() as told, pytest.raises(SystemExit), patched as patch, interrupts.held():
        patch.setattr(signal, "signal", interrupted)
    assert told.received
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == (here, signal.SIG_DFL)


def test_a_job_is_suspended_where_its_process_would_only_have_ended(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, ProcessEnd(lambda: None).receive)
    try:
        job = _program(tmp_path).submit("rows")
        job.checkpoint()
        with pytest.raises(SystemExit), job.attached():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    _program(tmp_path).execute("rows", resume="latest")
