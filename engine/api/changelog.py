"""Puts changelog operators into the job graph: what SQL plans are lowered onto, and tests are written with.

Not part of the public API: a plan knows the columns and row kinds of each of its streams, so nothing is checked here
but what the operators' factories check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from penstock.engine.api.streams import DataStream
from penstock.engine.exchange.partitioners import Global, HashChanges, Partitioner
from penstock.engine.operators.base import Operator


class ChangelogFactory(Protocol):
    """What the factories in `engine/operators/changelog` have in common."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        ...

    def describe(self) -> str:
        """As `explain()` shows it."""
        ...

    def __call__(self) -> Operator: ...


def add_changelog(
    inputs: Sequence[tuple[DataStream, Sequence[str]]], factory: ChangelogFactory, *, timed: bool = False
) -> DataStream:
    """The stream behind a changelog operator.

    Args:
        inputs: the streams that feed it, each with the columns that its rows are divided by: those that the factory
            calls its keys, in their order. None: all rows go to a single subtask.
        factory: creates the operator.
        timed: whether its rows carry event timestamps.

    Example:
        >>> add_changelog([(bids, ("auction",))], GroupAggregateFactory(...))  # doctest: +SKIP
    """
    program = inputs[0][0]._program
    program.check_open()
    edges = [
        replace(edge, input_index=index, partitioner=_partitioner(keys))
        for index, (stream, keys) in enumerate(inputs)
        for edge in stream._edges
    ]
    node = program.graph.add(factory.describe(), factory, tuple(edges), factory.schema, timed=timed)
    if not all(keys for _, keys in inputs):
        program.graph.parallelism(node.id, 1)
    return DataStream.of_node(program, program.graph[node.id])


def _partitioner(keys: Sequence[str]) -> Partitioner:
    return HashChanges(tuple(keys)) if keys else Global()
