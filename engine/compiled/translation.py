"""Translates a Python function of a row into one of its columns that can be compiled without a guess.

`program` calls it when the graph is built and once in each subtask. Every expression has one kind (`kinds`) on all ways
through the function; what has not is refused with its line, so that nothing that compiles means something else than in
Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.engine.compiled.kinds import (
    BOOL,
    FLOAT,
    INT,
    TEXT,
    WORD,
    Kind,
    Number,
    Opaque,
    Text,
    Time,
    is_passed_on,
    is_text,
    kind_of,
    shown,
)
from penstock.engine.compiled.narrowing import assigned_in, doubted_in, shown_by
from penstock.engine.compiled.sources import outer_names, source_of
from penstock.engine.errors import GraphError, nearest

_CHECKED: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "modulo",
}
_PLAIN: Final[Mapping[type[ast.operator], str]] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_BITS: Final[Mapping[type[ast.operator], str]] = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
SIGNS: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


ZEROS: Final[Mapping[Kind, int | float | bool | str]] = {INT: 0, FLOAT: 0.0, BOOL: False, TEXT: ""}
"""The values that Python takes for false; they also lie in the place of one that is missing."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A function of a row in terms of columns.

    Attributes:
        source: statements for row `i`, as `machine_code` takes them: the value of column 0 is `c_0[i]`, and the first
            result becomes `out_0[i]`.
        columns: the columns whose values it takes, in this order.
        coded: those of them whose texts all need a number, not those alone that stand in the function.
        tested: those that are tested for None.
        words: the texts that stand in it, by number.
        results: kind of each result by name; of a condition, one without a name.
    """

    source: str
    columns: tuple[str, ...]
    coded: frozenset[str]
    tested: frozenset[str]
    words: tuple[str, ...]
    results: Mapping[str, Kind]


class MayBeNone(NamedTuple):
    """An expression that may be None: code that says whether it is not, and code of its value."""

    is_given: str
    value: str
    kind: Kind


def translate(function: Callable[..., Any], schema: pa.Schema) -> Translation:
    """The function in terms of the columns of `schema`.

    Raises:
        GraphError: it does what compiled functions cannot; names the line, the reason and the remedy.

    Example:
        >>> def double(row):
        ...     return {"n": row["n"] * 2}
        >>> translate(double, pa.schema([("n", pa.int64())])).columns
        ('n',)
    """
    tree, place, lines_before = source_of(function, 1)
    return Translator(schema, tree.args.args[0].arg, outer_names(function), place, lines_before).function(tree)


@dataclass
class Translator:
    """Walks through one function.

    Of its variables `kinds` are the kinds, `bound` those that were assigned to on all ways to here, `nullable` those to
    which None may be, and `doubtful` those of them that may be None here; texts in `rewritten` ones come from several
    places, and those in `doubted` are compared with None. So are the columns in `tested`: to read a null of them as a
    value leaves the batch to plain Python.
    """

    schema: pa.Schema
    row: str
    outer: Mapping[str, Any]
    place: str
    lines_before: int
    columns: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    kinds: dict[str, Kind] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    nullable: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    rewritten: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()
    tested: frozenset[str] = frozenset()
    coded: set[str] = field(default_factory=set)
    results: dict[str, Kind] | None = None

    def function(self, tree: ast.FunctionDef) -> Translation:
        self._look_ahead(tree)
        body, returns = self._block(without_docstring(tree.body), 0)
        if not returns or self.results is None:
            raise self._refused(tree, "a way through the function ends without `return`", "return something on each")
        words = tuple(self.words)
        return Translation(
            "\n".join(body), tuple(self.columns), frozenset(self.coded), self.tested, words, self.results
        )

    def _look_ahead(self, tree: ast.FunctionDef) -> None:
        assigned = assigned_in(tree.body)
        self.rewritten = frozenset(name for name in assigned if assigned.count(name) > 1)
        doubted = doubted_in(tree.body)
        self.doubted = frozenset(node.id for node in doubted if isinstance(node, ast.Name))
        doubted += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and not self.doubted.isdisjoint(assigned_in([node]))
        ]
        columns = {column for node in doubted if (column := self._column_of(node))}
        self.tested = frozenset(columns.intersection(self.schema.names))

    def _column_of(self, node: ast.expr) -> str:
        """The column whose value the expression is; "" for anything else."""
        match node:
            case ast.Subscript(value=ast.Name(id=self.row), slice=ast.Constant(value=str() as column)):
                return column
        return ""

    def _block(self, statements: Sequence[ast.stmt], depth: int) -> tuple[list[str], bool]:
        """The lines of the statements, and whether they always return."""
        lines: list[str] = []
        returns = False
        for statement in statements:
            more, returns = self._statement(statement)
            lines += ["    " * depth + line for line in more]
            if returns:
                break
        return lines, returns

    def _statement(self, node: ast.stmt) -> tuple[list[str], bool]:
        match node:
            case ast.Return(value=ast.expr() as value):
                return self._return(node, value), True
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return self._assigned(node, name, value), False
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                return self._assigned(node, name, value), False
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                computed = ast.copy_location(ast.BinOp(ast.copy_location(ast.Name(name), node), operator, value), node)
                return self._assigned(node, name, computed), False
            case ast.If():
                return self._if(node)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range")) as call, orelse=[]):
                return self._for(node, name, call)
            case ast.While(orelse=[]):
                self._doubt_what_changes(node.body)
                return self._loop([f"while {self._of(node.test, BOOL)}:"], node.body)
            case ast.Pass() | ast.Break() | ast.Continue():
                return [type(node).__name__.lower()], False
        raise self._refused(
            node, f"`{type(node).__name__}` is not compiled", "use assignments, if, for, while and return"
        )

    def _if(self, node: ast.If) -> tuple[list[str], bool]:
        test, shows = self._of(node.test, BOOL), shown_by(node.test)
        bound, doubtful = set(self.bound), set(self.doubtful)
        self.doubtful -= shows.if_true
        body, body_returns = self._block(node.body, 1)
        bound_by_body, self.bound = self.bound, bound
        doubtful_by_body, self.doubtful = self.doubtful, doubtful - shows.if_false
        other, other_returns = self._block(node.orelse, 1)
        if other_returns:
            self.bound, self.doubtful = bound_by_body, doubtful_by_body
        elif not body_returns:
            self.bound &= bound_by_body
            self.doubtful |= doubtful_by_body
        lines = [f"if {test}:", *body, *(["else:", *other] if other else [])]
        return lines, body_returns and other_returns

    def _for(self, node: ast.For, name: str, call: ast.Call) -> tuple[list[str], bool]:
        if not 1 <= len(call.args) <= 2 or call.keywords:
            raise self._refused(node, "`range` takes one or two ints here", "multiply within the loop for steps")
        self._check_own(node, "range")
        ends = ", ".join(self._of(bound, INT) for bound in call.args)
        number, before = f"n_{name}", set(self.bound)
        first = self._assign(node, name, number, INT)
        lines = self._loop([f"for {number} in range({ends}):", *(f"    {line}" for line in first)], node.body)
        # A loop of no rounds gives its variable no value.
        self.bound = before
        return lines

    def _loop(self, head: list[str], body: Sequence[ast.stmt]) -> tuple[list[str], bool]:
        self._doubt_what_changes(body)
        bound, doubtful = set(self.bound), set(self.doubtful)
        lines, _ = self._block(body, 1)
        self.bound = bound
        self.doubtful |= doubtful
        return [*head, *lines], False

    def _doubt_what_changes(self, body: Sequence[ast.stmt]) -> None:
        """What a loop assigns to may be None in its next round."""
        self.doubtful.update(self.nullable.intersection(assigned_in(body)))

    def _check_own(self, node: ast.AST, name: str) -> None:
        """A name of Python's own may mean something else in the function."""
        if name in self.outer or name in self.kinds or name == self.row:
            raise self._refused(node, f"{name!r} is not Python's own here", "give what hides it another name")

    def _assigned(self, node: ast.stmt, name: str, value: ast.expr) -> list[str]:
        optional = self._may_be_none(value)
        if optional is None or not self._stays_open(name, value):
            return self._assign(node, name, *self._expression(value))
        if name in self.kinds and name not in self.nullable:
            raise self._refused(
                node, f"{name!r} may be None here, and is {shown(self.kinds[name])} above", "give it another name"
            )
        self.nullable.add(name)
        lines = [f"g_{name} = {optional.is_given}", f"v_{name} = {optional.value}"]
        self._assign(node, name, optional.value, optional.kind)
        self.doubtful.add(name)
        return lines

    def _stays_open(self, name: str, value: ast.expr) -> bool:
        """Whether None may be assigned, of what may be None by itself; what replaces None by a column means a value."""
        if isinstance(value, ast.Name):
            return value.id in self.doubtful
        return not self._column_of(value) or (name in self.doubted and name not in self.kinds)

    def _assign(self, node: ast.stmt, name: str, value: str, kind: Kind) -> list[str]:
        if name in self.rewritten and is_text(kind):
            self._code(kind)
            kind = TEXT
        known = self.kinds.setdefault(name, kind)
        if known != kind:
            raise self._refused(
                node, f"{name!r} is {shown(known)} above and {shown(kind)} here", "give it another name"
            )
        if name == self.row:
            raise self._refused(node, f"{name!r} is the row", "give the variable another name")
        self.bound.add(name)
        self.doubtful.discard(name)
        return [f"v_{name} = {value}", *([f"g_{name} = True"] if name in self.nullable else [])]

    def _code(self, kind: Kind) -> None:
        """Texts of this kind are needed by number, whatever they are."""
        if isinstance(kind, Text):
            self.coded.add(kind.column)

    def _return(self, node: ast.Return, value: ast.expr) -> list[str]:
        if isinstance(value, ast.Dict):
            results, codes = self._row(value)
        else:
            code, kind = self._expression(value)
            results, codes = {"": kind}, [code]
        self._check_same(node, self.results, results)
        self.results = results
        made = zip(result_arrays("out", results), computed_codes(results, codes), strict=True)
        return [*(f"{array}[i] = {code}" for array, code in made), "return True"]

    def _row(self, row: ast.Dict) -> tuple[dict[str, Kind], list[str]]:
        """The kinds of a result by name, and their code."""
        results: dict[str, Kind] = {}
        codes = []
        for key, value in zip(row.keys, row.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else None
            if not isinstance(name, str) or name in results:
                raise self._refused(value, "the names of a result are texts, each once", 'write {"name": value}')
            code, results[name] = self._expression(value)
            codes.append(code)
        return results, codes

    def _check_same(self, node: ast.AST, known: Mapping[str, Kind] | None, results: Mapping[str, Kind]) -> None:
        if known is None or list(known.items()) == list(results.items()):
            return
        if list(known) != list(results):
            problem = f"the result has the names {', '.join(results)}, and further up {', '.join(known)}"
            raise self._refused(node, problem, "give the same ones in the same order everywhere")
        name = next(name for name in results if results[name] != known[name])
        both = f"{shown(results[name])}, and further up {shown(known[name])}"
        if is_text(results[name]) and is_text(known[name]):
            both = "a text that comes from elsewhere than further up"
        raise self._refused(node, f"{name!r} of the result is {both}", "give it from one variable everywhere")

    def _of(self, node: ast.expr, wanted: Kind) -> str:
        code, kind = self._expression(node)
        if wanted == TEXT and is_text(kind):
            self._code(kind)
        elif kind != wanted:
            remedy = "compare it, such as `x != 0`" if wanted == BOOL else "convert it, such as `int(x)`"
            raise self._refused(node, f"{shown(wanted)} is needed, and this is {shown(kind)}", remedy)
        return code

    def _number(self, node: ast.expr) -> tuple[str, Number]:
        code, kind = self._expression(node)
        if kind not in (INT, FLOAT) or not isinstance(kind, Number):
            raise self._refused(node, f"a number is needed, and this is {shown(kind)}", "convert it, such as `int(x)`")
        return code, kind

    def _expression(self, node: ast.expr) -> tuple[str, Kind]:
        match node:
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Subscript(value=ast.Name(id=self.row), slice=ast.Constant(value=str() as column)):
                return self._column(node, column)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._arithmetic(node, self._expression(left), operator, self._expression(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(not {self._of(operand, BOOL)})", BOOL
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                code, number = self._number(operand)
                return (f"negate({code})" if number == INT else f"(-{code})"), number
            case ast.BoolOp(op=operator, values=values):
                if isinstance(operator, ast.Or) and (optional := self._may_be_none(values[0])) is not None:
                    return self._alternative(optional, values[1:])
                return self._truth(operator, values), BOOL
            case ast.Compare(
                left=left, ops=[(ast.Is() | ast.IsNot()) as operator], comparators=[ast.Constant(value=None)]
            ) if (optional := self._may_be_none(left)) is not None:
                return (optional.is_given if isinstance(operator, ast.IsNot) else f"(not {optional.is_given})"), BOOL
            case ast.Compare(left=left, ops=operators, comparators=others):
                return self._comparisons(left, operators, others), BOOL
            case ast.IfExp():
                return self._choice(node)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(node, name, arguments)
            case ast.Call(
                func=ast.Attribute(value=ast.BinOp(left=left, op=ast.Sub(), right=right), attr="total_seconds"),
                args=[],
                keywords=[],
            ) if (times := self._times(self._expression(left), self._expression(right))) is not None:
                return f"(to_float(subtract({times[0]}, {times[1]})) / 1000000.0)", FLOAT
        raise self._refused(
            node, f"`{ast.unparse(node)}` is not compiled", "help(penstock.compiled) lists what is; or drop @compiled"
        )

    def _may_be_none(self, node: ast.expr) -> MayBeNone | None:
        """The expression, if it is one that may be None."""
        match node:
            case ast.Name(id=name) if name in self.nullable and name in self.bound:
                return MayBeNone(f"g_{name}", f"v_{name}", self.kinds[name])
        if (column := self._column_of(node)) in self.tested:
            self._column(node, column)
            number, kind = list(self.columns).index(column), kind_of(self.schema.field(column))
            return MayBeNone(f"q_{number}[i]", "i" if isinstance(kind, Opaque) else f"c_{number}[i]", kind)
        return None

    def _alternative(self, optional: MayBeNone, others: Sequence[ast.expr]) -> tuple[str, Kind]:
        """`optional or other`: the first unless it is None or Python takes it for false."""
        if len(others) > 1:
            other: ast.expr = ast.copy_location(ast.BoolOp(ast.Or(), list(others)), others[0])
        else:
            other = others[0]
        kind, code = optional.kind, optional.value
        if is_text(kind):
            self._code(kind)
            kind = TEXT
        if kind not in ZEROS:
            raise self._refused(other, f"{shown(kind)} is only passed on", "test `is None`, and write `if` and `else`")
        is_true = code if kind == BOOL else f"{code} != {self._constant(other, ZEROS[kind])[0]}"
        return f"({code} if {optional.is_given} and {is_true} else {self._of(other, kind)})", kind

    def _truth(self, operator: ast.boolop, values: Sequence[ast.expr]) -> str:
        """Conditions of which each is computed where those before it leave it open, and may build upon them."""
        doubtful, codes = set(self.doubtful), []
        for value in values:
            codes.append(self._of(value, BOOL))
            shows = shown_by(value)
            self.doubtful -= shows.if_true if isinstance(operator, ast.And) else shows.if_false
        self.doubtful = doubtful
        return f"({(' and ' if isinstance(operator, ast.And) else ' or ').join(codes)})"

    def _choice(self, node: ast.IfExp) -> tuple[str, Kind]:
        condition, shows, doubtful = self._of(node.test, BOOL), shown_by(node.test), set(self.doubtful)
        self.doubtful = doubtful - shows.if_true
        code, kind = self._expression(node.body)
        self.doubtful = doubtful - shows.if_false
        other_code, other_kind = self._expression(node.orelse)
        self.doubtful = doubtful
        if kind != other_kind:
            if not (is_text(kind) and is_text(other_kind)):
                raise self._refused(node, f"it is {shown(kind)} or {shown(other_kind)}", "let both be of one kind")
            self._code(kind)
            self._code(other_kind)
            kind = TEXT
        return f"({code} if {condition} else {other_code})", kind

    def _constant(self, node: ast.expr, value: object) -> tuple[str, Kind]:
        # What is written is the number itself, also of a member of an enum, or of NumPy's float.
        if isinstance(value, bool):
            return repr(value), BOOL
        if isinstance(value, int) and -(2**63) < value < 2**63:
            return int.__repr__(value), INT
        if isinstance(value, float) and value == value and abs(value) != float("inf"):
            return float.__repr__(value), FLOAT
        if isinstance(value, str):
            if value not in self.words:
                self.words.append(value)
            return str(self.words.index(value)), WORD
        raise self._refused(node, f"the constant {value!r} is not compiled", "use numbers of 64 bits, bool and text")

    def _name(self, node: ast.expr, name: str) -> tuple[str, Kind]:
        if name in self.kinds:
            if name not in self.bound:
                raise self._refused(node, f"{name!r} has no value on some way to here", "give it one in each branch")
            if name in self.doubtful:
                raise self._refused(
                    node, f"{name!r} may be None here", f"write `{name} or 0`, or test `if {name} is None` first"
                )
            return f"v_{name}", self.kinds[name]
        if name in self.outer:
            return self._constant(node, self.outer[name])
        raise self._refused(
            node, f"{name!r} is not known here", "compiled functions see the row, their variables and constants"
        )

    def _column(self, node: ast.expr, column: str) -> tuple[str, Kind]:
        if column not in self.schema.names:
            raise self._refused(
                node, f"there is no column {column!r}{nearest(column, self.schema.names)}", "name one that is there"
            )
        array = self.columns.setdefault(column, f"c_{len(self.columns)}")
        kind = kind_of(self.schema.field(column))
        # What is passed on is not looked at, but by its place.
        if isinstance(kind, Opaque):
            return "i", kind
        number = array.removeprefix("c_")
        return (f"given(q_{number}[i], {array}[i])" if column in self.tested else f"{array}[i]"), kind

    def _arithmetic(
        self, node: ast.BinOp, left: tuple[str, Kind], operator: ast.operator, right: tuple[str, Kind]
    ) -> tuple[str, Kind]:
        (one, kind), (other, other_kind) = left, right
        if kind == other_kind == BOOL and type(operator) in _BITS:
            return f"({one} {_BITS[type(operator)]} {other})", BOOL
        for side in (kind, other_kind):
            if side not in (INT, FLOAT):
                raise self._refused(node, f"{shown(side)} is no number", "convert it, such as `int(x)`")
        if kind == other_kind == INT:
            if type(operator) in _CHECKED:
                return f"{_CHECKED[type(operator)]}({one}, {other})", INT
            if type(operator) in _BITS:
                return f"({one} {_BITS[type(operator)]} {other})", INT
        if type(operator) in _PLAIN:
            return f"({_as_float(one, kind)} {_PLAIN[type(operator)]} {_as_float(other, other_kind)})", FLOAT
        raise self._refused(
            node, f"`{ast.unparse(node)}` is not compiled for these kinds", "use + - * / and, of ints, // %"
        )

    def _times(self, *values: tuple[str, Kind]) -> list[str] | None:
        """The microseconds of timestamps; None where these are none of one sort."""
        times = [(place, kind) for place, kind in values if isinstance(kind, Time)]
        if len(times) < len(values) or len({kind.is_utc for _, kind in times}) > 1:
            return None
        return [self._time(place, kind) for place, kind in times]

    def _time(self, place: str, kind: Time) -> str:
        """The microseconds of a timestamp; to read a null leaves the batch to plain Python."""
        self.tested |= {kind.column}
        number = list(self.columns).index(kind.column)
        return f"given(q_{number}[{place}], c_{number}[{place}])"

    def _comparisons(self, left: ast.expr, operators: Sequence[ast.cmpop], others: Sequence[ast.expr]) -> str:
        parts = []
        for operator, right in zip(operators, others, strict=True):
            parts.append(self._comparison(left, operator, right))
            left = right
        return f"({' and '.join(parts)})"

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
        if (
            isinstance(operator, (ast.In, ast.NotIn))
            and isinstance(right, (ast.Tuple, ast.List, ast.Set))
            and right.elts
        ):
            found = " or ".join(self._comparison(left, ast.Eq(), element) for element in right.elts)
            return f"({found})" if isinstance(operator, ast.In) else f"(not ({found}))"
        (one, kind), (other, other_kind) = self._expression(left), self._expression(right)
        equality = isinstance(operator, (ast.Eq, ast.NotEq))
        if type(operator) in SIGNS and (times := self._times((one, kind), (other, other_kind))) is not None:
            return f"({times[0]} {SIGNS[type(operator)]} {times[1]})"
        if type(operator) in SIGNS:
            sign = SIGNS[type(operator)]
            if {kind, other_kind} <= {INT, FLOAT}:
                if kind != other_kind:
                    one, other = _as_float(one, kind), _as_float(other, other_kind)
                return f"({one} {sign} {other})"
            if equality and kind == other_kind == BOOL:
                return f"({one} {sign} {other})"
            if equality and is_text(kind) and is_text(other_kind):
                if WORD not in (kind, other_kind):
                    self._code(kind)
                    self._code(other_kind)
                return f"({one} {sign} {other})"
        raise self._refused(
            left,
            f"{shown(kind)} and {shown(other_kind)} are not compared",
            "numbers are compared with numbers, texts with == and != alone",
        )

    def _call(self, node: ast.Call, name: str, arguments: Sequence[ast.expr]) -> tuple[str, Kind]:
        self._check_own(node, name)
        match name, len(arguments):
            case "abs", 1:
                code, kind = self._number(arguments[0])
                return (f"absolute({code})" if kind == INT else f"abs({code})"), kind
            case "float", 1:
                return _as_float(*self._number(arguments[0])), FLOAT
            case "int", 1:
                code, value = self._expression(arguments[0])
                if value == BOOL:
                    return f"(1 if {code} else 0)", INT
                code, number = self._number(arguments[0])
                return (code if number == INT else f"to_int({code})"), INT
            case "bool", 1:
                code, value = self._expression(arguments[0])
                if value == BOOL:
                    return code, BOOL
                code, number = self._number(arguments[0])
                return f"({code} != {ZEROS[number]})", BOOL
            case (("min" | "max"), 2):
                (one, kind), (other, other_kind) = self._number(arguments[0]), self._number(arguments[1])
                if kind == other_kind:
                    return f"{'smaller' if name == 'min' else 'larger'}({one}, {other})", kind
        raise self._refused(
            node, f"`{ast.unparse(node)}` is not compiled", "abs, bool, int, float, min and max of two are"
        )

    def _refused(self, node: ast.AST, reason: str, remedy: str) -> GraphError:
        line = self.lines_before + getattr(node, "lineno", 1)
        return GraphError(f"compiled: {self.place}, line {line}: {reason}; {remedy}")


def result_arrays(prefix: str, results: Mapping[str, Kind]) -> list[str]:
    """The names of the arrays of results that are computed."""
    return [f"{prefix}_{place}" for place, kind in enumerate(results.values()) if not is_passed_on(kind)]


def computed_codes(results: Mapping[str, Kind], codes: Sequence[str]) -> list[str]:
    """The code of those of the results."""
    return [code for kind, code in zip(results.values(), codes, strict=True) if not is_passed_on(kind)]


def _as_float(code: str, kind: Kind) -> str:
    return f"to_float({code})" if kind == INT else code


def without_docstring(body: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """The statements of a function."""
    first = body[0]
    return body[1:] if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else body
