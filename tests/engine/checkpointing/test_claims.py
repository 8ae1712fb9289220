"""The rule by which checkpoints count where managers replaced each other; `savepoints/test_store.py` has folders."""

from __future__ import annotations

import pytest

from penstock.engine.checkpointing.claims import Claims, is_fenced


def test_all_checkpoints_count_where_no_manager_has_resumed() -> None:
    assert all(Claims().counts(checkpoint, manager) for checkpoint in (1, 7) for manager in (1, 2))


@pytest.mark.parametrize(
    ("checkpoint", "manager", "counts"),
    [(5, 1, True), (4, 1, True), (6, 1, False), (6, 2, True), (7, 3, True)],
    ids=["resumed from", "before it", "late, of the one replaced", "of the one that resumed", "of a later one"],
)
def test_a_late_checkpoint_of_a_manager_that_was_replaced_never_counts(
    checkpoint: int, manager: int, counts: bool
) -> None:
    assert Claims(decider=2, restored=5).counts(checkpoint, manager) is counts


def test_a_folder_without_what_was_resumed_from_is_damaged_unless_a_newer_one_counts() -> None:
    claims = Claims(decider=2, restored=5)
    assert claims.misses_restored(0)
    assert claims.misses_restored(4)
    assert not claims.misses_restored(5)
    assert not claims.misses_restored(6)
    assert not Claims(decider=2).misses_restored(0), "it began anew"


def test_an_end_holds_until_a_later_manager_has_resumed() -> None:
    assert Claims(decider=3).overrule(2)
    assert not Claims(decider=3).overrule(3)
    assert not Claims().overrule(1)


def test_a_manager_is_fenced_by_newer_claims_only() -> None:
    assert is_fenced(1, 2)
    assert not is_fenced(2, 2)
