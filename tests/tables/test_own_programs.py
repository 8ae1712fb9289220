"""SQL programs in the form of Flink's, whose results are worked out by hand: in both halves around a savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tables.own_programs import PROGRAMS
from tests.tables.programs import check, run

_BY_ARRIVAL = frozenset({"limit", "limit-and-offset-over-both-halves"})
"""Programs whose results hang on the order in which rows come, which several subtasks do not keep."""


_LONG = pytest.mark.long("the same by three subtasks; by one: test_programs.py")


def _by(program: dict[str, Any], parallelism: int) -> Any:
    """The program with a parallelism, which is 3 in `make test` where its results may be compared."""
    repeats = parallelism == 1 and program["id"] not in _BY_ARRIVAL
    return pytest.param(program, parallelism, id=f"{program['id']}, {parallelism}", marks=_LONG if repeats else ())


@pytest.mark.parametrize(
    ("program", "parallelism"),
    [_by(program, many) for program in PROGRAMS for many in ((1,) if program["id"] in _BY_ARRIVAL else (3, 1))],
)
def test_a_program_gives_what_is_worked_out(program: dict[str, Any], parallelism: int, tmp_path: Path) -> None:
    before, after = run(program, tmp_path, parallelism)
    assert after is not None
    check(program, {"Before": before, "After": after})
