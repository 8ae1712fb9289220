"""Makes streams of tables, of their event time, and of the projections behind them, which say what is read.

`lowering.py` names the functions. Where a connector can leave columns out, only those are read that a projection needs;
uids are those of the nodes as they are in the plan, so that state fits whatever else a query reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.changelog import ChangelogMode
from penstock.engine.connectors import Source
from penstock.engine.errors import GraphError
from penstock.engine.exchange.partitioners import HashChanges
from penstock.engine.operators.changelog.normalize import NormalizeSpec
from penstock.engine.operators.relational import EventTime
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.tables.catalog.catalog import CatalogTable, StreamTable
from penstock.tables.catalog.connectors import Stage
from penstock.tables.expressions import Constant, Expression, FunctionCall, InputColumn, columns_in, on_columns
from penstock.tables.lower.base import Lowering, in_order, schema_of
from penstock.tables.lower.calc import CalcSpec
from penstock.tables.lower.changelogs import FromChangelogSpec, UpsertSpec
from penstock.tables.lower.checked_times import CheckedTimesSpec
from penstock.tables.lower.staged_source import StagedSource
from penstock.tables.lower.watermarks import ExpressionWatermarks
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import engine_mode
from penstock.tables.types import Kind

_OPERATIONS: Final = {"+I": "INSERT", "-U": "UPDATE_BEFORE", "+U": "UPDATE_AFTER", "-D": "DELETE"}
Places: TypeAlias = list[int]
"""The columns of a node that its stream has, ascending."""


def lower_project(lowering: Lowering, node: p.Project) -> DataStream:
    """The values that are computed, of the rows that a filter below keeps."""
    condition, source = None, node.input
    if isinstance(source, p.Filter):
        condition, source = source.condition, source.input
    read = columns_in(condition) if condition is not None else set()
    stream, places = _read(lowering, source, read.union(*map(columns_in, node.expressions)))
    expressions = tuple(on_columns(expression, places.index) for expression in node.expressions)
    moved = None if condition is None else on_columns(condition, places.index)
    return lowering.calc(stream, moved, expressions, schema_of(node.columns))


def lower_watermarks(lowering: Lowering, node: p.Watermarks) -> DataStream:
    """The rows with their event time."""
    places = _all(node)
    by_split = _timed_by_split(lowering, node, places)
    return _timed(lowering, node, lowering.stream(node.input), places) if by_split is None else by_split


def lower_scan(lowering: Lowering, node: p.Scan) -> DataStream:
    """The rows of a table."""
    return _scanned(lowering, node, node.columns, lambda source: source)


def _read(lowering: Lowering, node: p.PlanNode, read: AbstractSet[int]) -> tuple[DataStream, Places]:
    """The stream of a node's rows with the columns `read` at least, and where its columns are in the node."""
    if isinstance(node, p.Watermarks):
        needed = {node.column} if node.watermark is None else {node.column, *columns_in(node.watermark)}
        with lowering.uids.of(node):
            places = sorted(read | needed)
            by_split = _timed_by_split(lowering, node, places)
            if by_split is not None:
                return by_split, places
            stream, places = _read(lowering, node.input, read | needed)
            return in_order(_timed(lowering, node, stream, places)), places
    # Rows without columns cannot be counted.
    places = sorted(read) or _all(node)[:1]
    columns = tuple(node.columns[place] for place in places)
    if isinstance(node, p.Project):
        expressions = tuple(node.expressions[place] for place in places)
        with lowering.uids.of(node):
            return lower_project(lowering, p.Project(node.input, expressions, columns)), places
    if isinstance(node, p.Scan) and _can_leave_out(lowering, node):
        with lowering.uids.of(node):
            return _scanned(lowering, node, columns, lambda source: source.with_dictionaries()), places
    return lowering.stream(node), _all(node)


def _can_leave_out(lowering: Lowering, node: p.Scan) -> bool:
    entry = lowering.catalog.find(node.table)
    return isinstance(entry, CatalogTable) and lowering.connectors.leaves_out(entry.with_options(dict(node.options)))


def _scanned(lowering: Lowering, node: p.Scan, columns: p.Columns, form: Callable[[Source], Source]) -> DataStream:
    """The rows of a table, with these columns of it, in the form that their reader takes."""
    entry = lowering.catalog.find(node.table)
    if isinstance(entry, StreamTable):
        if entry.has_run:
            raise GraphError(
                f"{node.table!r} is a stream of a program that has run: make the stream anew and give it the name "
                "again; tables of CREATE TABLE can be queried any number of times"
            )
        if entry.columns == columns:
            return _with_its_times(entry)
    if not isinstance(entry, CatalogTable):
        raise GraphError(
            f"{node.table!r} is another table now than when this query was made: make the query anew, or give the "
            "other table a name of its own"
        )
    table = entry.with_options(dict(node.options))
    scanned = lowering.connectors.scan(table, columns)
    is_plain = not scanned.stages and scanned.op is None
    stream = lowering.from_source(form(scanned.source) if is_plain else scanned.source, node.table, None)
    for stage in scanned.stages:
        stream = in_order(stream._add(stage.spec, stage.schema))
    if scanned.op is not None:
        schema = schema_of(columns)
        place = len(columns)
        mode = engine_mode(node.mode)
        stream = stream._add(FromChangelogSpec(place, _OPERATIONS, mode, schema), schema, name=f"kinds({node.table})")
        if scanned.source.max_parallelism is not None:
            stream = stream.set_parallelism(scanned.source.max_parallelism)
        keys = tuple(node.columns[key].name for key in node.primary_key)
        if mode is ChangelogMode.UPSERT and node.normalized:
            # What a row was before is known from the row of its key that was last seen.
            stream = stream._add(UpsertSpec(), schema)
            if scanned.source.max_parallelism is not None:
                stream = stream.set_parallelism(scanned.source.max_parallelism)
            stream = add_changelog(NormalizeSpec(schema, keys, ttl_ms=lowering.ttl_ms), schema, stream)
        elif mode is not ChangelogMode.APPEND and scanned.source.max_parallelism != 1:
            # What comes and what takes it back must not overtake each other on the way to several subtasks.
            stream = stream._partition(HashChanges(keys or tuple(schema.names)))
    return stream


