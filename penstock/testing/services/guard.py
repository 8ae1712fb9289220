"""The process between a test run and a server: it starts the server, passes signals on, and ends both for sure.

Run as a script by `processes.GuardedProcess`, a line of JSON for each request and answer; it needs the standard library
only and starts in some 20 ms. When its parent ends, in whatever way, it stops the server with all its descendants and
removes their folder. If the guard itself is killed, Linux kills the server (parent-death signal).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Final

# From linux/prctl.h.
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

_PARENT_POLL: Final = 0.5
"""Seconds between looks at the parent: a process that it forked may hold our input open after its end."""
_LAST_WORDS: Final = 5.0
"""Seconds that the server has to follow a signal before the guard gives up on it."""
_POLL_EVERY: Final = 0.005


class Guard:
    """Serves one parent.

    Args:
        parent: process id; when it is gone, so is everything here.
        folder: the server's folder; holds its log, removed at the end.
        user: name of the user that the server runs as, or None for that of the guard.
        last_signal: the signal that the server gets first when all ends.
    """

    def __init__(self, parent: int, folder: str, user: str | None, last_signal: int) -> None:
        self._parent = parent
        self._folder = folder
        self._user = user
        self._last_signal = last_signal
        self._server: int | None = None
        self._requests = b""
        self._answering = True
        self._libc = ctypes.CDLL(None)
        self._control(_PR_SET_CHILD_SUBREAPER, 1)
        self._wake, wake_end = os.pipe()
        for end in (self._wake, wake_end):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_end)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def serve(self) -> None:
        """Obey until the parent hangs up or is gone; then leave nothing behind."""
        try:
            while os.getppid() == self._parent and self._serve_once():
                pass
        except BrokenPipeError:
            pass  # The parent went while it was being answered.
        finally:
            self._end()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _serve_once(self) -> bool:
        ready, _, _ = select.select([0, self._wake], [], [], _PARENT_POLL)
        if self._wake in ready:
            os.read(self._wake, 4096)
        self._reap()
        if 0 not in ready:
            return True
        read = os.read(0, 65536)
        *lines, self._requests = (self._requests + read).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(read)

    def _obey(self, request: dict[str, Any]) -> None:
        if "start" in request:
            self._start(request["start"], request["environment"])
        else:
            self._signal(request["signal"], request["to"])
            self._answer({"sent": request["signal"]})

    def _signal(self, number: int, to: str) -> None:
        if to == "server":
            _send(number, [] if self._server is None else [self._server])
        elif number == signal.SIGKILL:
            self._kill_all()
        else:
            self._send_all(number)

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        group = None if self._user is None else _group_of(self._user)
        with open(os.path.join(self._folder, "server.log"), "ab") as log:
            try:
                process = subprocess.Popen(  # noqa: S603
                    command,
                    cwd=self._folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    user=self._user,
                    group=group,
                    extra_groups=None if self._user is None else [],
                    # Safe: this process has one thread. Set after the change of user, which would clear it.
                    preexec_fn=lambda: self._control(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
                )
            except (OSError, subprocess.SubprocessError) as error:
                self._answer({"failed": str(error)})
                return
        self._server = process.pid
        process.returncode = 0  # `_reap` waits for it, not the Popen.
        self._answer({"started": process.pid})

    def _answer(self, message: dict[str, Any]) -> None:
        if self._answering:
            os.write(1, json.dumps(message).encode() + b"\n")

    def _control(self, option: int, value: int) -> None:
        if hasattr(self._libc, "prctl"):  # Elsewhere than on Linux the guard has only its input and its parent's id.
            self._libc.prctl(option, value, 0, 0, 0)

    def _reap(self) -> bool:
        """Take note of children that have ended; whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._server:
                self._server = None
                self._answer({"exited": os.waitstatus_to_exitcode(status)})

    def _everything(self) -> list[int]:
        """The server first, then whatever descends from the guard: servers fork, also into sessions of their own."""
        found = [] if self._server is None else [self._server]
        return found + [pid for pid in _descendants(os.getpid()) if pid != self._server]

    def _send_all(self, number: int) -> None:
        # Stopped first, the server cannot fork a child that the list misses.
        if number == signal.SIGSTOP and self._server is not None:
            _send(signal.SIGSTOP, [self._server])
        everything = self._everything()
        _send(number, everything)
        deadline = time.monotonic() + _LAST_WORDS
        while number == signal.SIGSTOP and not all(map(_is_stopped, everything)) and time.monotonic() < deadline:
            time.sleep(_POLL_EVERY)

    def _kill_all(self) -> None:
        # Until the last is gone: a child that outlives the server for a moment holds what its next start needs.
        while self._reap():
            self._send_all(signal.SIGKILL)
            time.sleep(_POLL_EVERY)

    def _end(self) -> None:
        self._answering = False
        self._send_all(signal.SIGCONT)
        if self._server is not None:
            _send(self._last_signal, [self._server])
        deadline = time.monotonic() + _LAST_WORDS
        while self._server is not None and self._reap() and time.monotonic() < deadline:
            time.sleep(_POLL_EVERY)
        self._kill_all()


def _descendants(root: int) -> list[int]:
    """Ids of all processes below `root`; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not name.isdigit():
            continue
        try:
            _, parent = _state_and_parent(int(name))
        except OSError:
            continue  # It has just ended.
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _state_and_parent(pid: int) -> tuple[str, int]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The second field, the command in parentheses, may hold anything.
        state, parent, *_ = file.read().rpartition(b")")[2].split()
    return state.decode(), int(parent)


def _is_stopped(pid: int) -> bool:
    try:
        return _state_and_parent(pid)[0] in "TtZX"
    except OSError:
        return True  # Gone, or no /proc to look at.


def _send(number: int, pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _group_of(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid


if __name__ == "__main__":
    Guard(**json.loads(sys.argv[1])).serve()
