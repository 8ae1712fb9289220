"""Binds expressions: looks names up, gives each expression its type, and makes implicit casts explicit.

The query binder gives it a scope and, where aggregates or OVER may stand, a hook that takes those out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.errors import nearest
from penstock.tables import types as t
from penstock.tables.bind import literals
from penstock.tables.bind.objects import object_of, object_update
from penstock.tables.bind.ordering import check_ordered
from penstock.tables.bind.scopes import Scope, field_of
from penstock.tables.bind.user_calls import typed_arguments
from penstock.tables.building import call, chain, converted
from penstock.tables.expressions import (
    Conditional,
    Constant,
    Conversion,
    Expression,
    FunctionCall,
    UserCall,
)
from penstock.tables.functions import signatures as s
from penstock.tables.functions.aggregates import AGGREGATES, RANKS
from penstock.tables.functions.casts import castable
from penstock.tables.functions.common_types import EQUALITIES, common_type, comparable_type
from penstock.tables.functions.registry import OF_OPERATORS, SCALAR_FUNCTIONS
from penstock.tables.functions.temporal import UNITS
from penstock.tables.functions.user import UserFunctionKind
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.text import SqlText
from penstock.tables.types import Kind, SqlType

Hook = Callable[[n.Node], "Expression | None"]
_COMPARISONS: Final = EQUALITIES | {"<", "<=", ">", ">="}
_NOT_NULL_TEXT: Final = t.STRING.with_nullable(False)


@dataclass(frozen=True, slots=True)
class ExpressionBinder:
    """Binds expressions over the columns of a scope.

    Args:
        source: the text, for errors.
        scope: what names mean.
        hook: looks at each node first; what it gives stands for the node.
    """

    source: SqlText
    scope: Scope
    hook: Hook | None = None

    def bind(self, node: n.Node) -> Expression:
        """The bound expression.

        Raises:
            SqlValidationError: an unknown name or function, or a type that does not fit.
            SqlUnsupportedError: what may not stand here.
        """
        if self.hook is not None:
            found = self.hook(node)
            if found is not None:
                return found
        match node:
            case n.Name():
                return self._name(node)
            case n.NumberLiteral():
                return literals.number(node, self.source)
            case n.BytesLiteral():
                return Constant(SqlType(Kind.BINARY, False, max(len(node.value), 1)), node.value)
            case n.StringLiteral():
                # In the units of UTF-16, as in Java.
                length = len(node.value.encode("utf-16-le", "surrogatepass")) // 2
                return Constant(SqlType(Kind.CHAR, False, length), node.value)
            case n.NullLiteral():
                return Constant(t.NULL, None)
            case n.BooleanLiteral():
                return Constant(t.BOOLEAN.with_nullable(node.value is None), node.value)
            case n.TemporalLiteral():
                return literals.temporal(node, self.source)
            case n.IntervalLiteral():
                return literals.interval(node, self.source)
            case n.Keyword():
                return Constant(_NOT_NULL_TEXT, node.word)
            case n.Unary():
                return self._unary(node)
            case n.Binary():
                return self._binary(node)
            case n.IsTest():
                return self._is_test(node)
            case n.IsDistinct():
                left, right = self._comparable(node.at, "=", self.bind(node.left), self.bind(node.right))
                return call("IS_NOT_DISTINCT" if node.negated else "IS_DISTINCT", left, right)
            case n.Between():
                return self._between(node)
            case n.InList():
                return self._in_list(node)
            case n.Like():
                return self._like(node)
            case n.Case():
                return self._case(node)
            case n.Cast():
                return self._cast(node)
            case n.Call():
                return self._call(node)
            case n.UserCall():
                return _user_call(self, node)
            case n.Typed():
                return _typed(self, node)
            case n.ValueColumn():
                return self.scope.column(node.place)
        return self._constructed(node)

    def condition(self, node: n.Node, where: str) -> Expression:
        """A bound boolean."""
        bound = self.bind(node)
        if bound.type.kind not in (Kind.BOOLEAN, Kind.NULL):
            raise self.source.invalid(node.at, f"{where} needs a condition (BOOLEAN), not {bound.type}")
        return converted(bound, t.BOOLEAN)

    def _name(self, node: n.Name) -> Expression:
        found = self.scope.find(node, self.source)
        if found is None:
            raise self.scope.unknown(node, self.source)
        return found

    # Operators

    def _unary(self, node: n.Unary) -> Expression:
        if node.operator == "NOT":
            return call("NOT", self.condition(node.operand, "NOT"))
        if node.operator == "-" and isinstance(node.operand, n.NumberLiteral):
            return literals.negative(node.operand, self.source)
        operand = self.bind(node.operand)
        if operand.type.kind in t.INTERVALS:
            if node.operator == "-" and isinstance(operand, Constant) and operand.value is not None:
                return Constant(operand.type, -operand.value)  # type: ignore[operator]
            return operand if node.operator == "+" else call("MULTIPLY_INTERVAL", operand, Constant(t.INT, -1))
        if not operand.type.is_numeric and operand.type.kind is not Kind.NULL:
            raise self.source.invalid(node.at, f"{node.operator!r} needs a number, not {operand.type}")
        if node.operator == "+":
            return operand
        if isinstance(operand, Constant) and operand.value is not None:
            return Constant(operand.type, -operand.value)  # type: ignore[operator]
        return call("NEGATE", operand)

    def _binary(self, node: n.Binary) -> Expression:
        operator = node.operator
        if operator in ("AND", "OR"):
            return call(operator, self.condition(node.left, operator), self.condition(node.right, operator))
        left, right = self.bind(node.left), self.bind(node.right)
        if operator in _COMPARISONS:
            pair = self._comparable(node.at, operator, left, right)
            if operator not in EQUALITIES:
                check_ordered(pair[0].type, node.at, repr(operator), self.source)
            return call(operator, *pair)
        if operator == "||":
            return call("||", *(self._argument(side, s.TEXT, "||", node.at) for side in (left, right)))
        times = self._with_times(node, left, right)
        if times is not None:
            return times
        for side in (left, right):
            if not side.type.is_numeric and side.type.kind is not Kind.NULL:
                raise self.source.invalid(
                    node.at,
                    f"{operator!r} takes numbers, not {left.type} and {right.type}; cast what is none, such as "
                    "CAST(x AS INT)",
                )
        return call(operator, left, right)

    def _with_times(self, node: n.Binary, left: Expression, right: Expression) -> Expression | None:
        """Sums of times and intervals; None where there are none."""
        one, other, operator = left.type.kind, right.type.kind, node.operator
        if Kind.TIME in (one, other) and Kind.INTERVAL_MONTHS in (one, other) and operator in "+-":
            raise self.source.invalid(
                node.at, f"a TIME has no months: {operator!r} takes an interval of hours, ... here"
            )
        if one in t.TEMPORAL and other in t.INTERVALS and operator in "+-":
            return call("PLUS_INTERVAL" if operator == "+" else "MINUS_INTERVAL", left, right)
        if one in t.INTERVALS and other in t.TEMPORAL and operator == "+":
            return call("PLUS_INTERVAL", right, left)
        if one in t.INTERVALS and other is one and operator in "+-":
            return call("ADD_INTERVALS" if operator == "+" else "SUBTRACT_INTERVALS", left, right)
        if one in t.INTERVALS and right.type.is_numeric and operator == "*":
            return call("MULTIPLY_INTERVAL", left, right)
        if other in t.INTERVALS and left.type.is_numeric and operator == "*":
            return call("MULTIPLY_INTERVAL", right, left)
        return None

    def _comparable(self, at: int, operator: str, left: Expression, right: Expression) -> tuple[Expression, Expression]:
        common = comparable_type(left.type, right.type, operator)
        if common is None:
            raise self.source.invalid(at, cannot_be_compared(left.type, right.type))
        return converted(left, common), converted(right, common)

    def _is_test(self, node: n.IsTest) -> Expression:
        if node.what in ("NULL", "UNKNOWN"):
            return call("IS_NOT_NULL" if node.negated else "IS_NULL", self.bind(node.operand))
        test = call(f"IS_{node.what}", self.condition(node.operand, f"IS {node.what}"))
        return call("NOT", test) if node.negated else test

    def _between(self, node: n.Between) -> Expression:
        low = n.Binary(node.at, ">=", node.operand, node.low)
        high = n.Binary(node.at, "<=", node.operand, node.high)
        within: n.Node = n.Binary(node.at, "AND", low, high)
        if node.symmetric:
            other = n.Binary(
                node.at,
                "AND",
                n.Binary(node.at, ">=", node.operand, node.high),
                n.Binary(node.at, "<=", node.operand, node.low),
            )
            within = n.Binary(node.at, "OR", within, other)
        return self.bind(n.Unary(node.at, "NOT", within) if node.negated else within)

    def _in_list(self, node: n.InList) -> Expression:
        operand = self.bind(node.operand)
        items = [self.bind(item) for item in node.items]
        if common_type([item.type for item in items]) is None:
            raise self.source.invalid(node.items[0].at, "the values of IN have no type in common; cast them to one")
        tests = [
            call("=", *self._comparable(item.at, "=", operand, _listed(value, operand.type)))
            for item, value in zip(node.items, items, strict=True)
        ]
        found = chain("OR", tests)
        return call("NOT", found) if node.negated else found

    def _like(self, node: n.Like) -> Expression:
        parts = [node.operand, node.pattern, *([] if node.escape is None else [node.escape])]
        bound = [self._argument(self.bind(part), s.TEXT, node.operator, part.at) for part in parts]
        test = self._made(SCALAR_FUNCTIONS[node.operator], node.operator, node.at, parts, bound)
        return call("NOT", test) if node.negated else test

    # Conditions and casts

    def _case(self, node: n.Case) -> Expression:
        conditions = [
            self.condition(test, "WHEN")
            if node.operand is None
            else self.bind(n.Binary(test.at, "=", node.operand, test))
            for test, _ in node.branches
        ]
        values = [self.bind(value) for _, value in node.branches]
        default = Constant(t.NULL, None) if node.default is None else self.bind(node.default)
        return self._conditional(node.at, conditions, values, default)

    def _conditional(
        self, at: int, conditions: Sequence[Expression], values: Sequence[Expression], default: Expression
    ) -> Expression:
        common = common_type([*(value.type for value in values), default.type])
        if common is None:
            kinds = ", ".join(dict.fromkeys(str(value.type) for value in (*values, default)))
            raise self.source.invalid(at, f"the results have no type in common ({kinds}); cast them to one")
        branches = [(test, converted(value, common)) for test, value in zip(conditions, values, strict=True)]
        return Conditional(common, tuple(branches), converted(default, common))

    def _cast(self, node: n.Cast) -> Expression:
        operand = self.bind(node.operand)
        if not castable(operand.type, node.type):
            raise self.source.invalid(node.at, f"{operand.type} cannot be cast to {node.type}")
        kind = node.type.with_nullable(operand.type.nullable or node.safe)
        if kind.kind is Kind.TIME:
            kind = replace(kind, precision=min(kind.precision, t.DIGITS_OF_TIME))
        return Conversion(kind, operand, node.safe)

    # Calls

    def _call(self, node: n.Call) -> Expression:
        if node.over is not None or node.name in RANKS:
            raise self.source.unsupported(node.at, f"{node.name} with OVER may stand in SELECT only")
        if node.name in AGGREGATES:
            raise self.source.invalid(
                node.at, f"the aggregate {node.name} may not stand here; use it in SELECT or HAVING, or in a subquery"
            )
        if node.star or node.distinct or node.filter is not None or node.within:
            raise self.source.invalid(node.at, f"{node.name} is no aggregate: no *, DISTINCT, FILTER or ORDER BY")
        if any(argument.name is not None for argument in node.arguments):
            raise self.source.unsupported(node.at, f"{node.name} takes no named arguments")
        arguments = [argument.value for argument in node.arguments]
        special = CONDITIONALS.get(node.name)
        if special is not None:
            return special(self, node, arguments)
        return self._function(node, arguments)

    def _function(self, node: n.Call, arguments: Sequence[n.Node]) -> Expression:
        name = node.name
        if name in ("FLOOR", "CEIL", "CEILING") and len(arguments) == 2:
            name = "FLOOR_TO" if name == "FLOOR" else "CEIL_TO"
        function = SCALAR_FUNCTIONS.get(name)
        if function is None or name in OF_OPERATORS or _lacks_words(function, arguments):
            known = [*(name for name in SCALAR_FUNCTIONS if name not in OF_OPERATORS), *AGGREGATES, *CONDITIONALS]
            raise self.source.invalid(node.at, f"there is no function {node.name}{nearest(node.name, known)}")
        if len(arguments) < function.fewest or (function.most is not None and len(arguments) > function.most):
            raise self.source.invalid(node.at, f"{node.name} takes {_counts(function)}, not {len(arguments)}")
        bound = [
            self._argument(self.bind(argument), function.parameter(place), node.name, argument.at)
            for place, argument in enumerate(arguments)
        ]
        if function.units is not None:
            self._check_unit(function, node, bound)
        return self._made(function, node.name, node.at, arguments, bound)

    def _made(
        self, function: s.ScalarFunction, shown: str, at: int, nodes: Sequence[n.Node], bound: Sequence[Expression]
    ) -> FunctionCall:
        """The call of arguments that fit by themselves, if they fit each other."""
        try:
            if function.coerce is not None:
                wanted = function.coerce([argument.type for argument in bound])
                bound = [converted(argument, kind) for argument, kind in zip(bound, wanted, strict=True)]
            if function.check is not None:
                function.check([argument.value if isinstance(argument, Constant) else None for argument in bound])
            return literals.typed_call(call(function.name, *bound))
        except s.MisfitError as error:
            raise self.source.invalid(nodes[error.place].at, f"{shown}{error}") from None
        except TypeError as error:
            raise self.source.invalid(at, f"{shown}: {error}") from None

    def _check_unit(self, function: s.ScalarFunction, node: n.Call, bound: Sequence[Expression]) -> None:
        """Refuses what is no unit of time, or none that the call's time has."""
        unit = node.arguments[function.parameters.index(s.KEYWORD)].value
        assert isinstance(unit, n.Keyword), "the parser makes it one"
        assert function.units is not None, "the function takes units"
        if unit.word not in UNITS:
            raise self.source.invalid(
                unit.at,
                f"{unit.word!r} is no unit of time{nearest(unit.word, UNITS)}; "
                f"{node.name} takes YEAR, MONTH, DAY, HOUR, ...",
            )
        kind = next(argument.type for argument in reversed(bound) if argument.type.kind in function.units)
        taken = function.units[kind.kind]
        if unit.word not in taken:
            raise self.source.invalid(
                unit.at, f"{node.name} takes no {unit.word} of {kind}; it takes {', '.join(sorted(taken))}"
            )

    def _argument(self, bound: Expression, parameter: str, name: str, at: int) -> Expression:
        wanted = s.accepts(parameter, bound.type)
        if wanted is None:
            raise self.source.invalid(at, f"{name} takes {parameter} here, not {bound.type}; cast it")
        return converted(bound, wanted)

    def _constructed(self, node: n.Node) -> Expression:
        match node:
            case n.Constructor(kind="ROW"):
                return call("ROW", *map(self.bind, node.items))
            case n.Constructor(kind="ARRAY"):
                return self._of_common(node.at, "ARRAY", node.items, 1)
            case n.Constructor():
                return self._of_common(node.at, "MAP", node.items, 2)
            case n.Element():
                nodes = (node.operand, node.index)
                return self._made(SCALAR_FUNCTIONS["ELEMENT_AT"], "[...]", node.at, nodes, list(map(self.bind, nodes)))
            case n.FieldOf():
                return field_of(self.bind(node.operand), node.field, self.source)
            case q.Subquery():
                raise self.source.unsupported(
                    node.at, "a query as a value may stand in WHERE, and in SELECT without aggregates; use a join"
                )
            case q.Exists() | q.InQuery() | q.Compared():
                raise self.source.unsupported(
                    node.at,
                    "EXISTS, IN, ANY and ALL with a query may only stand in WHERE, joined by AND; use a join elsewhere",
                )
            case n.Star():
                raise self.source.invalid(node.at, "* may only stand in SELECT and in COUNT(*)")
        raise self.source.invalid(node.at, "this may not stand here")

    def _of_common(self, at: int, name: str, items: Sequence[n.Node], every: int) -> Expression:
        bound = [self.bind(item) for item in items]
        if not bound or len(bound) % every:
            raise self.source.invalid(at, f"{name}[...] needs elements" + (" in pairs" if every == 2 else ""))
        for first in range(every):
            group = bound[first::every]
            common = common_type([item.type for item in group])
            if common is None or (name == "MAP" and not first and common.kind is Kind.NULL):
                raise self.source.invalid(at, f"the elements of {name} have no type in common; cast them")
            bound[first::every] = [converted(item, common) for item in group]
        return call(name, *bound)