def _with_its_times(entry: StreamTable) -> DataStream:
    """The rows of a stream, whose event time has to be in the column that is said to hold it."""
    stream = entry.stream
    rowtime = next((column.name for column in entry.columns if column.time is p.TimeAttribute.ROWTIME), None)
    if rowtime is None or all(_assigns(stream, edge.source, rowtime) for edge in stream._edges):
        return stream
    return in_order(stream._add(CheckedTimesSpec(rowtime), stream.schema))


def _assigns(stream: DataStream, node: int, column: str) -> bool:
    """Whether a node gives its rows the times of a column."""
    made = stream._program.graph[node]
    known = None if made.traits is None else made.traits.relational
    strategy = known.strategy if isinstance(known, EventTime) else made.watermarks
    return strategy is not None and strategy.assigner == column


def _timed_by_split(lowering: Lowering, node: p.Watermarks, places: Places) -> DataStream | None:
    """The rows of a table whose splits are apart in time, with these columns; None: it is no such table.

    What is between the table and its event time, the columns that are computed, is in the source as well.
    """
    project = node.input if isinstance(node.input, p.Project) else None
    scan = node.input if project is None else project.input
    entry = lowering.catalog.find(scan.table) if isinstance(scan, p.Scan) else None
    if not isinstance(scan, p.Scan) or not isinstance(entry, CatalogTable):
        return None
    table = entry.with_options(dict(scan.options))
    if not lowering.connectors.times_by_split(table):
        return None
    scanned = lowering.connectors.scan(table, scan.columns)
    columns = tuple(InputColumn(column.type, place) for place, column in enumerate(scan.columns))
    given = columns if project is None else project.expressions
    schema = schema_of(tuple(node.columns[place] for place in places))
    computed = CalcSpec(None, tuple(given[place] for place in places), schema, lowering.zone)
    source = StagedSource(scanned.source, (*scanned.stages, Stage(computed, schema)))
    strategy = _strategy_of(lowering, node, places).with_timestamp_assigner(node.columns[node.column].name)
    with contextlib.ExitStack() as uids:
        for part in (node.input, scan) if project is not None else (scan,):
            uids.enter_context(lowering.uids.of(part))
        return lowering.from_source(source, scan.table, strategy)


def _timed(lowering: Lowering, node: p.Watermarks, stream: DataStream, places: Places) -> DataStream:
    return stream.assign_timestamps(node.columns[node.column].name, _strategy_of(lowering, node, places))


def _strategy_of(lowering: Lowering, node: p.Watermarks, places: Places) -> WatermarkStrategy:
    if node.watermark is None:
        scan = next(part for part in p.walk_plan(node) if isinstance(part, p.Scan))
        table = lowering.catalog.find(scan.table)
        assert isinstance(table, CatalogTable), "the binder has found it"
        strategy = lowering.connectors.source_watermarks(table.with_options(dict(scan.options)))
    else:
        watermark = on_columns(node.watermark, places.index)
        strategy = _strategy(watermark, places.index(node.column), lowering.zone)
    strategy = replace(strategy, remedy=_remedy(node.columns[node.column].name))
    return strategy if lowering.idle_ms is None else strategy.with_idleness(f"{lowering.idle_ms}ms")


def _remedy(column: str) -> str:
    """What to do about rows without a time."""
    return (
        f"in CREATE TABLE, declare the WATERMARK of a column that is computed, COALESCE({column}, an early time), and "
        f"leave such rows out of the query by WHERE {column} IS NOT NULL"
    )


def _strategy(watermark: Expression, column: int, zone: str) -> WatermarkStrategy:
    """The engine's own strategy for `time - INTERVAL ...`, a millisecond tighter, as SQL's watermark is the time."""
    if isinstance(watermark, FunctionCall) and watermark.name == "MINUS_INTERVAL":
        time, delay = watermark.arguments
        if isinstance(time, InputColumn) and time.index == column and isinstance(delay, Constant):
            millis = delay.value
            if delay.type.kind is Kind.INTERVAL_MILLIS and isinstance(millis, int) and millis >= 1:
                return WatermarkStrategy.for_bounded_out_of_orderness(f"{millis - 1}ms")
    return WatermarkStrategy.for_generator(ExpressionWatermarks(watermark, zone))


def _all(node: p.PlanNode) -> Places:
    return list(range(len(node.columns)))
