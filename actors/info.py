"""Builds the `JobInfo` of a job on Ray: what its brain knows, with its processes and the addresses of its storage.

`JobManager.info` calls it. Nothing is decided here, and nothing is asked of other processes.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

from penstock.actors.brain_shell import BrainShell
from penstock.engine.autoscaler.report import AutoscalerInfo
from penstock.engine.job.description import describe, describe_checkpoints
from penstock.engine.job.info import EventTimeWait, JobInfo
from penstock.savepoints.storage import redact


def job_info(
    job_id: str,
    started_ms: int,
    shell: BrainShell,
    autoscaler: AutoscalerInfo | None,
    event_time: tuple[EventTimeWait, ...] = (),
) -> JobInfo:
    """The job.

    Args:
        job_id: which one.
        started_ms: when its manager started.
        shell: knows how it stands, its processes, and where its checkpoints are.
        autoscaler: what that has seen and done; None: it is off.
        event_time: where it cannot advance.
    """
    brain, graph, execution, storage = shell.brain, shell.graph, shell.execution, shell.checkpoints
    processes = {place: process.pid for place, process in execution.processes.items()}
    return replace(
        describe(job_id, shell.name, brain, graph, started_ms, processes),
        waiting_for=execution.waiting_for,
        manager_pid=os.getpid(),
        standby_pids=tuple(execution.standby_pids),
        checkpoints=None if storage is None else describe_checkpoints(brain, storage.start_url, storage.restored_url),
        autoscaler=autoscaler,
        settings=tuple(shown_settings(graph.config)) if graph is not None else (),
        event_time=event_time,
    )


def shown_settings(config: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The settings of a configuration and of those within it, by name; texts without what may be a secret."""
    for member in fields(config):  # type: ignore[arg-type]
        value = getattr(config, member.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from shown_settings(value, f"{prefix}{member.name}.")
        else:
            text = value.value if isinstance(value, enum.Enum) else value
            yield f"{prefix}{member.name}", redact(str(text))
