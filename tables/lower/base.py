"""What the lowering of all kinds of nodes stands on: `Lowering`, and the Arrow columns of a node.

`lowering.py` says which function makes the stream of which node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.engine.api.streams import DataStream
from penstock.engine.connectors import Source
from penstock.engine.errors import GraphError
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.tables.catalog.catalog import Catalog
from penstock.tables.catalog.connectors import Connectors
from penstock.tables.expressions import Expression
from penstock.tables.lower.calc import CalcSpec
from penstock.tables.lower.shared import SharedParts
from penstock.tables.lower.uids import StatementUids
from penstock.tables.plan import nodes as p
from penstock.tables.types import arrow_type

FromSource: TypeAlias = Callable[[Source, str, WatermarkStrategy | None], DataStream]
Lower: TypeAlias = "Callable[[Lowering, Any], DataStream]"
"""Makes the stream of a node's rows; of one kind of node, which the table of them names."""
_ROW_BY_ROW = (p.Watermarks, p.EventTime, p.WindowTable, p.Unnest, p.ToChangelog)


def schema_of(columns: p.Columns) -> pa.Schema:
    """The Arrow columns of a node."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


@dataclass(frozen=True, slots=True)
class Lowering:
    """Makes streams.

    Args:
        lowered: what makes the stream of each kind of node.
        from_source: begins a stream of a program.
        from_rows: begins a stream of rows that are here.
        catalog, connectors: of the tables.
        zone: the session's time zone.
        uids: gives operators theirs.
        shared: what is made once for several places; None: each is made for itself.
        ttl_ms: how long state lives where no hint says otherwise, by the clock; None: for ever.
        idle_ms: for how long no row comes of what event time then does not wait for; None: it always waits.
    """

    lowered: Mapping[type[p.PlanNode], Lower]
    from_source: FromSource
    from_rows: Callable[[pa.Table], DataStream]
    catalog: Catalog
    connectors: Connectors
    zone: str
    uids: StatementUids
    shared: SharedParts | None = None
    ttl_ms: int | None = None
    idle_ms: int | None = None

    def stream(self, node: p.PlanNode) -> DataStream:
        """The stream of a node's rows.

        Raises:
            GraphError: there is no operator for it.
        """
        part = None if self.shared is None else self.shared.find(node)
        if part is None:
            return self._made(node)
        if part.stream is None:
            with self.uids.of_shared():
                part.stream = self._made(node)
        return part.stream

    def _made(self, node: p.PlanNode) -> DataStream:
        lower = self.lowered.get(type(node))
        if lower is None:
            raise GraphError(f"{type(node).__name__} is not supported")
        with self.uids.of(node):
            stream = lower(self, node)
            return in_order(stream) if isinstance(node, _ROW_BY_ROW) else stream

    def calc(
        self,
        stream: DataStream,
        condition: Expression | None,
        expressions: tuple[Expression, ...] | None,
        schema: pa.Schema,
    ) -> DataStream:
        """The rows for which a condition is true, with other columns."""
        return in_order(stream._add(CalcSpec(condition, expressions, schema, self.zone), schema))

    def projected(self, stream: DataStream, expressions: tuple[Expression, ...], columns: p.Columns) -> DataStream:
        """The rows with other columns."""
        return self.calc(stream, None, expressions, schema_of(columns))


def is_single(stream: DataStream) -> bool:
    """Whether the rows come of one subtask, so that behind it they stay in order in one subtask alone."""
    return len(stream._edges) == 1 and stream._program.graph[stream._edges[0].source].parallelism == 1


def in_order(stream: DataStream) -> DataStream:
    """One subtask, where what is before has one: its rows stay in order up to the next exchange, as in Flink."""
    graph = stream._program.graph
    made = graph[stream._edges[0].source]
    if len(made.inputs) != 1 or made.inputs[0].partitioner is not None or made.parallelism is not None:
        return stream
    before = graph[made.inputs[0].source]
    most = before.role.max_parallelism if isinstance(before.role, Source) else None
    return stream.set_parallelism(1) if 1 in (before.parallelism, most) else stream
