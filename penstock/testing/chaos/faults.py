"""The processes of a job, and which of them a fault means.

The harness asks `choose`, and `hold` gives what stops, continues or kills a process, on this machine or another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import ray

from penstock.actors.nodes import head_node, leaving_nodes
from penstock.engine.job.info import JobInfo, SubtaskInfo, TaskInfo
from penstock.testing.chaos.elsewhere import Elsewhere, RemoteProcess
from penstock.testing.chaos.local_process import MANAGER, SUBTASK, JobProcess, LiveProcess, lives
from penstock.testing.chaos.schedule import SubtaskChoice

_SHOWN: Final = 40
"""Characters of the name of a task: that of a chain has those of all its operators."""


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


def living(info: JobInfo, elsewhere: Elsewhere | None = None) -> JobInfo:
    """The `info` without the processes that have died since, which the job may not have noticed yet."""
    away = {number for _, number in elsewhere or ()}

    def pid(number: int | None) -> int | None:
        return number if number is not None and (number in away or lives(number)) else None

    tasks = tuple(
        replace(task, subtasks=tuple(replace(subtask, pid=pid(subtask.pid)) for subtask in task.subtasks))
        for task in info.tasks
    )
    return replace(info, tasks=tasks, standby_pids=tuple(number for number in info.standby_pids if pid(number)))


def hold(process: JobProcess, elsewhere: Elsewhere) -> LiveProcess | RemoteProcess:
    """The process, to send signals to; errors as of these."""
    nodes = elsewhere.get((process.actor, process.pid))
    return LiveProcess(process) if nodes is None else RemoteProcess(process, nodes)


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
