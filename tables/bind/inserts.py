"""Binds INSERT INTO: which column of the query goes into which of the table, and as what type."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.changelog import ChangelogMode as EngineMode
from penstock.engine.errors import nearest
from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.queries import QueryContext
from penstock.tables.bind.query_binder import bind_query
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.table_binder import physical_columns, primary_key
from penstock.tables.building import converted
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.expressions import Constant, Expression, InputColumn
from penstock.tables.parse.statements import Insert
from penstock.tables.plan.changelog import changelog_mode, engine_mode, first_time
from penstock.tables.plan.keys import upsert_keys
from penstock.tables.plan.nodes import (
    INSERT_ONLY,
    Change,
    ChangelogMode,
    Column,
    PlanNode,
    Project,
    Scan,
    SinkPlan,
    TopN,
    Watermarks,
    inputs_of,
    walk_plan,
)
from penstock.tables.plan.rules.apply import rewritten_plan
from penstock.tables.types import Kind, SqlType


def bind_insert(insert: Insert, context: QueryContext) -> SinkPlan:
    """The plan of an INSERT: rows with the columns of the table.

    Raises:
        SqlError: the query or the table does not fit.
    """
    source = context.source
    table = context.catalog.resolve(insert.table, source)
    if not isinstance(table, CatalogTable):
        raise source.invalid(insert.table.at, f"{table.name!r} is a view or a stream; INSERT INTO takes a table")
    mode = context.connectors.sink_mode(table)
    _check_conflict(insert, table, mode != INSERT_ONLY, context)
    node = bind_query(insert.query, context)
    wanted = [column for column in physical_columns(table) if column.name in table.persisted]
    fixed = _fixed(insert, table, wanted, context)
    named = [name for name in _named(insert, wanted, context) if insert.columns or name not in fixed]
    if len(node.columns) != len(named):
        raise source.invalid(
            insert.query.at,
            f"the query has {len(node.columns)} columns, and {len(named)} go into {table.name}: {', '.join(named)}",
        )
    places = {name: place for place, name in enumerate(named)}
    expressions = tuple(
        fixed.get(column.name) or _value(column, places.get(column.name), node, insert, context) for column in wanted
    )
    pairs = zip(wanted, expressions, strict=True)
    columns = tuple(Column(c.name, c.type.with_nullable(e.type.nullable)) for c, e in pairs)
    plan = rewritten_plan(Project(node, expressions, columns))
    given = changelog_mode(plan)
    if not given <= mode and not (given - {Change.UPDATE_BEFORE} <= mode and table.definition.primary_key):
        lacking = ", ".join(sorted(change.name for change in given - mode))
        raise source.invalid(
            insert.at,
            f"the query gives changes that table {table.name!r} ({table.connector}) does not take: {lacking}; write to "
            f"a table that takes them, or turn them into rows with TO_CHANGELOG{_first_by_time(plan)}",
        )
    if engine_mode(given) is EngineMode.UPSERT and (Change.UPDATE_BEFORE in mode or not table.definition.primary_key):
        raise source.unsupported(
            insert.at,
            "the query gives updates without the rows before them, and the table takes them with these: changelogs are "
            "not normalized; write to a table that is updated by its primary key",
        )
    if insert.on_conflict is not None:
        return SinkPlan(table.name, plan, primary_key(table), insert.on_conflict, insert.overwrite)
    if _has_own_key(table, plan, mode):
        return SinkPlan(table.name, plan, overwrite=insert.overwrite)
    if context.options["table.exec.sink.require-on-conflict"] == "false":
        return SinkPlan(table.name, plan, primary_key(table), overwrite=insert.overwrite)
    key = [column.name for column in table.definition.primary_key]
    raise context.source.invalid(
        insert.at,
        f"the query's rows are not told apart by the primary key of table {table.name!r} ({', '.join(key)}), or their "
        "changes are not in order by it, so rows of one key would overwrite each other; group by it, or add "
        "ON CONFLICT DO DEDUPLICATE",
    )


def _first_by_time(plan: PlanNode) -> str:
    """What to do where the changes come of first rows that could be decided once."""
    firsts = [node for node in walk_plan(plan) if isinstance(node, TopN) and node.last == 1 and not node.in_windows]
    if all(first_time(node) is not None for node in firsts):
        return ""
    return (
        "; the first row of each key is only added where ROW_NUMBER() = 1 is ORDER BY one time attribute, ascending "
        "(a column with WATERMARK, or of PROCTIME()), of rows that are only added"
    )


def _has_own_key(table: CatalogTable, plan: PlanNode, mode: ChangelogMode) -> bool:
    """Whether a sink that knows rows by its primary key gets updates that the query tells apart by it as well."""
    key = {column.name for column in table.definition.primary_key}
    if not key or changelog_mode(plan) == INSERT_ONLY or Change.UPDATE_BEFORE in mode:
        return True
    names = [column.name for column in plan.columns]
    return any({names[place] for place in known} <= key for known in upsert_keys(plan))


def _check_conflict(insert: Insert, table: CatalogTable, takes_updates: bool, context: QueryContext) -> None:
    if insert.on_conflict is None:
        return
    source = context.source
    if not takes_updates or not primary_key(table):
        reason = "takes inserts alone" if not takes_updates else "has no primary key"
        raise source.invalid(
            insert.at, f"ON CONFLICT is for tables that are updated by a key, and {table.name!r} {reason}; leave it out"
        )
    scans = _scans(bind_query(insert.query, context))
    if insert.on_conflict != "DEDUPLICATE" and not all(isinstance(scan, Watermarks) for scan in scans):
        raise source.invalid(
            insert.at,
            f"ON CONFLICT DO {insert.on_conflict} decides when the watermark has passed a row, and a table here "
            "has none; declare WATERMARK FOR its time",
        )


def _scans(node: PlanNode) -> Iterator[PlanNode]:
    """The nodes that read tables, each with the watermarks over it."""
    if isinstance(node, Scan | Watermarks):
        yield node
    else:
        for child in inputs_of(node):
            yield from _scans(child)


def _named(insert: Insert, wanted: list[Column], context: QueryContext) -> list[str]:
    known = [column.name for column in wanted]
    if not insert.columns:
        return known
    for column in insert.columns:
        if sum(column.name == other.name for other in insert.columns) > 1:
            raise context.source.invalid(column.at, f"column {column.name!r} is named more than once; name it once")
        if column.name not in known:
            raise context.source.invalid(
                column.at,
                f"the table has no column {column.name!r}{nearest(column.name, known)} to write; "
                f"it has {', '.join(known)}",
            )
    return [column.name for column in insert.columns]


def _fixed(insert: Insert, table: CatalogTable, wanted: list[Column], context: QueryContext) -> dict[str, Expression]:
    """The values of PARTITION (column = value), by column."""
    fixed: dict[str, Expression] = {}
    for name, value in insert.partition:
        if name.name not in table.partitioned_by:
            known = ", ".join(table.partitioned_by) or "none: PARTITIONED BY names them"
            hint = nearest(name.name, table.partitioned_by)
            raise context.source.invalid(name.at, f"{name.name!r} is no partition column{hint}; there are {known}")
        bound = ExpressionBinder(context.source, Scope((), ())).bind(value)
        kind = next(column.type for column in wanted if column.name == name.name)
        if not isinstance(bound, Constant) or not _storable(bound.type, kind):
            raise context.source.invalid(
                value.at, f"the partition column {name.name!r} takes a constant of type {kind}"
            )
        fixed[name.name] = converted(bound, kind)
    return fixed


def _value(column: Column, place: int | None, node: PlanNode, insert: Insert, context: QueryContext) -> Expression:
    if place is None:
        if not column.type.nullable:
            raise context.source.invalid(insert.at, f"column {column.name!r} is NOT NULL and gets no value; name it")
        return Constant(column.type, None)
    given = node.columns[place]
    if not _storable(given.type, column.type):
        raise context.source.invalid(
            insert.query.at,
            f"column {place + 1} of the query ({given.name}) is {given.type}, and column {column.name!r} of the table "
            f"is {column.type}; cast it: CAST({given.name} AS {column.type.with_nullable(True)})",
        )
    own = InputColumn(given.type, place)
    # Lengths are the sink's own matter: an option says what happens to longer texts.
    if given.type.kind is column.type.kind and (given.type.is_text or given.type.kind in t.BYTES_KINDS):
        return own
    return converted(own, column.type)


def _storable(given: SqlType, wanted: SqlType) -> bool:
    """Whether values may be stored as another type without a cast in the query."""
    one, other = given.kind, wanted.kind
    if one is Kind.NULL or given.same_as(wanted):
        return True
    if one in t.INTEGERS and other in t.INTEGERS:
        return t.INTEGERS.index(one) <= t.INTEGERS.index(other)
    if one in t.NUMERIC and other in t.NUMERIC:
        return other in t.APPROXIMATE or (other is Kind.DECIMAL and one in t.EXACT)
    if one in t.TIMESTAMPS and other in t.TIMESTAMPS:
        return True
    if one is Kind.TIMESTAMP and other is Kind.DATE:
        # As in Flink, and not the other way round.
        return True
    if one is other and one in (Kind.ARRAY, Kind.MAP, Kind.MULTISET):
        return all(_storable(a, b) for a, b in zip(given.parts, wanted.parts, strict=True))
    if one is other is Kind.ROW:
        named_alike = given.class_name == wanted.class_name or not (given.class_name and wanted.class_name)
        same = named_alike and len(given.fields) == len(wanted.fields)
        return same and all(_storable(a.type, b.type) for a, b in zip(given.fields, wanted.fields, strict=True))
    same_family = one in t.CHARACTERS and other in t.CHARACTERS
    return same_family or (one in t.BYTES_KINDS and other in t.BYTES_KINDS) or one is other
