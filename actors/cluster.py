"""Finds the Ray cluster that a job runs on: the one already connected, the one at an address, or one embedded here."""

from __future__ import annotations

import logging
import math
import os

import ray

from penstock.engine.errors import ClusterError


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
        if address not in (None, "auto", connected):
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
        try:
            ray.init(address=address, logging_level=logging.WARNING, log_to_driver=log_to_driver)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ClusterError(f"no Ray cluster can be reached at {address!r}: {error}") from error
        return
    ray.init(
        address="local",
        num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)),
        include_dashboard=False,
        logging_level=logging.WARNING,
        log_to_driver=log_to_driver,
    )
