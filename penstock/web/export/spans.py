"""Checkpoints, restarts and rescales of a job as spans: when each began and ended, and what came of it.

The exporter asks for those of a job at each reading. A span has the same ids whoever makes it, so that one that is sent
again (by a server that was started anew) is the same one.

Source of the names of spans and attributes: Flink's documentation, "Traces" (`Checkpoint`, `JobInitialization`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.engine.job.info import CheckpointInfo, JobInfo, RestartInfo

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took a while.

    Args:
        name: what.
        key: which of the job's; no two have the same.
        start_ms, end_ms: civil time.
        attributes: more of it.
        error: why it failed; None: it did not.
    """

    name: str
    key: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Value]
    error: str | None = None

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:32]

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        return hashlib.sha256(self.key.encode()).hexdigest()[32:48]


def spans_of(info: JobInfo) -> Iterator[Span]:
    """All that has ended, of what the job still knows."""
    job: Mapping[str, Value] = {"jobId": info.id, "jobName": info.name}
    for one in info.checkpoints.history if info.checkpoints is not None else ():
        yield _checkpoint(info.id, one, job)
    for restart in info.restart_history:
        if restart.restore_ms is not None:
            yield _restart(info.id, restart, restart.restore_ms, job)


def _checkpoint(job_id: str, one: CheckpointInfo, job: Mapping[str, Value]) -> Span:
    end_ms = one.triggered_ms + round(one.duration_ms)
    attributes: Mapping[str, Value] = {
        **job,
        "checkpointId": one.checkpoint,
        "checkpointType": one.kind.value,
        "checkpointStatus": one.status.upper(),
        "checkpointedSize": one.bytes_written,
        "fullSize": one.bytes,
        "attempt": one.attempt,
        "subtasks": one.subtasks,
        "acknowledgedSubtasks": one.acknowledged,
    }
    error = None
    if one.status != "completed":
        error = one.message or (one.reason.value if one.reason is not None else "it was given up")
    return Span("Checkpoint", f"{job_id}/checkpoint/{one.checkpoint}", one.triggered_ms, end_ms, attributes, error)


def _restart(job_id: str, one: RestartInfo, restore_ms: float, job: Mapping[str, Value]) -> Span:
    attributes: dict[str, Value] = {
        **job,
        "cause": one.cause,
        "attempt": one.attempt,
        "checkpointId": one.checkpoint,
        "restartedSubtasks": one.subtasks,
        "kind": one.kind,
    }
    if one.first_output_ms is not None:
        attributes["firstOutputMs"] = one.first_output_ms
    name = "Rescale" if one.kind in ("rescale", "move") else "JobInitialization"
    return Span(name, f"{job_id}/{one.kind}/{one.at_ms}", one.at_ms, one.at_ms + round(restore_ms), attributes)
