"""Translates the `process` of a window function into one of the columns of its rows and of its windows.

`operators/windows/compiled_window_process.py` calls it: when the graph is built, and once more in each subtask. Row `i`
of generated code is a window; the rows of all windows lie one behind another, those of a window from `__first` on.
"""

from __future__ import annotations

import ast
import copy
import sys
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.compiled.emitting import MOMENTS, EmittingTranslation, EmittingTranslator
from penstock.engine.compiled.keyed_translation import NotCompiledError, opened
from penstock.engine.compiled.kinds import BOOL, ELEMENT, FLOAT, INT, TEXT, Kind, Opaque, Text, Time, kind_of
from penstock.engine.compiled.sources import outer_names, source_of
from penstock.engine.compiled.translation import MayBeNone
from penstock.engine.errors import GraphError, nearest
from penstock.engine.functions import ProcessWindowFunction
from penstock.engine.texts import function_name

START: Final = "__start"
END: Final = "__end"
FIRST: Final = "__first"
BEHIND: Final = "__behind"
_OF_WINDOW: Final = {"start": "{start}", "end": "{end}", "max_timestamp": "subtract({end}, 1)"}
_FOLDS: Final = ("sum", "min", "max", "any", "all")
_COMPENSATES: Final = sys.version_info >= (3, 12)
"""Python's sum of floats is Neumaier's from then on."""


def key_name(number: int) -> str:
    """The column of windows that has a part of their keys."""
    return f"__key_{number}"


def window_schema(keys: tuple[str, ...], elements: pa.Schema) -> pa.Schema:
    """The columns of windows: keys, bounds, and where their rows lie.

    Args:
        keys: the key columns.
        elements: the columns of rows.
    """
    of_keys = [(key_name(number), plain_type(elements.field(name).type)) for number, name in enumerate(keys)]
    return pa.schema([*of_keys, *((name, pa.int64()) for name in (START, END, FIRST, BEHIND))])


def translate_process(
    function: ProcessWindowFunction | type[ProcessWindowFunction], keys: tuple[str, ...], elements: pa.Schema
) -> EmittingTranslation:
    """The `process` of a window function.

    Args:
        function: the function, or its class.
        keys: the key columns.
        elements: the columns of rows.

    Raises:
        GraphError: it does what compiled functions cannot; names the line, the reason and the remedy.
    """
    method = (function if isinstance(function, type) else type(function)).process
    tree, place, lines_before = source_of(method, 4)
    this, key, context, rows = (argument.arg for argument in tree.args.args)
    windows = window_schema(keys, elements)
    if hidden := set(windows.names).intersection(elements.names):
        raise GraphError(f"compiled: {function_name(function)}: columns are named {', '.join(hidden)}; rename them")
    translator = WindowTranslator(
        pa.schema([*windows, *((one.name, plain_type(one.type)) for one in elements)]),
        "",
        outer_names(method),
        place,
        lines_before,
        this=this,
        context=context,
        attributes=opened(function, _NoState()),
        key=key,
        elements=rows,
        of_windows=frozenset(windows.names),
        parts=len(keys),
    )
    return translator.emitting(tree)


class _NoState:
    """Stands for the runtime context of `open`."""

    def __getattr__(self, name: str) -> Any:
        raise NotCompiledError(f"open() uses {name}; compiled window functions have no state, so drop @compiled")


