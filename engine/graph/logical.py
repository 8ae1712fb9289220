"""The logical job graph: what the user wrote, node by node.

The streams build it; `rewrite.py` transforms it; `physical.py` turns it into tasks. Nodes and edges are immutable
values; union and the partitioning verbs are no nodes but shapes of edges.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from penstock.engine.changelog import ChangelogMode
from penstock.engine.connectors import Source
from penstock.engine.errors import GraphError
from penstock.engine.exchange.partitioners import Partitioner
from penstock.engine.graph.changelog import ChangelogInput, output_mode
from penstock.engine.operators.base import SchemaOrUnknown
from penstock.engine.operators.spec import Feedback, OperatorSpec, OperatorTraits, Resources
from penstock.engine.windows.watermarks import WatermarkStrategy


class Chaining(enum.Enum):
    """Whether an operator may share a task with its neighbours."""

    ALWAYS = "always"
    HEAD = "head"
    """Starts a chain: not chained to the operator before it."""
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows flow from node `source` to the node that holds the edge.

    Args:
        source: id of the node upstream.
        partitioner: how rows are spread; None means forward where both sides have the same parallelism, else rebalance.
        input_index: which input of the operator they feed.
        tag: the name of the side output that they come from; None means the main output.
    """

    source: int
    partitioner: Partitioner | None = None
    input_index: int = 0
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """Marks the end of a stream whose rows go to the client."""

    def describe(self) -> str:
        """A short text for `explain()`."""
        return "collect"


Role: TypeAlias = Source | OperatorSpec | Results
"""What a node does."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the program.

    Args:
        id: number in the order of creation, from 1.
        name: for people; a description of the operator unless the user gave one.
        role: a source, an operator (sinks too), or the mark for results to the client.
        inputs: the edges that feed it.
        schema: the columns that it emits, or None where not known before the job runs.
        timed: whether its rows carry event timestamps.
        uid: the user's stable id, for state.
        parallelism: None means that of the environment.
        sides: the columns of side outputs: as the operator gives them, or as the tag that is read declares them.
        watermarks: of a source that assigns timestamps itself.
        changelog: the mode of the rows that it emits.
    """

    id: int
    name: str
    role: Role
    inputs: tuple[Edge, ...] = ()
    schema: SchemaOrUnknown = None
    timed: bool = False
    uid: str | None = None
    parallelism: int | None = None
    chaining: Chaining = Chaining.ALWAYS
    resources: Resources | None = None
    sides: Mapping[str, SchemaOrUnknown] = field(default_factory=dict)
    watermarks: WatermarkStrategy | None = None
    changelog: ChangelogMode = ChangelogMode.APPEND

    @property
    def where(self) -> str:
        """How messages name the node."""
        return f"operator {self.name!r}"

    @property
    def traits(self) -> OperatorTraits | None:
        """What the operator says of itself; None for sources and results."""
        return self.role.traits if isinstance(self.role, OperatorSpec) else None

    @property
    def is_end(self) -> bool:
        """Whether rows leave the job here."""
        return isinstance(self.role, Results) or (self.traits is not None and self.traits.sink is not None)


@dataclass(frozen=True, slots=True)
class LogicalGraph:
    """All nodes by id; every edge's source has a smaller id than its target."""

    nodes: dict[int, Node] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def consumers(self, node_id: int) -> list[Node]:
        """The nodes that an output of the node feeds, in order of creation."""
        return [node for node in self if any(edge.source == node_id for edge in node.inputs)]

    def upstream(self, ends: Iterable[int]) -> set[int]:
        """The ids of the nodes that lead to `ends`, these included; what loops feed back leads nowhere."""
        found = set(ends)
        for node in reversed(list(self)):
            if node.id in found:
                found.update(edge.source for edge in node.inputs)
        return found

    def endless_source(self, ends: Iterable[int]) -> str | None:
        """The name of a source without end that leads to the nodes `ends`, if there is one."""
        for node_id in sorted(_leading_to(self, set(ends))):
            role = self[node_id].role
            if isinstance(role, Source) and not role.bounded:
                return self[node_id].name
        return None

    def with_nodes(self, nodes: dict[int, Node]) -> LogicalGraph:
        return LogicalGraph(dict(sorted(nodes.items())))


