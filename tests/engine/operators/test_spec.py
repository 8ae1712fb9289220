"""Operators describe themselves: no code asks which spec it has, but the spec's own module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.errors import ConfigurationError
from penstock.engine.operators.spec import OperatorTraits, Resources

ROOT = Path(__file__).parents[3]
ROOMS = ("engine", "actors", "savepoints", "connectors", "console", "tables", "penstock")


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "Spec" in text and not any(parent.is_symlink() for parent in path.parents):
                yield path, ast.parse(text)


def names_asked_for(tree: ast.Module) -> set[str]:
    """The classes that `isinstance` and the patterns of `match` ask for."""
    asked: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked.append(node.args[1])
        elif isinstance(node, ast.MatchClass):
            asked.append(node.cls)
    return {name.id for one in asked for name in ast.walk(one) if isinstance(name, ast.Name)}


def test_nobody_asks_which_spec_an_operator_has() -> None:
    trees = list(modules())
    specs = {
        node.name: path
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "OperatorSpec" in {ast.unparse(base) for base in node.bases}
    }
    assert len(specs) > 25, "the specs are not found any more"
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees
        for name in names_asked_for(tree) & specs.keys()
        if specs[name] != path
    ]
    assert found == [], "give OperatorTraits what these want to know"


def test_the_last_accepted_modes_hold_for_further_inputs() -> None:
    traits = OperatorTraits()
    assert traits.accepted(0) == traits.accepted(5)


@pytest.mark.parametrize("value", [-1, float("inf"), True, "1"])
def test_resources_are_numbers(value: object) -> None:
    with pytest.raises(ConfigurationError, match="num_cpus must be a number of 0 or more"):
        Resources(num_cpus=value)  # type: ignore[arg-type]
