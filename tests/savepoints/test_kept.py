"""Savepoints of every format version so far open, and jobs resume from them, at any parallelism."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.savepoints.manifest import FORMAT
from tests.savepoints import kept

SAVEPOINTS = sorted(path for path in kept.DATA.glob("savepoint-*") if path.is_dir())


def test_there_is_one_of_the_present_format() -> None:
    assert kept.DATA / f"savepoint-{FORMAT}" in SAVEPOINTS


@pytest.mark.parametrize("savepoint", SAVEPOINTS, ids=lambda path: path.name)
def test_its_state_can_be_read(savepoint: Path) -> None:
    assert kept.states(savepoint) == _expected(savepoint)["states"]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("savepoint", SAVEPOINTS, ids=lambda path: path.name)
def test_a_job_resumes_from_it(savepoint: Path, parallelism: int) -> None:
    assert kept.goes_on(savepoint, parallelism) == _expected(savepoint)["goes_on"]


def _expected(savepoint: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(savepoint.with_name(f"{savepoint.name}.json").read_text())
    return found
