"""Rows with the time of the clock are never behind the watermarks that came before them, whatever the clock does."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.errors import StateError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.clock_time import ClockTimeSpec
from penstock.engine.state.snapshot import OperatorSnapshot, keyed_table, share
from tests.engine.helpers import RecordingCollector, numbers
from tests.engine.state.saved import snapshot_of


class Subtask:
    """One subtask of the operator, with its clock."""

    def __init__(
        self, start_ms: int, saved: Sequence[OperatorSnapshot] = (), subtask: int = 0, parallelism: int = 1
    ) -> None:
        self.clock, self.out = ManualClock(start_ms), RecordingCollector()
        self.operator = ClockTimeSpec(1000).create()
        self.operator.open(OperatorContext("clock", subtask, parallelism, self.clock))
        if saved:
            self.operator.restore(share(saved, subtask, parallelism, 128))

    def advance(self, seconds: float) -> None:
        """The clock moves, and the operator is called if it asked to be."""
        self.clock.advance(seconds)
        due = self.operator.next_processing_time
        if due is not None and due <= self.clock.now_ms():
            self.operator.on_processing_time(self.clock.now_ms(), self.out)

    def time_of_a_row(self) -> int | None:
        """That of one that comes now."""
        self.operator.process_batch(numbers([1]), 0, self.out)
        return self.out.timestamps[-1]


def test_rows_have_the_time_of_the_clock_and_watermarks_follow_it() -> None:
    subtask = Subtask(4500)
    subtask.advance(0)
    assert (subtask.time_of_a_row(), subtask.out.watermarks) == (4500, [4499])
    subtask.advance(0.4)
    subtask.advance(0.6)
    assert (subtask.time_of_a_row(), subtask.out.watermarks) == (5500, [4499, 5499])


def test_a_clock_that_goes_back_makes_no_row_late_and_no_watermark_fall() -> None:
    subtask = Subtask(9000)
    subtask.advance(0)
    subtask.advance(-5)
    assert subtask.time_of_a_row() == 9000
    subtask.advance(3)
    assert (subtask.time_of_a_row(), subtask.out.watermarks) == (9000, [8999])
    subtask.advance(3)
    assert (subtask.time_of_a_row(), subtask.out.watermarks) == (10_000, [8999, 9999])


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_restore_on_a_clock_that_is_behind_makes_no_row_late(parallelism: int) -> None:
    saved = []
    for start_ms in (6000, 9000):
        before = Subtask(start_ms)
        before.advance(0)
        saved.append(snapshot_of(before.operator))
    for index in range(parallelism):
        # It may have rows of any of them.
        subtask = Subtask(1000, saved, index, parallelism)
        subtask.advance(0)
        assert (subtask.time_of_a_row(), subtask.out.watermarks) == (9000, [])
        subtask.advance(8.5)
        assert (subtask.time_of_a_row(), subtask.out.watermarks) == (9500, [9499])


def test_a_savepoint_without_its_time_begins_with_the_clock() -> None:
    subtask = Subtask(1000, [OperatorSnapshot()])
    assert subtask.time_of_a_row() == 1000


def test_rows_of_windows_of_an_earlier_version_are_not_dropped_unsaid() -> None:
    tables = {"window-contents": keyed_table(pa.table({"k": ["a"]}), ["k"], 128)}
    with pytest.raises(StateError, match=r"\(window-contents\) is that of windows of PROCTIME .*remove_operator"):
        Subtask(1000, [OperatorSnapshot(tables)])
