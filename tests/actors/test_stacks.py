"""Where threads are: which stacks are seen, and whether their threads have the processor."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    def missing(self: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("pathlib.Path.read_text", missing)
    with running("rests", rest):
        stacks = list(sampled_stacks(0.0, ("rests",)))
    assert of("rests", stacks) == (1, 1)


def test_one_look_takes_no_time_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it slept"))
    with running("rests", rest):
        assert [one.count for one in sampled_stacks(0.0, ("rests",))] == [1]