def cannot_be_compared(one: SqlType, other: SqlType) -> str:
    """What a message says of two values whose types nobody compares, with a cast of the text where one is."""
    wanted = other if one.is_text else one
    return f"{one} and {other} cannot be compared; cast one of them, such as CAST(x AS {wanted.with_nullable(True)})"


def _listed(value: Expression, operand: SqlType) -> Expression:
    """A value of IN: of texts and numbers, as what it is looked for."""
    if value.type.is_text and operand.is_numeric:
        return converted(value, operand)
    return converted(value, t.STRING) if value.type.is_numeric and operand.is_text else value


def _lacks_words(function: s.ScalarFunction, arguments: Sequence[n.Node]) -> bool:
    """Whether it is called by a name that only the parser gives it, for what SQL writes with words."""
    words = [place for place, parameter in enumerate(function.parameters) if parameter == s.KEYWORD]
    return any(place < len(arguments) and not isinstance(arguments[place], n.Keyword) for place in words)


def _counts(function: s.ScalarFunction) -> str:
    if function.most is None:
        return f"at least {function.fewest} arguments"
    if function.fewest == function.most:
        return f"{function.most} argument{'' if function.most == 1 else 's'}"
    return f"{function.fewest} to {function.most} arguments"


def _coalesce(binder: ExpressionBinder, node: n.Call, arguments: Sequence[n.Node]) -> Expression:
    if not arguments:
        raise binder.source.invalid(node.at, f"{node.name} needs arguments")
    values = [binder.bind(argument) for argument in arguments]
    found = binder._conditional(node.at, [call("IS_NOT_NULL", v) for v in values[:-1]], values[:-1], values[-1])
    nullable = all(value.type.nullable for value in values)
    if isinstance(found, Conditional):
        return Conditional(found.type.with_nullable(nullable), found.branches, found.default)
    return found


