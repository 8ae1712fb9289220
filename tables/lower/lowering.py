"""Makes streams of a logical plan: one function for each kind of node.

The environment gives `LOWERED` to a `Lowering`, whose `stream` is the way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.errors import GraphError
from penstock.engine.exchange.partitioners import Global, HashChanges
from penstock.engine.operators.changelog.normalize import NormalizeSpec
from penstock.engine.operators.changelog.ranks import Nulls, Order
from penstock.engine.operators.time_sort import TimeSortSpec
from penstock.tables.building import call
from penstock.tables.expressions import Expression, InputColumn
from penstock.tables.lower.base import Lower, Lowering, schema_of
from penstock.tables.lower.changelogs import FromChangelogSpec, ToChangelogSpec
from penstock.tables.lower.changing import lower_aggregate, lower_join, lower_set_operation, lower_top_n
from penstock.tables.lower.clock_sort import ClockSortSpec
from penstock.tables.lower.column_times import ColumnTimesSpec
from penstock.tables.lower.enriching import lower_lookup_join, lower_temporal_join
from penstock.tables.lower.joins import lower_interval_join
from penstock.tables.lower.limit import LimitSpec
from penstock.tables.lower.literal_rows import literal_rows
from penstock.tables.lower.matching.lower import lower_match
from penstock.tables.lower.over import lower_over
from penstock.tables.lower.scans import lower_project, lower_scan, lower_watermarks
from penstock.tables.lower.unnest import UnnestSpec
from penstock.tables.lower.untimed import UntimedSpec
from penstock.tables.lower.windows import lower_window_aggregate, lower_window_table
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode, engine_mode
from penstock.tables.plan.time_columns import goes_by_time, is_finer


def _values(lowering: Lowering, node: p.Values) -> DataStream:
    return lowering.from_rows(literal_rows(node, lowering.zone))


def _filter(lowering: Lowering, node: p.Filter) -> DataStream:
    return lowering.calc(lowering.stream(node.input), node.condition, None, schema_of(node.columns))


def _event_time(lowering: Lowering, node: p.EventTime) -> DataStream:
    stream = lowering.stream(node.input)
    if not node.drops_null and changelog_mode(node.input) != p.INSERT_ONLY:
        # Results that change have no event time, and nothing goes by it.
        return stream
    return stream._add(ColumnTimesSpec(node.column, node.delay_ms, node.drops_null), stream.schema, timed=True)


def _union(lowering: Lowering, node: p.Union) -> DataStream:
    schema = schema_of(node.columns)
    streams = []
    for child in node.inputs_:
        stream = lowering.stream(child)
        if stream.schema is None or stream.schema.names != schema.names:
            own = tuple(InputColumn(column.type, place) for place, column in enumerate(child.columns))
            stream = lowering.calc(stream, None, own, schema)
        streams.append(stream)
    if not all(stream._timed for stream in streams):
        streams = [stream._add(UntimedSpec(), schema, timed=False) if stream._timed else stream for stream in streams]
    return streams[0].union(*streams[1:])


def _unnest(lowering: Lowering, node: p.Unnest) -> DataStream:
    schema = schema_of(node.columns)
    width = len(node.input.columns)
    spec = UnnestSpec(node.collection, width, node.outer, node.ordinality, schema, lowering.zone)
    return lowering.stream(node.input)._add(spec, schema)


def _to_changelog(lowering: Lowering, node: p.ToChangelog) -> DataStream:
    schema = schema_of(node.columns)
    stream = lowering.stream(node.input)
    return stream._add(ToChangelogSpec(dict(node.codes), schema), schema)


def _from_changelog(lowering: Lowering, node: p.FromChangelog) -> DataStream:
    # What comes and what takes it back must not overtake each other.
    return _changes(lowering, node, tuple(column.name for column in node.columns))


def _normalize(lowering: Lowering, node: p.Normalize) -> DataStream:
    schema = schema_of(node.columns)
    keys = tuple(node.columns[place].name for place in node.key)
    stream = _changes(lowering, node.input, keys)
    return add_changelog(NormalizeSpec(schema, keys, ttl_ms=lowering.ttl_ms), schema, stream)


def _changes(lowering: Lowering, node: p.FromChangelog, keys: tuple[str, ...]) -> DataStream:
    """Rows as a changelog, those with the same keys one behind the other."""
    schema = schema_of(node.columns)
    stream = lowering.stream(node.input)._partition(HashChanges(keys))
    mode = engine_mode(changelog_mode(node))
    return stream._add(FromChangelogSpec(node.op, dict(node.kinds), mode, schema, node.skips_unknown), schema)


def _sort(lowering: Lowering, node: p.Sort) -> DataStream:
    stream = lowering.stream(node.input)
    if goes_by_time(node):
        stream = _in_time(stream, node)
    elif node.order:
        try:
            stream = _sorted(lowering, stream, node)
        except GraphError as error:
            raise GraphError(
                "ORDER BY of a stream without end is not supported: its rows are in order only when all have come; use "
                "ROW_NUMBER() for the first ones, or windows"
            ) from error
    if node.limit is None and not node.offset:
        return stream
    return add_changelog(LimitSpec(node.offset, node.limit), schema_of(node.columns), stream, timed=stream._timed)


def _sorted(lowering: Lowering, stream: DataStream, node: p.Sort) -> DataStream:
    """All rows in order. Null is the smallest value; for another place of it, whether a value is null goes first."""
    keys: list[tuple[str, bool]] = []
    own: list[Expression] = [InputColumn(column.type, place) for place, column in enumerate(node.columns)]
    flags: list[Expression] = []
    columns = list(node.columns)
    for key in node.order:
        if key.nulls_first is key.descending:
            name = f"null${len(flags)}"
            flags.append(call("IS_NULL", own[key.column]))
            columns.append(p.Column(name, flags[-1].type))
            keys.append((name, key.nulls_first))
        keys.append((node.columns[key.column].name, key.descending))
    if flags:
        stream = lowering.projected(stream, (*own, *flags), tuple(columns))
    stream = stream.sort(*(name for name, _ in keys), descending=[descending for _, descending in keys])
    return lowering.projected(stream, tuple(own), node.columns) if flags else stream


def _in_time(stream: DataStream, node: p.Sort) -> DataStream:
    """The rows in the order of time, and of other columns among rows of one time."""
    time = node.columns[node.order[0].column]
    # Event time is in milliseconds: finer times order the rows of one.
    order = tuple(
        Order(node.columns[key.column].name, key.descending, Nulls.FIRST if key.nulls_first else Nulls.LAST)
        for key in (node.order if is_finer(time.type) else node.order[1:])
    )
    schema = schema_of(node.columns)
    if time.time is p.TimeAttribute.PROCTIME:
        together = stream._partition(Global())
        return together._add(ClockSortSpec(order), schema) if order else together
    return add_changelog(TimeSortSpec(schema, order), schema, stream, timed=True)


LOWERED: Final[Mapping[type[p.PlanNode], Lower]] = {
    p.Scan: lower_scan,
    p.Values: _values,
    p.Project: lower_project,
    p.Filter: _filter,
    p.Watermarks: lower_watermarks,
    p.EventTime: _event_time,
    p.WindowTable: lower_window_table,
    p.WindowAggregate: lower_window_aggregate,
    p.Aggregate: lower_aggregate,
    p.Join: lower_join,
    p.TopN: lower_top_n,
    p.SetOperation: lower_set_operation,
    p.IntervalJoin: lower_interval_join,
    p.TemporalJoin: lower_temporal_join,
    p.LookupJoin: lower_lookup_join,
    p.Union: _union,
    p.Unnest: _unnest,
    p.ToChangelog: _to_changelog,
    p.FromChangelog: _from_changelog,
    p.Normalize: _normalize,
    p.Sort: _sort,
    p.OverAggregate: lower_over,
    p.MatchRecognize: lower_match,
}
"""What makes the stream of each kind of node."""
