"""Random keyed functions with states of all kinds, and what they come to, compiled or row by row."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.operators.functions.compiled_process import CompiledProcessSpec
from penstock.engine.operators.functions.keyed_process import KeyedProcessSpec
from penstock.engine.state.snapshot import OperatorSnapshot
from tests.engine.operators.functions.functions import Running
from tests.engine.state.saved import snapshot_of

GIVEN = pa.schema(
    [
        ("k", pa.string()),
        ("i", pa.int64()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("t", pa.dictionary(pa.int32(), pa.string())),
        ("m", pa.int64()),
        ("u", pa.string()),
    ]
)
TYPES = {"int": "int64", "float": "float64", "bool": "bool", "text": "string"}
MADE = pa.schema([("k", pa.string()), *((kind, pa.type_for_alias(name)) for kind, name in TYPES.items())])
MAPS = {"counts": ("string", "int64"), "labels": ("int64", "string"), "flags": ("bool", "float64")}
DEFAULTS = {"int": "-1", "float": "0.5", "bool": "True", "text": "'w'"}
TEXTS = st.sampled_from(["", "a", "w", "other"])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from("abc"),
            "i": st.integers(-3, 3) | st.sampled_from([2**62, -(2**63)]),
            "x": st.floats(-2, 2),
            "b": st.booleans(),
            "s": TEXTS,
            "t": TEXTS,
            "m": st.none() | st.integers(-3, 3),
            "u": st.none() | TEXTS,
        }
    ),
    min_size=4,
    max_size=12,
)
LEAVES = {
    "int": ['row["i"]', "n", "2"],
    "float": ['row["x"]', "f", "-0.0"],
    "bool": ['row["b"]', "c", "False"],
    "text": ['row["s"]', 'row["t"]', "w", "'a'", "''"],
}
VARIABLES = {"int": "n", "float": "f", "bool": "c", "text": "w"}


class Writer:
    """Writes one random function; `states` says whether each has a default."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.states = {kind: draw(st.booleans()) for kind in TYPES}

    def expression(self, kind: str, depth: int = 2) -> str:
        choice = self.draw(st.integers(0, 5)) if depth else 0
        if choice == 0:
            return str(self.draw(st.sampled_from(LEAVES[kind])))
        if choice <= 2:
            return self.state(kind, depth - 1)
        a, b = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
        if choice == 3:
            return f"({a} if {self.expression('bool', depth - 1)} else {b})"
        if kind == "text":
            return a
        if kind != "bool":
            return f"({a} {self.draw(st.sampled_from('+-*'))} {b})"
        of = self.draw(st.sampled_from(["int", "float", "text"]))
        one, other = self.expression(of, depth - 1), self.expression(of, depth - 1)
        signs = ["==", "!="] if of == "text" else ["<", ">=", "=="]
        comparison = f"({one} {self.draw(st.sampled_from(signs))} {other})"
        return str(self.draw(st.sampled_from([comparison, f"({a} and {b})", f"({a} or {b})", f"(not {a})"])))

    def bounded(self, kind: str) -> str:
        """An expression whose ints have 64 bits: state by rows says later than state by columns that one has not."""
        return f"({self.expression(kind)}) % 1000" if kind == "int" else self.expression(kind)

    def state(self, kind: str, depth: int) -> str:
        """The value of a state, with what stands for None."""
        value = f"self.{kind}.value()"
        return value if self.states[kind] else f"({value} or {self.expression(kind, depth)})"

    def block(self, depth: int, size: int = 3) -> list[str]:
        lines = [line for _ in range(self.draw(st.integers(1, size))) for line in self.statement(depth)]
        return [f"    {line}" for line in lines]

    def statement(self, depth: int) -> list[str]:
        kind = self.draw(st.sampled_from(list(TYPES)))
        match self.draw(st.integers(0, 14 if depth else 5)):
            case 0 | 1:
                return [f"self.{kind}.update({self.bounded(kind)})"]
            case 2:
                return [f"self.{kind}.clear()"]
            case 3:
                return [f"{VARIABLES[kind]} = {self.expression(kind)}"]
            case 4:
                return self.listed(kind)
            case 5:
                return self.mapped()
            case 6:
                return [f"if {self.expression('bool')}:", *self.block(depth - 1), "else:", *self.block(depth - 1)]
            case 7:
                return [f"for step in range({self.draw(st.integers(0, 2))}):", *self.block(depth - 1, 2)]
            case 8 | 9:
                return self.with_nulls(depth)
            case 10:
                values = self.draw(st.sampled_from([f"self.{kind}s.get()", f"all_{kind}"]))
                first = f"all_{kind} = self.{kind}s.get()"
                return [
                    first,
                    f"for each_{kind} in {values}:",
                    f"    {VARIABLES[kind]} = each_{kind}",
                    *self.block(0, 1),
                ]
            case 11:
                found = f"self.counts.get({self.expression('text', 1)})"
                return [f"found = {found}", "if found is None:", *self.block(depth - 1, 1), "else:", "    n = found"]
        return self.narrowed(kind, depth)

    def listed(self, kind: str) -> list[str]:
        """What is done to a list state."""
        state, one, other = f"self.{kind}s", self.bounded(kind), self.bounded(kind)
        forms = [
            [f"{state}.add({one})"],
            [f"{state}.add({one})"],
            [f"{state}.add_all([{one}, {other}])"],
            [f"{state}.update([{other}, {one}])"],
            [f"{state}.clear()"],
            [f"n = len({state}.get())"],
            [f"if len({state}.get()) > 1:", f"    {VARIABLES[kind]} = {state}.get()[-2]"],
        ]
        return list(self.draw(st.sampled_from(forms)))

    def mapped(self) -> list[str]:
        """What is done to map states."""
        text, number = self.expression("text", 1), f"{self.expression('int', 1)} % 3"
        forms = [
            [f"self.counts.put({text}, {self.bounded('int')})"],
            [f"self.counts.put({text}, (self.counts.get({text}) or 0) + 1)"],
            [f"self.labels.put({number}, {self.expression('text')})"],
            [f"self.flags.put({self.expression('bool', 1)}, {self.expression('float', 1)})"],
            [f"self.counts.remove({text})"],
            ["self.counts.clear()"],
            [f"self.counts.put({text}, 7)", "self.counts.clear()", f"self.int.update(self.counts.get({text}, 1))"],
            [f"n = self.counts.get({text}, {self.expression('int')}) % 1000"],
            [f"w = self.labels.get({number}, {self.expression('text')})"],
            [f"c = self.labels.contains({number}) and self.flags.get(c, 1.5) < 1.0"],
            ["for held, count in self.counts.items():", "    w = held", "    n = (n * 3 + count) % 1000"],
            ["for held in self.labels.values():", f"    if held == {text}:", "        break", "    w = held"],
            ["for flag in self.flags.keys():", "    c = flag", "c = c or self.counts.is_empty()"],
        ]
        return list(self.draw(st.sampled_from(forms)))

    def with_nulls(self, depth: int) -> list[str]:
        """Columns that have nulls, and tests of them."""
        forms = [
            ['if row["m"] is None:', *self.block(depth - 1, 1), "else:", '    self.int.update(row["m"] * 2)'],
            ['m = row["m"]', f"if m is not None and m > {self.expression('int')}:", "    n = m"],
            ['c = row["u"] is None', f'self.text.update(row["u"] or {self.expression("text")})'],
            ['u = row["u"]', 'if u is None or u == row["s"]:', "    u = w", "w = u"],
            [f'n = (row["m"] or {self.expression("int")}) % 1000', 'c = not (row["u"] is not None and c)'],
        ]
        return list(self.draw(st.sampled_from(forms)))

    def narrowed(self, kind: str, depth: int) -> list[str]:
        """A variable that may be None, and a test of it."""
        if self.states[kind]:
            return [f"self.{kind}.clear()"]
        name = f"maybe_{kind}"
        use = f"self.{kind}.update({name})"
        forms = [
            [f"if {name} is None:", f"    {name} = {self.expression(kind)}", use],
            [f"if {name} is not None:", f"    {VARIABLES[kind]} = {name}", "else:", *self.block(depth - 1, 1)],
            [
                f"if {name} is None or {name} == {self.expression(kind)}:",
                *self.block(depth - 1, 1),
                "else:",
                f"    {use}",
            ],
            [f"c = {name} is not None and {name} != {self.expression(kind)}"],
            [f"{VARIABLES[kind]} = {self.expression(kind)} if {name} is None else {name}"],
            [f"if not ({name} is not None and {self.expression('bool')}):", "    return", use],
        ]
        return [f"{name} = self.{kind}.value()", *self.draw(st.sampled_from(forms))]

    def source(self) -> str:
        opened = [
            f"    self.{kind} = context.get_state(ps.ValueStateDescriptor({kind!r}, {name!r}"
            + (f", default={DEFAULTS[kind]}))" if self.states[kind] else "))")
            for kind, name in TYPES.items()
        ]
        opened += [
            f"    self.{kind}s = context.get_list_state(ps.ListStateDescriptor('{kind}s', {name!r}))"
            for kind, name in TYPES.items()
        ]
        opened += [
            f"    self.{state} = context.get_map_state(ps.MapStateDescriptor({state!r}, {name!r}, key_type={key!r}))"
            for state, (key, name) in MAPS.items()
        ]
        results = ", ".join(f'"{kind}": {self.bounded(kind)}' for kind in TYPES)
        body = [*self.block(2, 5), f'    yield {{"k": row["k"], {results}}}']
        first = [f"    {name} = {LEAVES[kind][-1]}" for kind, name in VARIABLES.items()]
        lines = ["def open(self, context):", *opened, "def process_element(self, row, ctx):", *first, *body]
        return "\n".join(["class Random(ps.KeyedProcessFunction):", *(f"    {line}" for line in lines), ""])


