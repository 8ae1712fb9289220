"""Finds the Ray cluster that a job runs on: the one already connected, the one at an address, or one embedded here.

The environment connects by it, and so does the command line. Where it fails, the error says what to do.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import math
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import RayError

from penstock.actors.background_start import await_start
from penstock.actors.cluster_token import is_open, make_token, token_problem
from penstock.actors.embedded import end_quickly_at_exit, is_embedded
from penstock.actors.embedded_start import init_embedded
from penstock.actors.ray_serializers import register_serializers_later
from penstock.actors.rays_lines import saying_less
from penstock.actors.termination import as_signalled
from penstock.engine.errors import ClusterError

WARM_IMPORTS: Final = "penstock.warm_imports"
"""What the workers of a cluster are to load as they start."""
ON_THIS_MACHINE: Final = "auto"
"""The address of a cluster that Ray finds here."""
_INSIDE_THIS_PROCESS: Final = "local"
"""What Ray calls a cluster that it is to start."""
_RAY_ADDRESS: Final = "RAY_ADDRESS"
_ANSWER_SECONDS: Final = 3.0
_REMOTE_ANSWER_SECONDS: Final = 10.0


def connect(address: str | None, cpus: float, log_to_driver: bool = True) -> None:
    """Make sure that this process is connected to a cluster.

    Args:
        address: of a running cluster (`"auto"`, `"host:port"`, `"ray://..."`), or None: the cluster that this process
            is already connected to, that of RAY_ADDRESS, or else a new one inside it, which ends with it.
        cpus: how many (logical) CPUs the job's slots need; a new cluster gets at least that many.
        log_to_driver: whether this process shows what the workers print, and what Ray says of them and of the nodes.

    Raises:
        ClusterError: there is no cluster at the address, the process is connected to another one, or its own cluster
            does not start, or is too small, as it keeps its size.
    """
    with as_signalled():
        await_start()
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, ON_THIS_MACHINE) and not _is_same(address, connected):
            raise ClusterError(
                f"this process is connected to the Ray cluster at {connected}, not to {address!r}; call ray.shutdown() "
                "first, or leave the address out"
            )
        _check_size(cpus)
        return
    # Ray asks for a decision about a change of defaults that concerns accelerators only.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # That a token protects the cluster is our documentation's to say, not each job's.
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    # Ray runs workers at a low priority, which costs latency where anything else runs on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Its workers start before they are needed, and have time to load what they need then.
    os.environ.setdefault("RAY_preload_python_modules", WARM_IMPORTS)
    # Jobs ask for as many as they need. Those that Ray starts for a program by itself end when they have waited for a
    # second, while the job that would use them begins.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    # The raylet and its object store begin together, and the one that comes too early would look again after a second.
    os.environ.setdefault("RAY_raylet_client_connect_timeout_milliseconds", "20")
    os.environ.setdefault("RAY_raylet_client_num_connect_attempts", "500")
    register_serializers_later()
    if not sys.stdout.isatty():
        # What workers print goes into a file or to another program, which want no colours.
        os.environ.setdefault("RAY_COLOR_PREFIX", "0")
    wanted = named_address(address)
    if wanted is not None:
        named = _checked(wanted)
        try:
            with as_signalled(), saying_less(log_to_driver):
                ray.init(address=named, logging_level=logging.WARNING, log_to_driver=log_to_driver)
        except (ConnectionError, RuntimeError, ValueError, RayError) as error:
            raise ClusterError(f"no Ray cluster can be reached at {named!r}: {error}") from error
        return
    make_token()
    try:
        with as_signalled(), saying_less(log_to_driver):
            init_embedded(
                num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)),
                logging_level=logging.WARNING,
                log_to_driver=log_to_driver,
            )
    except Exception as error:  # Ray has no class of its own for one that does not start.
        raise ClusterError(
            f"Ray could not start a cluster for this process: {str(error).rstrip('.')}; where the machine was too "
            "busy, run the program again; what Ray's processes said is in session_latest/logs of its temporary folder "
            "(RAY_TMPDIR)"
        ) from error
    end_quickly_at_exit()


def named_address(address: str | None) -> str | None:
    """The address that counts: the one given, or else RAY_ADDRESS; None: a cluster inside this process may be made."""
    named = address or os.environ.get(_RAY_ADDRESS)
    return None if named in (None, "", _INSIDE_THIS_PROCESS) else named


def _check_size(cpus: float) -> None:
    total = float(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
    if is_embedded() and cpus > total:
        raise ClusterError(
            f"the job needs {cpus:g} CPU for its slots, and the cluster of this process, which keeps its size until "
            f"ray.shutdown(), has {total:g}: call ray.shutdown() before, lower the parallelism, or set slot_cpus"
        )


def _is_same(address: str, connected: str) -> bool:
    """Whether an address means the cluster at another one, which has the number of its machine for host."""
    if address == connected:
        return True
    try:
        (host, port), (own_host, own_port) = _host_and_port(address), _host_and_port(connected)
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, ValueError):
        return False
    if any(ipaddress.ip_address(ip.partition("%")[0]).is_loopback for ip in found):
        found |= {"127.0.0.1", ray.util.get_node_ip_address()}  # type: ignore[no-untyped-call]
    return port == own_port and own_host in found


@dataclass(frozen=True, slots=True)
class ClustersHere:
    """What there is on this machine.

    Args:
        address: of the cluster that can be used: of several the one that `ray start` has started last; None: of none.
        refused: why others cannot, where none can: address, reason and what to do.
    """

    address: str | None
    refused: Sequence[str] = ()


def clusters_here() -> ClustersHere:
    """Look for the clusters of this machine: that which Ray has noted, and those whose processes run.

    What is noted may have ended, and what runs may be somebody else's. Ray itself would wait for minutes for one, and
    take the other or not as it happens.
    """
    from ray._private import services as untyped

    services: Any = untyped
    services.find_gcs_addresses.cache_clear()
    noted: str | None = None
    with contextlib.suppress(OSError, ValueError):
        # The note may be another user's.
        noted = services.find_bootstrap_address(None)
    refused = []
    for address in dict.fromkeys([*([noted] if noted else []), *sorted(services.find_gcs_addresses())]):
        try:
            host, port = _host_and_port(address)
            socket.create_connection((host, port), _ANSWER_SECONDS).close()
        except (OSError, ValueError):
            continue
        problem = token_problem(host, port, is_local=True)
        if problem is None:
            return ClustersHere(address)
        refused.append(f"the Ray cluster at {address}, on this machine, cannot be used: {problem}")
    return ClustersHere(None, refused)


def _checked(address: str) -> str:
    """The address to give to Ray; refuses at once what Ray would try for long.

    Raises:
        ClusterError: there is no cluster on this machine, nobody answers at the address, or the cluster wants a token
            that this process does not have.
    """
    named = named_address(None) or address if address == ON_THIS_MACHINE else address
    if named == ON_THIS_MACHINE:
        return _address_here()
    if "://" in named:
        return named
    try:
        host, port = _host_and_port(named)
    except ValueError:
        return named
    try:
        socket.create_connection((host, port), _REMOTE_ANSWER_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {named} ({error.strerror or error}); start one there with `ray start --head`, "
            f"or give the address of another (RAY_ADDRESS, or --address){_without(named)}"
        ) from error
    if problem := token_problem(host, port, is_local=False):
        raise ClusterError(f"the Ray cluster at {named} cannot be used: {problem}")
    return named


def _without(named: str) -> str:
    """How to do without an address that RAY_ADDRESS names, for messages."""
    is_named_there = named == os.environ.get(_RAY_ADDRESS)
    return f"; {_RAY_ADDRESS} names this one: unset it, and a job has a cluster of its own" if is_named_there else ""


def _address_here() -> str:
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

    here = clusters_here()
    if here.address is not None:
        # With a token, this process would refuse the calls of a cluster that has none, and its jobs would never begin.
        if not is_open(*_host_and_port(here.address)):
            maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        return here.address
    if here.refused:
        raise ClusterError(
            f"{'; '.join(here.refused)}; or start one with `ray start --head`, or give the address of another"
        )
    raise ClusterError(
        "no Ray cluster is running on this machine; start one with `ray start --head`, or give its address"
    )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
