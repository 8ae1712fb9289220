"""The runs of jobs as OpenLineage's events: how they begin, run and end, and the data that they read and write.

The exporter posts them. A job's run has the same id whoever makes the event, so that a server that was started anew
continues with it.

Source of the form: the OpenLineage specification, `RunEvent` and its facets.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

from penstock.engine.connectors import Dataset
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus

_SPEC: Final = "https://openlineage.io/spec"
_ENDS: Final = {JobStatus.FINISHED: "COMPLETE", JobStatus.CANCELLED: "ABORT", JobStatus.FAILED: "FAIL"}


def begin_event(info: JobInfo, began_ms: int, namespace: str) -> dict[str, Any]:
    """The event START.

    Args:
        info: the job.
        began_ms: civil time.
        namespace: of jobs.
    """
    return _event("START", info, began_ms, namespace)


def state_event(info: JobInfo, now_ms: int, namespace: str) -> dict[str, Any]:
    """RUNNING; of a job that has ended COMPLETE, ABORT (it was cancelled) or FAIL. Arguments as for `begin_event`."""
    kind = _ENDS.get(info.status)
    return _event("RUNNING", info, now_ms, namespace) if kind is None else _event(kind, info, info.since_ms, namespace)


def _event(kind: str, info: JobInfo, at_ms: int, namespace: str) -> dict[str, Any]:
    operators = [operator for task in info.tasks for operator in task.operators]
    facets = {} if info.error is None else {"errorMessage": _error(info.error)}
    return {
        "eventType": kind,
        "eventTime": datetime.datetime.fromtimestamp(at_ms / 1000, datetime.timezone.utc).isoformat(),
        "producer": _producer(),
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {
            "runId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"penstock:{info.id}")),
            "facets": facets,
        },
        "job": {"namespace": namespace, "name": info.name, "facets": {"jobType": _job_type()}},
        "inputs": _datasets(dataset for operator in operators for dataset in operator.reads),
        "outputs": _datasets(dataset for operator in operators for dataset in operator.writes),
    }


def _datasets(found: Iterable[Dataset]) -> list[dict[str, str]]:
    return [{"namespace": one.namespace, "name": one.name} for one in dict.fromkeys(found)]


def _job_type() -> dict[str, str]:
    return {
        "_producer": _producer(),
        "_schemaURL": f"{_SPEC}/facets/2-0-3/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
        "processingType": "STREAMING",
        "integration": "PENSTOCK",
        "jobType": "JOB",
    }


def _error(text: str) -> dict[str, str]:
    return {
        "_producer": _producer(),
        "_schemaURL": f"{_SPEC}/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
        "message": text.partition("\n")[0],
        "programmingLanguage": "python",
        "stackTrace": text,
    }


def _producer() -> str:
    return f"urn:penstock:{version('penstock')}"
