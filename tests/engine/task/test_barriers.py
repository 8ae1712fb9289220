"""Where barriers meet: which channels wait, when the snapshot is due, and what becomes of those that come too late."""

from __future__ import annotations

import math

from penstock.engine.elements import Barrier, CheckpointMode
from penstock.engine.task.barriers import BarrierAligner
from tests.engine.helpers import numbers, numbers_in

UNALIGNED, AT_LEAST_ONCE = CheckpointMode.UNALIGNED, CheckpointMode.AT_LEAST_ONCE


def aligner(channels: int = 3, overtakable: int = 0) -> BarrierAligner:
    """With `overtakable` of the channels, from the first."""
    return BarrierAligner(range(channels), range(overtakable))


def test_a_channel_waits_behind_its_barrier_until_all_have_come() -> None:
    tested = aligner()
    assert tested.on_barrier(0, Barrier(1), now=1.0) == []
    assert tested.on_barrier(2, Barrier(1), now=2.0) == []
    assert tested.blocked == {0, 2}
    assert tested.on_barrier(1, Barrier(1), now=4.0) == [Barrier(1)]
    assert tested.blocked == frozenset()
    assert tested.alignment_seconds == 3.0


def test_a_channel_that_ends_counts_as_aligned() -> None:
    tested = aligner()
    tested.on_barrier(0, Barrier(1), 0)
    tested.on_end(1, 0)
    assert tested.on_end(2, 0) == [Barrier(1)]
    assert tested.on_barrier(0, Barrier(2), 0) == [Barrier(2)]


def test_the_end_of_all_channels_is_no_barrier() -> None:
    tested = aligner(2)
    assert [*tested.on_end(0, 0), *tested.on_end(1, 0)] == []


def test_a_later_barrier_on_a_channel_gives_up_the_earlier_checkpoint() -> None:
    tested = aligner(2)
    tested.on_barrier(0, Barrier(1), 0)
    assert tested.on_barrier(1, Barrier(2), 0) == []
    assert tested.blocked == {1}
    assert tested.is_over(1)
    assert tested.on_barrier(0, Barrier(2), 0) == [Barrier(2)]


def test_a_barrier_that_comes_when_a_later_one_has_passed_on_another_channel_is_dropped() -> None:
    tested = aligner(2)
    tested.on_barrier(1, Barrier(2), 0)
    assert tested.on_barrier(0, Barrier(1), 0) == []
    assert tested.on_barrier(0, Barrier(2), 0) == [Barrier(2)]


def test_barriers_of_a_checkpoint_that_is_over_are_dropped() -> None:
    tested = aligner(2)
    tested.on_barrier(0, Barrier(2), 0)
    tested.abort(2, 0)
    assert tested.blocked == frozenset()
    assert tested.on_barrier(1, Barrier(2), 0) == []
    assert tested.blocked == frozenset()


def test_a_checkpoint_may_be_aborted_before_its_first_barrier() -> None:
    tested = aligner(1)
    tested.abort(1, 0)
    assert tested.on_barrier(0, Barrier(1), 0) == []
    assert tested.on_barrier(0, Barrier(2), 0) == [Barrier(2)]


def test_at_least_once_no_channel_waits_and_several_checkpoints_are_under_way() -> None:
    one, two = Barrier(1, AT_LEAST_ONCE), Barrier(2, AT_LEAST_ONCE)
    tested = aligner(2)
    assert [*tested.on_barrier(0, one, 0), *tested.on_barrier(0, two, 0)] == []
    assert tested.blocked == frozenset()
    assert tested.on_barrier(1, one, 0) == [one]
    assert tested.on_barrier(1, two, 0) == [two]


def test_the_first_unaligned_barrier_begins_at_once_and_the_rows_before_the_others_are_recorded() -> None:
    barrier, tested = Barrier(1, UNALIGNED), aligner(3, overtakable=3)
    assert tested.on_announced(0, barrier, 0) == [barrier]
    assert tested.awaited(1) == [0, 1, 2]
    tested.met(0, 1)
    tested.record(1, 1, [numbers([7])])
    tested.met(1, 1)
    assert tested.take_overtaken(1) is None
    tested.on_end(2, 0)
    overtaken = tested.take_overtaken(1)
    assert overtaken is not None
    assert {channel: numbers_in(rows) for channel, rows in overtaken.items()} == {1: [7]}


def test_several_unaligned_checkpoints_record_rows_side_by_side() -> None:
    one, two, tested = Barrier(1, UNALIGNED), Barrier(2, UNALIGNED), aligner(2, overtakable=2)
    tested.on_barrier(0, one, 0)
    tested.on_barrier(0, two, 0)
    assert tested.awaiting(1) == [1, 2]


