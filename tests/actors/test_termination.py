"""SIGTERM to a process that has begun Ray, and does not wait for a job yet: its exit code. No Ray is started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from penstock.actors.termination import as_signalled, termination


def _handler_of_ray(number: int, frame: FrameType | None) -> None:
    raise SystemExit(number)


_handler_of_ray.__module__ = "ray._private.worker"


@pytest.fixture(autouse=True)
def _handler_put_back() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def _begin(signalled: bool) -> None:
    """What `ray.init` does about the signal."""
    with as_signalled():
        signal.signal(signal.SIGTERM, _handler_of_ray)
        if signalled:
            os.kill(os.getpid(), signal.SIGTERM)


def test_while_ray_begins() -> None:
    with pytest.raises(SystemExit) as ended:
        _begin(signalled=True)
    assert ended.value.code == 143


def test_before_the_process_waits_for_its_job() -> None:
    _begin(signalled=False)
    with pytest.raises(SystemExit) as ended:
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143


def test_while_it_waits_and_behind_that() -> None:
    _begin(signalled=False)
    with termination() as told:
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        assert (ended.value.code, told.received) == (143, True)
    with pytest.raises(SystemExit) as ended:
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143


def test_a_handler_of_the_program_and_other_exits_stay_as_they_are() -> None:
    with as_signalled():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, as_signalled():
        raise SystemExit(3)
    assert ended.value.code == 3
