"""Processes of jobs on other machines of the cluster: found by Ray, and signalled by an actor that runs beside them.

`faults.hold` asks it for what is not on this machine. The actor checks the process as it is checked here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import ray
from ray.exceptions import GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.actors.nodes import actor_nodes, addresses
from penstock.engine.errors import ClusterError
from penstock.testing.chaos.local_process import MANAGER, SUBTASK, JobProcess, LiveProcess

_ANSWER_SECONDS: Final = 60.0
"""Within which a node starts an actor that needs no resources."""

Elsewhere: TypeAlias = Mapping[tuple[str, int], Sequence[str]]
"""By the class of an actor and the id of its process, all nodes that have one, where one of them is another machine."""


def processes_elsewhere() -> Elsewhere:
    """The processes of jobs, and warm ones, as of now."""
    found = actor_nodes((SUBTASK, MANAGER))
    own: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    hosts = {node: host for node, (host, _) in addresses({node for nodes in found.values() for node in nodes}).items()}
    return {key: nodes for key, nodes in found.items() if any(hosts.get(node, own) != own for node in nodes)}


def machines() -> Sequence[str]:
    """The addresses of the machines that the cluster is on."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return sorted({node["NodeManagerAddress"] for node in nodes if node["Alive"]})


class RemoteProcess:
    """A process on another machine, as `LiveProcess`.

    Args:
        process: what the job says.
        nodes: that have an actor in a process of this id.

    Raises:
        ClusterError: it is something else, several nodes have one, or its node does not answer.
        ProcessLookupError: it does not exist any more.
    """

    def __init__(self, process: JobProcess, nodes: Sequence[str]) -> None:
        if len(nodes) > 1:
            raise ClusterError(
                f"{process} may be on any of the nodes {', '.join(nodes)}, which all have a process of a job with this "
                "id; no signal is sent to it"
            )
        self._process = process
        beside = NodeAffinitySchedulingStrategy(nodes[0], soft=False)
        actor: Any = ray.remote(_Beside)
        self._beside = actor.options(num_cpus=0, scheduling_strategy=beside).remote()
        self._ask(self._beside.hold.remote(process))

    def kill(self) -> None:
        """`kill -9`."""
        self._ask(self._beside.kill.remote())

    def stop(self) -> None:
        """Stop it where it is: it lives, and does nothing."""
        self._ask(self._beside.stop.remote())

    def proceed(self) -> None:
        """Resume it, if it still exists."""
        with contextlib.suppress(ProcessLookupError):
            self._ask(self._beside.proceed.remote())

    def close(self) -> None:
        """Let it go."""
        ray.kill(self._beside)

    def _ask(self, call: Any) -> None:
        try:
            ray.get(call, timeout=_ANSWER_SECONDS)
        except RayActorError as error:
            raise ProcessLookupError(f"the node of {self._process} has gone") from error
        except GetTimeoutError as error:
            raise ClusterError(f"the node of {self._process} did not answer within {_ANSWER_SECONDS:g} s") from error


class _Beside:
    """An actor on the node of a process."""

    def hold(self, process: JobProcess) -> None:
        """Check it and hold it, as `LiveProcess`."""
        self._live = LiveProcess(process)

    def kill(self) -> None:
        self._live.kill()

    def stop(self) -> None:
        self._live.stop()

    def proceed(self) -> None:
        self._live.proceed()
