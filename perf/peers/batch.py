"""Flink's batch mode beside this process: one JVM with a cluster in it, kept for all jobs, as Spark's executors are.

Called by `perf/batch_jobs.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from perf.peers.engines import PeerError

_PATIENCE: Final = 300.0
_DONE: Final = b"done\n"


class BatchPeer:
    """A process that takes jobs by its standard input, and says when each is done: see `java/batch/Main.java`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, patience: float) -> None:
        self._process, self._log, self._patience = process, log, patience

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, program: str, given: Path, output: Path) -> None:
        """Run a program from folder to folder, to its end.

        Raises:
            PeerError: it has failed, or takes longer than anybody waits.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{program}\t{given}\t{output}\n".encode())
        giving_up = threading.Timer(self._patience, self._process.kill)
        giving_up.start()
        try:
            # Whatever else it prints is news of its own.
            done = any(line == _DONE for line in iter(self._process.stdout.readline, b""))
        finally:
            giving_up.cancel()
        if not done:
            log = self._log.read_text(errors="replace")
            raise PeerError(
                f"flink, {program}: no output within {self._patience:g} s, or it has failed:\n{log[-3000:]}"
            )


@contextmanager
def started(command: Sequence[str], patience: float = _PATIENCE) -> Iterator[BatchPeer]:
    """The process, which ends with the context.

    Raises:
        PeerError: there is no Java.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-peer-") as name:
        log = Path(name) / "log"
        try:
            with log.open("wb") as errors:
                process = subprocess.Popen(
                    command,
                    # A line that its end has left in a buffer could not be closed.
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
        except FileNotFoundError:
            raise PeerError(f"there is no {command[0]} on the path: install a JDK, 17 or newer") from None
        with process:
            try:
                yield BatchPeer(process, log, patience)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
