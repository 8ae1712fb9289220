"""The main thread of a worker looks for signals when it is told to, and not a hundred times a second."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from ray.exceptions import RayActorError

from penstock.actors.main_thread import calm_main_thread, replace_timer

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no epoll elsewhere")

AS_A_WORKER = """
import ctypes, os, select, struct, threading
from penstock.actors.main_thread import replace_timer
system = ctypes.CDLL(None)
timer, epoll = system.timerfd_create(1, os.O_NONBLOCK), select.epoll()
calls, call = os.pipe()
for number in (timer, calls):
    epoll.register(number, select.EPOLLIN)
told, heard, next_one = [], [], threading.Event()
def other():
    while (counter := replace_timer()) is None:
        pass
    system.timerfd_settime(timer, 0, struct.pack("4q", 0, 0, 0, 1), None)
    select.select([timer], [], [])
    for _ in range(2):
        told.append("timer")
        os.eventfd_write(counter, 1)
        next_one.wait()
        next_one.clear()
    told.append("call")
    os.write(call, b"0")
threading.Thread(target=other, daemon=True).start()
for _ in range(3):
    [(number, _)] = epoll.poll()
    heard.append({timer: "timer", calls: "call"}[number])
    assert heard == told, (heard, told)
    next_one.set()
"""


def test_the_thread_hears_what_is_written_as_its_timer_and_no_more_from_that() -> None:
    subprocess.run([sys.executable, "-c", AS_A_WORKER], check=True, timeout=30)


def test_a_thread_that_does_not_wait_so_is_left_alone() -> None:
    assert replace_timer() is None


class Worker:
    """An actor whose process is as one of a subtask."""

    async def calm(self) -> bool:
        """Returns when no epoll of the main thread watches a timer."""
        calm_main_thread(asyncio.get_running_loop())
        while (watched := self._watched()) is None or "[timerfd]" in watched:
            await asyncio.sleep(0.01)
        # The one by which calls wake it, and that of this.
        return watched.count("[eventfd]") == 2

    def _watched(self) -> str | None:
        call = Path(f"/proc/self/task/{os.getpid()}/syscall").read_text().split()
        try:
            lines = Path(f"/proc/self/fdinfo/{int(call[1], 16)}").read_text().splitlines()
            return " ".join(os.readlink(f"/proc/self/fd/{line.split()[1]}") for line in lines if line.startswith("tfd"))
        except (IndexError, OSError):
            return None

    async def end(self) -> None:
        """Gets the signal that systems end processes with."""
        os.kill(os.getpid(), signal.SIGTERM)


AS_IT_ENDS = """
import os, signal, sys, threading, time
from penstock.actors.main_thread import end_without_a_word
def end(number, frame):
    raise SystemExit(1)
signal.signal(signal.SIGTERM, end)
end_without_a_word()
def tell():
    threading.main_thread().join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
threading.Thread(target=tell).start()
"""


def test_a_signal_to_a_worker_that_ends_by_itself_ends_it_without_a_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", AS_IT_ENDS], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, "")


def test_a_worker_of_ray_takes_calls_and_signals_as_before(ray_cluster: None) -> None:
    worker = ray.remote(num_cpus=0)(Worker).remote()
    assert ray.get(worker.calm.remote(), timeout=60)

    def end() -> None:
        while True:
            ray.get(worker.end.remote(), timeout=60)

    with pytest.raises(RayActorError):
        end()