@dataclass
class WindowTranslator(EmittingTranslator):
    """Walks through one window function.

    Args:
        key, elements: how the function names the key and the rows.
        of_windows: the columns of windows; all others are of their rows.
        parts: of keys.
    """

    key: str = ""
    elements: str = ""
    of_windows: frozenset[str] = frozenset()
    parts: int = 0
    _numbers: int = 0

    # Rows of the window

    def _element(self, node: ast.expr) -> str | None:
        """The code of the place of a row; None for any other expression."""
        match node:
            case ast.Name(id=name) if self.kinds.get(name) == ELEMENT:
                return self._name(node, name)[0]
            case ast.Subscript(value=ast.Name(id=self.elements), slice=index):
                return f"place({self._window(FIRST)}, {self._count()}, {self._of(index, INT)})"
        return None

    def _window(self, column: str) -> str:
        return self._column(ast.Constant(None), column)[0]

    def _count(self) -> str:
        return f"subtract({self._window(BEHIND)}, {self._window(FIRST)})"

    def _column_of(self, node: ast.expr) -> str:
        match node:
            case ast.Subscript(value=ast.Name() | ast.Subscript(), slice=ast.Constant(value=str() as column)):
                return column
        return ""

    def _value_of(self, node: ast.expr, element: str, column: str) -> MayBeNone:
        """The value of a column in a row."""
        if column not in self.schema.names or column in self.of_windows:
            columns = [name for name in self.schema.names if name not in self.of_windows]
            raise self._refused(
                node, f"there is no column {column!r}{nearest(column, columns)}", "name one that is there"
            )
        array = self.columns.setdefault(column, f"c_{len(self.columns)}")
        kind = kind_of(self.schema.field(column))
        if isinstance(kind, Opaque) and not isinstance(kind, Time):
            raise self._refused(node, f"column {column!r} is {self.schema.field(column).type}", "drop @compiled")
        value = element if isinstance(kind, Time) else f"{array}[{element}]"
        return MayBeNone(f"q_{array.removeprefix('c_')}[{element}]", value, kind)

    # Statements

    def _emitting_statement(self, node: ast.stmt) -> tuple[list[str], bool]:
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Name(id=self.elements), orelse=[]):
                at = self._temporary()
                head = [f"for {at} in range({self._window(FIRST)}, {self._window(BEHIND)}):"]
                return self.loop_over(node, head, [(name, at, ELEMENT)])
            case ast.While(test=test) if any(self._fold_of(part) for part in ast.walk(test)):
                raise self._refused(test, "rows are gone through for each round", "do so within the loop")
        return super()._emitting_statement(node)

    def _assign(self, node: ast.stmt, name: str, value: str, kind: Kind) -> list[str]:
        if name in (self.key, self.elements):
            raise self._refused(node, f"{name!r} is a parameter", "give the variable another name")
        return super()._assign(node, name, value, kind)

    def _assigned(self, node: ast.stmt, name: str, value: ast.expr) -> list[str]:
        element = self._element(value)
        return super()._assigned(node, name, value) if element is None else self._assign(node, name, element, ELEMENT)

    def _row(self, row: ast.Dict) -> tuple[dict[str, Kind], list[str]]:
        results, codes = super()._row(row)
        for name, kind in results.items():
            if isinstance(kind, Text) and kind.column not in self.of_windows:
                # Only columns of windows can be passed on as they are.
                self._code(kind)
                results[name] = TEXT
            elif kind == ELEMENT:
                raise self._refused(row, f"{name!r} is a row", "give its columns one by one")
            elif isinstance(kind, Time) and kind.column not in self.of_windows:
                raise self._refused(row, f"{name!r} is a timestamp of a row", "these are compared alone")
        return results, codes

    # Expressions

    def _may_be_none(self, node: ast.expr) -> MayBeNone | None:
        match node:
            case ast.Subscript(value=row, slice=ast.Constant(value=str() as column)) if column in self.tested:
                if (element := self._element(row)) is not None:
                    return self._value_of(node, element, column)
        return None if isinstance(node, ast.Subscript) else super()._may_be_none(node)

    def _expression(self, node: ast.expr) -> tuple[str, Kind]:
        match node:
            case ast.Subscript(value=row, slice=ast.Constant(value=str() as column)):
                if (element := self._element(row)) is not None:
                    given, value, kind = self._value_of(node, element, column)
                    return (f"given({given}, {value})" if column in self.tested else value), kind
            case ast.Name(id=self.key) if self.parts == 1:
                return self._column(node, key_name(0))
            case ast.Subscript(value=ast.Name(id=self.key), slice=ast.Constant(value=int(at))) if (
                0 <= at < self.parts > 1
            ):
                return self._column(node, key_name(at))
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=self.context), attr="window"), attr=name) if (
                name in _OF_WINDOW
            ):
                return _OF_WINDOW[name].format(start=self._window(START), end=self._window(END)), INT
            case ast.Attribute(value=ast.Name(id=self.context), attr=name) if name in MOMENTS:
                return MOMENTS[name], INT
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=self.elements)], keywords=[]):
                self._check_own(node, "len")
                return self._count(), INT
        if (fold := self._fold_of(node)) is not None:
            return self._folded(node, *fold)
        return super()._expression(node)

    # Folds of all rows: sum(row["n"] for row in elements if ...)

    def _fold_of(self, node: ast.AST) -> tuple[str, ast.comprehension, ast.expr] | None:
        match node:
            case ast.Call(
                func=ast.Name(id=name),
                args=[
                    ast.GeneratorExp(elt=value, generators=[ast.comprehension(iter=ast.Name(id=self.elements)) as rows])
                ],
                keywords=[],
            ) if name in _FOLDS and isinstance(rows.target, ast.Name):
                return name, rows, value
        return None

    def _folded(self, node: ast.expr, fold: str, rows: ast.comprehension, value: ast.expr) -> tuple[str, Kind]:
        """The code of a fold, which a loop before the statement computes."""
        assert isinstance(rows.target, ast.Name)
        self._check_own(node, fold)
        at, made, count, rest, name = (self._temporary() for _ in range(5))
        # The variable hides one of its name.
        inner = _Renamed(rows.target.id, name)
        value, ifs = inner.visit(copy.deepcopy(value)), [inner.visit(copy.deepcopy(test)) for test in rows.ifs]
        # What is within may need lines of its own, which run for each row.
        outer = self.collected.begin()
        self.kinds[name] = ELEMENT
        self.bound.add(name)
        tests = [self._of(test, BOOL) for test in ifs]
        if fold in ("any", "all"):
            code, kind = self._of(value, BOOL), BOOL
        else:
            code, number = self._number(value)
            kind = number
        del self.kinds[name]
        self.bound.discard(name)
        within = self.collected.end(outer)
        first = {FLOAT: "0.0", INT: "0", BOOL: str(fold == "all")}[kind]
        each = [*self._folded_each(fold, made, count, rest, code, kind), f"{count} = {count} + 1"]
        if tests:
            each = [f"if {' and '.join(tests)}:", *(f"    {line}" for line in each)]
        self.collected.before += [
            f"{made} = {first}",
            f"{count} = 0",
            f"{rest} = 0.0",
            f"for {at} in range({self._window(FIRST)}, {self._window(BEHIND)}):",
            *(f"    {line}" for line in [f"v_{name} = {at}", *within, *each]),
        ]
        if fold in ("min", "max") or kind == FLOAT:
            # Of no rows min and max fail, and the sum is an int: plain Python says so.
            self.collected.before.append(f"{count} = place(0, {count}, 0)")
        if fold == "sum" and kind == FLOAT and _COMPENSATES:
            self.collected.before += [f"if {rest} != 0.0 and {rest} - {rest} == 0.0:", f"    {made} = {made} + {rest}"]
        return made, kind

    def _folded_each(self, fold: str, made: str, count: str, rest: str, code: str, kind: Kind) -> list[str]:
        """What a row does; `rest` is what a sum of floats has lost by rounding."""
        if fold in ("any", "all"):
            return [f"if {code if fold == 'any' else f'not {code}'}:", f"    {made} = {fold == 'any'}"]
        if fold == "sum" and kind == INT:
            return [f"{made} = add({made}, {code})"]
        value, total = self._temporary(), self._temporary()
        if fold != "sum":
            sign = "<" if fold == "min" else ">"
            return [f"{value} = {code}", f"if {count} == 0 or {value} {sign} {made}:", f"    {made} = {value}"]
        if not _COMPENSATES:
            return [f"{made} = {made} + {code}"]
        return [
            f"{value} = {code}",
            f"{total} = {made} + {value}",
            f"if abs({made}) >= abs({value}):",
            f"    {rest} = {rest} + (({made} - {total}) + {value})",
            "else:",
            f"    {rest} = {rest} + (({value} - {total}) + {made})",
            f"{made} = {total}",
        ]

    def _temporary(self) -> str:
        self._numbers += 1
        return f"w_{self._numbers}"


class _Renamed(ast.NodeTransformer):
    """Gives a variable another name."""

    def __init__(self, before: str, after: str) -> None:
        self._before, self._after = before, after

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self._after, node.ctx), node) if node.id == self._before else node
