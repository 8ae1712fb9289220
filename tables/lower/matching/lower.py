"""Lowers MATCH_RECOGNIZE onto its operator, and patterns that change onto theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.errors import GraphError, missing_column
from penstock.engine.exchange.partitioners import Broadcast, Global, HashChanges
from penstock.engine.functions import OutputTag
from penstock.tables.lower.base import Lowering, schema_of
from penstock.tables.lower.matching.operator import MatchRecognizeSpec
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.type_parser import parse_type
from penstock.tables.plan import nodes as p
from penstock.tables.plan.nodes import Column, Columns, TimeAttribute
from penstock.tables.types import STRING

_MOST_VARIABLES: Final = 62


def lower_match(lowering: Lowering, node: p.MatchRecognize) -> DataStream:
    """The rows that the clause makes of matches.

    Raises:
        GraphError: more variables than there are bits in a number.
    """
    if len(node.match.definitions) > _MOST_VARIABLES:
        raise GraphError(f"PATTERN has {len(node.match.definitions)} variables; {_MOST_VARIABLES} are supported")
    stream = lowering.stream(node.input)
    assert stream.schema is not None, "the columns of tables are known"
    names = [column.name for column in node.input.columns]
    is_event_time = node.time is TimeAttribute.ROWTIME
    spec = MatchRecognizeSpec(
        stream.schema,
        tuple(names[place] for place in node.partition),
        is_event_time,
        node.order,
        node.match,
        schema_of(node.columns),
        lowering.zone,
    )
    return add_changelog(spec, spec.schema, stream, timed=True)


def changing_patterns(
    rows: DataStream,
    columns: Columns,
    patterns: DataStream,
    partition_by: Sequence[str],
    measures: Mapping[str, str],
    refused: OutputTag | None,
    zone: str,
) -> DataStream:
    """The matches of patterns that come as a stream.

    Args:
        rows: what they are looked for in.
        columns: of the rows.
        patterns: their names and texts.
        partition_by: the columns that divide rows.
        measures: what each pattern gives: names and SQL types.
        refused: the side output for those that cannot be read, or None.
        zone: the session's time zone.

    Raises:
        GraphError: a column that is not there, or a stream without event time.
    """
    from penstock.tables.lower.matching.changing import CLAUSE, PATTERN, REFUSED, ChangingPatternsSpec

    names = [column.name for column in columns]
    for name in partition_by:
        if name not in names:
            raise missing_column(name, names, "match_patterns")
    times = [place for place, column in enumerate(columns) if column.time is TimeAttribute.ROWTIME]
    if len(times) != 1 or not patterns._timed:
        raise GraphError(
            "match_patterns: the table needs one column of event time, and the patterns need timestamps: a change "
            "holds for rows from its time on; call assign_timestamps on the patterns, and give from_stream a rowtime"
        )
    if patterns.schema is None or not {PATTERN, CLAUSE} <= set(patterns.schema.names):
        raise GraphError(
            f"match_patterns: the patterns are a stream with the columns {PATTERN!r} and {CLAUSE!r}, texts"
        )
    given = tuple(Column(name, parse_type(Cursor(SqlText(kind)))) for name, kind in measures.items())
    partition = tuple(names.index(name) for name in partition_by)
    results = (Column(PATTERN, STRING), *(replace(columns[place], time=None) for place in partition), *given)
    schema = schema_of(results)
    tag = None if refused is None else refused.name
    spec = ChangingPatternsSpec(columns, partition, times[0], given, schema, zone, tag)
    program = rows._program
    program.check_open()
    spread = HashChanges(tuple(partition_by)) if partition_by else Global()
    edges = (
        *(replace(edge, input_index=0, partitioner=spread) for edge in rows._edges),
        *(replace(edge, input_index=1, partitioner=Broadcast()) for edge in patterns._edges),
    )
    sides = {} if tag is None else {tag: REFUSED}
    node = program.graph.add(spec.describe(), spec, edges, schema, timed=True, sides=sides)
    if not partition_by:
        program.graph.parallelism(node.id, 1)
    return DataStream.of_node(program, program.graph[node.id])