@st.composite
def sources(draw: Callable[[Any], Any]) -> str:
    """The source of a keyed function."""
    return Writer(draw).source()


def function_of(source: str) -> type[ps.KeyedProcessFunction]:
    """The class of the source, whose lines can be read."""
    names: dict[str, Any] = {"ps": ps, "__name__": __name__}
    linecache.cache["<random keyed>"] = (len(source), None, source.splitlines(keepends=True), "<random keyed>")
    exec(compile(source, "<random keyed>", "exec"), names)
    made: type[ps.KeyedProcessFunction] = names["Random"]
    return made


def plain(source: str) -> KeyedProcessSpec:
    return KeyedProcessSpec(function_of(source), ("k",), MADE)


def compiled(source: str) -> CompiledProcessSpec:
    return CompiledProcessSpec(ps.compiled(function_of(source)), ("k",), MADE)


def outcome(specs: Sequence[Any], rows: list[dict[str, Any]], schema: pa.Schema = GIVEN) -> str:
    """The rows that come out and the state behind each part of the input, one for each of `specs`; or an error.

    Each part begins with the state behind the one before.
    """
    size = -(-len(rows) // len(specs))
    seen: list[object] = []
    kept: OperatorSnapshot | None = None
    for part, spec in enumerate(specs):
        job = Running(spec, restored=kept)
        given = pa.RecordBatch.from_pylist(rows[part * size : (part + 1) * size], schema)
        try:
            seen.append(job.process(Batch(given)) if given.num_rows else [])
            # Numbers that are too long for the state's type are found here.
            kept = snapshot_of(job.operator)
        except GraphError:
            raise
        except Exception as error:
            return f"{seen} {type(error).__name__}"
        tables = {name: table.data for name, table in kept.tables.items()}
        seen.append({name: (data.schema, sorted(map(repr, data.to_pylist()))) for name, data in tables.items()})
    return repr(seen)
