"""State of running jobs for other programs: `penstock.state`, live or as of one checkpoint.

Live state is answered by the tasks between two of their steps. That of a checkpoint is read from its files, costs the
job nothing, and is one cut through all operators: as if the job had stood still for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.actors.registry import JobControl
    from penstock.savepoints.live_state import LiveState
    from penstock.savepoints.reader import Savepoint


def state(job: str, uid: str, name: str, address: str | None = None) -> LiveState:
    """A state of a running job on Ray, live.

    Args:
        job: name or id.
        uid: of the operator, as `.uid(...)` set it.
        name: of the state, as its descriptor has it.
        address: of the cluster, as for `attach`.

    Raises:
        ClusterError: there is no such cluster.
        JobError: there is no such job.

    Example:
        >>> totals = penstock.state("orders", "totals", "total")  # doctest: +SKIP
        >>> totals.get("ann"), totals.scan(where={"user": ["ann", "bob"]})  # doctest: +SKIP
    """
    from penstock.detached import attach

    return attach(job, address).state(uid, name)


def checkpointed_state(job: str, address: str | None = None) -> Savepoint:
    """The newest checkpoint of a running job: all its state at one consistent cut, as `penstock.savepoints.read` gives.

    Its files go when later checkpoints have replaced it: ask again where one is missing.

    Args:
        job: name or id.
        address: of the cluster, as for `attach`.

    Raises:
        JobError: there is no such job.
        CheckpointError: it has completed no checkpoint, or that cannot be read from here.

    Example:
        >>> cut = penstock.checkpointed_state("orders")  # doctest: +SKIP
        >>> cut.operator("totals").state("total").get("ann")  # doctest: +SKIP
    """
    from penstock.detached import attach

    return newest_checkpoint(attach(job, address))


def newest_checkpoint(job: JobControl) -> Savepoint:
    """The newest checkpoint of a job.

    Raises:
        CheckpointError: it has completed none, or that cannot be read from here.
    """
    from penstock.engine.errors import CheckpointError
    from penstock.savepoints.reader import read

    checkpoints = job.info().checkpoints
    url = None if checkpoints is None else checkpoints.latest_url
    if url is None:
        raise CheckpointError(
            f"job {job.name!r} has completed no checkpoint so far; take one, or have it take them by "
            "checkpoints=penstock.checkpoints('10s', URL)"
        )
    return read(url)
