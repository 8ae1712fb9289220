"""Random operators give the same however rows are cut into batches, restored, and by any other way to the same."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.engine.cells.session_cells import Placed, SessionCells
from penstock.engine.cells.session_rules import NONE
from tests.property.cuts.checks import case, check
from tests.property.cuts.drawing import DRAWS
from tests.property.cuts.runs import Given
from tests.property.cuts.sizes import compiled_alone, lowered


@pytest.mark.parametrize("part", range(4))
def test_the_cut_into_batches_changes_nothing(part: int) -> None:
    verdicts = [check(seed, lowered, most_tries=0) for seed in range(5 * part, 5 * part + 5)]
    assert not [verdict.detail for verdict in verdicts if verdict.kind == "wrong"]
    assert sum(verdict.kind == "same" for verdict in verdicts) >= 4, "hardly anything was compared"


def test_compiled_functions_give_what_plain_ones_give() -> None:
    seeds = (seed for seed in itertools.count() if case(seed).operators.text.startswith("compiled"))
    verdicts = [check(seed, compiled_alone, most_tries=0) for seed in itertools.islice(seeds, 6)]
    assert not [verdict.detail for verdict in verdicts if verdict.kind != "same"]


def test_a_run_that_loses_a_row_is_noticed() -> None:
    made = next(
        made for made in map(case, range(100)) if made.operators.model is not None and not made.difference(made.steps)
    )
    model = made.operators.model
    assert model is not None

    def lossy(steps: Sequence[object]) -> list[Given]:
        given = model(steps)  # type: ignore[arg-type]
        last = next(one for one in reversed(given) if one.rows)
        last.rows.pop()
        return given

    broken = replace(made, operators=replace(made.operators, model=lossy))
    assert broken.difference(made.steps).startswith("plain Python:")


def test_a_late_row_that_a_later_row_of_its_batch_takes_in_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    place = SessionCells.place

    def by_whole_batches(
        self: SessionCells, slots: Any, starts: Any, ends: Any, all_slots: int, horizon: int
    ) -> Placed:
        placed = place(self, slots, starts, ends, all_slots)
        late = self.ends[placed.sessions] - 1 <= horizon
        gone = np.unique(placed.sessions[late])
        self.close(gone)
        sessions = np.where(late, NONE, placed.sessions)
        return replace(placed, sessions=sessions, opened=np.setdiff1d(placed.opened, gone))

    monkeypatch.setattr(SessionCells, "place", by_whole_batches)
    assert "in batches of" in check(972, most_tries=0).detail


def test_every_kind_of_operators_is_drawn() -> None:
    texts = {case(seed).operators.text.split()[0] for seed in range(200)}
    assert len(texts) >= len(DRAWS)
