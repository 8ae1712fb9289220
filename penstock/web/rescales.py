"""The rescales of a job as Flink's REST tells of them: overview, history, summary, one of them, and the configuration.

`flink_routes.py` serves them. They are made of the restarts that the job keeps; what a rescale changed is known of the
newest alone, whose tasks run now.

Source of paths and members: Flink's documentation, "REST API", `/jobs/:jobid/rescales`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.engine.job.info import JobInfo, RestartInfo, TaskInfo
from penstock.engine.job.restarts import KEPT
from penstock.engine.job.status import JobStatus
from penstock.web.flink import summary_of

_STATES: Final = ("COMPLETED", "FAILED", "IGNORED")
_WHY_IGNORED: Final[Mapping[JobStatus, str]] = {
    JobStatus.FINISHED: "JOB_FINISHED",
    JobStatus.CANCELLED: "JOB_CANCELING",
    JobStatus.FAILED: "JOB_FAILING",
}

_WITHOUT_LIMITS: Final = (
    "submissionResourceStabilizationTimeoutInMillis",
    "slotIdleTimeoutInMillis",
    "executingCooldownTimeoutInMillis",
    "executingResourceStabilizationTimeoutInMillis",
    "maximumDelayForTriggeringRescaleInMillis",
)
"""A rescale is done when it is asked for: it waits for nothing but room."""
_SLOTS: Final = {"slotSharingGroupId": "default", "slotSharingGroupName": "default"}


def rescales_overview(info: JobInfo) -> dict[str, Any]:
    """`/jobs/:jobid/rescales/overview`."""
    told = _all(info)
    newest = {state.lower(): next((one for one in told if one["terminalState"] == state), None) for state in _STATES}
    return {"rescalesCounts": _counts(told), "latest": newest}


def rescales_history(info: JobInfo) -> list[dict[str, Any]]:
    """`/jobs/:jobid/rescales/history`, the newest first."""
    return _all(info)


def rescales_summary(info: JobInfo) -> dict[str, Any]:
    """`/jobs/:jobid/rescales/summary`."""
    told = _all(info)

    def durations(*states: str) -> dict[str, Any]:
        ended = [one for one in told if one["terminalState"] in states]
        return summary_of([one["endTimestampInMillis"] - one["startTimestampInMillis"] for one in ended])

    return {
        "rescalesCounts": _counts(told),
        "rescalesDurationStatsInMillis": durations(*_STATES),
        **{f"{state.lower()}RescalesDurationStatsInMillis": durations(state) for state in _STATES},
    }


def rescale_details(info: JobInfo, rescale: str) -> dict[str, Any] | None:
    """`/jobs/:jobid/rescales/details/:rescaleuuid`; None: there is none."""
    found = next((one for one in _all(info) if one["rescaleUuid"] == rescale), None)
    return None if found is None else {**found, "schedulerStates": []}


def rescales_config(info: JobInfo) -> dict[str, Any]:
    """`/jobs/:jobid/rescales/config`."""
    timeout = dict(info.settings).get("slot_timeout_ms", "")
    return {
        "rescaleHistoryMax": KEPT,
        "schedulerExecutionMode": None,
        "submissionResourceWaitTimeoutInMillis": int(timeout) if timeout.isdigit() else None,
        **dict.fromkeys(_WITHOUT_LIMITS, 0),
        "rescaleOnFailedCheckpointCount": None,
    }


def _counts(told: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    states = [one["terminalState"] for one in told]
    return {"inProgress": states.count(None), **{state.lower(): states.count(state) for state in _STATES}}


def _all(info: JobInfo) -> list[dict[str, Any]]:
    """Each rescale, the newest first, as the history has it."""
    rescales = [(place, one) for place, one in enumerate(info.restart_history) if one.kind == "rescale"]
    told = [
        _as_json(info, number, one, info.restart_history[place + 1 :])
        for number, (place, one) in enumerate(rescales, start=1)
    ]
    if told and told[-1]["terminalState"] in ("COMPLETED", None):
        told[-1]["vertices"] = {str(task.id): _vertex(task) for task in info.tasks}
    return told[::-1]


def _as_json(info: JobInfo, number: int, one: RestartInfo, later: Sequence[RestartInfo]) -> dict[str, Any]:
    state, reason, end_ms = _outcome(info, one, later)
    place = f"penstock:{info.id}:rescale:{one.at_ms}"
    return {
        "rescaleUuid": str(uuid.uuid5(uuid.NAMESPACE_URL, place)),
        "resourceRequirementsUuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{place}:{one.cause}")),
        "rescaleAttemptId": number,
        "vertices": {},
        "slots": {},
        "schedulerStates": None,
        "startTimestampInMillis": one.at_ms,
        "endTimestampInMillis": end_ms,
        "terminalState": state,
        "triggerCause": "UPDATE_REQUIREMENT",
        "terminatedReason": reason,
    }


def _outcome(
    info: JobInfo, one: RestartInfo, later: Sequence[RestartInfo]
) -> tuple[str | None, str | None, int | None]:
    """How a rescale ended, why, and when; None where it is under way."""
    if one.restore_ms is not None:
        return "COMPLETED", "SUCCEEDED", one.at_ms + round(one.restore_ms)
    if later:
        return "IGNORED", "JOB_FAILOVER_RESTARTING", later[0].at_ms
    if info.status in _WHY_IGNORED:
        return "IGNORED", _WHY_IGNORED[info.status], info.since_ms
    return None, None, None


def _vertex(task: TaskInfo) -> dict[str, Any]:
    return {
        "jobVertexId": str(task.id),
        "jobVertexName": task.name,
        **_SLOTS,
        "desiredParallelism": task.parallelism,
        "sufficientParallelism": 1,
        "preRescaleParallelism": None,
        "postRescaleParallelism": task.parallelism,
    }
