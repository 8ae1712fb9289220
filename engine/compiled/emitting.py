"""Translates functions that emit any number of rows: for each row of a batch, or for each timer that fires.

`keyed_translation` and `operators/compiled.py` call it. Beyond what `translation` compiles: `yield` and lists of rows,
and, of keyed functions, value states, timers, side outputs and constants of the object.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.engine.compiled.collected import CollectedStates, MapKinds
from penstock.engine.compiled.kinds import BOOL, FLOAT, INT, TEXT, Kind
from penstock.engine.compiled.sources import outer_names, source_of
from penstock.engine.compiled.translation import (
    ZEROS,
    MayBeNone,
    Translator,
    computed_codes,
    result_arrays,
    without_docstring,
)
from penstock.engine.errors import GraphError
from penstock.engine.functions import OutputTag
from penstock.engine.state.descriptors import ValueStateDescriptor

STATE_KINDS: Final[Mapping[pa.DataType, Kind]] = {
    pa.int64(): INT,
    pa.float64(): FLOAT,
    pa.bool_(): BOOL,
    pa.string(): TEXT,
    pa.large_string(): TEXT,
}
UPDATED: Final = 1
CLEARED: Final = 2
TIMER_CALLS: Final = (
    "register_event_time_timer",
    "delete_event_time_timer",
    "register_processing_time_timer",
    "delete_processing_time_timer",
)
"""What is done to a timer, by the number that compiled code gives it."""
MOMENTS: Final = {"current_watermark": "watermark", "current_processing_time": "now"}
_TIMER: Final[Mapping[str, Kind]] = {"call": INT, "time": INT}


@dataclass(slots=True)
class Emitted:
    """What a function emits to one output.

    Attributes:
        kinds: kind of each value by name, in order.
        places: so many places in the function emit it.
    """

    kinds: Mapping[str, Kind]
    places: int = 0


@dataclass(frozen=True, slots=True)
class EmittingTranslation:
    """A function that emits rows in terms of columns.

    Attributes:
        source: statements for row `i`, as `machine_code` takes them: the value of column 0 is `c_0[i]`, of a state
            `s_NAME[groups[i]]`, where `p_NAME[groups[i]]` says that there is one; `return False` where an output has no
            room.
        columns: the columns whose values it takes.
        coded, tested: those of them whose texts all need a number, and that are tested for None.
        states: the names of the attributes that hold value states, in this order.
        lists, maps: those that hold list and map states (`collected` has their arrays).
        walked: the maps all of whose entries are gone over.
        words: the texts that stand in it, by number.
        results, timers: rows, and what is done to timers: `call` (of `TIMER_CALLS`) and `time`.
        sides: rows of side outputs.
        needs_time: whether it asks for the timestamp.
    """

    source: str
    columns: tuple[str, ...]
    coded: frozenset[str]
    tested: frozenset[str]
    states: Mapping[str, Kind]
    lists: Mapping[str, Kind]
    maps: Mapping[str, MapKinds]
    walked: frozenset[str]
    words: tuple[str, ...]
    results: Emitted
    timers: Emitted
    sides: Mapping[OutputTag, Emitted]
    needs_time: bool

    @property
    def outputs(self) -> Sequence[Emitted]:
        """All of them, by their numbers in `source`."""
        return [self.results, self.timers, *self.sides.values()]


def translate_flat_map(function: Callable[..., Any], schema: pa.Schema) -> EmittingTranslation:
    """A function from a row to any number of rows, in terms of the columns of `schema`.

    Raises:
        GraphError: it does what compiled functions cannot; names the line, the reason and the remedy.
    """
    tree, place, lines_before = source_of(function, 1)
    row = tree.args.args[0].arg
    return EmittingTranslator(schema, row, outer_names(function), place, lines_before).emitting(tree)


def output_names(number: int, kinds: Mapping[str, Kind]) -> list[str]:
    """The arrays of an output in generated code: the row that each of its rows comes from, and what is computed."""
    return [f"o{number}_origin", *result_arrays(f"o{number}", kinds)]


@dataclass
class EmittingTranslator(Translator):
    """Walks through one function that emits rows.

    Args:
        this, context, time: how a keyed function names itself, the context, and the time of a timer; "" for none.
        timed: whether rows have timestamps.
        keys: the key columns.
        attributes: those of the function, states as descriptors.
        handles_timers: whether it may register timers.
    """

    this: str = ""
    context: str = ""
    time: str = ""
    timed: bool = False
    keys: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    handles_timers: bool = False
    states: dict[str, Kind] = field(default_factory=dict)
    emitted: dict[int, Emitted] = field(default_factory=dict)
    sides: dict[str, tuple[int, OutputTag]] = field(default_factory=dict)
    needs_time: bool = False
    yields: bool = False

    def __post_init__(self) -> None:
        self.collected = CollectedStates(self, STATE_KINDS)

    def emitting(self, tree: ast.FunctionDef) -> EmittingTranslation:
        self._look_ahead(tree)
        self.collected.look_ahead(tree)
        self.yields = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(tree))
        body, returns = self._block(without_docstring(tree.body), 0)
        if not returns:
            self._check_rows(tree)
        results, timers = (self.emitted.get(number, Emitted({})) for number in (0, 1))
        sides = {tag: self.emitted[number] for number, tag in self.sides.values()}
        return EmittingTranslation(
            "\n".join(body),
            tuple(self.columns),
            frozenset(self.coded),
            self.tested,
            self.states,
            self.collected.lists,
            self.collected.maps,
            self.collected.walked,
            tuple(self.words),
            results,
            timers,
            sides,
            self.needs_time,
        )

    # Statements

    def _check_rows(self, node: ast.AST) -> None:
        """No rows are None for keyed functions and generators alone."""
        if not self.this and not self.yields:
            raise self._refused(node, "a way through the function ends without rows", "return [] there")

    def _assign(self, node: ast.stmt, name: str, value: str, kind: Kind) -> list[str]:
        if name in (self.this, self.context, self.time):
            raise self._refused(node, f"{name!r} is a parameter", "give the variable another name")
        return super()._assign(node, name, value, kind)

    def _statement(self, node: ast.stmt) -> tuple[list[str], bool]:
        outer = self.collected.begin()
        lines, returns = self._emitting_statement(node)
        return [*self.collected.end(outer), *lines], returns

    def _emitting_statement(self, node: ast.stmt) -> tuple[list[str], bool]:
        match node:
            case ast.For() if (loop := self.collected.loop(node)) is not None:
                return loop
            case ast.While(test=test) if self.collected.looks_up(test):
                raise self._refused(test, "a map is looked up for each round", "do so within the loop, and break there")
            case ast.Return(value=None | ast.Constant(value=None)):
                self._check_rows(node)
                return ["return True"], True
            case ast.Return(value=ast.List(elts=rows) | ast.Tuple(elts=rows)) if not self.yields:
                return [*(line for row in rows for line in self._result(row)), "return True"], True
            case ast.Return():
                raise self._refused(node, "only lists of dicts are returned", "yield each row, or return [{...}]")
            case ast.Expr(value=ast.Yield(value=ast.expr() as row)):
                return self._result(row), False
            case ast.Expr(value=ast.Call(func=ast.Attribute(), keywords=[]) as call):
                return self._effect(call), False
        return super()._statement(node)

    def _loop(self, head: list[str], body: Sequence[ast.stmt]) -> tuple[list[str], bool]:
        if self.collected.may_be_used:
            # Where state was missed the values are wrong, and a loop over them might not end: on to the next row.
            head = [*head, "    if missing[0] != 0:", "        return True"]
        return super()._loop(head, body)

    def loop_over(
        self, node: ast.For, head: list[str], variables: Sequence[tuple[str, str, Kind]]
    ) -> tuple[list[str], bool]:
        """The lines of a loop whose variables have these codes in each round, behind the lines of its `head`."""
        before = set(self.bound)
        first = [line for name, code, kind in variables for line in self._assign(node, name, code, kind)]
        lines = self._loop([*head, *(f"    {line}" for line in first)], node.body)
        self.bound = before
        return lines

    def refuse(self, node: ast.AST, reason: str, remedy: str) -> GraphError:
        """What is to be raised."""
        return self._refused(node, reason, remedy)

    def code_of(self, node: ast.expr, kind: Kind) -> str:
        """The code of an expression that must be of the kind."""
        return self._of(node, kind)

    def note_variable(self, node: ast.stmt, name: str, kind: Kind) -> None:
        """A variable of the kind is assigned to; the lines are another's."""
        self._assign(node, name, "0", kind)

    def check_bound(self, node: ast.expr, name: str) -> None:
        """Make sure that the variable has a value here."""
        self._name(node, name)

    def _assigned(self, node: ast.stmt, name: str, value: ast.expr) -> list[str]:
        lines = self.collected.assigned(node, name, value)
        return super()._assigned(node, name, value) if lines is None else lines

    def _result(self, row: ast.expr) -> list[str]:
        if not isinstance(row, ast.Dict):
            raise self._refused(row, "rows are dicts here", 'write {"name": value}')
        return self._emit(row, 0, *self._row(row))

    def _emit(self, node: ast.AST, number: int, kinds: Mapping[str, Kind], codes: Sequence[str]) -> list[str]:
        output = self.emitted.setdefault(number, Emitted(kinds))
        self._check_same(node, output.kinds, kinds)
        output.places += 1
        origin, *arrays = output_names(number, kinds)
        return [
            f"at = count[{number}]",
            f"if at == room[{number}]:",
            "    return False",
            *(f"{array}[at] = {code}" for array, code in zip(arrays, computed_codes(kinds, codes), strict=True)),
            f"{origin}[at] = i",
            f"count[{number}] = at + 1",
        ]

    def _effect(self, call: ast.Call) -> list[str]:
        """A call for what it does: to a state, a timer, or a side output."""
        if (lines := self.collected.effect(call)) is not None:
            return lines
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=self.this), attr=name), attr="update"),
                args=[value],
            ):
                return [
                    f"s_{name}[groups[i]] = {self._of(value, self._state(call, name))}",
                    f"p_{name}[groups[i]] = True",
                    f"w_{name}[groups[i]] = {UPDATED}",
                ]
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=self.this), attr=name), attr="clear"), args=[]
            ):
                kind = self._state(call, name)
                default, _ = self._constant(call, self._default(name, kind))
                return [
                    f"s_{name}[groups[i]] = {default}",
                    f"p_{name}[groups[i]] = False",
                    f"w_{name}[groups[i]] = {CLEARED}",
                ]
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=self.context), attr="timer_service"), attr=name
                ),
                args=[time],
            ) if name in TIMER_CALLS:
                if not self.handles_timers:
                    raise self._refused(call, "there is no on_timer", "implement on_timer(self, timestamp, ctx)")
                return self._emit(call, 1, _TIMER, [str(TIMER_CALLS.index(name)), self._of(time, INT)])
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=self.context), attr="output"), args=[tag, ast.Dict() as row]
            ):
                return self._emit(call, self._side(tag), *self._row(row))
        raise self._refused(
            call, f"`{ast.unparse(call)}` is not compiled", "help(penstock.compiled) lists what is; or drop @compiled"
        )

    def _side(self, node: ast.expr) -> int:
        """The number of a side output."""
        match node:
            case ast.Name(id=name):
                tag = None if name in self.kinds else self.outer.get(name)
            case ast.Attribute(value=ast.Name(id=self.this), attr=name):
                tag = self.attributes.get(name)
            case _:
                tag = None
        if not isinstance(tag, OutputTag) or tag.schema is None:
            raise self._refused(
                node,
                f"`{ast.unparse(node)}` is no OutputTag that declares its columns",
                'define OutputTag("late", {"user": "string"}) outside of the function',
            )
        number, known = self.sides.setdefault(tag.name, (len(self.sides) + 2, tag))
        if known.schema != tag.schema:
            raise self._refused(node, f"side output {tag.name!r} has two OutputTags with other columns", "use one")
        return number

    def _state(self, node: ast.AST, name: str) -> Kind:
        descriptor = self.attributes.get(name)
        if not isinstance(descriptor, ValueStateDescriptor):
            raise self._refused(node, f"`{self.this}.{name}` is no value state", "get it in open()")
        self.check_sole(node, name)
        return self.states.setdefault(name, STATE_KINDS[descriptor.value_type])

    def check_sole(self, node: ast.AST, name: str) -> None:
        """Make sure that a state is used under one name."""
        used = {**self.states, **self.collected.lists, **self.collected.maps, name: None}
        state = self.attributes[name].name
        names = [one for one in used if self.attributes[one].name == state]
        if len(names) > 1:
            shown = " and ".join(sorted(f"`{self.this}.{one}`" for one in names))
            raise self._refused(node, f"state {state!r} is {shown}", "use one of them alone")

    def _may_be_none(self, node: ast.expr) -> MayBeNone | None:
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=self.this), attr=name), attr="value"),
                args=[],
                keywords=[],
            ):
                kind = self._state(node, name)
                if self.attributes[name].default is None:
                    return MayBeNone(f"p_{name}[groups[i]]", f"s_{name}[groups[i]]", kind)
        if (found := self.collected.map_value(node)) is not None:
            return MayBeNone(*found)
        return super()._may_be_none(node)

    def _default(self, name: str, kind: Kind) -> object:
        default = self.attributes[name].default
        return ZEROS[kind] if default is None else default

    # Expressions

    def _expression(self, node: ast.expr) -> tuple[str, Kind]:
        if (read := self.collected.expression(node)) is not None:
            return read
        if self.collected.map_value(node) is not None:
            code = ast.unparse(node)
            remedy = f"write `{code} or 0`, or assign it and test `is None`"
            raise self._refused(node, f"`{code}` may be None", remedy)
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=self.this), attr=name), attr="value"),
                args=[],
                keywords=[],
            ):
                kind = self._state(node, name)
                if self._may_be_none(node) is not None:
                    code = ast.unparse(node)
                    remedy = f"write `{code} or 0`, assign it and test `is None`, or declare a default"
                    raise self._refused(node, f"state {name!r} may have no value", remedy)
                return f"s_{name}[groups[i]]", kind
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=self.context), attr="timer_service"), attr=name
                ),
                args=[],
                keywords=[],
            ) if name in MOMENTS:
                return MOMENTS[name], INT
            case ast.Attribute(value=ast.Name(id=self.context)):
                return self._of_context(node)
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=self.context), attr="current_key"),
                slice=ast.Constant(value=int(at)),
            ) if 0 <= at < len(self.keys) > 1:
                return self._column(node, self.keys[at])
            case ast.Attribute(value=ast.Name(id=self.this), attr=name) if name in self.attributes:
                return self._constant(node, self.attributes[name])
            case ast.Name(id=self.time):
                return self._timestamp()
        return super()._expression(node)

    def _of_context(self, node: ast.Attribute) -> tuple[str, Kind]:
        match node.attr:
            case "current_key" if len(self.keys) == 1:
                return self._column(node, self.keys[0])
            case "timestamp" if self.timed or self.time:
                return self._timestamp()
            case "is_event_time" if self.time:
                return "(is_event_time != 0)", BOOL
        return super()._expression(node)

    def _timestamp(self) -> tuple[str, Kind]:
        self.needs_time = True
        return "times[i]", INT
