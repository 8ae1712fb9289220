"""Finds the Ray cluster that a job runs on: the one already connected, the one at an address, or one embedded here.

The environment connects by it, and so does the command line. Where it fails, the error says what to do.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from typing import Final

import ray
from ray.exceptions import RayError

from penstock.actors.cluster_token import token_problem
from penstock.engine.errors import ClusterError

ON_THIS_MACHINE: Final = "auto"
"""The address of a cluster that Ray finds here."""
_ANSWER_SECONDS: Final = 3.0


def connect(address: str | None, cpus: float, log_to_driver: bool = True) -> None:
    """Make sure that this process is connected to a cluster.

    Args:
        address: of a running cluster (`"auto"`, `"host:port"`, `"ray://..."`), or None: the cluster that this process
            is already connected to, or else a new one inside it, which ends with it.
        cpus: how many (logical) CPUs the job's slots need; a new cluster gets at least that many.
        log_to_driver: whether this process shows what the workers print, and news of those that died.

    Raises:
        ClusterError: there is no cluster at the address, or the process is connected to another one.
    """
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, ON_THIS_MACHINE, connected):
            raise ClusterError(
                f"this process is connected to the Ray cluster at {connected}, not to {address!r}; call ray.shutdown() "
                "first, or leave the address out"
            )
        return
    # Ray asks for a decision about a change of defaults that concerns accelerators only.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray runs workers at a low priority, which costs latency where anything else runs on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if address is not None:
        _check(address)
        try:
            ray.init(address=address, logging_level=logging.WARNING, log_to_driver=log_to_driver)
        except (ConnectionError, RuntimeError, ValueError, RayError) as error:
            raise ClusterError(f"no Ray cluster can be reached at {address!r}: {error}") from error
        return
    ray.init(
        address="local",
        num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)),
        include_dashboard=False,
        logging_level=logging.WARNING,
        log_to_driver=log_to_driver,
    )


def cluster_here() -> str | None:
    """The address of the cluster that was started last on this machine, if it answers.

    Ray itself would wait for minutes for one that has been killed.
    """
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(ON_THIS_MACHINE)
        socket.create_connection(_host_and_port(str(found)), _ANSWER_SECONDS).close()
    except (OSError, ValueError):
        return None
    return found


def _check(address: str) -> None:
    """Refuse at once what Ray would try for long.

    Raises:
        ClusterError: there is no cluster on this machine, or it wants a token that this process does not have.
    """
    named: str | None = os.environ.get("RAY_ADDRESS") or ON_THIS_MACHINE if address == ON_THIS_MACHINE else address
    is_local = named == ON_THIS_MACHINE
    if is_local:
        named = cluster_here()
    if named is None:
        raise ClusterError(
            "no Ray cluster is running on this machine; start one with `ray start --head`, or give its address"
        )
    if "://" in named:
        return
    try:
        host, port = _host_and_port(named)
    except ValueError:
        return
    if problem := token_problem(host, port, is_local):
        raise ClusterError(f"the Ray cluster at {named} cannot be used: {problem}")


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
