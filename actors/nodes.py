"""The nodes of the cluster: which of them are about to leave, what of ours is on one, and having one leave.

Job managers ask which leave, `penstock drain` the rest. All of Ray's interface for this is private (2.60), and is used
here alone. Calls block for a millisecond or so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import ray

from penstock.actors.lifeline import Address, answers
from penstock.engine.errors import ClusterError

_ANSWER_SECONDS: Final = 2.0
_HEAD: Final = "node:__internal_head__"
"""The resource that only the head of a cluster has."""
ON_THE_HEAD: Final[Mapping[str, float]] = MappingProxyType({_HEAD: 0.0001})
"""What an actor needs that is to be on the head: with a soft affinity, Ray may put it elsewhere all the same."""


def leaving_nodes() -> Collection[str]:
    """The ids of the nodes that are being drained: by `ray drain-node`, the autoscaler, or `begin_to_drain`."""
    state: Any = ray._private.state.state
    return frozenset(state.get_draining_nodes())


def _nodes() -> list[dict[str, Any]]:
    """All that Ray knows, as it calls what they have."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def own_node() -> str:
    """The id of the node that this process is on."""
    return str(ray.get_runtime_context().get_node_id())


def head_node() -> str | None:
    """The id of the cluster's head; None: it is away."""
    return next((node["NodeID"] for node in _nodes() if node["Alive"] and _HEAD in node["Resources"]), None)


async def lost_nodes(nodes: Collection[str]) -> Collection[str]:
    """Those of these nodes whose raylet takes no connections: of one that is dead, Ray itself knows many seconds later.

    Args:
        nodes: their ids.
    """
    if not nodes:
        return frozenset()
    # What Ray knows to be dead it sees to by itself.
    suspected = await asyncio.to_thread(addresses, nodes)
    alive = await asyncio.gather(*(answers(address, _ANSWER_SECONDS) for address in suspected.values()))
    return frozenset(node for node, is_alive in zip(suspected, alive, strict=True) if not is_alive)


def addresses(nodes: Collection[str]) -> Mapping[str, Address]:
    """Where the raylets of those of these nodes are that Ray believes alive, by the ids of the nodes."""
    return {
        node["NodeID"]: (node["NodeManagerAddress"], node["NodeManagerPort"])
        for node in _nodes()
        if node["Alive"] and node["NodeID"] in nodes
    }


def find_node(given: str | None) -> str:
    """The id of a node that lives.

    Args:
        given: its id, or the beginning of it; None: the node that this process is on.

    Raises:
        ClusterError: there is none, or there are several.
    """
    if given is None:
        return own_node()
    living = [str(node["NodeID"]) for node in _nodes() if node["Alive"]]
    found = [node for node in living if node.startswith(given)]
    if len(found) != 1:
        what = "several nodes have ids that begin so" if found else "no node that lives has this id"
        raise ClusterError(f"node {given!r}: {what}; there are {', '.join(living)} (`ray list nodes` shows more)")
    return found[0]


def begin_to_drain(node: str, seconds: float) -> None:
    """Have nothing new start on a node, and jobs move what they have there; what runs runs on.

    Args:
        node: its id.
        seconds: when it will be gone.

    Raises:
        ClusterError: it is the head of the cluster, or Ray refuses.
    """
    if node == head_node():
        # Drained, it would end as soon as it is idle, and with it the cluster.
        raise ClusterError(
            f"node {node} is the head, which cannot leave: the cluster and the managers of its jobs live there; "
            "where it shares a machine with other nodes, name one of these by its id (`ray list nodes`)"
        )
    from ray.core.generated import autoscaler_pb2 as untyped

    messages: Any = untyped
    client: Any = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)  # type: ignore[attr-defined]
    reason = messages.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    deadline_ms = time.time_ns() // 1_000_000 + round(seconds * 1000)
    accepted, why_not = client.drain_node(node, reason, "penstock drain", deadline_ms)
    if not accepted:
        raise ClusterError(f"Ray does not drain node {node}: {why_not}")


def actor_nodes(classes: Collection[str]) -> Mapping[tuple[str, int], Sequence[str]]:
    """The ids of the nodes that actors of these classes are on, by their class and the id of their process there."""
    table: dict[str, dict[str, Any]] = ray._private.state.actors()
    found: dict[tuple[str, int], list[str]] = {}
    for actor in table.values():
        if actor["State"] == "ALIVE" and actor["ActorClassName"] in classes:
            found.setdefault((actor["ActorClassName"], actor["Pid"]), []).append(actor["Address"]["NodeID"])
    return found


def actors_on(node: str, classes: Collection[str]) -> Sequence[str]:
    """The actors of these classes whose processes are on a node, in words."""
    table: dict[str, dict[str, Any]] = ray._private.state.actors()
    return sorted(
        f"{actor['Name'] or actor['ActorClassName']} (process {actor['Pid']})"
        for actor in table.values()
        if actor["State"] == "ALIVE" and actor["Address"]["NodeID"] == node and actor["ActorClassName"] in classes
    )
