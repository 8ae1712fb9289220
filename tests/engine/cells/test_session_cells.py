"""Open sessions: compiled rules give what plain ones give, and ids are used again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.cells import session_cells
from penstock.engine.cells.session_cells import SessionCells

BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), min_size=1, max_size=20), max_size=6)


def _spans(batches: list[list[tuple[int, int]]], gap: int, few: int) -> list[tuple[list[int], set[tuple[int, ...]]]]:
    """The sessions of the rows, and all sessions (slot, start, end), behind each batch."""
    sessions, behind = SessionCells(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_cells, "_FEW", few)
        for number, rows in enumerate(batches):
            slots, starts = (np.array(column) for column in zip(*rows, strict=True))
            placed = sessions.place(slots, starts, starts + gap, 4)
            held = sessions.open_sessions()
            assert {*placed.sessions.tolist(), *placed.opened.tolist(), *placed.into.tolist()} <= set(held.tolist())
            assert not {*placed.merged.tolist()} & set(held.tolist())
            assert (sessions.slots[placed.sessions] == slots).all()
            assert (sessions.starts[placed.sessions] <= starts).all()
            assert (sessions.ends[placed.sessions] >= starts + gap).all()
            spans = {(int(sessions.slots[s]), int(sessions.starts[s]), int(sessions.ends[s])) for s in held}
            behind.append((placed.sessions.tolist(), spans))
            if number % 2:
                sessions.close(held[: len(held) // 2])
    return behind


@given(BATCHES, st.integers(1, 20))
def test_compiled_rules_give_what_plain_ones_give(batches: list[list[tuple[int, int]]], gap: int) -> None:
    assert _spans(batches, gap, 10**9) == _spans(batches, gap, 0)


def test_sessions_that_a_row_joins_become_one() -> None:
    sessions = SessionCells()
    first = sessions.place(np.array([0, 0, 1]), np.array([0, 30, 0]), np.array([10, 40, 10]), 2)
    assert (len(first.opened), first.merged.tolist()) == (3, [])
    # The second row joins the first two sessions, by way of the third.
    second = sessions.place(np.array([0, 0]), np.array([15, 8]), np.array([35, 18]), 2)
    assert second.opened.tolist() == []
    assert len(second.merged) == 1
    assert set(second.sessions.tolist()) == set(second.into.tolist())
    assert len(sessions) == 2


@pytest.mark.parametrize("few", [0, 10**9])
def test_a_row_is_late_though_a_row_behind_it_opens_a_session_that_it_touches(few: int) -> None:
    sessions = SessionCells()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_cells, "_FEW", few)
        placed = sessions.place(np.zeros(3, np.int64), np.array([0, 5, 1]), np.array([10, 15, 11]), 1, horizon=10)
    assert placed.sessions.tolist()[0] == -1
    assert (len(placed.opened), len(sessions)) == (1, 1)
    # The last one is as old, but touches what is open.
    assert placed.sessions[1] == placed.sessions[2] != -1


def test_ids_are_used_again() -> None:
    sessions = SessionCells()
    for begin in range(0, 10_000, 100):
        sessions.place(np.arange(5), np.full(5, begin), np.full(5, begin + 10), 5)
        sessions.close(sessions.ending(begin, begin + 10))
    assert len(sessions) == 0
    assert sessions.end <= 10
