"""Lowers INSERT INTO: the table's constraints, then its sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from penstock.engine.api.changelog import add_changelog
from penstock.engine.api.streams import DataStream
from penstock.engine.changelog import ChangelogMode as EngineMode
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.conflicts import Conflict, ConflictSpec
from penstock.engine.operators.changelog.top_n import upsert_materializer
from penstock.tables.bind.table_binder import physical_columns, primary_key
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.expressions import InputColumn
from penstock.tables.lower.base import Lowering, in_order, is_single, schema_of
from penstock.tables.lower.changelogs import SplitUpsertSpec, UpsertSpec
from penstock.tables.lower.constraints import ConstraintsSpec, constraints_of
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode, may_split_updates
from penstock.tables.plan.nodes import RETRACT, Change, SinkPlan


def write(lowering: Lowering, plan: SinkPlan, option: Callable[[str], str]) -> None:
    """Add the sink of an INSERT to the program.

    Args:
        lowering: makes the stream.
        plan: what is written.
        option: the options of SET.
    """
    table = lowering.catalog.find(plan.table)
    if not isinstance(table, CatalogTable):
        raise GraphError(f"table {plan.table!r} is gone")
    stream = lowering.stream(plan.input)
    with lowering.uids.of_sink(plan):
        _write(lowering, plan, table, stream, option)


def _write(
    lowering: Lowering, plan: SinkPlan, table: CatalogTable, stream: DataStream, option: Callable[[str], str]
) -> None:
    wanted = tuple(column for column in physical_columns(table) if column.name in table.persisted)
    constraints = constraints_of(
        wanted,
        _given(plan.input),
        option("table.exec.sink.not-null-enforcer"),
        option("table.exec.sink.type-length-enforcer"),
        option("table.exec.sink.nested-constraint-enforcer"),
    )
    schema = schema_of(wanted)
    if constraints:
        stream = in_order(stream._add(ConstraintsSpec(constraints, schema), schema))
    if plan.keys:
        stream = _one_each(stream, schema, plan, lowering.ttl_ms)
    takes, given = lowering.connectors.sink_mode(table), changelog_mode(plan.input)
    if Change.UPDATE_BEFORE in (RETRACT if plan.keys else given) - takes:
        # What an update was may be a row of another key, or come without what it is now.
        split = not plan.keys and (bool(constraints) or may_split_updates(plan.input))
        keys = primary_key(table) if split else ()
        stream = in_order(stream._add(SplitUpsertSpec(keys) if keys else UpsertSpec(), schema))
    written = lowering.connectors.sink(table, wanted)
    for stage in written.stages:
        stream = in_order(stream._add(stage.spec, stage.schema))
    sink = written.overwriting if plan.overwrite else written.sink
    if sink is None:
        raise GraphError(f"table {plan.table!r} ({table.connector}) cannot be overwritten; write INSERT INTO")
    added = stream.sink_to(sink).name(table.name)
    if _is_sorted(plan.input) and is_single(stream):
        # Rows are in order where one subtask writes them.
        added.set_parallelism(1)


def _is_sorted(node: p.PlanNode) -> bool:
    return _is_sorted(node.input) if isinstance(node, p.Project) else isinstance(node, p.Sort) and bool(node.order)


def _given(node: p.PlanNode) -> p.Columns:
    """The columns of a query, nullable where they come as a connector gives them: what it promises is checked."""
    return tuple(
        replace(column, type=column.type.with_nullable(True)) if _is_read(node, place) else column
        for place, column in enumerate(node.columns)
    )


def _is_read(node: p.PlanNode, place: int) -> bool:
    """Whether a column is one of a table, but for its primary key."""
    match node:
        case p.Scan():
            return place not in node.primary_key
        case p.Filter() | p.Watermarks():
            return _is_read(node.input, place)
        case p.Project():
            made = node.expressions[place]
            return isinstance(made, InputColumn) and _is_read(node.input, made.index)
    return False


def _one_each(stream: DataStream, schema: pa.Schema, plan: SinkPlan, ttl_ms: int | None) -> DataStream:
    """One row of each key of the sink."""
    if plan.on_conflict == "DEDUPLICATE":
        last = upsert_materializer(schema, plan.keys, EngineMode.RETRACT, ttl_ms)
        return add_changelog(last, last.schema, stream)
    conflict = Conflict.FAIL if plan.on_conflict == "ERROR" else Conflict.KEEP_FIRST
    first = ConflictSpec(schema, plan.keys, conflict, ttl_ms)
    return add_changelog(first, first.schema, stream)
