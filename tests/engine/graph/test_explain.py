"""explain(): the golden texts of `golden/`, the same on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.graph.programs import EXPLAINED
from tests.engine.helpers import local_environment

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_plan_is_the_golden_one(name: str) -> None:
    env = local_environment(parallelism=2)
    EXPLAINED[name](env)
    assert env.explain() == (GOLDEN / f"{name}.txt").read_text()


def test_explaining_starts_nothing_and_may_be_repeated() -> None:
    env = local_environment()
    result = env.from_collection([{"x": 1}]).collect()
    assert env.explain() == env.explain()
    assert result.to_arrow().to_pylist() == [{"x": 1}]


def test_columns_that_are_not_known_are_not_shown() -> None:
    env = local_environment()
    env.from_collection([{"x": 1}]).map(lambda row: row).collect()
    assert "[2] <- 1 map(<lambda>)\n" in env.explain()
