"""A server process behind its guard, as the classes of the servers use it.

`servers.Server` starts programs with it and sends them signals. Whatever becomes of this process, its guard ends the
program with all descendants and removes its folder (see `guard`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.engine.errors import ConfigurationError, PenstockError

_GUARD: Final = Path(__file__).with_name("guard.py")
_COMPLAINT: Final = re.compile(r"\b(ERROR|FATAL)\b|Exception: |Error: ")
_ANSWER_SECONDS: Final = 120.0


class ServiceNotInstalledError(ConfigurationError):
    """A program of a server is not on this machine; the message names the command that installs it."""


class ServiceStartError(PenstockError):
    """A server did not start; the message ends with the tail of its log."""


class GuardedProcess:
    """A folder, and one program at a time that runs in it.

    Args:
        name: of the server, for the folder and messages.
        user: whom the folder belongs to and the program runs as; None is the user of this process.
        last_signal: what the program gets first when this process ends or `close` is called.

    Example:
        >>> process = GuardedProcess("sleeper", user=None, last_signal=signal.SIGKILL)
        >>> process.start(["sleep", "60"])
        >>> process.send(signal.SIGTERM)
        >>> process.wait(5.0)
        -15
        >>> process.close()
    """

    def __init__(self, name: str, *, user: str | None, last_signal: signal.Signals) -> None:
        self.folder: Final = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
        if user is not None:
            shutil.chown(self.folder, user)
        settings = {"parent": os.getpid(), "folder": str(self.folder), "user": user, "last_signal": int(last_signal)}
        # A session of its own: Ctrl-C must reach the guard as the end of this process, not as a signal.
        self._guard = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", str(_GUARD), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._name = name
        self._answers = b""
        self._pid: int | None = None
        self._exit_code: int | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the program, None before the first start and after its end."""
        return self._pid

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run a program; its output goes to `server.log` in the folder.

        Args:
            command: the program and its arguments.
            environment: variables to set beside those of this process.

        Raises:
            ServiceStartError: there is no such program, or it may not be run.
        """
        self._exit_code = None
        self._request({"start": list(command), "environment": {**os.environ, **(environment or {})}})
        answer = self._answer(_ANSWER_SECONDS)
        if answer is None or "started" not in answer:
            reason = answer.get("failed", answer) if answer else "the process that starts it does not answer"
            raise ServiceStartError(f"{self._name} cannot be started: {reason}")
        self._pid = answer["started"]

    def wait(self, seconds: float) -> int | None:
        """The exit code of the program (negative: the signal that ended it), or None if it runs longer than that."""
        if self._pid is not None:
            self._note_end(self._answer(seconds))
        return self._exit_code

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        self._signal(number, "server")

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to the program and all that descend from it; after SIGSTOP and SIGKILL wait for the effect."""
        self._signal(number, "all")

    def log_tail(self, lines: int = 30) -> str:
        """The last lines that the program has written."""
        return "\n".join(self._log()[-lines:])

    def log_complaints(self, lines: int = 10) -> str:
        """The first lines of the program's log that speak of an error: what it wrote on its way out may hide them."""
        return "\n".join([line for line in self._log() if _COMPLAINT.search(line)][:lines])

    def _log(self) -> list[str]:
        try:
            return (self.folder / "server.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """End the program and remove the folder. Twice is as good as once."""
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.close()
        try:
            self._guard.wait(_ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        self._guard.stdout.close()
        self._pid = None
        # The guard has done so, unless it was killed.
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: signal.Signals, to: str) -> None:
        self._request({"signal": int(number), "to": to})
        while self._note_end(self._answer(_ANSWER_SECONDS)):
            pass  # The program ended before, or by, this signal.

    def _note_end(self, answer: dict[str, Any] | None) -> bool:
        if answer is None or "exited" not in answer:
            return False
        self._pid = None
        self._exit_code = answer["exited"]
        return not answer.get("guard_lost", False)

    def _request(self, request: Mapping[str, Any]) -> None:
        assert self._guard.stdin is not None
        try:
            self._guard.stdin.write(json.dumps(request).encode() + b"\n")
            self._guard.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ServiceStartError(f"{self._name} is gone: its guard process was ended from outside") from None

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        """The next line of the guard; None if it says nothing for that long."""
        assert self._guard.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._answers:
            left = deadline - time.monotonic()
            if not select.select([self._guard.stdout], [], [], max(left, 0.0))[0]:
                return None
            read = os.read(self._guard.stdout.fileno(), 65536)
            if not read:  # Somebody has killed the guard, and with it the program.
                return {"exited": -int(signal.SIGKILL), "guard_lost": True}
            self._answers += read
        line, _, self._answers = self._answers.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer
