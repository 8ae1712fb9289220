"""Rewrites of the logical graph: the same result, with less work.

The planner applies `RULES` in order, once each. A rule is a pure function from graph to graph and keeps every name, uid
and parallelism that the user can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.engine.exchange.partial_aggregates import PartialAggregates
from penstock.engine.exchange.partitioners import Global, Hash
from penstock.engine.graph.logical import Chaining, Edge, LogicalGraph, Node
from penstock.engine.operators.spec import OperatorSpec

Rule: TypeAlias = Callable[[LogicalGraph], LogicalGraph]


def fuse(graph: LogicalGraph) -> LogicalGraph:
    """Neighbours that can be one operator become one: filter/select/with_columns pass over each batch once."""
    nodes = dict(graph.nodes)
    for node in graph:
        below = _fusible_input(nodes, node)
        role = None if below is None else _fused(below, node)
        if below is None or role is None:
            continue
        nodes[node.id] = replace(
            node, name=f"{below.name} -> {node.name}", role=role, inputs=below.inputs, chaining=below.chaining
        )
        del nodes[below.id]
    return graph.with_nodes(nodes)


def _fused(below: Node, node: Node) -> OperatorSpec | None:
    if isinstance(below.role, OperatorSpec) and isinstance(node.role, OperatorSpec):
        return node.role.fused(below.role)
    return None


def _fusible_input(nodes: dict[int, Node], node: Node) -> Node | None:
    """The node that nothing keeps apart from `node`, if there is one."""
    if len(node.inputs) != 1 or node.chaining is not Chaining.ALWAYS:
        return None
    below = nodes[node.inputs[0].source]
    alone = node.inputs[0] == Edge(below.id) and _consumer_count(nodes, below.id) == 1
    same = (below.parallelism, below.uid, below.resources) == (node.parallelism, node.uid, node.resources)
    return below if alone and same and below.chaining is not Chaining.NEVER else None


def _consumer_count(nodes: dict[int, Node], node_id: int) -> int:
    return sum(edge.source == node_id for node in nodes.values() for edge in node.inputs)


def aggregate_partially(graph: LogicalGraph) -> LogicalGraph:
    """Rows travel to aggregates that can be merged as partial aggregates: far fewer, where keys repeat."""
    return graph.with_nodes({node.id: replace(node, inputs=_partial_inputs(node)) for node in graph})


def _partial_inputs(node: Node) -> tuple[Edge, ...]:
    layout = None if node.traits is None else node.traits.partial_layout
    if layout is None:
        return node.inputs
    keys = layout.aggregation.keys
    return tuple(
        replace(edge, partitioner=PartialAggregates(edge.partitioner, layout))
        if edge.partitioner == (Hash(tuple(keys)) if keys else Global())
        else edge
        for edge in node.inputs
    )


RULES: Final[tuple[Rule, ...]] = (fuse, aggregate_partially)


def rewrite(graph: LogicalGraph) -> LogicalGraph:
    """The graph after all rules."""
    for rule in RULES:
        graph = rule(graph)
    return graph
