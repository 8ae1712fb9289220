"""Translates what keyed functions do with list and map states, in terms of arrays by key and of entries.

`emitting` asks it of each statement and expression. What a function reads is loaded when it is missed: its place is
noted, and the batch is computed once more with it. So only what is read of long lists and large maps is ever loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock.engine.compiled.kinds import BOOL, INT, TEXT, Kind, Listed
from penstock.engine.errors import GraphError
from penstock.engine.state.descriptors import ListStateDescriptor, MapStateDescriptor

KEY_KINDS: Final[Mapping[pa.DataType, Kind]] = {
    pa.int64(): INT,
    pa.bool_(): BOOL,
    pa.string(): TEXT,
    pa.large_string(): TEXT,
}
CAPACITY, MASK, IS_FULL = range(3)
"""What the limits of a map's entries are: how many at the most, the size of the table - 1, whether that was too few."""
_G: Final = "groups[i]"
_WALKS: Final = ("items", "keys", "values", "is_empty")
# The entries of a map that is gone over are a chain: each knows the one behind (mx) and before it (my).
_APPENDED: Final = (
    "my_{n}[{e}] = ml_{n}[{g}]",
    "mx_{n}[{e}] = -1",
    "if ml_{n}[{g}] == -1:",
    "    mb_{n}[{g}] = {e}",
    "else:",
    "    mx_{n}[ml_{n}[{g}]] = {e}",
    "ml_{n}[{g}] = {e}",
)
_UNLINKED: Final = (
    "if my_{n}[{e}] == -1:",
    "    mb_{n}[{g}] = mx_{n}[{e}]",
    "else:",
    "    mx_{n}[my_{n}[{e}]] = mx_{n}[{e}]",
    "if mx_{n}[{e}] == -1:",
    "    ml_{n}[{g}] = my_{n}[{e}]",
    "else:",
    "    my_{n}[mx_{n}[{e}]] = my_{n}[{e}]",
)
_EMPTIED: Final = ("mb_{n}[{g}] = -1", "ml_{n}[{g}] = -1", "md_{n}[{g}] = True")


class Function(Protocol):
    """What is asked of the translator of the function (`EmittingTranslator`)."""

    this: str
    attributes: Mapping[str, Any]
    kinds: dict[str, Kind]

    def code_of(self, node: ast.expr, kind: Kind) -> str:
        """The code of an expression that must be of the kind."""
        ...

    def loop_over(
        self, node: ast.For, head: list[str], variables: Sequence[tuple[str, str, Kind]]
    ) -> tuple[list[str], bool]:
        """The lines of a loop whose variables have these codes in each round, behind the lines of its `head`."""
        ...

    def refuse(self, node: ast.AST, reason: str, remedy: str) -> GraphError:
        """What is to be raised."""
        ...

    def note_variable(self, node: ast.stmt, name: str, kind: Kind) -> None:
        """A variable of the kind is assigned to; the lines are another's."""
        ...

    def check_bound(self, node: ast.expr, name: str) -> None:
        """Make sure that the variable has a value here."""
        ...

    def check_sole(self, node: ast.AST, name: str) -> None:
        """Make sure that a state is used under one name."""
        ...


@dataclass(frozen=True, slots=True)
class MapKinds:
    """The kinds of a map's keys and values."""

    key: Kind
    value: Kind


