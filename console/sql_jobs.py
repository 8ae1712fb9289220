"""The statements of `penstock sql` about the jobs of a cluster, as Flink's SQL client has them.

`sql.py` asks for their rows: SHOW JOBS, DESCRIBE JOB and STOP JOB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.console.jobs import find, jobs_of
from penstock.console.output import Output, time_text
from penstock.engine.job.info import JobInfo
from penstock.tables.parse.statements import JobStatement

_SHOWN: Final = ("job id", "job name", "status", "start time")


def about_jobs(statement: JobStatement, output: Output) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
    """Do what a statement about jobs says.

    Returns:
        The columns and rows to be shown; none where nothing is.

    Raises:
        JobError: there is no such job, or it cannot be stopped.
        ClusterError: there is no cluster.
    """
    if statement.action == "SHOW":
        return _SHOWN, [_row(job) for job in jobs_of(None, None, output)]
    job = find(statement.job, None, None, output)
    if statement.action == "DESCRIBE":
        return _SHOWN, [_row(job.info())]
    if not statement.savepoint:
        job.cancel()
        output.say(f"job {job.name} {job.info().status.value}")
        return (), ()
    with output.progress(f"stopping {job.name}"):
        path = job.drain(None) if statement.drain else job.stop(None)
    return ("savepoint path",), [{"savepoint path": path}]


def _row(job: JobInfo) -> dict[str, Any]:
    started = time_text(job.started_ms) if job.started_ms else None
    return dict(zip(_SHOWN, (job.id, job.name, job.status.value, started), strict=True))
