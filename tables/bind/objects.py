"""OBJECT_OF and OBJECT_UPDATE: values of structured types, which are rows with the name of a class.

The binder calls it: what the fields are called stands in literals.

Source: Flink's documentation, "System (Built-in) Functions", Value Construction and Value Modification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from penstock.engine.errors import nearest
from penstock.tables.building import call
from penstock.tables.expressions import Conditional, Constant, Expression, FunctionCall
from penstock.tables.parse import nodes as n
from penstock.tables.parse.text import SqlText
from penstock.tables.types import STRING, Kind, RowField, SqlType


class Binder(Protocol):
    """What binds expressions, of a text of SQL."""

    @property
    def source(self) -> SqlText:
        """The text, for errors."""

    def bind(self, node: n.Node) -> Expression:
        """The expression that a node stands for."""


def object_of(binder: Binder, node: n.Call, arguments: Sequence[n.Node]) -> Expression:
    """`OBJECT_OF(class, key, value, ...)`: a value with these fields.

    Raises:
        SqlValidationError: a class or key is no literal, a key comes twice, or one has no value.
    """
    if len(arguments) < 3 or len(arguments) % 2 == 0:
        raise binder.source.invalid(
            node.at, "OBJECT_OF takes the name of a class, and pairs of a key and a value, at least one"
        )
    name = _literal(binder, arguments[0], "the name of a class")
    keys = [_literal(binder, key, "the name of a field") for key in arguments[1::2]]
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise binder.source.invalid(arguments[1 + 2 * place].at, f"the field {key!r} stands twice in OBJECT_OF")
    values = [binder.bind(value) for value in arguments[2::2]]
    fields = tuple(RowField(key, value.type) for key, value in zip(keys, values, strict=True))
    return FunctionCall(SqlType(Kind.ROW, False, fields=fields, class_name=name), "ROW", tuple(values))


def object_update(binder: Binder, node: n.Call, arguments: Sequence[n.Node]) -> Expression:
    """`OBJECT_UPDATE(object, key, value, ...)`: the object with other values in some fields, and their types.

    Raises:
        SqlValidationError: no object of a structured type, or no field of this name.
    """
    if len(arguments) < 3 or len(arguments) % 2 == 0:
        raise binder.source.invalid(node.at, "OBJECT_UPDATE takes an object, and pairs of a key and a value")
    given = binder.bind(arguments[0])
    if not given.type.class_name:
        raise binder.source.invalid(
            arguments[0].at, f"OBJECT_UPDATE takes a structured type, which OBJECT_OF makes, not {given.type}"
        )
    values = {field.name: _field(given, field) for field in given.type.fields}
    for key_node, value_node in zip(arguments[1::2], arguments[2::2], strict=True):
        key = _literal(binder, key_node, "the name of a field")
        if key not in values:
            known = f"there are {', '.join(values)}"
            raise binder.source.invalid(
                key_node.at, f"{given.type} has no field {key!r}{nearest(key, values)}; {known}"
            )
        values[key] = binder.bind(value_node)
    fields = tuple(RowField(name, value.type) for name, value in values.items())
    kind = replace(given.type, nullable=False, fields=fields)
    made = FunctionCall(kind, "ROW", tuple(values.values()))
    if not given.type.nullable:
        return made
    nullable = kind.with_nullable(True)
    return Conditional(nullable, ((call("IS_NOT_NULL", given), made),), Constant(nullable, None))


def _field(given: Expression, field: RowField) -> Expression:
    kind = field.type.with_nullable(field.type.nullable or given.type.nullable)
    return FunctionCall(kind, "FIELD", (given, Constant(STRING.with_nullable(False), field.name)))


def _literal(binder: Binder, node: n.Node, what: str) -> str:
    if isinstance(node, n.StringLiteral):
        return node.value
    raise binder.source.invalid(node.at, f"this is {what}, and must be a text in quotes")
