"""A process of a job on this machine, and signals to it: to no other process, whatever number somebody gives.

It gets a signal only if it is a Ray worker of the cluster that we are connected to, of this user, and runs what the job
says.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import ray

from penstock.engine.errors import ClusterError

SUBTASK: Final = "SubtaskActor"
MANAGER: Final = "JobManager"


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A process that the job says it has.

    Args:
        what: it runs, in words.
        actor: class of its Ray actor.
        pid: its id.
    """

    what: str
    actor: str
    pid: int

    def __str__(self) -> str:
        return f"{self.what} (pid {self.pid})"


class LiveProcess:
    """A process that was found to be what the job says, held so that its number cannot come to mean another one.

    Args:
        process: what the job says.

    Raises:
        ClusterError: it is something else.
        ProcessLookupError: it does not exist any more.
    """

    def __init__(self, process: JobProcess) -> None:
        self._handle = os.pidfd_open(process.pid)
        try:
            _check_worker(process)
        except BaseException:
            os.close(self._handle)
            raise

    def __enter__(self) -> LiveProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def kill(self) -> None:
        """`kill -9`."""
        self._send(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it where it is: it lives, and does nothing."""
        self._send(signal.SIGSTOP)

    def proceed(self) -> None:
        """Resume it, if it still exists."""
        with contextlib.suppress(ProcessLookupError):
            self._send(signal.SIGCONT)

    def close(self) -> None:
        """Let it go."""
        os.close(self._handle)

    def _send(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self._handle, number)


def _check_worker(process: JobProcess) -> None:
    folder = Path("/proc") / str(process.pid)
    try:
        title = _words(folder)[0]
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        parent = _words(Path("/proc") / status["PPid"].strip())
    except (FileNotFoundError, IndexError) as error:
        raise ProcessLookupError(f"{process} has ended") from error
    cluster = ray.get_runtime_context().gcs_address
    problems = [
        *([] if title.startswith(f"ray::{process.actor}") else [f"is {title!r}, not ray::{process.actor}"]),
        *([] if int(status["Uid"].split()[0]) == os.getuid() else ["belongs to another user"]),
        *([] if any(cluster in word for word in parent) else [f"is no worker of the Ray cluster at {cluster}"]),
    ]
    if problems:
        raise ClusterError(f"{process} {' and '.join(problems)}; no signal is sent to it")


def lives(pid: int) -> bool:
    """Whether there is a process of this id on this machine."""
    try:
        # The command line of a zombie process is empty.
        return bool(_words(Path(f"/proc/{pid}")))
    except (FileNotFoundError, ProcessLookupError):
        return False


def _words(folder: Path) -> list[str]:
    return [word for word in (folder / "cmdline").read_bytes().decode(errors="replace").split("\0") if word]