def test_channels_that_keep_their_order_are_aligned_before_an_unaligned_checkpoint_begins() -> None:
    barrier, tested = Barrier(1, UNALIGNED), aligner(2, overtakable=1)
    assert tested.on_announced(0, barrier, 0) == []
    assert tested.on_barrier(0, barrier, 0) == []
    assert tested.blocked == {0}
    assert tested.on_barrier(1, barrier, 0) == [barrier]
    assert tested.blocked == frozenset()


def test_an_alignment_that_takes_too_long_becomes_unaligned() -> None:
    tested = aligner(2, overtakable=2)
    assert tested.deadline == math.inf
    tested.on_barrier(0, Barrier(1, alignment_timeout_ms=500), now=1.0)
    assert tested.deadline == 1.5
    assert tested.on_time(1.4) == []
    assert tested.on_time(1.5) == [Barrier(1, UNALIGNED, alignment_timeout_ms=500)]
    assert tested.awaited(1) == [1]
    assert tested.deadline == math.inf


def test_the_time_begins_when_the_first_barrier_has_come_to_an_inbox() -> None:
    tested = aligner(1, overtakable=1)
    tested.on_announced(0, Barrier(1, alignment_timeout_ms=500), now=1.0)
    assert tested.deadline == 1.5
    assert tested.blocked == frozenset()


def test_snapshots_are_due_in_the_order_of_their_checkpoints() -> None:
    savepoint, later, tested = Barrier(1), Barrier(2, UNALIGNED), aligner(2, overtakable=2)
    tested.on_barrier(0, savepoint, 0)
    assert tested.on_announced(0, later, 0) == []
    assert tested.on_barrier(1, savepoint, 0) == [savepoint, later]


def test_a_later_checkpoint_does_not_overtake_one_whose_barrier_waits_in_an_inbox() -> None:
    savepoint, later, tested = Barrier(1), Barrier(2, UNALIGNED), aligner(2, overtakable=2)
    assert tested.on_announced(0, savepoint, 0) == []
    assert tested.on_announced(0, later, 0) == []
    assert tested.on_barrier(0, savepoint, 3.0) == []
    assert tested.on_barrier(1, savepoint, 4.0) == [savepoint, later]


def test_a_checkpoint_that_is_first_heard_of_behind_a_later_one_is_given_up() -> None:
    older, later, tested = Barrier(1, UNALIGNED), Barrier(2, UNALIGNED), aligner(2, overtakable=2)
    assert tested.on_announced(0, later, 0) == [later]
    assert tested.on_announced(1, older, 0) == []
    assert tested.is_over(1)
    assert tested.on_barrier(1, older, 0) == []
    assert tested.awaited(2) == [0, 1]
    tested.on_barrier(0, later, 0)
    tested.on_barrier(1, later, 0)
    assert tested.take_overtaken(2) == {}


def test_an_older_checkpoint_that_may_become_unaligned_does_so_for_a_later_one() -> None:
    older, later = Barrier(1, alignment_timeout_ms=500), Barrier(2, UNALIGNED)
    tested = aligner(2, overtakable=2)
    tested.on_barrier(0, older, 0)
    assert tested.on_announced(0, later, 0) == [Barrier(1, UNALIGNED, alignment_timeout_ms=500), later]


def test_a_checkpoint_that_waited_for_an_older_one_begins_when_that_is_aborted() -> None:
    savepoint, later, tested = Barrier(1), Barrier(2, UNALIGNED), aligner(2, overtakable=2)
    tested.on_barrier(0, savepoint, 0)
    tested.on_announced(0, later, 0)
    assert tested.abort(1, 0) == [later]
    assert tested.awaited(2) == [0, 1]


def test_an_aborted_checkpoint_gives_the_rows_that_it_has() -> None:
    tested = aligner(2, overtakable=2)
    tested.on_barrier(0, Barrier(1, UNALIGNED), 0)
    tested.record(1, 1, [numbers([7])])
    tested.abort(1, 0)
    overtaken = tested.take_overtaken(1)
    assert overtaken is not None
    assert numbers_in(overtaken[1]) == [7]
    assert tested.awaiting(1) == []


def test_what_is_over_is_not_remembered_for_ever() -> None:
    tested = aligner(1)
    for checkpoint in range(1, 3000):
        tested.on_barrier(0, Barrier(checkpoint), 0)
    assert len(tested._over) <= 1000
    assert tested.is_over(1)
