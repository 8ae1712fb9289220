"""Translates the `process_element` of a keyed function into one of columns, value states by key, and results.

`CompiledProcessSpec` calls it when the graph is built, its operator once more in each subtask. Beyond what
`translation` compiles: `self.state.value()`, `self.state.update(x)`, constants of the object, and `yield` of rows.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.engine.compiled.kinds import BOOL, FLOAT, INT, Kind, is_passed_on
from penstock.engine.compiled.translation import Translator, outer_names, source_of, without_docstring
from penstock.engine.errors import GraphError
from penstock.engine.functions import KeyedProcessFunction
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.engine.texts import function_name

_KINDS: Final[Mapping[pa.DataType, Kind]] = {pa.int64(): INT, pa.float64(): FLOAT, pa.bool_(): BOOL}


@dataclass(frozen=True, slots=True)
class KeyedTranslation:
    """A keyed function in terms of columns.

    Attributes:
        source: a function `process_row(i, at, key, <columns>, <states>, <written>, origin, <results>)` that gives the
            number of results behind row `i`; `at` is that before it, `key` the number of its key, `written` whether the
            state of each key was updated, `origin` the row of each result.
        columns: the columns whose values it takes.
        states: the names of the attributes that hold value states, in this order.
        words: the texts that stand in it, by number.
        results: kind of each result by name.
        results_of_a_row: so many at the most.
    """

    source: str
    columns: tuple[str, ...]
    states: Mapping[str, Kind]
    words: tuple[str, ...]
    results: Mapping[str, Kind]
    results_of_a_row: int


def translate_keyed(
    function: KeyedProcessFunction | type[KeyedProcessFunction], schema: pa.Schema, keys: tuple[str, ...]
) -> KeyedTranslation:
    """The function in terms of the columns of `schema`, `keys` among them.

    Raises:
        GraphError: it does what compiled functions cannot; names the line, the reason and the remedy.
    """
    kind = function if isinstance(function, type) else type(function)
    name = function_name(function)
    if kind.on_timer is not KeyedProcessFunction.on_timer:
        raise GraphError(f"compiled: {name}: timers are not compiled; drop @compiled")
    if kind.process_element is KeyedProcessFunction.process_element:
        raise GraphError(f"compiled: {name} implements no process_element")
    attributes = _opened(function, name)
    tree, place, lines_before = source_of(kind.process_element, 3)
    this, row, context = (argument.arg for argument in tree.args.args)
    outer = outer_names(kind.process_element)
    translator = KeyedTranslator(
        schema, row, outer, place, lines_before, this=this, context=context, attributes=attributes, keys=keys
    )
    return translator.keyed(tree)


def _opened(function: KeyedProcessFunction | type[KeyedProcessFunction], name: str) -> Mapping[str, Any]:
    """The attributes of the function behind `open`; states are there as their descriptors."""
    try:
        opened = function() if isinstance(function, type) else copy.deepcopy(function)
        opened.open(_Descriptors())  # type: ignore[arg-type]
    except _NotCompiledError as error:
        raise GraphError(f"compiled: {name}: {error}") from None
    except Exception as error:
        raise GraphError(
            f"compiled: {name}: open() could not be run to see which states there are ({type(error).__name__}: "
            f"{error}); let it declare states only, or drop @compiled"
        ) from error
    return vars(opened)


class _NotCompiledError(Exception):
    """`open` asks for what compiled functions do not have."""


class _Descriptors:
    """Stands for the runtime context of `open`: a state is its descriptor."""

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueStateDescriptor:
        remedy = "declare int64, float64 or bool with a default and no time to live, or drop @compiled"
        if descriptor.type is None or descriptor.value_type not in _KINDS:
            raise _NotCompiledError(f"state {descriptor.name!r} holds no number; {remedy}")
        if descriptor.default is None or descriptor.ttl is not None:
            raise _NotCompiledError(f"state {descriptor.name!r} has no default, or a time to live; {remedy}")
        return descriptor

    def __getattr__(self, name: str) -> Any:
        raise _NotCompiledError(f"open() uses {name}; compiled functions have value states only, so drop @compiled")


@dataclass
class KeyedTranslator(Translator):
    """Walks through one `process_element`.

    Args:
        this, context: how the function names itself and the context of a row.
        attributes: those of the function, states as descriptors.
        keys: the key columns.
    """

    this: str = "self"
    context: str = "ctx"
    keys: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    states: dict[str, Kind] = field(default_factory=dict)
    yields: int = 0
    loops: int = 0

    def keyed(self, tree: ast.FunctionDef) -> KeyedTranslation:
        body, returns = self._block(without_docstring(tree.body), 1)
        if self.results is None:
            raise self._refused(tree, "it yields no row", "yield a dict")
        outputs = [f"out_{place}" for place, kind in enumerate(self.results.values()) if not is_passed_on(kind)]
        states = [f"s_{name}" for name in self.states]
        written = [f"w_{name}" for name in self.states]
        given = ["i", "at", "key", *self.columns.values(), *states, *written, "origin", *outputs]
        lines = [f"def process_row({', '.join(given)}):", *body, *([] if returns else ["    return at"]), ""]
        return KeyedTranslation(
            "\n".join(lines), tuple(self.columns), self.states, tuple(self.words), self.results, self.yields
        )

    def _statement(self, node: ast.stmt) -> tuple[list[str], bool]:
        match node:
            case ast.Return(value=None):
                return ["return at"], True
            case ast.Return():
                raise self._refused(node, "rows are not returned by compiled functions", "yield them")
            case ast.Expr(value=ast.Yield(value=ast.Dict() as row)):
                return self._yield(node, row), False
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=self.this), attr=name), attr="update"),
                    args=[value],
                    keywords=[],
                )
            ):
                kind = self._state(node, name)
                return [f"s_{name}[key] = {self._of(value, kind)}", f"w_{name}[key] = True"], False
        return super()._statement(node)

    def _loop(self, head: list[str], body: Sequence[ast.stmt]) -> tuple[list[str], bool]:
        self.loops += 1
        try:
            return super()._loop(head, body)
        finally:
            self.loops -= 1

    def _yield(self, node: ast.stmt, row: ast.Dict) -> list[str]:
        if self.loops:
            raise self._refused(node, "rows are yielded in a loop", "yield outside of loops, or drop @compiled")
        results, codes = self._row(row)
        self._same_results(node, results)
        self.yields += 1
        kinds = enumerate(zip(results.values(), codes, strict=True))
        stores = [f"out_{place}[at] = {code}" for place, (kind, code) in kinds if not is_passed_on(kind)]
        return [*stores, "origin[at] = i", "at += 1"]

    def _state(self, node: ast.AST, name: str) -> Kind:
        descriptor = self.attributes.get(name)
        if not isinstance(descriptor, ValueStateDescriptor):
            raise self._refused(node, f"`{self.this}.{name}` is no value state", "get it in open()")
        return self.states.setdefault(name, _KINDS[descriptor.value_type])

    def _expression(self, node: ast.expr) -> tuple[str, Kind]:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=self.this), attr=name), attr="value"),
                args=[],
                keywords=[],
            ):
                kind = self._state(node, name)
                return f"s_{name}[key]", kind
            case ast.Attribute(value=ast.Name(id=self.context), attr="current_key") if len(self.keys) == 1:
                return self._column(node, self.keys[0])
            case ast.Attribute(value=ast.Name(id=self.this), attr=name) if name in self.attributes:
                return self._constant(node, self.attributes[name])
        return super()._expression(node)
