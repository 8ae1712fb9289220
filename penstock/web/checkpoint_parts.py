"""What tasks and subtasks have done for one checkpoint, as Flink's REST tells of it.

`flink_routes.py` serves it: `/jobs/:jobid/checkpoints/details/:checkpointid`, and `.../subtasks/:vertexid`. Managers of
jobs know it of the newest checkpoints alone; of others the documents have no tasks.

Source of members: Flink's documentation, "REST API". What Penstock has no figure for is 0, or -1 for a duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.engine.checkpointing.handles import PartTimes
from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.job.info import CheckpointInfo
from penstock.web.flink import summary_of

_UNKNOWN: Final = PartTimes(-1, -1, -1)
_KEPT_IN_FLIGHT: Final = ("buffered", "processed", "persisted")
"""Bytes of rows that went along with the barrier, which Penstock counts as state of the subtask."""


def by_task(one: CheckpointInfo, parts: Sequence[CheckpointPart]) -> dict[str, Any]:
    """The member `tasks` of a checkpoint."""
    tasks = dict.fromkeys(part.task for part in parts)
    return {str(task): _figures(one, [part for part in parts if part.task == task]) for task in tasks}


def subtasks_document(one: CheckpointInfo, parts: Sequence[CheckpointPart]) -> dict[str, Any]:
    """One task with its subtasks; `parts` are those of the task."""
    done = [part for part in parts if part.acknowledged_ms is not None]
    times = [part.times for part in parts if part.times is not None]
    return {
        **_figures(one, parts),
        "summary": {
            "checkpointed_size": summary_of([part.size.new for part in done]),
            "state_size": summary_of([part.size.total for part in done]),
            "end_to_end_duration": summary_of([_duration(one, part) for part in done]),
            "checkpoint_duration": {
                "sync": summary_of([round(one.sync_ms) for one in times]),
                "async": summary_of([round(one.async_ms) for one in times]),
            },
            "alignment": {
                **dict.fromkeys(_KEPT_IN_FLIGHT, summary_of([])),
                "duration": summary_of([round(one.alignment_ms) for one in times]),
            },
            "start_delay": summary_of([_start_delay(one, part, part.times) for part in done if part.times is not None]),
        },
        "subtasks": [_subtask(one, part) for part in parts],
    }


def _figures(one: CheckpointInfo, parts: Sequence[CheckpointPart]) -> dict[str, Any]:
    acknowledged = [part.acknowledged_ms for part in parts if part.acknowledged_ms is not None]
    is_whole = len(acknowledged) == len(parts)
    latest = max(acknowledged, default=-1)
    return {
        "id": one.checkpoint,
        "status": "COMPLETED" if is_whole else "FAILED",
        "latest_ack_timestamp": latest,
        "checkpointed_size": sum(part.size.new for part in parts),
        "state_size": sum(part.size.total for part in parts),
        "end_to_end_duration": latest - one.triggered_ms if acknowledged else -1,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": len(parts),
        "num_acknowledged_subtasks": len(acknowledged),
    }


def _subtask(one: CheckpointInfo, part: CheckpointPart) -> dict[str, Any]:
    if part.acknowledged_ms is None:
        return {"index": part.subtask, "status": "pending_or_failed"}
    times = part.times or _UNKNOWN
    start_delay = -1 if part.times is None else _start_delay(one, part, part.times)
    return {
        "index": part.subtask,
        "status": "completed",
        "ack_timestamp": part.acknowledged_ms,
        "end_to_end_duration": _duration(one, part),
        "checkpointed_size": part.size.new,
        "state_size": part.size.total,
        "checkpoint": {"sync": round(times.sync_ms), "async": round(times.async_ms)},
        "alignment": {**dict.fromkeys(_KEPT_IN_FLIGHT, 0), "duration": round(times.alignment_ms)},
        "start_delay": start_delay,
        "unaligned_checkpoint": False,
        "aborted": False,
    }


def _duration(one: CheckpointInfo, part: CheckpointPart) -> int:
    return (part.acknowledged_ms or one.triggered_ms) - one.triggered_ms


def _start_delay(one: CheckpointInfo, part: CheckpointPart, times: PartTimes) -> int:
    """How long the first barrier was on its way to the subtask: what its own times leave of the whole, with the way
    of its answer to the manager."""
    return max(0, _duration(one, part) - round(times.alignment_ms + times.sync_ms + times.async_ms))
