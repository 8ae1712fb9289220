"""Binds what MATCH_RECOGNIZE has in expressions: columns by variable, FIRST, LAST, PREV, CLASSIFIER, and aggregates.

`match_binder.py` holds one for a clause; its hook gives the expression binder a column for each different reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.errors import nearest
from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder, Hook
from penstock.tables.bind.grouping import bound_aggregate
from penstock.tables.bind.scopes import Scope
from penstock.tables.building import call
from penstock.tables.expressions import Expression, InputColumn
from penstock.tables.functions.aggregates import AGGREGATES
from penstock.tables.parse import nodes as n
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import TimeAttribute
from penstock.tables.plan.row_references import Reference, ReferenceKind

AGGREGATES_OF_ROWS: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_LOGICAL: Final = ("FIRST", "LAST")
OF_ROWS: Final = frozenset({*_LOGICAL, "PREV", "NEXT", "CLASSIFIER", "MATCH_ROWTIME", "MATCH_PROCTIME", "MATCH_NUMBER"})
"""What is called for rows of a match, in MATCH_RECOGNIZE alone."""
_TEXT: Final = t.STRING.with_nullable(False)


@dataclass(slots=True)
class RowReferences:
    """Collects the references of one clause.

    Args:
        source: the text, for errors.
        scope: the columns of the input.
        variables: of the pattern, and subsets of them, by name.
        rowtime: the type of MATCH_ROWTIME; None by the clock.
    """

    source: SqlText
    scope: Scope
    variables: Mapping[str, frozenset[str]]
    rowtime: t.SqlType | None
    values: list[Expression] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)

    def binder(self, *, is_final: bool) -> ExpressionBinder:
        """Binds expressions over references.

        Args:
            is_final: whether all rows of a match count, and not only those up to the row in question.
        """

        def hook(node: n.Node) -> Expression | None:
            found = self._found(node)
            if isinstance(found, Reference):
                return self.column(replace(found, is_final=is_final))
            return found

        return ExpressionBinder(self.source, Scope((), ()), hook)

    def column(self, reference: Reference) -> InputColumn:
        """What stands for a reference in expressions."""
        if reference not in self.references:
            self.references.append(reference)
        return InputColumn(reference.type, self.references.index(reference))

    def of_input(self, place: int) -> Reference:
        """A column of the row in question."""
        column = self.scope.column(place)
        return Reference(ReferenceKind.ROW, column.type, value=self._value(column))

    def _value(self, expression: Expression) -> int:
        if expression not in self.values:
            self.values.append(expression)
        return self.values.index(expression)

    def _found(self, node: n.Node) -> Reference | Expression | None:
        if isinstance(node, n.Name):
            return self._row(node, node)
        if not isinstance(node, n.Call) or node.over is not None:
            return None
        if node.name in _LOGICAL:
            return self._logical(node)
        if node.name in AGGREGATES:
            return self._aggregate(node)
        match node.name:
            case "PREV":
                return self._previous(node)
            case "NEXT":
                raise self.source.unsupported(
                    node.at, "NEXT would have to wait for rows to come; make the next row a variable of the pattern"
                )
            case "CLASSIFIER":
                return self._classifier(node)
            case "MATCH_ROWTIME":
                return self._match_rowtime(node)
            case "MATCH_PROCTIME":
                return call("PROCTIME")
            case "MATCH_NUMBER":
                raise self.source.unsupported(
                    node.at,
                    "MATCH_NUMBER would be kept for each partition for ever; number the results by ROW_NUMBER() OVER "
                    "(PARTITION BY ... ORDER BY ...) where that is bounded",
                )
        return None

    # Values of rows

    def _row(self, node: n.Node, whole: n.Node) -> Reference:
        """The value of an expression of one row, the last of its variable."""
        variables, bound, names = self._of_one_variable(node)
        if not names:
            raise self.source.invalid(whole.at, "this reads no column; give a column of a variable, such as A.price")
        return Reference(ReferenceKind.ROW, bound.type.with_nullable(True), variables, value=self._value(bound))

    def _of_one_variable(self, node: n.Node) -> tuple[frozenset[str] | None, Expression, list[str]]:
        names: list[str] = []
        bound = ExpressionBinder(self.source, self.scope, self._inner_hook(names)).bind(node)
        return self._one(names, node), bound, names

    def _inner_hook(self, names: list[str]) -> Hook:
        def hook(node: n.Node) -> Expression | None:
            if isinstance(node, n.Name):
                variable, column = self._column(node)
                names.append(variable)
                return column
            if isinstance(node, n.Call) and (node.name in OF_ROWS or node.name in AGGREGATES):
                raise self.source.invalid(node.at, f"{node.name} may not stand within FIRST, LAST or an aggregate")
            return None

        return hook

    def _one(self, names: list[str], node: n.Node) -> frozenset[str] | None:
        different = list(dict.fromkeys(names))
        if len(different) > 1:
            shown = " and ".join(name or "no variable" for name in different)
            raise self.source.invalid(
                node.at, f"this reads columns of {shown}; FIRST, LAST and aggregates take those of one variable"
            )
        return self.variables[different[0]] if different and different[0] else None

    def _column(self, name: n.Name) -> tuple[str, Expression]:
        """The variable, empty for none, and the column of the input."""
        first = name.parts[0].name
        if len(name.parts) > 1 and first in self.variables:
            rest = n.Name(name.parts[1].at, name.parts[1:])
            found = self.scope.find(rest, self.source)
            if found is None:
                raise self.scope.unknown(rest, self.source)
            return first, found
        found = self.scope.find(n.Name(name.at, name.parts), self.source)
        if found is not None:
            return "", found
        if len(name.parts) > 1:
            raise self.source.invalid(
                name.at,
                f"no variable {first!r}{nearest(first, list(self.variables))}; the pattern has "
                f"{', '.join(self.variables)}",
            )
        raise self.scope.unknown(name, self.source)

    def _logical(self, node: n.Call) -> Reference:
        value, offset = self._navigated(node, default=0)
        if isinstance(value, n.Call) and value.name == "CLASSIFIER":
            found = self._classifier(value)
        else:
            found = self._row(value, node)
        return replace(found, type=found.type.with_nullable(True), from_first=node.name == "FIRST", offset=offset)

    def _previous(self, node: n.Call) -> Reference:
        value, back = self._navigated(node, default=1)
        found = self._logical(value) if isinstance(value, n.Call) and value.name in _LOGICAL else self._row(value, node)
        if found.kind is ReferenceKind.CLASSIFIER:
            raise self.source.invalid(node.at, "the row before may be in no match, so it has no CLASSIFIER")
        return replace(found, back=back)

    def _navigated(self, node: n.Call, default: int) -> tuple[n.Node, int]:
        """What is read, and the second argument."""
        if not 1 <= len(node.arguments) <= 2 or node.star or node.distinct or node.filter is not None:
            raise self.source.invalid(node.at, f"{node.name} takes a value and, if you like, by how many rows to go")
        value = node.arguments[0].value
        if len(node.arguments) == 1:
            return value, default
        offset = node.arguments[1].value
        if not isinstance(offset, n.NumberLiteral) or not offset.text.isdigit():
            raise self.source.invalid(offset.at, f"the second argument of {node.name} is a whole number of 0 or more")
        return value, int(offset.text)

    # Others

    def _classifier(self, node: n.Call) -> Reference:
        if not node.arguments:
            return Reference(ReferenceKind.CLASSIFIER, _TEXT)
        name = node.arguments[0].value
        if len(node.arguments) > 1 or not isinstance(name, n.Name) or name.text not in self.variables:
            raise self.source.invalid(node.at, "CLASSIFIER takes nothing, or a variable or subset of the pattern")
        return Reference(ReferenceKind.CLASSIFIER, t.STRING, self.variables[name.text])

    def _match_rowtime(self, node: n.Call) -> Reference:
        if self.rowtime is None:
            raise self.source.invalid(
                node.at, "MATCH_ROWTIME needs ORDER BY a column of event time; here it is MATCH_PROCTIME()"
            )
        for argument in node.arguments:
            named = argument.value
            bound = self.scope.find(named, self.source) if isinstance(named, n.Name) else None
            place = bound.index if isinstance(bound, InputColumn) else None
            if place is None or self.scope.columns[place].time is not TimeAttribute.ROWTIME:
                raise self.source.invalid(
                    argument.at, "MATCH_ROWTIME takes nothing, or the column of event time that ORDER BY has"
                )
        return Reference(ReferenceKind.ROWTIME, self.rowtime)

    def _aggregate(self, node: n.Call) -> Reference:
        if node.name not in AGGREGATES_OF_ROWS:
            raise self.source.unsupported(
                node.at, f"{node.name} is not supported in MATCH_RECOGNIZE; there are {', '.join(AGGREGATES_OF_ROWS)}"
            )
        if node.distinct or node.filter is not None:
            raise self.source.unsupported(
                node.at, f"{node.name} with DISTINCT or FILTER is not supported in MATCH_RECOGNIZE"
            )
        count = Reference(ReferenceKind.AGGREGATE, t.BIGINT.with_nullable(False), function="COUNT")
        if node.star:
            return count
        star = node.arguments[0].value if len(node.arguments) == 1 else None
        if node.name == "COUNT" and isinstance(star, n.Star):
            if star.qualifier is None or star.qualifier.text not in self.variables:
                raise self.source.invalid(star.at, f"no such variable; the pattern has {', '.join(self.variables)}")
            return replace(count, variables=self.variables[star.qualifier.text])
        names: list[str] = []
        inner = ExpressionBinder(self.source, self.scope, self._inner_hook(names))
        bound, arguments, _ = bound_aggregate(node, inner, self.source)
        variables = self._one(names, node)
        if not arguments:
            return replace(count, variables=variables)
        kind = bound.type.with_nullable(node.name != "COUNT")
        value = self._value(arguments[0])
        return Reference(ReferenceKind.AGGREGATE, kind, variables, value=value, function=node.name)
