"""Rewrites of the logical graph: the same result, with less work.

The planner applies `RULES` in order, once each. A rule is a pure function from graph to graph and keeps every name, uid
and parallelism that the user can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.engine.aggregates.partials import PartialLayout, Slices, mergeable
from penstock.engine.exchange.partial_aggregates import PartialAggregates
from penstock.engine.exchange.partitioners import Global, Hash
from penstock.engine.graph.logical import Chaining, Edge, LogicalGraph, Node, Role
from penstock.engine.operators.expressions import ExpressionFactory
from penstock.engine.operators.final_aggregate import FinalAggregateFactory
from penstock.engine.operators.running_aggregate import RunningAggregateFactory
from penstock.engine.operators.windows.window_aggregate import WindowAggregateFactory

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


def aggregate_partially(graph: LogicalGraph) -> LogicalGraph:
    """Rows travel to aggregates that can be merged as partial aggregates: far fewer, where keys repeat."""
    return graph.with_nodes({node.id: replace(node, inputs=_partial_inputs(node)) for node in graph})


def _partial_inputs(node: Node) -> tuple[Edge, ...]:
    layout = _partial_layout(node.role)
    if layout is None:
        return node.inputs
    keys = layout.aggregation.keys
    return tuple(
        replace(edge, partitioner=PartialAggregates(edge.partitioner, layout))
        if edge.partitioner == (Hash(tuple(keys)) if keys else Global())
        else edge
        for edge in node.inputs
    )


def _partial_layout(role: Role) -> PartialLayout | None:
    """How rows can travel to the operator as partial aggregates, if they can."""
    match role:
        case RunningAggregateFactory(aggregation) | FinalAggregateFactory(aggregation) if mergeable(aggregation):
            return PartialLayout(aggregation)
        # Late rows that go to a side output, and rows between windows, have to come one by one.
        case WindowAggregateFactory(windows, aggregation, _, None) if mergeable(aggregation) and not windows.has_gaps:
            return PartialLayout(aggregation, Slices(windows.slice_ms, windows.offset_ms))
        case _:
            return None


RULES: Final[tuple[Rule, ...]] = (fuse_expressions, aggregate_partially)


def rewrite(graph: LogicalGraph) -> LogicalGraph:
    """The graph after all rules."""
    for rule in RULES:
        graph = rule(graph)
    return graph
