"""Clusters of machines with a network of their own each: lost processes, a lost head, a network that fails, chaos."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actors.cases import OK, Cases
from tests.actors.machines import unavailable

pytestmark = [pytest.mark.ray]


@pytest.fixture(scope="module")
def machines() -> Iterator[Cases]:
    if why := unavailable() or (None if shutil.which("redis-server") else "make install-services: no redis-server"):
        pytest.skip(why)
    made = Cases("tests.actors.other_machines")
    yield made
    made.close()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("partitioned", marks=pytest.mark.long("the simulation: processes that live on, and nobody hears")),
        pytest.param("noticed", marks=pytest.mark.long("tests/actors/test_lifeline.py: what notices it")),
        pytest.param("headless", marks=pytest.mark.long("managers that are lost: tests/actors/test_job_manager.py")),
        pytest.param("shaken", marks=pytest.mark.long("tests/chaos/test_seeded.py: the command, on one machine")),
        pytest.param(
            "by_hand", marks=pytest.mark.long("tests/console/test_jobs.py: the same commands, on one machine")
        ),
    ],
)
def test_on_several_machines(case: str, machines: Cases, tmp_path: Path) -> None:
    said = machines.run(case, tmp_path)
    # For people: how long it took, with `-rP`.
    print(said)  # noqa: T201
    assert OK in said.splitlines(keepends=True), said
