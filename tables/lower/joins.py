"""Lowers joins onto the engine's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.api.streams import DataStream
from penstock.engine.errors import GraphError
from penstock.tables.bind.expression_binder import call
from penstock.tables.expressions import Expression, InputColumn
from penstock.tables.lower.keys import encoded_keys
from penstock.tables.plan import nodes as p
from penstock.tables.plan.nodes import JoinKind

if TYPE_CHECKING:
    from penstock.tables.lower.lowering import Lowering


def lower_interval_join(lowering: Lowering, node: p.IntervalJoin) -> DataStream:
    """Pairs of rows whose event times are near each other.

    Raises:
        GraphError: an outer join, which the engine does not have.
    """
    if node.kind is not JoinKind.INNER:
        raise GraphError(f"{node.kind.value} JOIN of event times within an interval is not supported; INNER JOIN is")
    left = _side(lowering, node.left, [one for one, _ in node.keys], "l")
    right = _side(lowering, node.right, [other for _, other in node.keys], "r")
    width = len(node.keys)
    names_left = [f"lk{number}" for number in range(width)]
    names_right = [f"rk{number}" for number in range(width)]
    joined = left.key_by(*names_left).interval_join(
        right.key_by(*names_right), lower=f"{node.lower_ms}ms", upper=f"{node.upper_ms}ms"
    )
    schema = joined.schema
    assert schema is not None, "the columns of tables are known"
    own = [
        *(f"l{place}" for place in range(len(node.left.columns))),
        *(f"r{place}" for place in range(len(node.right.columns))),
    ]
    columns = (*node.left.columns, *node.right.columns)
    expressions: tuple[Expression, ...] = tuple(
        InputColumn(column.type, schema.names.index(name)) for column, name in zip(columns, own, strict=True)
    )
    stream = lowering.projected(joined, expressions, node.columns)
    if node.condition is None:
        return stream
    from penstock.tables.lower.lowering import schema_of

    return lowering.calc(stream, node.condition, None, schema_of(node.columns))


def _side(lowering: Lowering, node: p.PlanNode, keys: list[int], prefix: str) -> DataStream:
    """A side with columns of its own, and its keys beside them; rows with a null among these meet none."""
    not_null: Expression | None = None
    plain = []
    for key in keys:
        column = InputColumn(node.columns[key].type, key)
        plain.append(p.Column(node.columns[key].name, column.type.with_nullable(False)))
        if column.type.nullable:
            test = call("IS_NOT_NULL", column)
            not_null = test if not_null is None else call("AND", not_null, test)
    encoded_keys(plain, range(len(plain)), "JOIN")
    own = tuple(InputColumn(column.type, place) for place, column in enumerate(node.columns))
    key_columns = tuple(InputColumn(node.columns[key].type, key) for key in keys)
    columns = (
        *(p.Column(f"{prefix}k{number}", node.columns[key].type) for number, key in enumerate(keys)),
        *(p.Column(f"{prefix}{place}", column.type) for place, column in enumerate(node.columns)),
    )
    from penstock.tables.lower.lowering import schema_of

    return lowering.calc(lowering.stream(node), not_null, (*key_columns, *own), schema_of(columns))
