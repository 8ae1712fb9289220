"""Loops in a program: what `DataStream.iterate` does.

Checks the body that the user gave, and adds the head and the tail of the loop around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from penstock.engine.api.base import Stream, StreamT
from penstock.engine.api.keyed import KeyedVerbs
from penstock.engine.errors import ConfigurationError, GraphError
from penstock.engine.exchange.partitioners import Partitioner, Rebalance
from penstock.engine.graph.logical import Chaining, Edge, LogicalGraph
from penstock.engine.operators.iteration import (
    Asynchronous,
    BulkSynchronous,
    IterationHeadSpec,
    IterationMode,
    IterationTailSpec,
    StaleSynchronous,
)


def iterate(
    stream: StreamT,
    body: Callable[[StreamT], tuple[StreamT | KeyedVerbs[StreamT], StreamT]],
    mode: IterationMode,
    max_supersteps: int | None,
) -> StreamT:
    """The stream that leaves the loop; see `DataStream.iterate`.

    The input is complete for the body once no row is left in the loop: windows of event time then fire, a last time,
    and what they feed back is behind the last watermark, so event-time windows that it meets drop it as late. Windows
    and timers by the clock do not fire because input ends: a row that one holds would be lost, so such windows on the
    way back are refused over bounded input. Custom operators and process functions cannot be seen through.

    Raises:
        GraphError: as there.
        ConfigurationError: as there.
    """
    if not callable(body):
        raise GraphError(
            "iterate: the body must be a function that takes the stream that goes round and returns what is fed back "
            f"and what leaves the loop, not {body!r:.200}"
        )
    _check_mode(mode, max_supersteps)
    program = stream._program
    program.check_open()
    number = program.graph.next_id
    loop = stream._add(IterationHeadSpec(number, mode, max_supersteps), stream.schema)
    # It gets rows from its tails too, which no chain could bring.
    program.graph.chaining(number, Chaining.HEAD)
    feedback, output = _feedback_and_output(loop, body(loop))
    edges, partitioner = _spread(feedback._edges)
    graph = program.graph.build()
    _check_ways(graph, number, edges, output._edges)
    _check_windows(graph, number, edges)
    _check_ends(graph, number, edges)
    if not isinstance(mode, Asynchronous):
        _check_bounded(graph, [number, *(edge.source for edge in edges)], mode)
    tail = IterationTailSpec(number, partitioner)
    program.graph.add(tail.describe(), tail, edges, feedback.schema, feedback._timed)
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


def _feedback_and_output(loop: StreamT, made: object) -> tuple[StreamT, StreamT]:
    pair = made if isinstance(made, tuple | list) and len(made) == 2 else ()
    streams = [one._stream if isinstance(one, KeyedVerbs) else one for one in pair]
    if not streams or not all(isinstance(one, Stream) and one._program is loop._program for one in streams):
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
    inside = _downstream(graph, head)
    for name, edges in (("what is fed back", feedback), ("what leaves the loop", output)):
        if not any(edge.source in inside for edge in edges):
            raise GraphError(f"iterate: {name} does not come from the stream that the body is given")
    for node_id in graph.upstream([edge.source for edge in feedback]) & inside - {head}:
        if (traits := graph[node_id].traits) is not None and traits.loop_head is not None:
            raise GraphError(
                f"iterate: {graph[node_id].where} is a loop within a loop, which is not supported; count the inner "
                "rounds in a column, and let the rows of both go round one loop"
            )


def _check_windows(graph: LogicalGraph, head: int, feedback: Iterable[Edge]) -> None:
    """Refuse windows on the way back that would hold rows when the loop is found empty, and never give them."""
    if graph.endless_source([head, *(edge.source for edge in feedback)]) is not None:
        return
    for node_id in sorted(graph.upstream([edge.source for edge in feedback]) & _downstream(graph, head)):
        if (traits := graph[node_id].traits) is not None and traits.waits_for_clock:
            raise GraphError(
                f"iterate: {graph[node_id].where} in the body has windows that fire by the clock, and the loop ends "
                "without waiting for that: the rows in them would be lost; use windows of event time or another trigger"
            )


def _check_ends(graph: LogicalGraph, head: int, feedback: Iterable[Edge]) -> None:
    """Refuse operators on the way back that keep rows until the input ends: it ends when none goes round any more."""
    for node_id in sorted(graph.upstream(edge.source for edge in feedback) & _downstream(graph, head)):
        if (traits := graph[node_id].traits) is not None and traits.emits_at_end:
            raise GraphError(
                f"iterate: {graph[node_id].where} in the body gives its rows when its input has ended, and so none of "
                "them could go round; put it before or behind the loop"
            )


def _check_bounded(graph: LogicalGraph, ends: Iterable[int], mode: IterationMode) -> None:
    endless = graph.endless_source(ends)
    if endless is not None:
        raise GraphError(
            f"iterate: a {mode.describe()} loop needs bounded input, because its first superstep is all of it, and "
            f"source {endless!r} has no end; use mode=Asynchronous()"
        )


def _downstream(graph: LogicalGraph, start: int) -> set[int]:
    """The nodes that `start` leads to, itself included."""
    found = {start}
    for node in graph:
        if any(edge.source in found for edge in node.inputs):
            found.add(node.id)
    return found
