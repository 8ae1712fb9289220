"""Column expressions as expressions of Spark's SQL, as far as both mean the same.

What is not here is left to the engine, and whole operators with it: strings' functions, casts, mixed types, anything
whose nulls, NaNs or rounding differ. What overflows is an error in Spark, and then computed by the engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from penstock.actors.spark.native.relations import Computed, Filtered, Relation, is_whole, spark_type
from penstock.engine.errors import PenstockError
from penstock.engine.expressions import Expr, Filter, Select, Step, bind, operations

_ARITHMETIC: Final[Mapping[str, str]] = MappingProxyType({"__add__": "+", "__sub__": "-", "__mul__": "*"})
_REFLECTED: Final[Mapping[str, str]] = MappingProxyType({"__radd__": "+", "__rsub__": "-", "__rmul__": "*"})
_COMPARISONS: Final[Mapping[str, str]] = MappingProxyType(
    {"__eq__": "=", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
)
_OVER_NAN: Final = (">", ">=")
"""True of Spark's NaN, which is larger than any number; ours is not comparable."""
_LOGIC: Final[Mapping[str, str]] = MappingProxyType({"__and__": "and", "__or__": "or"})
_INT64: Final = range(-(2**63) + 1, 2**63)


class _OnlyOursError(Exception):
    """An expression that Spark would compute otherwise, or not at all."""


@dataclass(frozen=True, slots=True)
class _Value:
    """SQL with the kind of its values: "int", "float", "string" or "bool"; constants are no null and no NaN."""

    sql: str
    kind: str
    is_constant: bool = False


def computed(relation: Relation, steps: Sequence[Step]) -> Relation | None:
    """The relation behind `steps`; None where Spark cannot compute them all."""
    try:
        for step in steps:
            relation = _step(relation, step)
    except (_OnlyOursError, PenstockError):
        return None
    return relation


def _step(relation: Relation, step: Step) -> Relation:
    schema = bind((step,), relation.schema, "native")
    if isinstance(step, Filter):
        _, condition = _column(step.predicate, relation.schema)
        if condition.kind != "bool":
            raise _OnlyOursError
        return Filtered(relation, condition.sql, schema, relation.timed)
    new = dict(_column(column, relation.schema) for column in step.columns if isinstance(column, Expr))
    if len(new) != len(step.columns):
        raise _OnlyOursError
    texts = []
    for field in schema:
        kind = spark_type(field.type)
        if field.name in new and kind is not None:
            place = relation.schema.get_field_index(field.name)
            is_same = place >= 0 and new[field.name].sql == f"c{place}"
            texts.append(new[field.name].sql if is_same else f"cast({new[field.name].sql} as {kind})")
        elif field.name in relation.schema.names:
            texts.append(f"c{relation.schema.get_field_index(field.name)}")
        else:
            raise _OnlyOursError
    whole = isinstance(step, Select) or is_whole(relation)
    return Computed(relation, tuple(texts), schema, whole, relation.timed)


def _column(expression: Expr, schema: pa.Schema) -> tuple[str, _Value]:
    """Name and SQL of an expression."""
    nodes = operations(expression)
    if not nodes:
        raise _OnlyOursError
    name, value = _head(nodes[0], schema)
    for node in nodes[1:]:
        if node.name == "alias":
            name = node.kwargs["name"]
        else:
            value = _applied(node, value, schema)
    return name, value


def _head(node: Any, schema: pa.Schema) -> tuple[str, _Value]:
    if node.name == "col" and len(node.kwargs["names"]) == 1:
        name = node.kwargs["names"][0]
        place = schema.get_field_index(name)
        if place < 0:
            raise _OnlyOursError
        return name, _Value(f"c{place}", _kind(schema.field(place).type))
    if node.name == "lit" and node.kwargs["dtype"] is None:
        return "literal", _constant(node.kwargs["value"])
    raise _OnlyOursError


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_signed_integer(kind):
        return "int"
    if pa.types.is_float64(kind):
        return "float"
    if pa.types.is_string(kind):
        return "string"
    # Others may be passed on, but nothing is computed of them.
    return "bool" if pa.types.is_boolean(kind) else "other"


def _constant(value: object) -> _Value:
    match value:
        case bool():
            return _Value(str(value).lower(), "bool", is_constant=True)
        case int() if value in _INT64:
            return _Value(f"({value}L)", "int", is_constant=True)
        case float() if math.isfinite(value):
            return _Value(f"({value!r}D)", "float", is_constant=True)
        case str():
            return _Value(f"cast(unhex('{value.encode().hex()}') as string)", "string", is_constant=True)
        case _:
            raise _OnlyOursError


def _applied(node: Any, left: _Value, schema: pa.Schema) -> _Value:
    """The value of an operation on `left`."""
    if node.name == "is_null":
        return _Value(f"isnull({left.sql})", "bool")
    if node.name == "__invert__" and left.kind == "bool":
        return _Value(f"(not {left.sql})", "bool")
    if len(node.exprs) != 1:
        raise _OnlyOursError
    argument = node.exprs[0]
    right = _column(argument, schema)[1] if isinstance(argument, Expr) else _constant(argument)
    if left.kind != right.kind or left.kind == "other":
        raise _OnlyOursError
    if node.name in _LOGIC and left.kind == "bool":
        return _Value(f"({left.sql} {_LOGIC[node.name]} {right.sql})", "bool")
    if node.name in _ARITHMETIC and left.kind in ("int", "float"):
        return _Value(f"({left.sql} {_ARITHMETIC[node.name]} {right.sql})", left.kind)
    if node.name in _REFLECTED and left.kind in ("int", "float"):
        return _Value(f"({right.sql} {_REFLECTED[node.name]} {left.sql})", left.kind)
    if node.name in _COMPARISONS:
        return _compared(_COMPARISONS[node.name], left, right)
    raise _OnlyOursError


def _compared(sign: str, left: _Value, right: _Value) -> _Value:
    if left.kind != "float":
        return _Value(f"({left.sql} {sign} {right.sql})", "bool")
    if not right.is_constant:
        raise _OnlyOursError
    # By the bounds and values that Parquet states of a column alone, Spark passes over parts of files: bounds say
    # nothing of NaN, and -0.0 is not found as 0.0. The sum is the same number, of which files state nothing.
    text = f"({left.sql} + 0.0D {sign} {right.sql})"
    if sign in _OVER_NAN:
        text = f"({text} and not isnan({left.sql}))"
    return _Value(text, "bool")
