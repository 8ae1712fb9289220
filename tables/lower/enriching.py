"""Lowers joins AS OF a time: with versions of a table by event time, and with what a table holds when a row comes."""

from __future__ import annotations

from typing import Final

from penstock.engine.api.streams import DataStream
from penstock.engine.errors import GraphError
from penstock.engine.operators.join_columns import JoinColumns, JoinSide
from penstock.engine.operators.joins.lookup_join import LookupJoinSpec
from penstock.tables import types as t
from penstock.tables.building import call
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.loaded_tables import LoadedTable, RenamedLookup
from penstock.tables.expressions import (
    Conditional,
    Constant,
    Expression,
    FunctionCall,
    InputColumn,
    columns_in,
    conjuncts,
    on_columns,
)
from penstock.tables.lower.base import Lowering, schema_of
from penstock.tables.lower.changelogs import ToChangelogSpec
from penstock.tables.lower.changing import Pairs, side_of
from penstock.tables.lower.keys import encoded_keys
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode
from penstock.tables.plan.join_conditions import conjunction, equal_expressions
from penstock.tables.plan.nodes import INSERT_ONLY, JoinKind

_COMES: Final = "+"
_GOES: Final = "-"
_CODES: Final = {"INSERT": _COMES, "UPDATE_AFTER": _COMES, "DELETE": _GOES}
_CODE: Final = t.STRING


def lower_lookup_join(lowering: Lowering, node: p.LookupJoin) -> DataStream:
    """Each row with what the table holds for its key.

    Raises:
        GraphError: no equality with a column of the table.
        SqlValidationError: a table that cannot be looked up.
    """
    entry = lowering.catalog.find(node.table)
    assert isinstance(entry, CatalogTable), "the binder has found it"
    table = entry.with_options(dict(node.options))
    width = len(node.left.columns)
    primary = frozenset(column.name for column in table.definition.primary_key)
    keys, rest = _lookup_keys(node, width, primary)
    if not keys:
        raise GraphError(
            f"a lookup of table {node.table!r} needs an equality of one of its columns with columns of the left side, "
            "or with a constant"
        )
    found = lowering.connectors.lookup(table, node.physical, tuple(keys))
    # In the table's own order, which need not be that of the condition.
    names = tuple(found.keys)
    left = side_of(lowering, node.left, [keys[name] for name in names], "l")
    number = len(names)
    columns = tuple(f"r{place}" for place in range(len(node.physical)))
    renamed = RenamedLookup(
        found, tuple(f"rk{i}" for i in range(number)), tuple(column.name for column in node.physical), columns
    )
    sides = JoinColumns(
        JoinSide(tuple(f"lk{i}" for i in range(number)), left.schema), JoinSide(renamed.key_names, renamed.schema)
    )

    def place(column: int) -> int:
        return column if column < width else column + number

    condition = conjunction(rest)
    pairs = None if condition is None else Pairs(on_columns(condition, place), lowering.zone)
    how = "left" if node.kind is JoinKind.LEFT else "inner"
    # What is read once does not come later.
    retry = None if isinstance(found, LoadedTable) else node.retry
    spec = LookupJoinSpec(renamed, sides, how, None, pairs, retry)
    joined = left._add(spec, sides.bind(f"lookup of {node.table}"))
    first = width + number
    key = node.physical[[column.name for column in node.physical].index(names[0])]
    is_there = call("IS_NOT_NULL", InputColumn(key.type.with_nullable(True), first + node.physical.index(key)))
    own: list[Expression] = [InputColumn(column.type, i) for i, column in enumerate(node.left.columns)]
    for value, column in zip(node.values, node.columns[width:], strict=True):
        moved = on_columns(value, lambda index: index + first)
        own.append(moved if isinstance(value, InputColumn) else _if(is_there, moved, column.type))
    return lowering.projected(joined, tuple(own), node.columns)


def _lookup_keys(
    node: p.LookupJoin, width: int, primary: frozenset[str]
) -> tuple[dict[str, Expression], list[Expression]]:
    """What each key column of the table must be equal to, over the left side; and the other conditions.

    Constants are keys of columns of the primary key, and where there is no other key.
    """
    pairs, rest = equal_expressions(conjuncts(node.condition), width)
    keys: dict[str, Expression] = {}
    for one, other in pairs:
        name = node.physical[other.index].name if isinstance(other, InputColumn) else None
        if name is None or name in keys:
            rest.append(call("=", one, on_columns(other, lambda place: place + width)))
        else:
            keys[name] = one
    constants = {}
    for condition in rest:
        found = _constant_key(condition, node, width)
        if found is not None:
            constants[found[0]] = (condition, found[1])
    for name, (condition, value) in constants.items():
        if name not in keys and (name in primary or not keys.keys() - constants.keys()):
            keys[name] = value
            rest.remove(condition)
    return keys, rest


def _constant_key(condition: Expression, node: p.LookupJoin, width: int) -> tuple[str, Expression] | None:
    """The column of the table that a condition compares with a constant, and that; None for other conditions."""
    if not isinstance(condition, FunctionCall) or condition.name != "=":
        return None
    one, other = condition.arguments
    column, value = (one, other) if isinstance(one, InputColumn) else (other, one)
    if not isinstance(column, InputColumn) or column.index < width or columns_in(value):
        return None
    return (node.physical[column.index - width].name, value) if column.type.same_as(value.type) else None


def _if(condition: Expression, value: Expression, kind: t.SqlType) -> Expression:
    nullable = kind.with_nullable(True)
    return Conditional(nullable, ((condition, value),), Constant(nullable, None))


