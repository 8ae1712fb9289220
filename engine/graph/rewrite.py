"""Rewrites of the logical graph: the same result, with less work.

The planner applies `RULES` in order, once each. A rule is a pure function from graph to graph and keeps every name, uid
and parallelism that the user can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.engine.graph.logical import Chaining, Edge, LogicalGraph, Node
from penstock.engine.operators.expressions import ExpressionFactory

Rule: TypeAlias = Callable[[LogicalGraph], LogicalGraph]


def fuse_expressions(graph: LogicalGraph) -> LogicalGraph:
    """Neighbouring filter/select/with_columns become one operator, which passes over each batch once."""
    nodes = dict(graph.nodes)
    for node in graph:
        below = _fusible_input(nodes, node)
        if below is None:
            continue
        assert isinstance(below.role, ExpressionFactory)
        assert isinstance(node.role, ExpressionFactory)
        nodes[node.id] = replace(
            node,
            name=f"{below.name} -> {node.name}",
            role=ExpressionFactory((*below.role.steps, *node.role.steps)),
            inputs=below.inputs,
            chaining=below.chaining,
        )
        del nodes[below.id]
    return graph.with_nodes(nodes)


def _fusible_input(nodes: dict[int, Node], node: Node) -> Node | None:
    """The node whose steps `node` may take over, if there is one."""
    if not isinstance(node.role, ExpressionFactory) or len(node.inputs) != 1 or node.chaining is not Chaining.ALWAYS:
        return None
    below = nodes[node.inputs[0].source]
    alone = node.inputs[0] == Edge(below.id) and _consumer_count(nodes, below.id) == 1
    same = (below.parallelism, below.uid, below.resources) == (node.parallelism, node.uid, node.resources)
    if not (isinstance(below.role, ExpressionFactory) and alone and same) or below.chaining is Chaining.NEVER:
        return None
    return below


def _consumer_count(nodes: dict[int, Node], node_id: int) -> int:
    return sum(edge.source == node_id for node in nodes.values() for edge in node.inputs)


RULES: Final[tuple[Rule, ...]] = (fuse_expressions,)


def rewrite(graph: LogicalGraph) -> LogicalGraph:
    """The graph after all rules."""
    for rule in RULES:
        graph = rule(graph)
    return graph
