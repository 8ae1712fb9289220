"""Random functions that make one accumulator of rows, and what they come to, compiled or row by row."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.compiled.folding import first_accumulator, translate_add
from penstock.engine.compiled.folding_program import FoldProgram
from penstock.engine.operators.functions.compiled_reduce import reduce_spec
from penstock.engine.operators.functions.keyed_reduce import KeyedReduceSpec

GIVEN = pa.schema(
    [
        ("k", pa.string()),
        ("i", pa.int64()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("at", pa.timestamp("ms")),
        ("small", pa.int16()),
    ]
)
ACCUMULATOR = pa.struct(list(GIVEN)[1:5])
TEXTS = st.sampled_from(["", "a", "w", "other"])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from("abc"),
            "i": st.integers(-3, 3) | st.sampled_from([2**62, -(2**63)]),
            "x": st.floats(-2, 2),
            "b": st.booleans(),
            "s": TEXTS,
            "at": st.none() | st.datetimes().map(lambda at: at.replace(microsecond=0, fold=0)),
            "small": st.integers(-9, 9) | st.sampled_from([2**15 - 1, -(2**15)]),
        }
    ),
    min_size=2,
    max_size=12,
)
OF_KIND = {"int": ("i",), "float": ("x",), "bool": ("b",), "text": ("s",)}
CONSTANTS = {"int": "2", "float": "-0.0", "bool": "False", "text": "'a'"}


class Writer:
    """Writes one random function of the row so far, `a`, and the next one, `b`."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    def expression(self, kind: str, depth: int = 2) -> str:
        choice = self.draw(st.integers(0, 4)) if depth else 0
        if choice <= 1:
            sides = [f'{side}["{self.draw(st.sampled_from(OF_KIND[kind]))}"]' for side in "ab"]
            return str(self.draw(st.sampled_from([*sides, CONSTANTS[kind]])))
        one, other = self.expression(kind, depth - 1), self.expression(kind, depth - 1)
        if choice == 2 or kind == "text":
            return f"({one} if {self.expression('bool', depth - 1)} else {other})"
        if kind != "bool":
            return f"({one} {self.draw(st.sampled_from('+-*'))} {other})"
        of = self.draw(st.sampled_from(["int", "float", "text"]))
        left, right = self.expression(of, depth - 1), self.expression(of, depth - 1)
        sign = self.draw(st.sampled_from(["==", "!="] if of == "text" else ["<", ">=", "=="]))
        return str(self.draw(st.sampled_from([f"({left} {sign} {right})", f"({one} and {other})", f"(not {one})"])))

    def value(self, name: str) -> str:
        kind = next(kind for kind, names in OF_KIND.items() if name in names)
        return f'"{name}": {self.expression(kind)}'

    def statement(self) -> list[str]:
        kind = self.draw(st.sampled_from(list(OF_KIND)))
        change = f'a["{OF_KIND[kind][0]}"] = {self.expression(kind)}'
        forms = [[change], [f"if {self.expression('bool')}:", f"    {change}"], ['a["i"] += 1'], ['a["x"] *= b["x"]']]
        return list(self.draw(st.sampled_from(forms)))

    def body(self, rest: str, results: list[str]) -> list[str]:
        """Statements, each of which may return; `rest` stands for the fields that `value` knows nothing of."""
        lines = [line for _ in range(self.draw(st.integers(0, 2))) for line in self.statement()]
        made = f"{{{', '.join([rest, *map(self.value, self.draw(st.permutations('ixbs')))])}}}"
        ways = [made, *results]
        first, last = self.draw(st.sampled_from(ways)), self.draw(st.sampled_from(ways))
        return [*lines, f"if {self.expression('bool')}:", f"    return {first}", f"return {last}"]


@st.composite
def reduces(draw: Callable[[Any], Any]) -> str:
    """The source of a function of two rows."""
    writer = Writer(draw)
    at, small = draw(st.sampled_from(["a", "b"])), draw(st.sampled_from(['a["small"]', 'a["small"] + b["small"]']))
    rest = f'"k": b["k"], "at": {at}["at"], "small": {small}'
    whole = ["a", "b", f'{{**{at}, "i": {writer.expression("int")}}}', f"a if {writer.expression('bool')} else b"]
    return "\n".join(["def function(a, b):", *(f"    {line}" for line in writer.body(rest, whole)), ""])


@st.composite
def aggregates(draw: Callable[[Any], Any]) -> str:
    """The source of a class that adds rows."""
    lines = Writer(draw).body("**a", ["a"])
    methods = [
        "def create_accumulator(self):",
        "    return {'i': 0, 'x': 0.5, 'b': True, 's': 'w'}",
        "def add(self, b, a):",
        *(f"    {line}" for line in lines),
    ]
    return "\n".join(["class Random(ps.AggregateFunction):", *(f"    {line}" for line in methods), ""])


def made_of(source: str, name: str) -> Any:
    """What the source defines, whose lines can be read."""
    names: dict[str, Any] = {"ps": ps, "__name__": __name__}
    linecache.cache["<random fold>"] = (len(source), None, source.splitlines(keepends=True), "<random fold>")
    exec(compile(source, "<random fold>", "exec"), names)
    return names[name]


def plain(source: str) -> KeyedReduceSpec:
    return KeyedReduceSpec(made_of(source, "function"), ("k",), GIVEN)


def compiled(source: str) -> Any:
    return reduce_spec(ps.compiled(made_of(source, "function")), ("k",), GIVEN, GIVEN, False)


def added(source: str, rows: list[dict[str, Any]], is_compiled: bool) -> str | None:
    """The accumulators of the rows by key; None where compiled code leaves it to plain Python, or that fails."""
    function = made_of(source, "Random")()
    keys = sorted({row["k"] for row in rows})
    if is_compiled:
        batch = pa.RecordBatch.from_pylist(rows, GIVEN)
        groups = pa.array([keys.index(row["k"]) for row in rows], pa.int64()).to_numpy()
        held = pa.concat_arrays([first_accumulator(function, ACCUMULATOR)] * len(keys))
        folded = FoldProgram(translate_add(function, GIVEN, ACCUMULATOR), GIVEN).run(batch, groups, held)
        return None if folded is None else repr(folded.accumulators.to_pylist())
    accumulators = {key: function.create_accumulator() for key in keys}
    try:
        for row in rows:
            accumulators[row["k"]] = function.add(dict(row), accumulators[row["k"]])
        return repr(pa.array(list(accumulators.values()), ACCUMULATOR).to_pylist())
    except (pa.ArrowInvalid, OverflowError):
        return None
