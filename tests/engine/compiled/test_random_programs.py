"""Random functions, compiled, give what plain Python gives, or leave the batch to it."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.compiled.program import Program
from penstock.engine.compiled.translation import translate
from tests.draws import drawn

SCHEMA = pa.schema([("i", pa.int64()), ("j", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("b", pa.bool_())])
NUMBERS = st.integers(-3, 3) | st.integers(1, 99) | st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.fixed_dictionaries({"i": NUMBERS, "j": NUMBERS, "x": st.floats(), "y": st.floats(-2, 2), "b": st.booleans()}),
    min_size=1,
    max_size=6,
)
LEAVES = {
    "int": st.sampled_from(['row["i"]', 'row["j"]', "n"]) | st.integers(-5, 5).map(str),
    "float": st.sampled_from(['row["x"]', 'row["y"]', "f", "0.5", "-0.0"]),
    "bool": st.sampled_from(['row["b"]', "True", "False"]),
}


@st.composite
def expressions(draw: Callable[[Any], Any], kind: str, depth: int = 2) -> str:
    """An expression of the kind."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return str(draw(LEAVES[kind]))
    a, b = (draw(expressions(kind, depth - 1)) for _ in range(2))
    forms = [f"({a} if {draw(expressions('bool', depth - 1))} else {b})"]
    if kind == "bool":
        of = draw(st.sampled_from(["int", "float"]))
        one, other = (draw(expressions(of, depth - 1)) for _ in range(2))
        sign = draw(st.sampled_from(["<", "<=", "==", "!=", ">", ">="]))
        forms += [
            f"({a} and {b})",
            f"({a} or {b})",
            f"(not {a})",
            f"({a} ^ {b})",
            f"({one} {sign} {other})",
            f"bool({one})",
        ]
    else:
        other = draw(expressions("float" if kind == "int" else "int", depth - 1))
        operators = ["+", "-", "*", "//", "%", "&", "|"] if kind == "int" else ["+", "-", "*", "/"]
        forms += [f"({a} {operator} {b})" for operator in operators]
        forms += [f"{kind}({other})", f"abs({a})", f"(-{a})", f"min({a}, {b})", f"max({a}, {b})"]
    return str(draw(st.sampled_from(forms)))


@st.composite
def programs(draw: Callable[[Any], Any]) -> str:
    """The source of a function."""
    results = ", ".join(f'"{kind}{n}": {draw(expressions(kind))}' for kind in LEAVES for n in range(3))
    return f"""def function(row):
    n = 1
    f = 0.25
    for step in range({draw(st.integers(0, 3))}):
        if {draw(expressions("bool"))}:
            {draw(st.sampled_from(["break", "continue", "n = step"]))}
        for {draw(st.sampled_from(["step", "inner"]))} in range({draw(st.integers(0, 2))}):
            f = {draw(expressions("float"))}
        n = {draw(expressions("int"))}
    return {{{results}}}
"""


@settings(max_examples=drawn(25))
@given(programs(), ROWS)
def test_random_functions_give_what_plain_python_gives(source: str, rows: list[dict[str, Any]]) -> None:
    names: dict[str, Any] = {}
    linecache.cache["<random>"] = (len(source), None, source.splitlines(keepends=True), "<random>")
    exec(compile(source, "<random>", "exec"), names)
    program = Program(translate(names["function"], SCHEMA), SCHEMA)
    for row in rows:
        found = program.run(pa.RecordBatch.from_pylist([row], SCHEMA))
        if found is not None:
            plain = names["function"](row)
            assert {name: _shown(column[0].as_py()) for name, column in found.items()} == {
                name: _shown(value) for name, value in plain.items()
            }


def _shown(value: object) -> tuple[str, str]:
    """Zeros have a sign, what is no number equals itself, and True is not 1."""
    return type(value).__name__, repr(value)
