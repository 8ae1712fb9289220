"""Puts changelog operators into the job graph: what SQL plans are lowered onto, and tests are written with.

Not part of the public API: a plan knows the columns of its streams. The graph compares their changelog modes.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.engine.api.streams import DataStream
from penstock.engine.exchange.partitioners import Global, HashChanges, Partitioner
from penstock.engine.operators.spec import OperatorSpec


def add_changelog(spec: OperatorSpec, schema: pa.Schema, *inputs: DataStream, timed: bool = False) -> DataStream:
    """The stream behind a changelog operator.

    Args:
        spec: of the operator. The rows of each input are divided by the key columns that its traits name; without
            keys they all go to a single subtask.
        schema: the columns of the result, `spec.schema`.
        inputs: the streams that feed it, in the order of its inputs.
        timed: whether the rows of the result carry event timestamps.

    Raises:
        ChangelogError: an input has changes that the operator does not take.

    Example:
        >>> add_changelog(spec, spec.schema, bids)  # doctest: +SKIP
    """
    program = inputs[0]._program
    program.check_open()
    edges = [
        replace(edge, input_index=index, partitioner=_partitioner(keys))
        for index, (stream, keys) in enumerate(zip(inputs, spec.traits.keys, strict=True))
        for edge in stream._edges
    ]
    node = program.graph.add(spec.describe(), spec, tuple(edges), schema, timed=timed)
    if not all(spec.traits.keys):
        program.graph.parallelism(node.id, 1)
    return DataStream.of_node(program, program.graph[node.id])


def _partitioner(keys: tuple[str, ...]) -> Partitioner:
    return HashChanges(keys) if keys else Global()
