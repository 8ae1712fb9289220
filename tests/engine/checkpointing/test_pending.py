"""A checkpoint under way: one outcome, and words for who is missing."""

from __future__ import annotations

import itertools
import math

import pytest

from penstock.engine.checkpointing.handles import NOTHING
from penstock.engine.checkpointing.pending import TRANSITIONS, Attempt, PendingCheckpoint, Phase
from penstock.engine.elements import Barrier
from tests.engine.checkpointing.coordinator_driver import handle_of

ROUTES = {
    Phase.PENDING: [],
    Phase.STORING: [Phase.STORING],
    Phase.COMPLETED: [Phase.STORING, Phase.COMPLETED],
    Phase.ABORTED: [Phase.ABORTED],
}


def pending(subtasks: int = 2) -> PendingCheckpoint:
    attempt = Attempt(1, tuple((1, i) for i in range(subtasks)), {}, due=math.inf)
    return PendingCheckpoint(Barrier(7), attempt, (), 0.0, 0, 10.0)


@pytest.mark.parametrize(("begin", "end"), list(itertools.product(Phase, Phase)))
def test_phases_follow_each_other_as_the_table_says(begin: Phase, end: Phase) -> None:
    checkpoint = pending()
    for phase in ROUTES[begin]:
        checkpoint.move(phase)
    if end in TRANSITIONS[begin]:
        checkpoint.move(end)
        assert checkpoint.phase is end
    else:
        with pytest.raises(RuntimeError, match=f"checkpoint 7 cannot go from {begin.name} to {end.name}"):
            checkpoint.move(end)


def test_parts_come_in_the_order_of_the_subtasks() -> None:
    checkpoint = pending()
    late, early = handle_of((1, 0)), handle_of((1, 1))
    checkpoint.acknowledge((1, 1), early, NOTHING, 0.5, 5)
    assert (checkpoint.is_open, checkpoint.handles) == (True, (early,))
    checkpoint.acknowledge((1, 0), late, NOTHING, 0.6, 6)
    assert (checkpoint.is_open, checkpoint.handles, checkpoint.acknowledged_ms) == (False, (late, early), 6)


def test_only_some_of_many_missing_subtasks_are_named() -> None:
    checkpoint = pending(5)
    checkpoint.acknowledge((1, 1), handle_of((1, 1)), NOTHING, 0.0, 0)
    assert checkpoint.progress() == (
        "1 of 5 subtasks had acknowledged; missing: task 1 subtask 0, task 1 subtask 2, task 1 subtask 3, ..."
    )
    assert pending(0).progress() == "0 of 0 subtasks had acknowledged"
