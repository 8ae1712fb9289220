"""Translates functions that make one accumulator of rows: those of `reduce`, and the `add` of an `AggregateFunction`.

The operators of `reduce` and of windows call it. The accumulator of each group (a key, or a key and window) lies in
arrays, one for each of its fields; what the function never looks at is passed on, whatever its type, null among it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.compiled.kinds import FLOAT, INT, TEXT, HeldTime, Kind, Opaque, Time, is_text, kind_of, shown
from penstock.engine.compiled.sources import outer_names, source_of
from penstock.engine.compiled.translation import MayBeNone, Translator, without_docstring
from penstock.engine.errors import GraphError, nearest
from penstock.engine.python_values import fits
from penstock.engine.state.descriptors import AggregateFunction
from penstock.engine.texts import function_name

VALUE: Final = ""
"""The name of the only field of an accumulator that is no dict."""


@dataclass(frozen=True, slots=True)
class FoldTranslation:
    """A function that adds a row to an accumulator, in terms of columns and of fields by group.

    Attributes:
        source: statements for row `i`, as `machine_code` takes them: the value of column 0 is `c_0[i]`, that of the
            first field `s_0[groups[i]]`, and behind the row `e_0[i]`; `p[groups[i]]` says whether there is an
            accumulator. A field that is passed on is a number: below `held` of the accumulator of a group, from there
            on of a row.
        columns, coded, tested, words: as of `Translation`.
        times: the fields whose timestamps are compared: `at_0[s_0[groups[i]]]` are the microseconds of the first field,
            and `is_0` says whether there are any.
        fields: the type of each field by name.
        kinds: the kind of each; `Opaque` where it is passed on.
    """

    source: str
    columns: tuple[str, ...]
    coded: frozenset[str]
    tested: frozenset[str]
    words: tuple[str, ...]
    times: tuple[str, ...]
    fields: Mapping[str, pa.DataType]
    kinds: Mapping[str, Kind]


def translate_reduce(function: Callable[..., Any], given: pa.Schema, reduced: pa.Schema) -> FoldTranslation:
    """A function of two rows, where a group's first row is its first accumulator.

    Args:
        function: of the row so far and the next one.
        given: the columns of rows.
        reduced: those of accumulators.

    Raises:
        GraphError: it does what compiled functions cannot; names the line, the reason and the remedy.
    """
    tree, place, lines_before = source_of(function, 2)
    held, row = (argument.arg for argument in tree.args.args)
    if set(given.names) != set(reduced.names):
        names = ", ".join(map(repr, sorted(set(given.names) ^ set(reduced.names))))
        raise GraphError(f"compiled: {place}: reduced rows have the columns of the stream; {names} differ")
    fields = {one.name: one.type for one in reduced}
    translator = FoldTranslator(given, row, outer_names(function), place, lines_before, held=held, fields=fields)
    return translator.folding(tree, begins_with_row=True)


def translate_add(function: AggregateFunction, given: pa.Schema, accumulator: pa.DataType) -> FoldTranslation:
    """The `add` of an aggregate function.

    Args:
        function: adds rows.
        given: their columns.
        accumulator: the type of accumulators, a struct or that of a single value.

    Raises:
        GraphError: as for `translate_reduce`.
    """
    method = type(function).add
    tree, place, lines_before = source_of(method, 3)
    this, row, held = (argument.arg for argument in tree.args.args)
    is_struct = pa.types.is_struct(accumulator)
    fields = {one.name: one.type for one in accumulator} if is_struct else {VALUE: accumulator}
    outer = outer_names(method)
    attributes = vars(function)
    translator = FoldTranslator(
        given, row, outer, place, lines_before, held=held, fields=fields, this=this, attributes=attributes
    )
    return translator.folding(tree, begins_with_row=False)


def first_accumulator(function: AggregateFunction, accumulator: pa.DataType) -> pa.Array:
    """The accumulator of no rows, as an array of one.

    Raises:
        GraphError: `create_accumulator` fails, or gives nothing of the type.
    """
    try:
        made = [function.create_accumulator()]
        if not fits(made, accumulator):
            raise TypeError(f"{made[0]!r:.200} is of another type")
        return pa.array(made, accumulator)
    except Exception as error:
        raise GraphError(
            f"compiled: {function_name(function)}: create_accumulator() gave no {accumulator} ({error}); give a "
            "constant of the declared type, or drop @compiled"
        ) from error


@dataclass
class FoldTranslator(Translator):
    """Walks through one function that adds a row to an accumulator.

    Args:
        held: how the function names the accumulator.
        fields: the type of each of its fields.
        this: how the function names itself; "" for a function without an object.
        attributes: those of the object.
    """

    held: str = ""
    fields: Mapping[str, pa.DataType] = field(default_factory=dict)
    this: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    field_kinds: dict[str, Kind] = field(default_factory=dict)
    times: set[str] = field(default_factory=set)

    def folding(self, tree: ast.FunctionDef, begins_with_row: bool) -> FoldTranslation:
        tree = _Spread(self.held, self.row, list(self.fields), self.schema.names).visit(copy.deepcopy(tree))
        self._look_ahead(tree)
        looked_at = self._looked_at(tree)
        self.field_kinds = {name: self._field_kind(name, kind, looked_at) for name, kind in self.fields.items()}
        first = self._first(tree) if begins_with_row else []
        body, returns = self._block(without_docstring(tree.body), 0)
        if not returns:
            raise self._refused(tree, "a way through the function ends without `return`", "return something on each")
        return FoldTranslation(
            "\n".join([*first, *body]),
            tuple(self.columns),
            frozenset(self.coded),
            self.tested,
            tuple(self.words),
            tuple(sorted(self.times)),
            self.fields,
            self.field_kinds,
        )

    def _field_kind(self, name: str, kind: pa.DataType, looked_at: set[str]) -> Kind:
        is_passed = name not in looked_at and name not in self.tested and self._is_like_column(name)
        seen = kind_of(pa.field(name, kind))
        if isinstance(seen, Time) and self._is_like_column(name):
            return HeldTime(name, seen.is_utc)
        if is_passed or isinstance(seen, Opaque) or (seen == FLOAT and not pa.types.is_float64(kind)):
            return Opaque(name)
        return TEXT if is_text(seen) else seen

    def _is_like_column(self, name: str) -> bool:
        """Whether the field may take the values of the column of its name as they are."""
        return name in self.schema.names and bool(plain_type(self.schema.field(name).type) == self.fields[name])

    def _looked_at(self, tree: ast.AST) -> set[str]:
        """The fields and columns with which the function does more than to pass them on under their names."""
        looked_at: set[str] = set()
        passed: set[int] = set()
        for name, value in _named_values(tree):
            choices = _choices(value)
            if all(self._used(choice) == name for choice in choices):
                passed.update(map(id, choices))
            else:
                looked_at.add(name)
        return looked_at.union(self._used(node) for node in ast.walk(tree) if id(node) not in passed)

    def _used(self, node: ast.AST) -> str:
        match node:
            case ast.Subscript(value=ast.Name(id=self.held | self.row), slice=ast.Constant(value=str() as name)):
                return name
        return ""

    def _first(self, tree: ast.FunctionDef) -> list[str]:
        """What the first row of a group does."""
        codes = [
            self._as_field(tree, name, *self._expression(ast.copy_location(_item(self.row, name), tree)))
            for name in self.fields
        ]
        stored = [f"s_{number}[groups[i]] = {code}" for number, code in enumerate(codes)]
        return _indented("if not p[groups[i]]:", ["p[groups[i]] = True", *stored, *self._end()])

    # Statements

    def _statement(self, node: ast.stmt) -> tuple[list[str], bool]:
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=self.held), slice=ast.Constant(value=str() as name))],
                value=value,
            ):
                return [self._stored(node, name, value)], False
            case ast.AugAssign(
                target=ast.Subscript(value=ast.Name(id=self.held), slice=ast.Constant(value=str() as name)),
                op=operator,
                value=value,
            ):
                before = ast.copy_location(_item(self.held, name), node)
                return [self._stored(node, name, ast.copy_location(ast.BinOp(before, operator, value), node))], False
        return super()._statement(node)

    def _assign(self, node: ast.stmt, name: str, value: str, kind: Kind) -> list[str]:
        if name in (self.this, self.held):
            raise self._refused(node, f"{name!r} is a parameter", "give the variable another name")
        return super()._assign(node, name, value, kind)

    def _stored(self, node: ast.AST, name: str, value: ast.expr) -> str:
        number = self._number_of(node, name)
        return f"s_{number}[groups[i]] = {self._as_field(node, name, *self._expression(value))}"

    def _return(self, node: ast.Return, value: ast.expr) -> list[str]:
        match value:
            case ast.Name(id=self.held) if VALUE not in self.fields:
                return self._end()
            case ast.Dict() if VALUE not in self.fields:
                results, codes = self._row(value)
            case _ if VALUE in self.fields:
                code, kind = self._expression(value)
                results, codes = {VALUE: kind}, [code]
            case _:
                raise self._refused(
                    node, f"`{ast.unparse(value)}` is no accumulator", "return a dict with all its fields"
                )
        if results.keys() != self.fields.keys():
            wrong = ", ".join(map(repr, sorted(results.keys() ^ self.fields.keys())))
            raise self._refused(node, f"the result differs in {wrong}", "give all fields of the accumulator")
        # All are computed before one of them changes.
        names = list(self.fields)
        computed = [
            (names.index(name), self._as_field(node, name, code, kind))
            for (name, kind), code in zip(results.items(), codes, strict=True)
        ]
        made = [f"t_{number} = {code}" for number, code in computed]
        return [*made, *(f"s_{number}[groups[i]] = t_{number}" for number, _ in computed), *self._end()]

    def _end(self) -> list[str]:
        return [*(f"e_{number}[i] = s_{number}[groups[i]]" for number in range(len(self.fields))), "return True"]

    # Expressions

    def _expression(self, node: ast.expr) -> tuple[str, Kind]:
        match node:
            case ast.Subscript(value=ast.Name(id=self.held), slice=ast.Constant(value=str() as name)):
                return f"s_{self._number_of(node, name)}[groups[i]]", self.field_kinds[name]
            case ast.Subscript(value=ast.Name(id=self.row), slice=ast.Constant(value=str() as name)) if isinstance(
                kind := self.field_kinds.get(name), Opaque
            ) and self._is_like_column(name):
                return "(held + i)", kind
            case ast.Name(id=self.held) if VALUE in self.fields:
                return "s_0[groups[i]]", self.field_kinds[VALUE]
            case ast.Attribute(value=ast.Name(id=self.this), attr=name) if name in self.attributes:
                return self._constant(node, self.attributes[name])
        return super()._expression(node)

    def _may_be_none(self, node: ast.expr) -> MayBeNone | None:
        """Fields of what is held that are looked at are never None: where one is, the function runs as plain Python."""
        if (name := self._held_name(node)) and not isinstance(self.field_kinds.get(name), Opaque):
            code, kind = self._expression(node)
            return MayBeNone("True", code, kind)
        return super()._may_be_none(node)

    def _stays_open(self, name: str, value: ast.expr) -> bool:
        if self._held_name(value):
            return name in self.doubted and name not in self.kinds
        return super()._stays_open(name, value)

    def _held_name(self, node: ast.expr) -> str:
        match node:
            case ast.Subscript(value=ast.Name(id=self.held), slice=ast.Constant(value=str() as name)):
                return name
        return ""

    def _time(self, place: str, kind: Time) -> str:
        if not isinstance(kind, HeldTime):
            return super()._time(place, kind)
        self.times.add(kind.column)
        number = list(self.fields).index(kind.column)
        return f"given(is_{number}[{place}], at_{number}[{place}])"

    def _number_of(self, node: ast.AST, name: str) -> int:
        if name not in self.fields:
            raise self._refused(
                node, f"the accumulator has no {name!r}{nearest(name, self.fields)}", "name a field that is there"
            )
        return list(self.fields).index(name)

    def _as_field(self, node: ast.AST, name: str, code: str, kind: Kind) -> str:
        """The value as the field keeps it."""
        wanted, declared = self.field_kinds[name], self.fields[name]
        if wanted == TEXT and is_text(kind):
            self._code(kind)
            return code
        if kind != wanted:
            label = "the accumulator" if name == VALUE else repr(name)
            raise self._refused(
                node,
                f"{label} is {shown(kind)} here, and kept as {declared}",
                "convert it, or keep it in a field of another type",
            )
        if wanted == INT and declared != pa.int64():
            bits, signed = declared.bit_width, pa.types.is_signed_integer(declared)
            low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
            return f"within({code}, {low}, {high - 1})"
        return code


class _Spread(ast.NodeTransformer):
    """Writes results out: `return one` and `{**one, "n": 1}` with all fields, and `a if c else b` as two returns."""

    def __init__(self, held: str, row: str, fields: Sequence[str], columns: Sequence[str]) -> None:
        self._names = {held: fields, row: columns}
        self._held = held
        self._fields = fields

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        match node.value:
            case ast.IfExp(test=test, body=body, orelse=other) if self._is_row(body) or self._is_row(other):
                ways = [self.visit_Return(ast.copy_location(ast.Return(way), node)) for way in (body, other)]
                made: ast.stmt = ast.If(test, [ways[0]], [ways[1]])
            case ast.Name(id=name) if name in self._names and name != self._held:
                made = ast.Return(self._dict([(None, node.value)]))
            case ast.Dict(keys=keys, values=values):
                made = ast.Return(self._dict(list(zip(keys, values, strict=True))))
            case _:
                return node
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def _is_row(self, node: ast.expr) -> bool:
        if VALUE in self._fields:
            return False
        return isinstance(node, (ast.Dict, ast.IfExp)) or (isinstance(node, ast.Name) and node.id in self._names)

    def _dict(self, entries: list[tuple[ast.expr | None, ast.expr]]) -> ast.Dict:
        """Later entries take the place of earlier ones of their name."""
        made: dict[object, tuple[ast.expr | None, ast.expr]] = {}
        for key, value in entries:
            if key is None and (names := self._columns(value)):
                for name in names:
                    made[name] = (ast.Constant(name), self._of_row(value, name))
            else:
                named = key.value if isinstance(key, ast.Constant) else key
                made[named] = (key, value)
        return ast.Dict([key for key, _ in made.values()], [value for _, value in made.values()])

    def _columns(self, row: ast.expr) -> Sequence[str]:
        """The columns of a row that is spread out; none where it is something else."""
        match row:
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.IfExp(body=body, orelse=other):
                columns = self._columns(body)
                return columns if set(columns) == set(self._columns(other)) else ()
        return ()

    def _of_row(self, row: ast.expr, name: str) -> ast.expr:
        """One column of such a row."""
        match row:
            case ast.IfExp(test=test, body=body, orelse=other):
                made: ast.expr = ast.IfExp(test, self._of_row(body, name), self._of_row(other, name))
            case _:
                assert isinstance(row, ast.Name)
                made = _item(row.id, name)
        return ast.copy_location(made, row)


def _named_values(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The values of all dicts by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


def _choices(value: ast.expr) -> list[ast.expr]:
    """What the value may be."""
    if isinstance(value, ast.IfExp):
        return [*_choices(value.body), *_choices(value.orelse)]
    return [value]


def _item(name: str, key: str) -> ast.expr:
    node = ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(key), ast.Load())
    return ast.fix_missing_locations(ast.copy_location(node, ast.Pass(lineno=1, col_offset=0)))


def _indented(head: str, lines: Sequence[str]) -> list[str]:
    return [head, *(f"    {line}" for line in lines)]