def lower_temporal_join(lowering: Lowering, node: p.TemporalJoin) -> DataStream:
    """Each row with the version that was valid at its time, when the watermark has passed it.

    Raises:
        GraphError: the right side has no versions: no key, no event time, or changes of another kind.
    """
    keys, rest = _version_keys(node)
    left = _keyed(lowering, side_of(lowering, node.left, [one for one, _ in keys], "l"), node.left, keys, "l")
    right = _versions(lowering, node, [other for _, other in keys])
    number = left[1]
    how = "left" if node.kind is JoinKind.LEFT else "inner"
    names = [[f"{side}e{i}" for i in range(number)] for side in "lr"]
    joined = left[0].key_by(*names[0]).temporal_join(right.key_by(*names[1]), how)  # type: ignore[arg-type]
    assert joined.schema is not None, "the columns of tables are known"
    places = joined.schema.names
    width = len(node.left.columns)

    def place(column: int) -> int:
        found: int = places.index(f"l{column}" if column < width else f"r{column - width}")
        return found

    code = InputColumn(_CODE, places.index("code"))
    matched = call("=", code, Constant(_CODE.with_nullable(False), _COMES))
    condition = conjunction(rest)
    if condition is not None:
        matched = call("AND", matched, on_columns(condition, place))
    own: list[Expression] = []
    for i, column in enumerate(node.columns):
        value = InputColumn(column.type, place(i))
        own.append(value if i < width or how == "inner" else _if(matched, value, column.type))
    return lowering.calc(joined, matched if how == "inner" else None, tuple(own), schema_of(node.columns))


def _version_keys(node: p.TemporalJoin) -> tuple[list[tuple[Expression, Expression]], list[Expression]]:
    """The pairs of keys by which versions are found, and the other conditions."""
    if not any(column.time is p.TimeAttribute.ROWTIME for column in node.right.columns):
        raise GraphError("the right side of a temporal join has no event time; declare WATERMARK FOR a column of it")
    if not node.key:
        raise GraphError(
            "the right side of a temporal join has no primary key, so its rows are no versions of anything; declare "
            "PRIMARY KEY (...) NOT ENFORCED, or keep the last row of each key by ROW_NUMBER() ... = 1"
        )
    width = len(node.left.columns)
    pairs, rest = equal_expressions(conjuncts(node.condition), width)
    keys: list[tuple[Expression, Expression]] = []
    missing = set(node.key)
    for one, other in pairs:
        if isinstance(other, InputColumn) and other.index in missing:
            missing.remove(other.index)
            keys.append((one, other))
        else:
            rest.append(call("=", one, on_columns(other, lambda place: place + width)))
    if missing:
        names = ", ".join(node.right.columns[place].name for place in sorted(missing))
        raise GraphError(f"a temporal join needs equalities with all of the right side's key; {names} has none")
    return keys, rest


def _versions(lowering: Lowering, node: p.TemporalJoin, keys: list[Expression]) -> DataStream:
    """The versions: the right side's columns, what each says of its key, and the keys."""
    if changelog_mode(node.right) != INSERT_ONLY and not _is_table(node.right):
        raise GraphError(
            "the right side of a temporal join changes in a way that leaves versions out; join with a table, or with "
            "the last row of each key by ROW_NUMBER() OVER (... ORDER BY its event time DESC) = 1"
        )
    columns = (p.Column("code", _CODE), *(p.Column(f"r{i}", c.type) for i, c in enumerate(node.right.columns)))
    schema = schema_of(columns)
    said = lowering.stream(node.right)._add(ToChangelogSpec(_CODES, schema), schema)
    moved = [on_columns(key, lambda place: place + 1) for key in keys]
    own: list[Expression] = [InputColumn(column.type, place) for place, column in enumerate(columns)]
    known: Expression | None = None
    for key in moved:
        test = call("IS_NOT_NULL", key)
        known = test if known is None else call("AND", known, test)
    with_keys = (*columns, *(p.Column(f"rk{i}", key.type.with_nullable(True)) for i, key in enumerate(moved)))
    chosen = lowering.calc(said, known, (*own, *moved), schema_of(with_keys))
    return _encoded(lowering, chosen, with_keys, len(columns), "r")[0]


def _is_table(node: p.PlanNode) -> bool:
    if isinstance(node, p.Project | p.Watermarks):
        return _is_table(node.input)
    # The rule of versioned tables makes changes of conditions.
    return isinstance(node, p.Scan | p.FromChangelog)


def _keyed(
    lowering: Lowering, side: DataStream, node: p.PlanNode, keys: list[tuple[Expression, Expression]], prefix: str
) -> tuple[DataStream, int]:
    own = [p.Column(f"{prefix}{place}", column.type) for place, column in enumerate(node.columns)]
    added = [p.Column(f"{prefix}k{i}", one.type.with_nullable(True)) for i, (one, _) in enumerate(keys)]
    return _encoded(lowering, side, (*own, *added), len(own), prefix)


def _encoded(
    lowering: Lowering, stream: DataStream, columns: p.Columns, width: int, prefix: str
) -> tuple[DataStream, int]:
    """The columns up to `width`, and in place of those behind it keys as the engine takes them."""
    encoded = encoded_keys(columns, range(width, len(columns)), "JOIN")
    own = tuple(InputColumn(column.type, place) for place, column in enumerate(columns[:width]))
    added = tuple(p.Column(f"{prefix}e{i}", kind) for i, kind in enumerate(encoded.types))
    return lowering.projected(stream, (*own, *encoded.expressions), (*columns[:width], *added)), len(added)