@dataclass
class CollectedStates:
    """The list and map states that one function uses.

    Args:
        function: its translator.
        value_kinds: the kinds of values by their type.

    Attributes:
        lists, maps: by the names of the attributes that hold them.
        walked: the maps all of whose entries are gone over.
        before: what must run before the statement at hand: places of lists and entries of maps are looked up.
    """

    function: Function
    value_kinds: Mapping[pa.DataType, Kind]
    lists: dict[str, Kind] = field(default_factory=dict)
    maps: dict[str, MapKinds] = field(default_factory=dict)
    walked: frozenset[str] = frozenset()
    before: list[str] = field(default_factory=list)
    _found: dict[int, str] = field(default_factory=dict)
    _numbers: int = 0

    @property
    def may_be_used(self) -> bool:
        """Whether the function has such states."""
        return any(
            isinstance(attribute, (ListStateDescriptor, MapStateDescriptor))
            for attribute in self.function.attributes.values()
        )

    def look_ahead(self, tree: ast.AST) -> None:
        """Find the maps whose entries must be kept in order."""
        self.walked = frozenset(
            self._named(node.func.value, MapStateDescriptor)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WALKS
        ) - {""}

    def begin(self) -> list[str]:
        """A statement begins: what the one around it has to run before, for `end`."""
        outer, self.before = self.before, []
        return outer

    def end(self, outer: list[str]) -> list[str]:
        """What must run before the statement that ends here."""
        needed, self.before = self.before, outer
        self._found.clear()
        return needed

    # Statements

    def effect(self, call: ast.Call) -> list[str] | None:
        """The lines of a call that changes a list or map; None for any other."""
        match call:
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=arguments, keywords=[]):
                if name := self._named(owner, ListStateDescriptor):
                    return self._list_effect(call, name, self._list(name), method, arguments)
                if name := self._named(owner, MapStateDescriptor):
                    return self._map_effect(name, self._map(name), method, arguments)
        return None

    def _list_effect(
        self, call: ast.Call, name: str, kind: Kind, method: str, arguments: Sequence[ast.expr]
    ) -> list[str] | None:
        match method, arguments:
            case "add", [value]:
                return self._added(name, self.function.code_of(value, kind))
            case "add_all", [ast.List(elts=values) | ast.Tuple(elts=values)]:
                return self._with_all(name, kind, values, [])
            case "update", [ast.List(elts=values) | ast.Tuple(elts=values)]:
                return self._with_all(name, kind, values, self._cleared_list(name))
            case "clear", []:
                return self._cleared_list(name)
        return None

    def _with_all(self, name: str, kind: Kind, values: Sequence[ast.expr], first: list[str]) -> list[str]:
        """Adds several values, which are computed ahead of what comes `first`."""
        held = [(self._temporary(), self.function.code_of(value, kind)) for value in values]
        computed = [f"{temporary} = {code}" for temporary, code in held]
        return [*computed, *first, *(line for temporary, _ in held for line in self._added(name, temporary))]

    def _cleared_list(self, name: str) -> list[str]:
        # Values stay where they are, for those who have read the list before.
        return [
            f"lb_{name}[{_G}] = 0",
            f"ll_{name}[{_G}] = 0",
            f"lc_{name}[{_G}] = 0",
            f"lk_{name}[{_G}] = True",
            f"lw_{name}[{_G}] = True",
        ]

    def _added(self, name: str, code: str) -> list[str]:
        """A list grows at its end, or moves to a place of more room; what it leaves is not written to again."""
        value, at, size, step = (self._temporary() for _ in range(4))
        begin, length, capacity = f"lb_{name}[{_G}]", f"ll_{name}[{_G}]", f"lc_{name}[{_G}]"
        return [
            f"{value} = {code}",
            f"if {length} == {capacity}:",
            f"    {size} = {length} + {length} + 8",
            f"    {at} = lt_{name}[0]",
            f"    if {at} + {size} > lr_{name}[0]:",
            "        return False",
            f"    lt_{name}[0] = {at} + {size}",
            f"    for {step} in range({length}):",
            f"        lv_{name}[{at} + {step}] = lv_{name}[{begin} + {step}]",
            f"    {begin} = {at}",
            f"    {capacity} = {size}",
            f"lv_{name}[{begin} + {length}] = {value}",
            f"{length} = {length} + 1",
        ]

    def _map_effect(self, name: str, kinds: MapKinds, method: str, arguments: Sequence[ast.expr]) -> list[str] | None:
        match method, arguments:
            case "put", [key, value]:
                code = self.function.code_of(value, kinds.value)
                held, entry = self._temporary(), self._temporary()
                return [
                    f"{held} = {code}",
                    *self._entry(name, entry, key),
                    *self._if_walked(name, [f"if not mp_{name}[{entry}]:"], _APPENDED, entry),
                    f"if not mp_{name}[{entry}] or mw_{name}[{entry}] == 0:",
                    f"    ms_{name}[{entry}] = mn_{name}[1]",
                    f"    mn_{name}[1] = mn_{name}[1] + 1",
                    f"mw_{name}[{entry}] = mw_{name}[{entry}] | 1",
                    f"mp_{name}[{entry}] = True",
                    f"mq_{name}[{entry}] = True",
                    f"mv_{name}[{entry}] = {held}",
                ]
            case "remove", [key]:
                entry = self._temporary()
                return [
                    *self._entry(name, entry, key),
                    *self._if_walked(name, [f"if mp_{name}[{entry}]:"], _UNLINKED, entry),
                    f"mw_{name}[{entry}] = mw_{name}[{entry}] | 2",
                    f"mp_{name}[{entry}] = False",
                    f"mq_{name}[{entry}] = True",
                ]
            case "clear", []:
                return [f"mc_{name}[{_G}] = mc_{name}[{_G}] + 1", *self._if_walked(name, [], _EMPTIED, "")]
        return None

    def _if_walked(self, name: str, head: list[str], lines: Sequence[str], entry: str) -> list[str]:
        """The lines for maps that are gone over; none for others."""
        if name not in self.walked:
            return []
        return [*head, *(("    " if head else "") + line.format(n=name, e=entry, g=_G) for line in lines)]

    def loop(self, node: ast.For) -> tuple[list[str], bool] | None:
        """The lines of a loop over the values of a list, and that it may end."""
        match node:
            case ast.For(target=ast.Name(id=variable), iter=values, orelse=[]) if read := self._read(values):
                name, first, count = read
                begin, end, at = (self._temporary() for _ in range(3))
                head = [f"{begin} = {first}", f"{end} = {count}", f"for {at} in range({end}):"]
                variables = [(variable, f"lv_{name}[{begin} + {at}]", self.lists[name])]
                return self.function.loop_over(node, head, variables)
            case ast.For(iter=ast.Call(func=ast.Attribute(value=owner, attr=method), args=[], keywords=[]), orelse=[]):
                if method in _WALKS and (name := self._named(owner, MapStateDescriptor)):
                    return self._loop_over_map(node, name, method)
        return None

    def _loop_over_map(self, node: ast.For, name: str, method: str) -> tuple[list[str], bool]:
        kinds, at, entry = self._map(name), self._temporary(), self._temporary()
        if any(self._changes(part, name) for statement in node.body for part in ast.walk(statement)):
            raise self.function.refuse(
                node, "the map changes while the loop goes over it", "note the changes in a list"
            )
        key = f"mk_{name}[{entry}]" if kinds.key != BOOL else f"(mk_{name}[{entry}] != 0)"
        key_and_value = [(key, kinds.key), (f"mv_{name}[{entry}]", kinds.value)]
        given = {"items": key_and_value, "keys": key_and_value[:1], "values": key_and_value[1:]}.get(method, [])
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if len(names) != len(given) or len(targets) != len(given):
            raise self.function.refuse(
                node, f"`{ast.unparse(node.target)}` takes no entry", "write `for key, value in`"
            )
        self._need_all(name)
        head = [f"{at} = mb_{name}[{_G}]", f"while {at} != -1:", f"    {entry} = {at}", f"    {at} = mx_{name}[{at}]"]
        variables = [(one, code, kind) for one, (code, kind) in zip(names, given, strict=True)]
        return self.function.loop_over(node, head, variables)

    def _changes(self, node: ast.AST, name: str) -> bool:
        """Whether it is a call that changes the map."""
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="put" | "remove" | "clear")):
                return self._named(owner, MapStateDescriptor) == name
        return False

    def _need_all(self, name: str) -> None:
        """All entries are looked up before the statement."""
        self.before += [
            f"if not md_{name}[{_G}]:",
            f"    mm_{name}[{_G}] = True",
            "    missing[0] = 1",
        ]

    def assigned(self, node: ast.stmt, variable: str, value: ast.expr) -> list[str] | None:
        """The lines of `values = self.state.get()`."""
        if (read := self._read(value)) is None:
            return None
        name, first, count = read
        self.function.note_variable(node, variable, Listed(name))
        return [f"first_{variable} = {first}", f"count_{variable} = {count}"]

    # Expressions

    def expression(self, node: ast.expr) -> tuple[str, Kind] | None:
        """What the expression reads of a list or map; None for any other."""
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="is_empty"), args=[], keywords=[]) if (
                name := self._named(owner, MapStateDescriptor)
            ):
                self._map(name)
                self._need_all(name)
                return f"(mb_{name}[{_G}] == -1)", BOOL
            case ast.Call(func=ast.Name(id="len"), args=[values], keywords=[]) if read := self._read(values):
                return read[2], INT
            case ast.Subscript(value=values, slice=index) if read := self._read(values):
                name, first, count = read
                place = f"place({first}, {count}, {self.function.code_of(index, INT)})"
                return f"lv_{name}[{place}]", self.lists[name]
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[key, *rest], keywords=[]) if (
                name := self._named(owner, MapStateDescriptor)
            ):
                kinds = self._map(name)
                if method == "contains" and not rest:
                    return f"mp_{name}[{self._looked_up(node, name, key)}]", BOOL
                if method == "get" and len(rest) == 1:
                    entry, other = self._looked_up(node, name, key), self.function.code_of(rest[0], kinds.value)
                    return f"(mv_{name}[{entry}] if mp_{name}[{entry}] else {other})", kinds.value
        return None

    def map_value(self, node: ast.expr) -> tuple[str, str, Kind] | None:
        """`self.state.get(key)` of a map: whether there is a value, the value, and its kind."""
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[key], keywords=[]) if name := self._named(
                owner, MapStateDescriptor
            ):
                kinds, entry = self._map(name), self._looked_up(node, name, key)
                return f"mp_{name}[{entry}]", f"mv_{name}[{entry}]", kinds.value
        return None

    def _looked_up(self, node: ast.expr, name: str, key: ast.expr) -> str:
        """The entry of a key, which is looked up before the statement, once for each place."""
        if id(node) not in self._found:
            entry = self._found[id(node)] = self._temporary()
            is_known = f"mq_{name}[{entry}]" + (f" or md_{name}[{_G}]" if name in self.walked else "")
            missed = [f"if not ({is_known}):", "    missing[0] = 1"]
            self.before += [*self._entry(name, entry, key), *missed]
        return self._found[id(node)]

    def _entry(self, name: str, entry: str, key: ast.expr) -> list[str]:
        """Finds the entry of a key; it is gone if the map was cleared since it was there."""
        kind = self.maps[name].key
        code = self.function.code_of(key, kind)
        if kind == BOOL:
            code = f"(1 if {code} else 0)"
        table = ", ".join(f"{array}_{name}" for array in ("mt", "mg", "mk", "mn", "mr"))
        return [
            f"{entry} = find({table}, {_G}, {code})",
            f"if mr_{name}[{IS_FULL}] != 0:",
            "    return False",
            f"if me_{name}[{entry}] != mc_{name}[{_G}]:",
            f"    me_{name}[{entry}] = mc_{name}[{_G}]",
            f"    mw_{name}[{entry}] = 0",
            f"    mp_{name}[{entry}] = False",
            f"    mq_{name}[{entry}] = True",
        ]

    def _read(self, node: ast.expr) -> tuple[str, str, str] | None:
        """The list state whose values the expression gives, and the code of their place and number."""
        match node:
            case ast.Name(id=variable) if isinstance(kind := self.function.kinds.get(variable), Listed):
                self.function.check_bound(node, variable)
                return kind.state, f"first_{variable}", f"count_{variable}"
            case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[], keywords=[]) if name := self._named(
                owner, ListStateDescriptor
            ):
                self._list(name)
                self.before += [
                    f"if not lk_{name}[{_G}]:",
                    f"    lm_{name}[{_G}] = True",
                    "    missing[0] = 1",
                ]
                return name, f"lb_{name}[{_G}]", f"ll_{name}[{_G}]"
        return None

    def looks_up(self, node: ast.expr) -> bool:
        """Whether a map is looked up in the expression."""
        return any(isinstance(part, ast.Attribute) and self._named(part, MapStateDescriptor) for part in ast.walk(node))

    # States

    def _named(self, node: ast.expr, kind: type) -> str:
        """The attribute of the function that is a state of this kind; "" for anything else."""
        match node:
            case ast.Attribute(value=ast.Name(id=self.function.this), attr=name):
                if isinstance(self.function.attributes.get(name), kind):
                    self.function.check_sole(node, name)
                    return name
        return ""

    def _list(self, name: str) -> Kind:
        return self.lists.setdefault(name, self.value_kinds[self.function.attributes[name].value_type])

    def _map(self, name: str) -> MapKinds:
        given: Any = self.function.attributes[name]
        kinds = MapKinds(KEY_KINDS[given.map_key_type], self.value_kinds[given.value_type])
        return self.maps.setdefault(name, kinds)

    def _temporary(self) -> str:
        self._numbers += 1
        return f"t_{self._numbers}"