def live_part(graph: LogicalGraph) -> LogicalGraph:
    """The part of the program that leads to a sink or to the client; the rest would have no effect and does not run.

    The tail of a loop runs if its head does.

    Raises:
        GraphError: nothing leads to a sink, or a uid is used twice.
    """
    live = _leading_to(graph, {node.id for node in graph if node.is_end})
    if not list(graph):
        raise GraphError(
            "the program is empty: it begins with a source of the environment; one that has been run is gone from it"
        )
    if not live:
        raise GraphError(
            "the program has no sink, so its rows would go nowhere; "
            "end a stream with sink_to(...), print() or collect()"
        )
    uids: dict[str, Node] = {}
    for node in graph:
        if node.uid is not None:
            other = uids.setdefault(node.uid, node)
            if other is not node:
                raise GraphError(f"uid {node.uid!r} is used by {other.where} and by {node.where}; uids must be unique")
    return graph.with_nodes({node_id: graph[node_id] for node_id in live})


def resumed(graph: LogicalGraph) -> LogicalGraph:
    """The program as it resumes from a savepoint: its sinks accept what they wrote before."""
    nodes = {
        node.id: replace(node, role=node.role.resumed()) if isinstance(node.role, OperatorSpec) else node
        for node in graph
    }
    return graph.with_nodes(nodes)


def _leading_to(graph: LogicalGraph, ends: set[int]) -> set[int]:
    """The nodes that lead to `ends`, these included."""
    found = graph.upstream(ends)
    tails = {node.id for node in graph if (way := feedback_of(node)) is not None and way.loop in found}
    return found if tails <= found else _leading_to(graph, found | tails)


def feedback_of(node: Node) -> Feedback | None:
    """Set for the tail of a loop."""
    return None if node.traits is None else node.traits.feedback


class GraphBuilder:
    """The graph under construction: nodes are added, and the last word on a node may be changed."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}

    @property
    def next_id(self) -> int:
        """The id of the node that is added next."""
        return len(self._nodes) + 1

    def add(
        self,
        name: str,
        role: Role,
        inputs: tuple[Edge, ...] = (),
        schema: SchemaOrUnknown = None,
        timed: bool = False,
        sides: Mapping[str, SchemaOrUnknown] | None = None,
        watermarks: WatermarkStrategy | None = None,
    ) -> Node:
        """Add a node.

        Raises:
            ChangelogError: the operator does not take rows of the kinds that one of its inputs has.
        """
        node = Node(self.next_id, name, role, inputs, schema, timed, sides=sides or {}, watermarks=watermarks)
        if node.traits is not None:
            node = replace(node, resources=node.traits.resources)
        node = replace(node, changelog=output_mode(node.where, node.traits, self._changelogs(inputs)))
        node = replace(node, parallelism=self._in_step(inputs))
        self._nodes[node.id] = node
        return node

    def _in_step(self, inputs: tuple[Edge, ...]) -> int | None:
        """As many subtasks as give changes that are not divided by key: shared out, they would overtake each other.

        Where a union has changes of so many subtasks and of others, one takes them all, from each in order.
        """
        sources = [self._nodes[edge.source] for edge in inputs if edge.partitioner is None and edge.tag is None]
        numbers = {node.parallelism for node in sources if node.changelog is not ChangelogMode.APPEND}
        if len(numbers) > 1:
            return 1
        return numbers.pop() if numbers else None

    def _changelogs(self, inputs: tuple[Edge, ...]) -> list[ChangelogInput]:
        """The changelogs that come in; side outputs hold rows that are only added."""
        upstream = [(edge, self._nodes[edge.source]) for edge in inputs]
        return [
            ChangelogInput(edge.input_index, node.where, node.changelog if edge.tag is None else ChangelogMode.APPEND)
            for edge, node in upstream
        ]

    def __getitem__(self, node_id: int) -> Node:
        return self._nodes[node_id]

    def forget(self, first: int) -> None:
        """Take the nodes from that id on out again, as if they had never been added."""
        for node_id in range(first, self.next_id):
            del self._nodes[node_id]

    def name(self, node_id: int, name: str) -> None:
        self._nodes[node_id] = replace(self._nodes[node_id], name=name)

    def uid(self, node_id: int, uid: str) -> None:
        self._nodes[node_id] = replace(self._nodes[node_id], uid=uid)

    def parallelism(self, node_id: int, parallelism: int) -> None:
        self._nodes[node_id] = replace(self._nodes[node_id], parallelism=parallelism)

    def chaining(self, node_id: int, chaining: Chaining) -> None:
        self._nodes[node_id] = replace(self._nodes[node_id], chaining=chaining)

    def side(self, node_id: int, tag: str, schema: SchemaOrUnknown) -> None:
        """Declare the columns of a side output."""
        node = self._nodes[node_id]
        self._nodes[node_id] = replace(node, sides={**node.sides, tag: schema})

    def build(self) -> LogicalGraph:
        """The graph as it is now."""
        return LogicalGraph(dict(self._nodes))
