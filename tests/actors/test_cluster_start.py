"""The cluster of a program that comes up while the program goes on, and what waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock, patch

import pytest

from penstock import start_cluster
from penstock.actors.background_start import BackgroundStart, await_start
from penstock.actors.cluster import connect

SECONDS = 120.0
PROGRAM = """
import atexit, os, signal, sys, threading, time
import ray
import penstock as ps
from penstock.actors import embedded_start
from penstock.actors.embedded import control_service

def processes():
    return ray._private.worker._global_node.all_processes

def show_monitor():
    "What Ray's own end of the process finds."
    (monitor,) = processes()["monitor"]
    waits = "waits" if ray._private.worker.time is time else "at once"
    print("killed" if monitor.process.wait(10) == -signal.SIGKILL else "ended", waits)

def later():
    return [name for name in ("monitor", "dashboard") if name in processes()]

atexit.register(show_monitor)

ps.start_cluster(3)
env = ps.StreamEnvironment(parallelism=1)
loaded = env.from_collection([{"x": 1}]).map(lambda row: {"x": "pydantic" in sys.modules}, returns={"x": "bool"})
rows = loaded.collect()
env.execute()
print(rows.to_arrow().to_pylist(), ray.cluster_resources()["CPU"] >= 3, later())
embedded_start._LATER_SECONDS = 0.0
node = ray._private.worker._global_node
threading.Thread(target=node.start_rest, args=(control_service().pid,), daemon=True).start()
while len(later()) < 2:
    threading.Event().wait(0.05)
print(later())
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGTERM)
"""


class _Ray:
    """What `ray.init` does, when the test lets it.

    Args:
        failures: how often it fails first.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int = 0) -> None:
        self.begun, self.may_go_on, self.calls = threading.Event(), threading.Event(), 0
        self._failures, self._is_up = failures, False
        monkeypatch.setattr("ray.init", self._init)
        # The cluster of the tests has all that is started later.
        monkeypatch.setattr("penstock.actors.embedded_start.control_service", lambda: None)
        monkeypatch.setattr("ray.is_initialized", lambda: self._is_up)
        monkeypatch.setattr("ray.get_runtime_context", MagicMock)
        monkeypatch.setattr("penstock.actors.cluster._check_size", lambda cpus: None)
        monkeypatch.setattr("penstock.actors.warm_processes.start_early", lambda count: None)

    def _init(self, **options: object) -> None:
        self.calls += 1
        self.begun.set()
        assert self.may_go_on.wait(SECONDS)
        if self.calls <= self._failures:
            raise RuntimeError("no room")
        self._is_up = True


def test_who_connects_waits_for_the_cluster_and_starts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Ray(monkeypatch)
    with patch.dict("os.environ"), ThreadPoolExecutor() as threads:
        start_cluster()
        assert cluster.begun.wait(SECONDS)
        connecting = threads.submit(connect, None, 1)
        cluster.may_go_on.set()
        connecting.result(SECONDS)
    assert cluster.calls == 1


def test_it_begins_once_and_not_where_the_process_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Ray(monkeypatch)
    with patch.dict("os.environ"):
        start_cluster()
        start_cluster()
        cluster.may_go_on.set()
        await_start()
        start_cluster()
        await_start()
    assert cluster.calls == 1


def test_what_fails_in_the_background_is_tried_again_by_who_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Ray(monkeypatch, failures=1)
    cluster.may_go_on.set()
    with patch.dict("os.environ"):
        start_cluster()
        connect(None, 1)
    assert cluster.calls == 2


def test_a_cluster_that_is_up_stays_whatever_else_fails_in_the_background() -> None:
    def fail() -> None:
        failing.set()
        raise RuntimeError("no warm processes")

    failing = threading.Event()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cluster:
        start = BackgroundStart(lambda: cluster.pid, fail)
        start.start()
        assert failing.wait(SECONDS)
        start.join(0.1)
        assert start.is_alive()
    start.join(SECONDS)
    assert not start.is_alive()


def test_a_job_runs_on_it_and_a_signal_ends_both_in_order_and_without_a_wait() -> None:
    """Its processes load what they need, and the cluster starts what no job needs when it has run for a while."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=SECONDS)
    shown = "[{'x': False}] True []\n['monitor', 'dashboard']\nkilled at once\n"
    assert (done.stdout, done.returncode) == (shown, 143), done.stderr
    assert "SIGTERM" not in done.stderr