def _if(binder: ExpressionBinder, node: n.Call, arguments: Sequence[n.Node]) -> Expression:
    if len(arguments) != 3:
        raise binder.source.invalid(node.at, f"IF takes 3 arguments, not {len(arguments)}")
    test, value, other = arguments
    return binder._conditional(node.at, [binder.condition(test, "IF")], [binder.bind(value)], binder.bind(other))


def _null_if(binder: ExpressionBinder, node: n.Call, arguments: Sequence[n.Node]) -> Expression:
    if len(arguments) != 2:
        raise binder.source.invalid(node.at, f"NULLIF takes 2 arguments, not {len(arguments)}")
    test = binder.bind(n.Binary(node.at, "=", *arguments))
    value = binder.bind(arguments[0])
    return binder._conditional(node.at, [test], [Constant(t.NULL, None)], value)


def _type_of(binder: ExpressionBinder, node: n.Call, arguments: Sequence[n.Node]) -> Expression:
    if len(arguments) not in (1, 2):
        raise binder.source.invalid(node.at, f"TYPEOF takes 1 or 2 arguments, not {len(arguments)}")
    if len(arguments) == 2 and not isinstance(arguments[1], n.BooleanLiteral):
        # Whether types without a text in SQL may come; there are none here.
        raise binder.source.invalid(arguments[1].at, "the second argument of TYPEOF is TRUE or FALSE")
    return Constant(t.STRING, t.summary(binder.bind(arguments[0]).type))


