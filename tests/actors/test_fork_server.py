"""Workers that are forked from a process which has loaded what they need: what they are told, and do not share."""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.actors import fork_client, fork_server

RAYLET = "4711"
USUAL = "--runtime-env-hash=0"
SCRIPT = """
import json, os, signal, sys

loaded = [name for name in ("colorsys", "stringprep") if name in sys.modules]
if __name__ == "__main__":
    print(json.dumps({
        "parent": os.getppid(), "arguments": sys.argv, "loaded": loaded, "folder": os.getcwd(), "path": sys.path[0],
        "word": os.environ.get("WORD"), "job": os.environ.get("RAY_JOB_ID"),
        "server": os.environ.get("PENSTOCK_FORK_SERVER"),
        "leads": os.getpgrp() == os.getpid(), "input": sys.stdin.read(), "files": len(os.listdir("/proc/self/fd")),
        "children": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    }))
"""
FAILS_ONCE = """
import errno, os, runpy, socket, sys

def once(function, number):
    left = [number]
    def call(*arguments):
        if left:
            raise OSError(left.pop(), "there are too many")
        return function(*arguments)
    return call

os.fork = once(os.fork, errno.EAGAIN)
socket.socket.accept = once(socket.socket.accept, errno.EMFILE)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
OF_ANOTHER_USER = """
import os, runpy, sys

user = os.getuid() + 1
os.getuid = lambda: user
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
EMBEDDED = """
import json, os, sys
import psutil, ray
from penstock.actors.cluster import connect

connect(None, 1, log_to_driver=False)

class Drawn:
    def drawn(self):
        import random
        import numpy as np
        numbers = [random.random(), float(np.random.random()), float(np.random.default_rng().random())]
        return [*numbers, os.urandom(8).hex(), ray.put(1).hex()], ray.get_runtime_context().get_job_id(), parent()

def parent():
    return " ".join(psutil.Process().parent().cmdline())

class Environment:
    def parent(self):
        return parent(), os.environ["OWN"]

actors = [ray.remote(Drawn).options(num_cpus=0).remote() for _ in range(2)]
apart = ray.remote(Environment).options(num_cpus=0, runtime_env={"env_vars": {"OWN": "yes"}}).remote()
print(json.dumps([ray.get([actor.drawn.remote() for actor in actors]), ray.get(apart.parent.remote())]))
"""


@dataclass
class Server:
    """A fork server whose workers run `SCRIPT`."""

    address: str
    script: Path
    process: subprocess.Popen[bytes]

    def run(self, *arguments: str, raylet: str = RAYLET, within: str | None = None, **options: Any) -> Any:
        """What a worker says of itself; its client is run by the program `within`, if there is one."""
        environment = {
            **os.environ,
            fork_client.SERVER: f"{self.address} {self.script}",
            "RAY_RAYLET_PID": raylet,
            "RAY_JOB_ID": "01000000",
            "WORD": "caf\udce9",
        }
        command = [sys.executable, *_program(within), fork_client.__file__, *arguments]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, input=b"typed", check=True, timeout=60, **options
        )
        return json.loads(done.stdout)

    def is_parent_of(self, said: Any) -> bool:
        return bool(said["parent"] == self.process.pid)


def _program(text: str | None) -> list[str]:
    return [] if text is None else ["-c", text]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that serves, and has loaded `colorsys` before the script has."""
    with started(tmp_path) as one:
        yield one


@contextlib.contextmanager
def started(tmp_path: Path, within: str | None = None) -> Iterator[Server]:
    """A server, run by the program `within`, if there is one."""
    script = tmp_path / "worker.py"
    script.write_text(SCRIPT)
    address = f"penstock-test-{tmp_path.name}-{os.getpid()}"
    python, *rest = fork_server.command(address, str(script), ["colorsys"], ["stringprep"])
    command = [python, *_program(within), *rest]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(f"{RAYLET}\n".encode())
            process.stdin.flush()
            await_listener(f"\0{address}")
            yield Server(address, script, process)
        finally:
            process.kill()


def await_listener(address: str | tuple[str, int]) -> None:
    """Return when somebody listens."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            if connection.connect_ex(address) == 0:
                return
        threading.Event().wait(0.01)


