"""Where threads are: which stacks are seen, and whether their threads have the processor."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from penstock.actors.stacks import SampledStack, sampled_stacks


@contextmanager
def running(name: str, act: Callable[[threading.Event], None]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,), name=name)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def spin(over: threading.Event) -> None:
    while not over.is_set():
        sum(range(1000))


def rest(over: threading.Event) -> None:
    over.wait()


def of(thread: str, stacks: list[SampledStack]) -> tuple[int, int]:
    return sum(one.count for one in stacks if one.stack[0] == thread), sum(
        one.on_cpu for one in stacks if one.stack[0] == thread
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="only Linux says what threads have used")
def test_threads_that_compute_are_on_the_processor_and_those_that_wait_are_not() -> None:
    with running("spins", spin), running("rests", rest):
        stacks = list(sampled_stacks(0.2, ("spins", "rests")))
    seen, on_cpu = of("spins", stacks)
    # Beside other work, its looks are further apart; what it waits for a core counts.
    assert seen >= 2
    assert on_cpu > 0
    seen, on_cpu = of("rests", stacks)
    # A first look has nothing to compare with.
    assert on_cpu <= 1 < seen


def test_where_the_system_does_not_say_threads_count_as_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(file: int, length: int, offset: int) -> bytes:
        raise FileNotFoundError

    monkeypatch.setattr(os, "pread", missing)
    with running("rests", rest):
        stacks = list(sampled_stacks(0.0, ("rests",)))
    assert of("rests", stacks) == (1, 1)


def test_one_look_takes_no_time_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it slept"))
    with running("rests", rest):
        assert [one.count for one in sampled_stacks(0.0, ("rests",))] == [1]


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="only Linux says what threads have used")
def test_frames_are_walked_only_of_threads_that_have_run(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = 0
    frames_of = sys._current_frames

    def frames() -> dict[int, FrameType]:
        nonlocal walks
        walks += 1
        return frames_of()

    monkeypatch.setattr(sys, "_current_frames", frames)
    stacks, seen = [], 0
    with running("rests", rest):
        # On a busy machine it comes to rest late, and is looked at seldom.
        while walks >= seen:
            walks = 0
            stacks = list(sampled_stacks(0.1, ("rests",)))
            seen, _ = of("rests", stacks)
    assert seen > 1
    assert all(any("rest (actors/test_stacks.py:" in call for call in one.stack) for one in stacks)


def test_a_thread_is_seen_wherever_it_has_been(monkeypatch: pytest.MonkeyPatch) -> None:
    is_first, go_on, is_second = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        is_first.set()
        go_on.wait()

    def second(over: threading.Event) -> None:
        is_second.set()
        over.wait()

    def act(over: threading.Event) -> None:
        first()
        second(over)

    def sleep(seconds: float) -> None:
        go_on.set()
        is_second.wait()

    monkeypatch.setattr(time, "sleep", sleep)
    with running("moves", act):
        is_first.wait()
        stacks = sampled_stacks(0.05, ("moves",))
        go_on.set()
    functions = {call.split(" ")[0] for one in stacks for call in one.stack}
    assert {"act", "first", "second"} <= functions


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="only Linux lists the files of a process there")
def test_no_file_stays_open_behind_the_looks() -> None:
    with running("rests", rest):
        before = os.listdir("/proc/self/fd")
        sampled_stacks(0.05, ("rests",))
        assert len(os.listdir("/proc/self/fd")) == len(before)
