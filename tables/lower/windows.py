"""Lowers windows: table functions to an operator of their own, window aggregations to the engine's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import pyarrow as pa

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.operators.clock_time import ClockTimeSpec
from penstock.engine.operators.session_table import SessionTableSpec
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SessionWindows
from penstock.engine.windows.base import TimeKind
from penstock.tables import types as t
from penstock.tables.building import converted
from penstock.tables.expressions import Expression, InputColumn
from penstock.tables.lower.aggregates import EngineAggregates
from penstock.tables.lower.assigned_windows import AssignedWindowsSpec
from penstock.tables.lower.base import Lowering, schema_of
from penstock.tables.lower.column_times import ColumnTimesSpec
from penstock.tables.lower.keys import encoded_keys
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode
from penstock.tables.plan.nodes import INSERT_ONLY, TimeAttribute, WindowKind, WindowSpec
from penstock.tables.types import Kind, arrow_type

TICK_MS: Final = 200
"""How often the end of what has no boundaries of its own is looked for, such as that of sessions of the clock."""
_ZONES_MS: Final = 15 * 60 * 1000
"""What all zones differ from UTC by are multiples of it."""
_BOUND: Final = t.timestamp_ltz(3).with_nullable(False)


def assigner(spec: WindowSpec) -> AlignedWindows | CumulativeWindows | SessionWindows:
    """The engine's windows."""
    time: TimeKind = "event" if spec.time is TimeAttribute.ROWTIME else "processing"
    match spec.kind:
        case WindowKind.TUMBLE:
            return AlignedWindows(spec.size_ms, spec.size_ms, spec.offset_ms, time)
        case WindowKind.HOP:
            return AlignedWindows(spec.size_ms, spec.step_ms, spec.offset_ms, time)
        case WindowKind.CUMULATE:
            return CumulativeWindows(spec.size_ms, spec.step_ms, spec.offset_ms, time)
    return SessionWindows(spec.size_ms, time)


def lower_window_table(lowering: Lowering, node: p.WindowTable) -> DataStream:
    """Rows with their windows."""
    stream, spec = _in_event_time(lowering.stream(node.input), node.window)
    if node.window.time is TimeAttribute.ROWTIME and not _has_times(node.input):
        stream = stream._add(ColumnTimesSpec(node.time_column, 0, drops_null=True), stream.schema, timed=True)
    schema = schema_of(node.columns)
    if spec.kind is WindowKind.SESSION:
        width = len(node.input.columns)
        names = tuple(node.columns[place].name for place in node.partition)
        moments = pa.schema([(column.name, arrow_type(_BOUND)) for column in node.columns[width:]])
        sessions = SessionTableSpec(schema_of(node.columns[:width]), names, spec.size_ms, moments)
        stream = add_changelog(sessions, sessions.schema, stream, timed=True)
        return lowering.projected(stream, _session_columns(node), node.columns)
    windows = AssignedWindowsSpec(assigner(spec), schema, spec.zone, node.drops_late)
    return stream._add(windows, schema)


def _has_times(node: p.PlanNode) -> bool:
    """Whether the rows of a node have event time, and not a column of it alone, as results that change have."""
    while isinstance(node, p.Project | p.Filter):
        node = node.input
    return isinstance(node, p.Watermarks | p.EventTime | p.WindowTable) or changelog_mode(node) == INSERT_ONLY


def by_clock(stream: DataStream, period_ms: int, offset_ms: int = 0) -> DataStream:
    """The rows with the time of the clock as event time, and watermarks that follow it."""
    return stream._add(ClockTimeSpec(period_ms, offset_ms), stream.schema, timed=True)


def _in_event_time(stream: DataStream, spec: WindowSpec) -> tuple[DataStream, WindowSpec]:
    """The rows and their windows, which are of event time: that of the clock where they were of PROCTIME."""
    if spec.time is not TimeAttribute.PROCTIME:
        return stream, spec
    return by_clock(stream, *_ticks(spec)), replace(spec, time=TimeAttribute.ROWTIME)


