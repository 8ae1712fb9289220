"""Reads expressions, by precedence climbing: OR, AND, NOT, comparisons, ||, + -, * / %, signs, then what stands alone.

Source: Pratt, "Top Down Operator Precedence", 1973; the order of operators is Calcite's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.json_calls import JSON_AGGREGATES, JSON_CALLS, gathered_json, json_call
from penstock.tables.parse.list_calls import OF_LISTS, list_call
from penstock.tables.parse.special_calls import SPECIAL_CALLS
from penstock.tables.parse.tokens import TokenKind
from penstock.tables.parse.type_parser import parse_type

_COMPARISONS: Final = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_BINARY: Final = ({"||"}, {"+", "-"}, {"*", "/", "%"})
"""From loose to tight."""
_BARE_CALLS: Final = frozenset(
    {
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "LOCALTIME",
        "LOCALTIMESTAMP",
        "CURRENT_ROW_TIMESTAMP",
        "CURRENT_DATABASE",
    }
)
"""Functions that are called without brackets."""
_UNITS: Final = frozenset(
    {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND"}
)
_NULLS_PASSED_OVER: Final = {"IGNORE": ("ARRAY_AGG", "FIRST_VALUE", "LAST_VALUE"), "RESPECT": ("ARRAY_AGG",)}
"""Which aggregates may say so."""
_LENGTHS: Final = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})
"""Words that no alias is without backticks, so that behind a bracket they are the unit of an interval."""
_JSON_KINDS: Final = frozenset({"VALUE", "OBJECT", "ARRAY", "SCALAR"})
_QUERY_STARTS: Final = frozenset({"SELECT", "WITH", "VALUES"})


class ExpressionParser:
    """Takes expressions from the cursor.

    Args:
        cursor: shared with the parsers of queries and statements.
        parse_query: takes a query, for those in brackets.
    """

    def __init__(self, cursor: Cursor, parse_query: Callable[[], q.Query]) -> None:
        self.cursor = cursor
        self.parse_query = parse_query

    def expression(self) -> n.Node:
        """Any expression."""
        return self._chain("OR", self._conjunction)

    def operand(self) -> n.Node:
        """An expression without comparisons, AND, OR and NOT, such as stands on a side of one."""
        return self._binary(0)

    def _conjunction(self) -> n.Node:
        return self._chain("AND", self._negation)

    def _chain(self, operator: str, operand: Callable[[], n.Node]) -> n.Node:
        """Operands between AND or OR, as a tree that thousands of them do not make deep."""
        parts, places = [operand()], []
        while self.cursor.sees(operator):
            places.append(self.cursor.take().at)
            parts.append(operand())
        return _balanced(operator, parts, places)

    def _negation(self) -> n.Node:
        if self.cursor.sees("NOT"):
            at = self.cursor.take().at
            return n.Unary(at, "NOT", self._negation())
        return self._predicate()

    def _predicate(self) -> n.Node:
        left = self.operand()
        while True:
            cursor, token = self.cursor, self.cursor.token
            if token.word in _COMPARISONS:
                cursor.take()
                operator = "<>" if token.word == "!=" else token.word
                if cursor.sees_any(frozenset({"ALL", "ANY", "SOME"})):
                    left = self._quantified(token.at, left, operator)
                    continue
                left = n.Binary(token.at, operator, left, self._side())
            elif token.word == "IS":
                left = self._is(left)
            elif token.word == "OVERLAPS" and _is_period(left):
                left = self._overlaps(left)
            elif token.word == "NOT" or token.word in ("BETWEEN", "IN", "LIKE", "SIMILAR"):
                left = self._membership(left)
            else:
                return left

    def _side(self) -> n.Node:
        """The right side of a comparison; `a = NOT b` compares with the opposite."""
        return self._negation() if self.cursor.sees("NOT") else self.operand()

    def _overlaps(self, left: n.Node) -> n.Node:
        cursor, at = self.cursor, self.cursor.take().at
        right = self.operand()
        if not isinstance(left, n.Constructor) or not isinstance(right, n.Constructor) or not _is_period(right):
            raise cursor.expected("(begin, end) or (begin, interval)", "behind OVERLAPS")
        return n.Call(at, "OVERLAPS", tuple(n.Argument(one.at, one) for one in (*left.items, *right.items)))

    def _quantified(self, at: int, operand: n.Node, operator: str) -> n.Node:
        """`= ANY (query)` is IN, and `<> ALL (query)` is NOT IN."""
        cursor = self.cursor
        word = cursor.take().word
        cursor.expect("(", where=f"behind {word}")
        query = self.parse_query()
        cursor.expect(")", where=f"behind the query of {word}")
        every = word == "ALL"
        if (operator, every) in (("=", False), ("<>", True)):
            return q.InQuery(at, operand, query, every)
        return q.Compared(at, operator, operand, every, query)

    def _is(self, operand: n.Node) -> n.Node:
        at = self.cursor.take().at
        negated = self.cursor.accept("NOT")
        if self.cursor.accept("DISTINCT", "FROM"):
            return n.IsDistinct(at, operand, self._side(), negated)
        for what in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            if self.cursor.accept(what):
                return n.IsTest(at, operand, what, negated)
        if self.cursor.accept("JSON"):
            kind = self.cursor.take().word if self.cursor.sees_any(_JSON_KINDS) else ""
            arguments = (n.Argument(at, operand), n.Argument(at, n.Keyword(at, kind or "VALUE")))
            test = n.Call(at, "IS_JSON", arguments)
            call = n.Call(at, "COALESCE", (n.Argument(at, test), n.Argument(at, n.BooleanLiteral(at, False))))
            return n.Unary(at, "NOT", call) if negated else call
        raise self.cursor.expected("NULL, TRUE, FALSE, UNKNOWN, JSON or DISTINCT FROM", "behind IS")

    def _membership(self, operand: n.Node) -> n.Node:
        cursor, at = self.cursor, self.cursor.at
        negated = cursor.accept("NOT")
        if cursor.accept("BETWEEN"):
            symmetric = cursor.accept("SYMMETRIC")
            cursor.accept("ASYMMETRIC")
            low = self.operand()
            cursor.expect("AND", where="between the bounds of BETWEEN")
            return n.Between(at, operand, low, self.operand(), negated, symmetric)
        if cursor.accept("IN"):
            return self._in(at, operand, negated)
        for operator in ("LIKE", "SIMILAR"):
            if cursor.accept(operator):
                if operator == "SIMILAR":
                    cursor.expect("TO", where="behind SIMILAR")
                pattern = self.operand()
                escape = self.operand() if cursor.accept("ESCAPE") else None
                return n.Like(at, operator, operand, pattern, escape, negated)
        raise cursor.expected("BETWEEN, IN, LIKE or SIMILAR TO", "behind NOT")

    def _in(self, at: int, operand: n.Node, negated: bool) -> n.Node:
        cursor = self.cursor
        cursor.expect("(", where="behind IN")
        if cursor.sees_any(_QUERY_STARTS):
            query = self.parse_query()
            cursor.expect(")", where="behind the query of IN")
            return q.InQuery(at, operand, query, negated)
        items = cursor.listed(self.expression)
        cursor.expect(")", where="behind the list of IN")
        return n.InList(at, operand, items, negated)

    def _binary(self, level: int) -> n.Node:
        if level == len(_BINARY):
            return self._signed()
        left = self._binary(level + 1)
        while self.cursor.token.kind is TokenKind.SIGN and self.cursor.token.text in _BINARY[level]:
            token = self.cursor.take()
            left = n.Binary(token.at, token.text, left, self._binary(level + 1))
        return left

    def _signed(self) -> n.Node:
        if self.cursor.sees("-") or self.cursor.sees("+"):
            token = self.cursor.take()
            return n.Unary(token.at, token.text, self._signed())
        return self._postfix(self._primary())

    def _postfix(self, operand: n.Node) -> n.Node:
        cursor = self.cursor
        while True:
            if cursor.sees("["):
                at = cursor.take().at
                operand = n.Element(at, operand, self.expression())
                cursor.expect("]", where="behind the index")
            elif cursor.sees(".") and (not isinstance(operand, n.Name) or cursor.ahead(-1).text == ")"):
                cursor.take()
                operand = n.FieldOf(operand.at, operand, cursor.field_name())
            else:
                return operand

    def _primary(self) -> n.Node:
        cursor, token = self.cursor, self.cursor.token
        match token.kind:
            case TokenKind.NUMBER:
                return n.NumberLiteral(token.at, cursor.take().text)
            case TokenKind.STRING:
                return n.StringLiteral(token.at, cursor.take().text)
            case TokenKind.SIGN if token.text == "(":
                return self._bracketed()
            case TokenKind.WORD:
                found = self._worded()
                if found is not None:
                    return found
        if token.word == "*":
            cursor.take()
            return n.Star(token.at)
        if not cursor.sees_name():
            raise cursor.expected("an expression")
        return self._named()

    def _bracketed(self) -> n.Node:
        cursor, at = self.cursor, self.cursor.take().at
        if cursor.sees_any(_QUERY_STARTS):
            query = self.parse_query()
            cursor.expect(")", where="behind the query")
            return q.Subquery(at, query)
        items = cursor.listed(self.expression)
        cursor.expect(")", where="to close the bracket")
        if len(items) > 1:
            return n.Constructor(at, "ROW", items)
        found = items[0]
        if isinstance(found, n.Binary) and found.operator == "-" and cursor.sees_any(_LENGTHS):
            return self._distance(found)
        return found

    def _distance(self, difference: n.Binary) -> n.Node:
        """The difference of two times as an interval: `(a - b) SECOND`."""
        first = self._unit()
        last = self._unit() if self.cursor.accept("TO") else first
        name = "MONTHS_BETWEEN" if {first, last} <= {"YEAR", "MONTH"} else "TIME_BETWEEN"
        ends = (difference.right, difference.left)
        return n.Call(difference.at, name, tuple(n.Argument(end.at, end) for end in ends))

    def _bytes(self) -> n.Node:
        token = self.cursor.take()
        try:
            return n.BytesLiteral(token.at, bytes.fromhex(token.text))
        except ValueError:
            raise self.cursor.source.syntax(
                token.at, "bytes are written with two digits each, such as X'45F0'"
            ) from None

    def _worded(self) -> n.Node | None:
        """What begins with a word of its own; None for names."""
        cursor, token = self.cursor, self.cursor.token
        behind = cursor.ahead(1)
        match token.word:
            case "X" if behind.kind is TokenKind.STRING:
                cursor.take()
                return self._bytes()
            case "NULL":
                return n.NullLiteral(cursor.take().at)
            case "TRUE" | "FALSE" | "UNKNOWN":
                cursor.take()
                return n.BooleanLiteral(token.at, {"TRUE": True, "FALSE": False}.get(token.word))
            case "CASE":
                return self._case()
            case "CAST" | "TRY_CAST" if behind.word == "(":
                return self._cast()
            case "EXISTS":
                return self._exists()
            case "INTERVAL":
                return self._interval()
            case "DATE" | "TIME" | "TIMESTAMP" if behind.kind is TokenKind.STRING:
                cursor.take()
                return n.TemporalLiteral(token.at, token.word, cursor.take().text)
            case "ARRAY" | "MAP" if behind.word == "[":
                return self._collection()
            case "ROW" if behind.word == "(":
                cursor.take()
                return n.Constructor(token.at, "ROW", cursor.in_brackets(self.expression))
            case "DESCRIPTOR" if behind.word == "(":
                cursor.take()
                return n.Descriptor(token.at, cursor.in_brackets(cursor.identifier))
            case "LEFT" | "RIGHT" | "GROUPING" | "ANY" if behind.word == "(":
                return self._call()
        if token.word in _BARE_CALLS and behind.word != "(":
            cursor.take()
            return n.Call(token.at, token.word, ())
        if behind.word == "(" and cursor.sees_name():
            return self._call()
        return None

    def _named(self) -> n.Node:
        cursor = self.cursor
        parts = [cursor.identifier("an expression")]
        while cursor.accept("."):
            if cursor.sees("*"):
                cursor.take()
                return n.Star(parts[0].at, n.Name(parts[0].at, tuple(parts)))
            parts.append(cursor.field_name())
        return n.Name(parts[0].at, tuple(parts))

    def _case(self) -> n.Node:
        cursor, at = self.cursor, self.cursor.take().at
        operand = None if cursor.sees("WHEN") else self.expression()
        branches: list[tuple[n.Node, n.Node]] = []
        while cursor.accept("WHEN"):
            # CASE with a value may compare it with several: WHEN 1, 2 THEN.
            tests = (self.expression(),) if operand is None else cursor.listed(self.expression)
            cursor.expect("THEN", where="behind the condition of WHEN")
            value = self.expression()
            branches += [(test, value) for test in tests]
        if not branches:
            raise cursor.expected("WHEN", "behind CASE")
        default = self.expression() if cursor.accept("ELSE") else None
        cursor.expect("END", where="at the end of CASE")
        return n.Case(at, operand, tuple(branches), default)

    def _cast(self) -> n.Node:
        cursor, token = self.cursor, self.cursor.take()
        cursor.expect("(")
        operand = self.expression()
        cursor.expect("AS", where=f"behind the value of {token.word}")
        kind = parse_type(cursor)
        cursor.expect(")", where=f"behind the type of {token.word}")
        return n.Cast(token.at, operand, kind, token.word == "TRY_CAST")

    def _exists(self) -> n.Node:
        cursor, at = self.cursor, self.cursor.take().at
        cursor.expect("(", where="behind EXISTS")
        query = self.parse_query()
        cursor.expect(")", where="behind the query of EXISTS")
        return q.Exists(at, query)

    def _interval(self) -> n.Node:
        cursor, at = self.cursor, self.cursor.take().at
        negative = cursor.accept("-")
        text = cursor.string("a number in quotes, such as INTERVAL '5' MINUTE,")
        first = self._unit()
        last = self._unit() if cursor.accept("TO") else first
        return n.IntervalLiteral(at, text, negative, first, last)

    def _unit(self) -> str:
        cursor = self.cursor
        word = cursor.token.word
        unit = word[:-1] if word.endswith("S") else word
        if unit not in _UNITS:
            raise cursor.expected("a unit (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND)", "in the interval")
        cursor.take()
        if cursor.accept("("):
            cursor.whole_number("a number of digits")
            if cursor.accept(","):
                cursor.whole_number("a number of digits")
            cursor.expect(")")
        return unit

    def _collection(self) -> n.Node:
        cursor, token = self.cursor, self.cursor.take()
        cursor.expect("[")
        items = () if cursor.sees("]") else cursor.listed(self.expression)
        cursor.expect("]", where=f"at the end of {token.word}")
        return n.Constructor(token.at, "ARRAY" if token.word == "ARRAY" else "MAP", items)

    # Calls

    def call(self) -> n.Call:
        """A call of a function, where no other expression may stand."""
        token = self.cursor.token
        found = self._call()
        if not isinstance(found, n.Call):
            raise self.cursor.source.syntax(token.at, "expected a call of a table function")
        return found

    def _call(self) -> n.Node:
        cursor, token = self.cursor, self.cursor.take()
        name = token.text.upper()
        cursor.expect("(")
        if name in JSON_CALLS:
            return json_call(self, token.at, name)
        if name in JSON_AGGREGATES:
            return gathered_json(self, token.at, name)
        special = SPECIAL_CALLS.get(name)
        if special is not None:
            arguments = special(self, token.at)
            if arguments is not None:
                cursor.expect(")", where=f"at the end of {name}")
                return n.Call(token.at, name, arguments)
        distinct = cursor.accept("DISTINCT")
        if not distinct:
            cursor.accept("ALL")
        star = cursor.accept("*")
        arguments = () if star or cursor.sees(")") else cursor.listed(self._argument)
        if distinct and not arguments:
            raise cursor.expected("an expression", "behind DISTINCT")
        passed_over = self._null_treatment(name)
        within = self.order_by() if cursor.sees("ORDER") else ()
        cursor.expect(")", where=f"behind the arguments of {name}")
        if passed_over:
            return self.behind_call(n.Call(token.at, name, arguments, distinct, star, within=within), True)
        if name in OF_LISTS:
            return list_call(self, token.at, name, arguments, distinct)
        if name == "APPROX_COUNT_DISTINCT":
            # What is exact is approximate as well.
            return self.behind_call(n.Call(token.at, "COUNT", arguments, True, star, within=within, said=name))
        return self.behind_call(n.Call(token.at, name, arguments, distinct, star, within=within))

    def _null_treatment(self, name: str) -> bool:
        """Whether an aggregate passes over nulls because IGNORE NULLS says so, where it does not do so by itself."""
        cursor, at = self.cursor, self.cursor.at
        for treatment in ("IGNORE", "RESPECT"):
            if cursor.accept(treatment, "NULLS"):
                if name not in _NULLS_PASSED_OVER.get(treatment, ()):
                    raise cursor.source.unsupported(
                        at,
                        f"{name} takes no {treatment} NULLS: ARRAY_AGG takes both, FIRST_VALUE and LAST_VALUE pass "
                        "over nulls",
                    )
                return treatment == "IGNORE" and name == "ARRAY_AGG"
        return False

    def behind_call(self, call: n.Call, passes_nulls: bool = False) -> n.Call:
        """A call with what follows its brackets: WITHIN GROUP, FILTER, IGNORE NULLS, OVER."""
        cursor = self.cursor
        within, condition, over = call.within, None, None
        if cursor.accept("WITHIN", "GROUP"):
            cursor.expect("(")
            within = self.order_by()
            cursor.expect(")")
        if cursor.sees("FILTER", "("):
            cursor.take()
            cursor.expect("(", "WHERE")
            condition = self.expression()
            cursor.expect(")", where="behind the condition of FILTER")
        if self._null_treatment(call.name) or passes_nulls:
            value = call.arguments[0].value
            given = n.IsTest(value.at, value, "NULL", True)
            condition = given if condition is None else n.Binary(value.at, "AND", condition, given)
        if cursor.accept("OVER"):
            over = self.over()
        return replace(call, filter=condition, over=over, within=within)

    def _argument(self) -> n.Argument:
        cursor, at = self.cursor, self.cursor.at
        name = None
        if cursor.ahead(1).word == "=>" and cursor.sees_name():
            name = cursor.take().text.upper()
            cursor.take()
        return n.Argument(at, self._argument_value(), name)

    def _argument_value(self) -> n.Node:
        cursor, at = self.cursor, self.cursor.at
        if cursor.accept("TABLE"):
            if cursor.accept("("):
                table: n.Name | q.Query = self.parse_query()
                cursor.expect(")", where="behind the query")
            else:
                table = cursor.name("the name of a table")
            return q.TableArgument(at, table, self._partition_by())
        if cursor.sees("(") and cursor.ahead(1).word in _QUERY_STARTS:
            found = self.expression()
            partitions = self._partition_by()
            return (
                q.TableArgument(at, found.query, partitions) if isinstance(found, q.Subquery) and partitions else found
            )
        return self.expression()

    def _partition_by(self) -> tuple[n.Node, ...]:
        cursor = self.cursor
        if not cursor.accept("PARTITION", "BY"):
            return ()
        if cursor.sees("("):
            return cursor.in_brackets(self.expression)
        columns: list[n.Node] = [cursor.name("a column")]
        # Without brackets, a comma may also begin the next argument: `PARTITION BY a, DESCRIPTOR(t)`.
        while cursor.sees(",") and cursor.ahead(1).word != "DESCRIPTOR" and cursor.ahead(2).word not in ("(", "=>"):
            cursor.take()
            columns.append(cursor.name("a column"))
        return tuple(columns)

    # Windows of OVER, and order

    def over(self) -> n.Over:
        """What stands behind OVER."""
        cursor = self.cursor
        if not cursor.sees("("):
            return n.Over(cursor.at, reference=cursor.identifier("( or the name of a window"))
        at = cursor.take().at
        partition_by: tuple[n.Node, ...] = ()
        if cursor.accept("PARTITION"):
            cursor.expect("BY", where="behind PARTITION")
            partition_by = cursor.listed(self.expression)
        order_by = self.order_by() if cursor.sees("ORDER") else ()
        frame = self._frame() if cursor.sees("ROWS") or cursor.sees("RANGE") else None
        cursor.expect(")", where="at the end of OVER")
        return n.Over(at, partition_by, order_by, frame)

    def order_by(self) -> tuple[n.OrderItem, ...]:
        """`ORDER BY ...`."""
        self.cursor.expect("ORDER", "BY")
        return self.cursor.listed(self._order_item)

    def _order_item(self) -> n.OrderItem:
        cursor, at = self.cursor, self.cursor.at
        value = self.expression()
        descending = cursor.accept("DESC")
        if not descending:
            cursor.accept("ASC")
        nulls_first = None
        if cursor.accept("NULLS", "FIRST"):
            nulls_first = True
        elif cursor.accept("NULLS", "LAST"):
            nulls_first = False
        return n.OrderItem(at, value, descending, nulls_first)

    def _frame(self) -> n.Frame:
        cursor, token = self.cursor, self.cursor.take()
        if cursor.accept("BETWEEN"):
            begin = self._bound()
            cursor.expect("AND", where="between the bounds of the frame")
            return n.Frame(token.at, token.word, begin, self._bound())
        begin = self._bound()
        return n.Frame(token.at, token.word, begin, n.FrameBound(token.at, "CURRENT"))

    def _bound(self) -> n.FrameBound:
        cursor, at = self.cursor, self.cursor.at
        if cursor.accept("CURRENT", "ROW"):
            return n.FrameBound(at, "CURRENT")
        value = None
        unbounded = cursor.accept("UNBOUNDED")
        if not unbounded:
            value = self.operand()
        for direction in ("PRECEDING", "FOLLOWING"):
            if cursor.accept(direction):
                return n.FrameBound(at, direction, unbounded, value)
        raise cursor.expected("PRECEDING or FOLLOWING", "behind the bound of the frame")


def _is_period(node: n.Node) -> bool:
    return isinstance(node, n.Constructor) and node.kind == "ROW" and len(node.items) == 2


def _balanced(operator: str, parts: Sequence[n.Node], places: Sequence[int]) -> n.Node:
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    left, right = (_balanced(operator, *side) for side in ((parts[:half], places), (parts[half:], places[half:])))
    return n.Binary(places[half - 1], operator, left, right)
