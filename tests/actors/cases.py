"""Runs cases in a process of their own, as Ray knows one cluster a process: for `test_nodes.py`, `test_machines.py`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

OK, OVER = "OK\n", "OVER\n"
"""What the process says of a case that went well, and of each."""
_CASE_SECONDS = 600.0
_END_SECONDS = 120.0


class Cases:
    """A process with a cluster of its own, whose nodes come and go. Another one where it has ended.

    Args:
        module: what it runs: reads lines, each with a case and a folder, and says `OK` and `OVER`.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[str] | None = None
        # Ray notes there which cluster is the machine's, too: the note of others stays as it is.
        self._notes = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)

    def run(self, case: str, folder: Path) -> str:
        """What the process says of a case; it and all that it has started are ended if that takes too long."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                cwd=Path(__file__).parents[2],
                env={**_own_environment(), "RAY_TMPDIR": self._notes.name},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        limit = threading.Timer(_CASE_SECONDS, self._kill)
        limit.start()
        try:
            print(case, folder, file=self._process.stdin, flush=True)
            said = []
            while (line := self._process.stdout.readline()) not in (OVER, ""):
                said.append(line)
            return "".join(said)
        finally:
            limit.cancel()

    def close(self) -> None:
        """End the process, and its cluster."""
        with self._notes:
            if self._process is None:
                return
            try:
                # Its input ends.
                self._process.communicate(timeout=_END_SECONDS)
            finally:
                self._kill()

    def _kill(self) -> None:
        """End it and what it has started; it may take away first what is of the whole machine, such as networks."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
            os.killpg(self._process.pid, signal.SIGKILL)


def _own_environment() -> dict[str, str]:
    """Without what Ray has written there for the cluster of this process, such as that it takes tokens."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
