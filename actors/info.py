"""Builds the `JobInfo` of a job on Ray: what its brain knows, with its processes and the addresses of its storage.

`JobManager.info` calls it. Nothing is decided here, and nothing is asked of other processes.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Final

from penstock.actors.brain_shell import BrainShell
from penstock.engine.autoscaler.report import AutoscalerInfo
from penstock.engine.checkpoint_config import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from penstock.engine.config import JobConfig
from penstock.engine.job.description import describe, describe_checkpoints
from penstock.engine.job.failover import default_strategy
from penstock.engine.job.info import EventTimeWait, JobInfo
from penstock.savepoints.storage import redact

_STRATEGIES: Final[Mapping[type, str]] = {
    NoRestart: "none",
    FixedDelay: "fixed-delay",
    FailureRate: "failure-rate",
    ExponentialDelay: "exponential-delay",
}
"""What the configuration calls them (`restart-strategy.type`)."""


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


def shown_settings(config: JobConfig) -> Iterator[tuple[str, str]]:
    """The settings of a job by name, with the restart strategy that it has; texts without what may be a secret."""
    yield from _members(replace(config, failover=replace(config.failover, restart=default_strategy(config))), "")


def _members(config: object, prefix: str) -> Iterator[tuple[str, str]]:
    """The settings of a configuration and of those within it."""
    for member in fields(config):  # type: ignore[arg-type]
        value = getattr(config, member.name)
        if is_dataclass(value) and not isinstance(value, type):
            if type(value) in _STRATEGIES:
                yield f"{prefix}{member.name}", _STRATEGIES[type(value)]
            yield from _members(value, f"{prefix}{member.name}.")
        else:
            text = value.value if isinstance(value, enum.Enum) else value
            yield f"{prefix}{member.name}", redact(str(text))
