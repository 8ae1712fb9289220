"""SIGTERM to a process that has begun Ray, and does not wait for a job yet: its exit code. No Ray is started."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType, SimpleNamespace

import pytest

from penstock.actors.termination import _LOST_SECONDS, _await_loss, as_signalled, termination


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


_PROGRAM = """
import atexit, os, signal, threading
from penstock.actors.termination import as_signalled

def handler_of_ray(number, frame):
    raise SystemExit(number)

handler_of_ray.__module__ = "ray._private.worker"
never = threading.Event()

def tell():
    os.kill(os.getpid(), signal.SIGTERM)
    never.wait(60)

def tell_when_the_program_is_over():
    threading.main_thread().join()
    tell()

with as_signalled():
    signal.signal(signal.SIGTERM, handler_of_ray)
{told}
print("rows")
"""


@pytest.mark.parametrize(
    "told", ["atexit.register(tell)", "threading.Thread(target=tell_when_the_program_is_over).start()"]
)
def test_where_the_program_is_over_and_ray_shuts_down(told: str) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(told=told)]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, b"rows\n", b"")


def test_a_cluster_that_another_thread_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.actors.termination.is_embedded", lambda: True)
    with as_signalled():
        pass
    with pytest.raises(SystemExit) as ended:
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143


def test_a_handler_of_the_program_is_still_called_when_a_cluster_of_another_thread_has_put_one_before_it() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    with as_signalled():
        # As C++ sets a handler, of which Python does not know.
        ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.c_void_p(signal.SIG_IGN))
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]


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


def test_a_process_ends_soon_behind_its_own_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    control_service = subprocess.Popen(["sleep", "100"])
    started = SimpleNamespace(head=True, all_processes={"gcs_server": [SimpleNamespace(process=control_service)]})
    monkeypatch.setattr("ray._private.worker._global_node", started)
    ended: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr("penstock.actors.termination._LOST_SECONDS", 0.0)
    monkeypatch.setattr("os._exit", ended.put)
    _begin(signalled=False)
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.empty()
    control_service.kill()
    control_service.wait()
    assert ended.get(timeout=120) == 143


def test_a_process_that_shuts_its_cluster_down_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        # The first time that the control service has ended, `ray.shutdown()` is on its way to forget it.
        if seconds == _LOST_SECONDS:
            monkeypatch.setattr("ray._private.worker._global_node", None)

    control_service = subprocess.Popen(["sleep", "100"])
    started = SimpleNamespace(head=True, all_processes={"gcs_server": [SimpleNamespace(process=control_service)]})
    monkeypatch.setattr("ray._private.worker._global_node", started)
    ended: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr("os._exit", ended.put)
    monkeypatch.setattr("penstock.actors.termination.time", SimpleNamespace(sleep=sleep))
    control_service.kill()
    control_service.wait()
    _await_loss()
    assert ended.empty()
