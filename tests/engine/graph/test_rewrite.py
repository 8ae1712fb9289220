"""Rewrites: pairs of plans before and after, in `golden/rewrites.txt`, and equal results."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.expressions import col
from penstock.engine.graph.explain import explain_logical
from penstock.engine.graph.logical import Chaining, LogicalGraph
from penstock.engine.graph.rewrite import rewrite
from penstock.environment import StreamEnvironment
from tests.engine.graph.programs import REWRITTEN, Program
from tests.engine.helpers import local_environment

GOLDEN = Path(__file__).parent / "golden" / "rewrites.txt"


def graph_of(program: Program) -> LogicalGraph:
    env = local_environment()
    program(env)
    return env._program.graph.build()


def written(name: str, program: Program) -> str:
    graph = graph_of(program)
    return f"# {name}\n{explain_logical(graph)}\n->\n{explain_logical(rewrite(graph))}\n"


def pairs() -> dict[str, str]:
    """The sections of the golden file by title."""
    sections = GOLDEN.read_text().split("\n\n")
    return {section.split("\n", 1)[0].removeprefix("# "): f"{section.rstrip()}\n" for section in sections}


@pytest.mark.parametrize("name", REWRITTEN)
def test_the_rewritten_plan_is_the_golden_one(name: str) -> None:
    assert written(name, REWRITTEN[name]) == pairs()[name]


def test_every_golden_pair_is_tested() -> None:
    assert list(pairs()) == list(REWRITTEN)


@pytest.mark.parametrize("name", REWRITTEN)
def test_rewriting_twice_changes_nothing_more(name: str) -> None:
    once = rewrite(graph_of(REWRITTEN[name]))
    assert explain_logical(rewrite(once)) == explain_logical(once)


def test_an_operator_that_takes_over_the_head_of_a_chain_is_its_head() -> None:
    graph = rewrite(graph_of(REWRITTEN["start_new_chain stays at the head of its run"]))
    assert [node.chaining for node in graph if "filter" in node.name] == [Chaining.HEAD]


def test_rows_are_the_same_as_step_by_step() -> None:
    def run(env: StreamEnvironment, apart: bool) -> list[dict[str, object]]:
        stream = env.from_collection([{"x": x} for x in range(10)])
        for build in (
            lambda s: s.filter(col("x") > 2),
            lambda s: s.with_columns(y=col("x") * 2),
            lambda s: s.filter(col("y") < 14),
            lambda s: s.select("y", x=col("y") + 1),
        ):
            stream = build(stream)
            if apart:
                stream.disable_chaining()
        return stream.collect().to_arrow().to_pylist()

    assert run(local_environment(), apart=False) == run(local_environment(), apart=True)
    assert run(local_environment(), apart=False)[0] == {"y": 6, "x": 7}
