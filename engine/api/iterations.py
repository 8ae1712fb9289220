"""Loops in a program: what `DataStream.iterate` does.

Checks the body that the user gave, and adds the head and the tail of the loop around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from penstock.engine.api.keyed import KeyedStream
from penstock.engine.api.streams import DataStream
from penstock.engine.connectors import Source
from penstock.engine.errors import ConfigurationError, GraphError
from penstock.engine.graph.logical import Chaining, Edge, LogicalGraph
from penstock.engine.operators.iteration import (
    Asynchronous,
    BulkSynchronous,
    IterationHeadFactory,
    IterationMode,
    IterationTailFactory,
    StaleSynchronous,
)
from penstock.engine.task.partitioners import Partitioner, Rebalance

Body: TypeAlias = Callable[[DataStream], tuple[DataStream | KeyedStream, DataStream]]
"""Takes the stream that goes round, and returns what is fed back and what leaves the loop."""


def iterate(stream: DataStream, body: Body, mode: IterationMode, max_supersteps: int | None) -> DataStream:
    """The stream that leaves the loop; see `DataStream.iterate`."""
    _check_mode(mode, max_supersteps)
    program = stream._program
    program.check_open()
    number = program.graph.next_id
    steps = "" if max_supersteps is None else f", {max_supersteps} supersteps"
    head = IterationHeadFactory(number, mode, max_supersteps)
    loop = stream._add(f"iterate({mode.describe()}{steps})", head, stream.schema)
    # It gets rows from its tails too, which no chain could bring.
    program.graph.chaining(number, Chaining.HEAD)
    feedback, output = _feedback_and_output(loop, body(loop))
    edges, partitioner = _spread(feedback._edges)
    graph = program.graph.build()
    _check_ways(graph, number, edges, output._edges)
    if not isinstance(mode, Asynchronous):
        _check_bounded(graph, [number, *(edge.source for edge in edges)], mode)
    tail = IterationTailFactory(number, partitioner)
    program.graph.add(f"feedback to {number}", tail, edges, feedback.schema, feedback._timed)
    return output


def _check_mode(mode: object, max_supersteps: object) -> None:
    if not isinstance(mode, Asynchronous | BulkSynchronous | StaleSynchronous):
        raise ConfigurationError(
            f"iterate: mode is Asynchronous(), BulkSynchronous() or StaleSynchronous(bound), not {mode!r}"
        )
    if max_supersteps is None:
        return
    if isinstance(mode, Asynchronous):
        raise ConfigurationError(
            "iterate: an asynchronous loop has no supersteps, so max_supersteps cannot end it; give "
            "mode=BulkSynchronous(), or count the rounds in a column and filter by it in the body"
        )
    if not isinstance(max_supersteps, int) or isinstance(max_supersteps, bool) or max_supersteps < 1:
        raise ConfigurationError(f"iterate: max_supersteps must be a whole number of 1 or more, not {max_supersteps!r}")


def _feedback_and_output(loop: DataStream, made: object) -> tuple[DataStream, DataStream]:
    pair = made if isinstance(made, tuple | list) and len(made) == 2 else ()
    streams = [one._stream if isinstance(one, KeyedStream) else one for one in pair]
    if not streams or not all(isinstance(one, DataStream) and one._program is loop._program for one in streams):
        raise GraphError(
            "iterate: the body must return two streams made of the one that it is given: what is fed back, and what "
            f"leaves the loop; it returned {made!r:.200}"
        )
    feedback, output = streams
    _check_columns(loop.schema, feedback.schema)
    if feedback._timed != loop._timed:
        raise GraphError(
            "iterate: of the stream and what is fed back, one has timestamps and the other not; call "
            "assign_timestamps on the stream before iterate"
        )
    return feedback, output


def _check_columns(wanted: pa.Schema | None, given: pa.Schema | None) -> None:
    if wanted is None or given is None:
        return
    columns = [[(field.name, field.type) for field in schema] for schema in (wanted, given)]
    if columns[0] != columns[1]:
        texts = [", ".join(f"{name}: {kind}" for name, kind in one) for one in columns]
        raise GraphError(
            f"iterate: the columns that are fed back, ({texts[1]}), are not those of the loop, ({texts[0]}); make them "
            "equal with select(...) and cast(...)"
        )


def _spread(edges: tuple[Edge, ...]) -> tuple[tuple[Edge, ...], Partitioner]:
    """The edges into the tail, and how its rows are spread over the heads: as the user partitioned the feedback."""
    chosen = edges[0].partitioner
    if chosen is None or any(edge.partitioner != chosen for edge in edges):
        return edges, Rebalance()
    if chosen.targets(0, 2, 3) != range(3):
        raise GraphError(
            f"iterate: what is fed back cannot be partitioned by {chosen.describe()}, which does not reach every "
            "subtask of the loop; leave it out, or use key_by, rebalance or broadcast"
        )
    return tuple(replace(edge, partitioner=None) for edge in edges), chosen


def _check_ways(graph: LogicalGraph, head: int, feedback: Iterable[Edge], output: Iterable[Edge]) -> None:
    inside = {head}
    for node in graph:
        if any(edge.source in inside for edge in node.inputs):
            inside.add(node.id)
    for name, edges in (("what is fed back", feedback), ("what leaves the loop", output)):
        if not any(edge.source in inside for edge in edges):
            raise GraphError(f"iterate: {name} does not come from the stream that the body is given")
    for node_id in _upstream(graph, [edge.source for edge in feedback]) & inside - {head}:
        if isinstance(graph[node_id].role, IterationHeadFactory):
            raise GraphError(
                f"iterate: {graph[node_id].where} is a loop within a loop, which is not supported; count the inner "
                "rounds in a column, and let the rows of both go round one loop"
            )


def _check_bounded(graph: LogicalGraph, ends: Iterable[int], mode: IterationMode) -> None:
    for node_id in sorted(_upstream(graph, ends)):
        role = graph[node_id].role
        if isinstance(role, Source) and not role.bounded:
            raise GraphError(
                f"iterate: a {mode.describe()} loop needs bounded input, because its first superstep is all of it, and "
                f"source {graph[node_id].name!r} has no end; use mode=Asynchronous()"
            )


def _upstream(graph: LogicalGraph, ends: Iterable[int]) -> set[int]:
    """The nodes that lead to `ends`, these included."""
    found = set(ends)
    for node in reversed(list(graph)):
        if node.id in found:
            found.update(edge.source for edge in node.inputs)
    return found
