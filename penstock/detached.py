"""A handle on a job that another process has submitted: `penstock.attach`.

Programs use it for detached jobs, as the command line does with its commands on jobs. The job does not end with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.actors.registry import JobControl


def attach(job: str, address: str | None = None) -> JobControl:
    """The job of that name, or that id, on a Ray cluster that is running.

    Args:
        job: its name, as it was submitted, or its id.
        address: of the cluster; None: the one that this process is connected to, RAY_ADDRESS, or that of this machine.

    Raises:
        ClusterError: there is no such cluster.
        JobError: there is no such job; says which are running.

    Example:
        >>> job = penstock.attach("orders", "cluster-head:6379")  # doctest: +SKIP
        >>> job.status(), job.savepoint("s3://bucket/savepoints")  # doctest: +SKIP
    """
    # Ray takes a second to import, and most of what programs do needs none of it.
    from penstock.actors.cluster import ON_THIS_MACHINE, connect
    from penstock.actors.registry import find_job

    connect(address or ON_THIS_MACHINE, 0)
    return find_job(job)