def test_a_worker_has_what_the_server_has_loaded_and_what_its_caller_was_given(server: Server, tmp_path: Path) -> None:
    first, second = (server.run(USUAL, "--x=1", cwd=tmp_path, start_new_session=leads) for leads in (False, True))
    assert server.is_parent_of(first)
    assert first["arguments"] == [str(server.script), USUAL, "--x=1"]
    assert first["loaded"] == ["colorsys", "stringprep"]
    assert (first["folder"], first["path"]) == (str(tmp_path), str(tmp_path))
    assert (first["word"], first["server"], first["input"]) == ("caf\udce9", None, "typed")
    # That of its first call.
    assert first["job"] == "ffffffff"
    assert first["children"]
    # Ray signals the groups that workers lead.
    assert (first["leads"], second["leads"]) == (False, True)
    assert first["files"] == second["files"] == 4


@pytest.mark.parametrize(
    ("arguments", "raylet"),
    [(["--runtime-env-hash=7"], RAYLET), ([USUAL, "--worker-type=SPILL_WORKER"], RAYLET), ([USUAL], "4712")],
    ids=["own environment", "spills objects", "another raylet"],
)
def test_what_is_not_a_usual_worker_is_started_as_ray_does(server: Server, arguments: list[str], raylet: str) -> None:
    said = server.run(*arguments, raylet=raylet)
    assert not server.is_parent_of(said)
    assert (said["arguments"], said["loaded"], said["job"]) == ([str(server.script), *arguments], [], "01000000")


def test_without_the_server_workers_are_started_as_ray_does(server: Server) -> None:
    server.process.kill()
    server.process.wait()
    assert server.run(USUAL)["loaded"] == []


def test_a_server_of_another_user_is_told_nothing(server: Server) -> None:
    said = server.run(USUAL, within=OF_ANOTHER_USER)
    assert (server.is_parent_of(said), said["loaded"]) == (False, [])


def test_a_worker_that_cannot_be_forked_is_started_as_ray_does_and_the_next_is_forked(tmp_path: Path) -> None:
    with started(tmp_path, within=FAILS_ONCE) as server:
        assert [server.is_parent_of(server.run(USUAL)) for _ in range(2)] == [False, True]


def _whole(arguments: list[str], **others: object) -> bytes:
    return marshal.dumps({**fork_client._request(arguments), "environment": {"RAY_RAYLET_PID": RAYLET}, **others})


def test_what_is_no_request_does_not_keep_others_from_their_workers(server: Server) -> None:
    for sent in (
        b"",
        b"nonsense",
        marshal.dumps(["arguments"]),
        marshal.dumps({}),
        _whole([])[:-5],
        _whole([], environment=None),
        _whole([], environment={}),
        # Its open files are missing.
        _whole([]),
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.connect(f"\0{server.address}")
            asking.sendall(fork_client.READY + sent)
            asking.shutdown(socket.SHUT_WR)
            assert asking.recv(8) == fork_client.READY
            assert asking.recv(8) == b"", sent
    assert server.is_parent_of(server.run(USUAL))


def test_who_asks_and_goes_does_not_keep_others_from_their_workers(server: Server) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.connect(f"\0{server.address}")
        assert gone.recv(1) == fork_client.READY
    assert server.is_parent_of(server.run(USUAL))


def test_a_server_that_is_told_of_no_raylet_ends(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(SCRIPT)
    command = fork_server.command(f"penstock-test-{os.getpid()}-none", str(script), ["colorsys"], ["stringprep"])
    assert subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60).returncode == 0


@pytest.mark.ray
def test_workers_of_an_embedded_cluster_are_forked_and_draw_numbers_of_their_own() -> None:
    done = subprocess.run([sys.executable, "-c", EMBEDDED], capture_output=True, text=True, check=True, timeout=120)
    (one, other), (parent, own) = json.loads(done.stdout.splitlines()[-1])
    assert not set(one[0]) & set(other[0])
    assert one[1] == other[1] == "01000000"
    assert "fork_server" in one[2]
    assert one[2] == other[2]
    # Where it has an environment of its own, Ray starts it.
    assert ("fork_server" in parent, own) == (False, "yes")