def _overlaps(binder: ExpressionBinder, node: n.Call, arguments: Sequence[n.Node]) -> Expression:
    """Whether two periods, each from one time to another or for an interval, have a time in common."""
    at = node.at
    ends = []
    for begin, end in (arguments[:2], arguments[2:]):
        other = n.Binary(at, "+", begin, end) if binder.bind(end).type.kind in t.INTERVALS else end
        both = (n.Argument(begin.at, begin), n.Argument(end.at, other))
        ends.append([n.Call(at, name, both) for name in ("LEAST", "GREATEST")])
    (first, last), (other_first, other_last) = ends
    one, two = n.Binary(at, ">=", last, other_first), n.Binary(at, ">=", other_last, first)
    return binder.bind(n.Binary(at, "AND", one, two))


CONDITIONALS: Final[dict[str, Callable[[ExpressionBinder, n.Call, Sequence[n.Node]], Expression]]] = {
    "COALESCE": _coalesce,
    "IFNULL": _coalesce,
    "IF": _if,
    "NULLIF": _null_if,
    "OVERLAPS": _overlaps,
    "OBJECT_OF": object_of,
    "OBJECT_UPDATE": object_update,
    "TYPEOF": _type_of,
}
"""What binds the calls of functions that need not compute all their arguments, or none."""


def _user_call(binder: ExpressionBinder, node: n.UserCall) -> UserCall:
    """The bound call.

    Raises:
        SqlValidationError: no argument, or one of a type that the function does not take.
    """
    function = node.function
    if function.kind is UserFunctionKind.COLUMNS and not node.arguments:
        raise binder.source.invalid(
            node.at, f"{node.name} is called with columns, which say how many rows there are; give it one, or use udf"
        )
    if function.kind is UserFunctionKind.AGGREGATE:
        arguments = tuple(binder.bind(value) for value in node.arguments)
    else:
        arguments = tuple(_typed(binder, value) for value in typed_arguments(node.arguments, node.name, function))
    return UserCall(function.returns.with_nullable(True), node.name, function, arguments)


def _typed(binder: ExpressionBinder, node: n.Typed) -> Expression:
    """An argument as the type that a function takes, where that loses nothing."""
    bound = binder.bind(node.value)
    if node.type is None:
        return bound
    common = common_type([bound.type, node.type])
    if common is None or not common.same_as(node.type):
        raise binder.source.invalid(
            node.at, f"{node.function} takes {node.type} here, not {bound.type.with_nullable(True)}; cast it"
        )
    return converted(bound, node.type)
