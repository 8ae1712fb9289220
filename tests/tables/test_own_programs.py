"""SQL programs in the form of Flink's, whose results are worked out by hand: in both halves around a savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tables.own_programs import PROGRAMS
from tests.tables.programs import check, run

_BY_ARRIVAL = frozenset({"limit", "limit-and-offset-over-both-halves"})
"""Programs whose results hang on the order in which rows come, which several subtasks do not keep."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program["id"])
def test_a_program_gives_what_is_worked_out(program: dict[str, Any], tmp_path: Path) -> None:
    for parallelism in (1, 3):
        if parallelism > 1 and program["id"] in _BY_ARRIVAL:
            continue
        before, after = run(program, tmp_path / str(parallelism), parallelism)
        assert after is not None
        check(program, {"Before": before, "After": after})
