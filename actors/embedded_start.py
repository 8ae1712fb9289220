"""Starts the cluster that a program embeds: what a job needs first, and the rest when the cluster has run for a while.

`connect` calls it. `ray.init` would start the autoscaler's monitor and the dashboard's process before the raylet, wait
for the latter, and then look once a second whether the raylet has registered. What is replaced for that is private to
Ray (2.60): where it has another name, Ray starts as it always does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import ray

from penstock.actors import fork_client, fork_server
from penstock.actors.embedded import control_service, is_lost
from penstock.actors.embedded_agents import agents_later
from penstock.actors.process_end import until_pid_ended
from penstock.actors.replaced import replaced

_FORK_SERVER: Final = "fork_server"
_FORKS_WITH: Final = "2.60."
"""The Ray whose workers have been tried as forked processes."""
_WITHOUT_RAY: Final = (
    "pyarrow.acero",
    "penstock.engine.api.streams",
    "penstock.engine.job.brain",
    "penstock.savepoints.restore",
)
_WITH_RAY: Final = ("penstock.fork_imports",)
"""What workers have loaded as they are forked."""
_LATER_SECONDS: Final = 30.0
"""Programs that only run a job or two have ended by then, or have other things to wait for."""
_REGISTERED_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02


def init_embedded(**options: Any) -> None:
    """`ray.init` for a cluster of this process alone; returns when its raylet is there.

    The monitor (which `ray status` asks) and the dashboard's process (which reports usage, if that is wanted) are
    started half a minute later.

    Args:
        options: of `ray.init`.
    """
    with (
        replaced("ray._private.node", "Node", lambda node: type("Node", (_PatientNode, node), {})),
        replaced("ray._private.services", "get_node", lambda ask: functools.partial(_get_node_at_once, ask=ask)),
    ):
        ray.init(address="local", include_dashboard=False, **options)
    node, service = _PatientNode.of_this_process(), control_service()
    if node is not None and service is not None:
        threading.Thread(target=node.start_rest, args=(service.pid,), name="cluster's rest", daemon=True).start()


class _PatientNode:
    """Before Ray's `Node`, its processes on this machine: starts some of them when there is time for them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._rest: list[Callable[[], None]] = []
        rays: Any = super()
        rays.__init__(*args, **kwargs)

    @classmethod
    def of_this_process(cls) -> _PatientNode | None:
        """The one whose cluster this process is connected to and has started."""
        worker: Any = ray._private.worker
        return worker._global_node if isinstance(worker._global_node, cls) else None

    def start_head_processes(self) -> None:
        # Where it cannot be, Ray starts each worker from nothing.
        if sys.platform.startswith("linux") and ray.__version__.startswith(_FORKS_WITH):
            with contextlib.suppress(Exception):
                self._start_fork_server()
        rays: Any = super()
        rays.start_head_processes()

    def _start_fork_server(self) -> None:
        from ray._private import services as untyped

        services: Any = untyped
        node: Any = self
        parameters = node._ray_params
        address, worker = f"penstock-fork-{secrets.token_hex(16)}", parameters.worker_path
        told = {**(parameters.env_vars or {}), fork_client.SERVER: f"{address} {worker}"}
        _, path = node.get_log_file_names("fork_server", unique=True, create_out=False, create_err=True)
        with open(path, "ab") as log:
            started = services.start_ray_process(
                fork_server.command(address, worker, _WITHOUT_RAY, _WITH_RAY),
                _FORK_SERVER,
                fate_share=node.kernel_fate_share,
                stdout_file=log,
                stderr_file=log,
                pipe_stdin=True,
            )
        node.all_processes[_FORK_SERVER] = [started]
        parameters.env_vars, parameters.worker_path = told, fork_client.__file__

    def start_raylet(self, *args: Any, **kwargs: Any) -> None:
        rays: Any = super()
        with agents_later(self):
            rays.start_raylet(*args, **kwargs)
        node: Any = self
        with contextlib.suppress(Exception):
            (raylet,), (server,) = (node.all_processes[name] for name in ("raylet", _FORK_SERVER))
            with server.process.stdin as told:
                told.write(f"{raylet.process.pid} {node.gcs_address}\n".encode())

    def start_monitor(self) -> None:
        rays: Any = super()
        self._rest.append(rays.start_monitor)

    def start_api_server(self, **options: Any) -> None:
        rays: Any = super()
        # Where the cluster ends meanwhile, it fails; what Ray would say of that instead of raising it, nobody can use.
        self._rest.append(functools.partial(rays.start_api_server, **{**options, "raise_on_failure": True}))

    def start_rest(self, service: int) -> None:
        """Start what has been left out, unless the cluster ends before; returns when it has ended.

        The thread has to stay: the kernel ends the children of a thread with the thread (`PR_SET_PDEATHSIG`).

        Args:
            service: the id of the process that the cluster ends with.
        """
        asyncio.run(self._start_rest(service))

    async def _start_rest(self, service: int) -> None:
        end = asyncio.ensure_future(until_pid_ended(service))
        done, _ = await asyncio.wait([end], timeout=_LATER_SECONDS)
        for start in () if done else self._rest:
            # No job needs them.
            with contextlib.suppress(Exception):
                if self.of_this_process() is self and not is_lost():
                    start()
        await end


def _get_node_at_once(gcs_address: str, node_id: str, ask: Callable[[str, str], Any]) -> Any:
    """What the control service knows of a node; waits for it to register, and looks more often than once a second."""
    # Ray's own way of waiting is behind it.
    with contextlib.suppress(Exception):
        _await_node(gcs_address, node_id)
    return ask(gcs_address, node_id)


def _await_node(gcs_address: str, node_id: str) -> None:
    from ray import _raylet as untyped_raylet
    from ray.core.generated import gcs_service_pb2 as untyped

    raylet: Any = untyped_raylet
    messages: Any = untyped
    client = raylet.GcsClient(address=gcs_address)
    wanted = messages.GetAllNodeInfoRequest.NodeSelector(node_id=bytes.fromhex(node_id))
    until = time.monotonic() + _REGISTERED_SECONDS
    while not client.get_all_node_info(node_selectors=[wanted]) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
