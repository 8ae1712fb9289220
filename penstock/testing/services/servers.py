"""What all servers for tests have in common: a life cycle, free ports, readiness, and where things are kept.

The modules beside it, one a server, derive from `Server`. A server listens on loopback only, has credentials of its
own, keeps data and port from start to start, and is gone with its data at the end of the process that started it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, TypeVar

from penstock.testing.services.processes import GuardedProcess, ServiceNotInstalledError, ServiceStartError

HOST: Final = "127.0.0.1"
INSTALL: Final = "python -m penstock.testing.services --install"
"""The command that installs what the servers need."""

_START_SECONDS: Final = 120.0
_SHUTDOWN_SECONDS: Final = 30.0
_ASK_EVERY: Final = 0.02
_PORTS: Final = range(20_000, 32_768)
"""Below the ports that Linux gives to outgoing connections: one of those must not take the port of a server that is
being restarted, as its own clients would by trying to reconnect to it."""

_S = TypeVar("_S", bound="Server")


class Server(ABC):
    """One server process. Nothing runs before `start` or `with`."""

    name: ClassVar[str]
    """In messages, and on the command line."""
    shutdown_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """Asks the server to end in good order, with its data kept."""
    last_signal: ClassVar[signal.Signals] = signal.SIGKILL
    """Ends the server when its data is not wanted any more."""
    user: str | None = None
    """Whom the server runs as, if not as the user of this process."""

    _process: GuardedProcess | None = None

    def __enter__(self: _S) -> _S:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @abstractmethod
    def addresses(self) -> dict[str, str]:
        """How to reach the server, credentials included: what `python -m penstock.testing.services` prints."""

    @abstractmethod
    def check_installed(self) -> None:
        """Raise ServiceNotInstalledError, naming the command that helps, if a program is missing."""

    @abstractmethod
    def _prepare(self, folder: Path) -> None:
        """Write what the server needs for its first start."""

    @abstractmethod
    def _command(self, folder: Path) -> Sequence[str]:
        """The program and its arguments."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Ask the server whether it serves. OSError means no."""

    @property
    def pid(self) -> int | None:
        """Id of the server's process, None if it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers; after `kill` and `shut_down` with what it had on disk.

        Raises:
            ServiceNotInstalledError: a program is missing.
            ServiceStartError: the server ended, or did not answer for a minute; with the tail of its log.
        """
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the process without waiting for its first answer."""
        if self._process is None:
            self.check_installed()
            self._process = GuardedProcess(self.name, user=self.user, last_signal=self.last_signal)
            try:
                self._prepare(self._process.folder)
            except BaseException:
                self.stop()
                raise
        elif self._process.wait(0.0) is None and self._process.pid is not None:
            raise ServiceStartError(f"{self.name} runs already (process {self._process.pid})")
        self._process.start(self._command(self._process.folder))

    def await_ready(self) -> None:
        """Return when the server answers; raises as `start`."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            code = self._running().wait(0.0)
            if code is not None:
                self._give_up(f"{self.name} ended while it was starting, with exit code {code}")
            try:
                if self._is_ready():
                    return
            except OSError:
                pass  # Nobody listens yet, or hangs up.
            if time.monotonic() > deadline:
                self._give_up(f"{self.name} does not answer {_START_SECONDS:.0f} s after its start")
            time.sleep(_ASK_EVERY)

    def stop(self) -> None:
        """End the server and remove its data. Twice is as good as once."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def kill(self) -> None:
        """Kill the server at once (SIGKILL), as a crash would; `start` brings it back with what it had on disk."""
        self._running().send_all(signal.SIGKILL)
        self._await_end()

    def shut_down(self) -> None:
        """End the server in good order; `start` brings it back with what it had on disk."""
        self.resume()
        self._running().send(self.shutdown_signal)
        self._await_end()

    def restart(self) -> None:
        """Shut the server down and start it with the same data on the same port."""
        self.shut_down()
        self.start()

    def pause(self) -> None:
        """Stop the server's processes (SIGSTOP): connections stay open, nothing is answered."""
        self._running().send_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the server's processes after `pause`."""
        self._running().send_all(signal.SIGCONT)

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the server's log."""
        return self._running().log_tail(lines)

    def _running(self) -> GuardedProcess:
        if self._process is None:
            raise ServiceStartError(f"{self.name} was not started: call start() or use it in a with statement")
        return self._process

    def _run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run a program of the server to its end, as its user and in its folder."""
        process = self._running()
        process.start(command, environment)
        code = process.wait(_START_SECONDS)
        if code != 0:
            self._give_up(f"{self.name}: {Path(command[0]).name} failed with exit code {code}")

    def _await_end(self) -> None:
        process = self._running()
        if process.wait(_SHUTDOWN_SECONDS) is None:
            process.send_all(signal.SIGKILL)
            process.wait(_SHUTDOWN_SECONDS)

    def _give_up(self, reason: str) -> None:
        tail, complaints = self._running().log_tail(), self._running().log_complaints()
        self.stop()
        errors = f" Errors in its log:\n{complaints}\n" if complaints else ""
        raise ServiceStartError(f"{reason}.{errors} The end of its log:\n{tail}")


def free_port(owner: object) -> int:
    """A port of the loopback interface that nobody listens on, and that no other call gives out while `owner` lives.

    A server listens some time after its port was chosen, and again after each restart: until then another process
    could take the port. So it stays bound, which keeps others off it, but not a server that sets SO_REUSEADDR, as
    servers do.
    """
    while True:
        reserved = socket.socket()
        try:
            # Not `random`: tests seed it, and two runs on a machine would choose the same.
            reserved.bind((HOST, secrets.choice(_PORTS)))
        except OSError:
            reserved.close()
            continue
        # Not before: with it, a port that is reserved could be bound.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        weakref.finalize(owner, reserved.close)
        port: int = reserved.getsockname()[1]
        return port


def ask(port: int, talk: Callable[[socket.socket], bool]) -> bool:
    """Connect to a port of the loopback interface and talk.

    Args:
        port: of the server.
        talk: gets the connected socket, which waits for each answer 2 s at most.
    """
    with socket.create_connection((HOST, port), timeout=2.0) as connection:
        return talk(connection)


def find_program(name: str, *folders: Path) -> Path:
    """Path of a program, on PATH or else in one of the folders.

    Raises:
        ServiceNotInstalledError: it is in none of them.
    """
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, folders)))
    if found is None:
        raise ServiceNotInstalledError(f"{name} is not installed: run {INSTALL} (as root), or install it yourself")
    return Path(found)


def cache_folder() -> Path:
    """Where downloaded servers are kept: `penstock` in XDG_CACHE_HOME, or else in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "penstock"


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody but its owner reads: it holds passwords."""
    path.touch(mode=0o600)
    path.write_text(text)
