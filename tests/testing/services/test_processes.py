"""A guarded program and its children end with the process that started them, however that ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from penstock.testing.services.processes import GuardedProcess, ServiceStartError

# A server with a child in a session of its own, as PostgreSQL has; its folder gets a file, as all servers' do.
SERVER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setsid()
    signal.pause()
open("data", "w").close()
os.write(1, f"child {child}\\n".encode())
signal.pause()
"""
# The process that started the server: prints the ids of both, of the guard last.
STARTER = """
import os, signal, sys, time
from penstock.testing.services.processes import GuardedProcess
process = GuardedProcess("test", user=None, last_signal=signal.{last})
process.start([sys.executable, "-c", sys.argv[1]])
while "child" not in process.log_tail():
    assert process.wait(0.01) is None
print(process.pid, process.log_tail().split()[1], process._guard.pid, flush=True)
sys.stdin.readline()
{end}
"""
ENDS = {
    "returns": "",
    "raises": "raise SystemExit(3)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "is killed while a child holds its files": """
if os.fork() == 0:
    sys.stdout.close(); os.close(1)
    time.sleep(20); os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
""",
}


class Watched:
    """A process that may end at any time; its id cannot come to mean another one while this is open."""

    def __init__(self, pid: int) -> None:
        self._handle = os.pidfd_open(pid)

    def is_over(self, seconds: float) -> bool:
        return bool(select.select([self._handle], [], [], seconds)[0])

    def close(self) -> None:
        os.close(self._handle)


@pytest.mark.parametrize(
    ("end", "last"),
    [(end, "SIGTERM") for end in ENDS] + [("is killed", "SIGKILL"), ("is killed", "SIGINT")],
    ids=lambda name: name.replace(" ", "-"),
)
def test_nothing_is_left_when_the_process_that_started_it(end: str, last: str, tmp_path: Path) -> None:
    script = STARTER.format(end=ENDS[end], last=last)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with ExitStack() as stack:
        starter = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", script, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        )
        assert starter.stdin is not None
        assert starter.stdout is not None
        ids = starter.stdout.readline().split()
        server, child, guard = (stack.enter_context(closing(Watched(int(pid)))) for pid in ids)
        starter.stdin.write(b"end\n")
        starter.stdin.flush()
        assert guard.is_over(30.0)
        assert server.is_over(0.0)
        assert child.is_over(0.0)
    assert list(tmp_path.iterdir()) == []


def test_the_program_does_not_outlive_its_guard() -> None:
    process = GuardedProcess("test", user=None, last_signal=signal.SIGKILL)
    process.start(["sleep", "60"])
    assert process.pid is not None
    with closing(Watched(process.pid)) as program:
        process._guard.kill()
        assert program.is_over(30.0)
    assert process.wait(15) == -signal.SIGKILL
    with pytest.raises(ServiceStartError, match="guard"):
        process.start(["sleep", "60"])
    process.close()
    assert not process.folder.exists()


def test_it_tells_how_the_program_ended_and_what_it_said() -> None:
    process = GuardedProcess("test", user=None, last_signal=signal.SIGKILL)
    process.start(["sh", "-c", "echo one; echo two; echo three >&2; exit 7"])
    assert process.wait(15) == 7
    assert process.wait(0) == 7
    assert process.pid is None
    assert process.log_tail(2) == "two\nthree"
    assert process.log_complaints() == ""
    process.start(["sleep", "60"])
    assert process.wait(0) is None
    process.send(signal.SIGTERM)
    assert process.wait(15) == -signal.SIGTERM
    process.close()
    process.close()


def test_what_a_program_complained_of_is_found_in_front_of_its_last_words() -> None:
    process = GuardedProcess("test", user=None, last_signal=signal.SIGKILL)
    process.start(["sh", "-c", "echo starting; echo '[main] ERROR cannot bind'; seq 100"])
    assert process.wait(15) == 0
    assert process.log_tail(2) == "99\n100"
    assert process.log_complaints() == "[main] ERROR cannot bind"
    process.close()


def test_a_program_that_is_not_there_is_named() -> None:
    process = GuardedProcess("test", user=None, last_signal=signal.SIGKILL)
    with pytest.raises(ServiceStartError, match="no-such-program"):
        process.start(["no-such-program"])
    process.close()
