"""How the manager of a job is started, and how a second job of the same name is kept out.

The client calls it when it submits a job. A manager is a named actor, so that the name is taken for as long as it is
there; one whose job has ended is asked to leave.
"""

from __future__ import annotations

import time
from typing import Any, Final

import ray
from ray.exceptions import ActorAlreadyExistsError, RayError

from penstock.actors.deaths import not_loaded, remark
from penstock.actors.job_manager import JobManager
from penstock.actors.nodes import ON_THE_HEAD, head_node
from penstock.actors.registry import NAMESPACE, PREFIX, JobControl
from penstock.engine.errors import ClusterError, JobError, PenstockError
from penstock.engine.job.info import JobInfo

_CALLS: Final = 1000
_LEAVE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.1
_PART_BYTES: Final = 64 * 1024
"""Ray keeps arguments of up to 100 KiB with the actor, 10 MiB in all; larger ones are the driver's."""
_INLINE_BYTES: Final = 8 * 1024 * 1024


def create_manager(name: str, job_id: str, content: bytes, restarts: bool, detached: bool) -> Any:
    """Start the job manager of a job.

    Args:
        name: the job's name, which no other running job of the cluster may have.
        job_id: whose.
        content: the pickled program and folder.
        restarts: whether Ray restarts its process: the job can resume from storage.
        detached: whether the job outlives this process.

    Raises:
        JobError: a job of that name is running.
        ClusterError: a detached job is too large to outlive this process; or the manager of a job of that name which
            has ended does not leave.
    """
    if detached and len(content) > _INLINE_BYTES:
        raise ClusterError(
            f"job {name!r} cannot be detached: with the data in it, its program has {len(content)} bytes, and at most "
            f"{_INLINE_BYTES} outlive this process; read the data from files instead of from_collection"
        )
    parts = [content[start : start + _PART_BYTES] for start in range(0, len(content), _PART_BYTES)]
    options: dict[str, Any] = {
        "name": f"{PREFIX}{name}",
        "namespace": NAMESPACE,
        "num_cpus": 0,
        "max_concurrency": _CALLS,
        # Ray would keep a record of each call, and who watches the job makes one after another.
        "enable_task_events": False,
        "max_restarts": -1 if restarts else 0,
        **({"lifetime": "detached"} if detached else {}),
        **_on_the_head(),
    }
    manager_class: Any = ray.remote(JobManager)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while True:
        try:
            manager = manager_class.options(**options).remote(job_id, detached, *parts)
        except ActorAlreadyExistsError:
            _make_room(name, deadline)
            continue
        if detached:
            _await_outliving(name, manager)
        return manager


def _on_the_head() -> dict[str, Any]:
    """Where a manager is: on a worker, it would keep that from leaving, and die with it."""
    return {} if head_node() is None else {"resources": dict(ON_THE_HEAD)}


def _await_outliving(name: str, manager: Any) -> None:
    """Return when the manager's process runs: until then Ray drops it if this process, which asked for it, ends."""
    try:
        ray.get(manager.__ray_ready__.remote())
    except RayError as error:
        unstarted = ClusterError(f"the manager of job {name!r} could not be started{remark(error)}")
        raise (not_loaded(error) or unstarted) from error


def _make_room(name: str, deadline: float) -> None:
    """Have the manager that bears the name leave, if its job has ended; waits for a moment.

    Raises:
        JobError: its job runs.
        ClusterError: it has not left by the deadline.
    """
    try:
        found = JobControl(name, ray.get_actor(f"{PREFIX}{name}", NAMESPACE))
        info = found.info()
    except (ValueError, PenstockError) as error:
        # Its manager is just ending, or about to be restarted.
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the name of job {name!r} cannot be had: the manager of a job of that name does not answer, and the "
                f"job may well run: see `penstock info {name}`, and try again, or give this job another name"
            ) from error
    else:
        _check_ended(info)
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the job {name!r} before this one has ended, and yet its manager (process {info.manager_pid}) keeps "
                "the name: end that process, or give this job another name"
            )
        found.make_way()
    time.sleep(_AGAIN_SECONDS)


def check_not_running(name: str) -> None:
    """Refuse a job before anything is made for it, where that is known by now; `create_manager` decides.

    Raises:
        JobError: a job of that name is running.
    """
    try:
        info = JobControl(name, ray.get_actor(f"{PREFIX}{name}", NAMESPACE)).info()
    except (ValueError, PenstockError):
        # There is no manager, or it is just ending or being restarted.
        return
    _check_ended(info)


def _check_ended(info: JobInfo) -> None:
    if not info.status.ended:
        raise JobError(
            f"job {info.name!r} is running already, with id {info.id} (status {info.status.value}); cancel or stop it, "
            "or give this one another name"
        )
