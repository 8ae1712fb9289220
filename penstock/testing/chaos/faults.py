"""The processes of a job, and signals to them: to no other process, whatever number somebody gives.

The harness asks `choose` which process a fault means, and `LiveProcess` stops, continues or kills it. A process gets a
signal only if it is a Ray worker of the cluster that we are connected to, of this user, and runs what the job says.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import ray

from penstock.actors.nodes import head_node, leaving_nodes
from penstock.engine.errors import ClusterError
from penstock.engine.job.info import JobInfo, SubtaskInfo, TaskInfo
from penstock.testing.chaos.schedule import SubtaskChoice

SUBTASK: Final = "SubtaskActor"
MANAGER: Final = "JobManager"
_SHOWN: Final = 40
"""Characters of the name of a task: that of a chain has those of all its operators."""


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


def subtasks(info: JobInfo) -> Sequence[JobProcess]:
    """The subtasks that have a process, by the `info` of their job."""
    return [
        JobProcess(f"{_short(task.name)!r} subtask {subtask.subtask}", SUBTASK, subtask.pid)
        for task in info.tasks
        for subtask in task.subtasks
        if subtask.pid is not None
    ]


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[: _SHOWN - 3]}..."


def living(info: JobInfo) -> JobInfo:
    """The `info` without the processes that have died since, which the job may not have noticed yet."""

    def pid(number: int | None) -> int | None:
        return number if number is not None and _lives(number) else None

    tasks = tuple(
        replace(task, subtasks=tuple(replace(subtask, pid=pid(subtask.pid)) for subtask in task.subtasks))
        for task in info.tasks
    )
    return replace(info, tasks=tasks, standby_pids=tuple(number for number in info.standby_pids if pid(number)))


def choose(info: JobInfo, choices: Sequence[SubtaskChoice]) -> Sequence[JobProcess]:
    """The processes that the choices mean: each another one, as far as there are so many."""
    chosen: list[JobProcess] = []
    for choice in choices:
        meant = [process for process in _meant(info, choice) if process not in chosen]
        if meant:
            chosen.append(meant[choice.draw % len(meant)])
    return chosen


def unmatched(info: JobInfo, choices: Sequence[SubtaskChoice]) -> str:
    """Which of the choices no subtask of the job can ever be, in words; empty: none."""
    for choice in choices:
        tasks = [task for task in info.tasks if _is_meant(task, choice)]
        if not tasks:
            known = ", ".join(repr(uid) for task in info.tasks for uid in task.uids)
            return f"the job has no operator {choice.operator!r}; the uids of its operators are {known}"
        if not any(_subtasks_meant(task, choice) for task in tasks):
            most = max(len(task.subtasks) for task in tasks)
            return f"the job has no {choice}: its parallelism is {most}"
    return ""


def _is_meant(task: TaskInfo, choice: SubtaskChoice) -> bool:
    return choice.operator is None or choice.operator in task.uids or choice.operator in task.name


def _subtasks_meant(task: TaskInfo, choice: SubtaskChoice) -> tuple[SubtaskInfo, ...]:
    return tuple(one for one in task.subtasks if choice.subtask is None or one.subtask == choice.subtask)


def _meant(info: JobInfo, choice: SubtaskChoice) -> Sequence[JobProcess]:
    tasks = (replace(task, subtasks=_subtasks_meant(task, choice)) for task in info.tasks if _is_meant(task, choice))
    return subtasks(replace(info, tasks=tuple(tasks)))


def worker_nodes() -> Sequence[str]:
    """The ids of the nodes that live, and are neither the head nor about to leave."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    gone = {head_node(), *leaving_nodes()}
    return sorted(node["NodeID"] for node in nodes if node["Alive"] and node["NodeID"] not in gone)


def manager(info: JobInfo) -> JobProcess:
    """The job manager."""
    return JobProcess("job manager", MANAGER, info.manager_pid)


def standby(info: JobInfo, draw: int) -> JobProcess | None:
    """One of the standbys; None where none is warm."""
    pids = info.standby_pids
    return JobProcess("standby", SUBTASK, pids[draw % len(pids)]) if pids else None


class LiveProcess:
    """A process that was found to be what the job says, held so that its number cannot come to mean another one.

    Args:
        process: what the job says.

    Raises:
        ClusterError: it is something else, or cannot be looked at from here.
        ProcessLookupError: it does not exist any more.
    """

    def __init__(self, process: JobProcess) -> None:
        _check_one_machine()
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


def _check_one_machine() -> None:
    """Numbers of processes mean something on their own machine only."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    own: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    addresses = {node["NodeManagerAddress"] for node in nodes if node["Alive"]}
    if addresses != {own}:
        raise ClusterError(
            f"chaos stops and kills processes of this machine only; the cluster is on {', '.join(sorted(addresses))}: "
            "run it where all nodes of the cluster are"
        )


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


def _lives(pid: int) -> bool:
    try:
        # The command line of a zombie process is empty.
        return bool(_words(Path(f"/proc/{pid}")))
    except (FileNotFoundError, ProcessLookupError):
        return False


def _words(folder: Path) -> list[str]:
    return [word for word in (folder / "cmdline").read_bytes().decode(errors="replace").split("\0") if word]
