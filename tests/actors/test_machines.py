"""Clusters of machines with a network of their own each: lost processes, a network that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actors.cases import OK, Cases
from tests.actors.machines import unavailable

pytestmark = [pytest.mark.ray]


@pytest.fixture(scope="module")
def machines() -> Iterator[Cases]:
    if why := unavailable():
        pytest.skip(why)
    made = Cases("tests.actors.other_machines")
    yield made
    made.close()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("partitioned", marks=pytest.mark.long("the simulation: processes that live on, and nobody hears")),
        pytest.param("noticed", marks=pytest.mark.long("tests/actors/test_lifeline.py: what notices it")),
    ],
)
def test_on_several_machines(case: str, machines: Cases, tmp_path: Path) -> None:
    said = machines.run(case, tmp_path)
    # For people: how long it took, with `-rP`.
    print(said)  # noqa: T201
    assert OK in said.splitlines(keepends=True), said