def _ticks(spec: WindowSpec) -> tuple[int, int]:
    """How often windows of the clock may end, in milliseconds, and by how much later than the epoch."""
    if spec.kind is WindowKind.SESSION:
        return TICK_MS, 0
    windows = assigner(spec)
    assert not isinstance(windows, SessionWindows), "only SESSION makes them"
    period = windows.slice_ms if spec.zone is None else math.gcd(windows.slice_ms, _ZONES_MS)
    return period, windows.offset_ms


def _session_columns(node: p.WindowTable) -> tuple[Expression, ...]:
    """The columns of rows in sessions, whose bounds the engine gives as moments."""
    width = len(node.input.columns)
    own = [InputColumn(column.type, place) for place, column in enumerate(node.input.columns)]
    bounds = [InputColumn(_BOUND, width + place) for place in range(len(node.columns) - width)]
    shown = _plain if node.window.zone is None else converted
    return (*own, *(shown(bound, column.type) for bound, column in zip(bounds, node.columns[width:], strict=True)))


def lower_window_aggregate(lowering: Lowering, node: p.WindowAggregate) -> DataStream:
    """Aggregates of windows, when they are complete."""
    columns = node.input.columns
    keys = encoded_keys(columns, node.keys, "GROUP BY")
    aggregates = EngineAggregates(columns)
    results = [aggregates.add(call) for call in node.calls]
    if not aggregates.aggregates:
        # Groups without aggregates: the engine wants one.
        aggregates.add(p.AggregateCall("COUNT", (), t.BIGINT.with_nullable(False)))
    names = (*keys.names, *aggregates.names)
    expressions = (*keys.expressions, *aggregates.expressions)
    kinds = (*keys.types, *aggregates.types)
    if not names:
        names, expressions, kinds = ("a0",), (InputColumn(columns[0].type, 0),), (columns[0].type,)
    before = tuple(p.Column(name, kind) for name, kind in zip(names, kinds, strict=True))
    stream = lowering.projected(lowering.stream(node.input), expressions, before)
    spec = node.window
    if spec.kind is not WindowKind.SESSION:
        # Sessions of PROCTIME have timers at their very ends; watermarks would come up to TICK_MS later.
        stream, spec = _in_event_time(stream, spec)
    windows = assigner(spec)
    windowed = stream.key_by(*keys.names).window(windows) if keys.names else stream.window_all(windows)
    aggregated = windowed._aggregate_named(aggregates.aggregates, None, None)
    width = len(keys.names)
    start, end = (InputColumn(_BOUND, width + place) for place in range(2))
    made: list[Expression] = []
    for result, column in zip(node.results, node.columns, strict=True):
        what, _, number = result.partition(" ")
        if what == "key":
            made.append(keys.decoded(int(number), range(width)))
        elif what == "call":
            made.append(aggregates.result(results[int(number)], width + 2))
        else:
            made.append(_bound(what, start, end, column.type))
    return lowering.projected(aggregated, tuple(made), node.columns)


def _bound(what: str, start: InputColumn, end: InputColumn, kind: t.SqlType) -> Expression:
    from penstock.tables.building import call
    from penstock.tables.expressions import Constant

    if what == "time":
        return _plain(call("MINUS_INTERVAL", end, Constant(t.INTERVAL_MILLIS.with_nullable(False), 1)), kind)
    return _plain(start if what == "start" else end, kind)


def _plain(moment: Expression, kind: t.SqlType) -> Expression:
    """The engine's bounds are moments of UTC; those of SQL have no zone, whatever the session's is."""
    from penstock.tables.expressions import FunctionCall

    if kind.kind is Kind.TIMESTAMP_LTZ:
        return converted(moment, kind)
    return FunctionCall(kind, "WITHOUT_ZONE", (moment,))
