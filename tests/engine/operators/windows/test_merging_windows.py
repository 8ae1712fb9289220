"""The set of a key's merging windows, and where their contents are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.windows.merging_windows import MergingWindows
from penstock.engine.windows.assigners import SessionWindows
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.windows import TimeWindow

Merge = tuple[TimeWindow, list[TimeWindow], TimeWindow, list[TimeWindow]]


class _Kept:
    """The state of one key; gives back what it was given, or that as it comes from Arrow."""

    def __init__(self, by_arrow: bool = False) -> None:
        self._by_arrow = by_arrow
        self.held: Any = None

    def value(self) -> Any:
        if self._by_arrow and self.held is not None:
            return [[list(window), list(place)] for window, place in self.held]
        return self.held

    def update(self, value: Any) -> None:
        self.held = value


class _Set:
    """A set under way, which records merges."""

    def __init__(self, assigner: WindowAssigner | None = None, by_arrow: bool = False) -> None:
        self.kept = _Kept(by_arrow)
        self.windows = MergingWindows(assigner or SessionWindows(10), self.kept)  # type: ignore[arg-type]
        self.merges: list[Merge] = []

    def add(self, start: int, end: int) -> TimeWindow:
        """Add one window, as the operator does for a row."""
        self.windows.load()
        result = self.windows.add(TimeWindow(start, end), self._on_merge)
        self.windows.save()
        return result

    def _on_merge(
        self, merged: TimeWindow, parts: Sequence[TimeWindow], place: TimeWindow, given_up: Sequence[TimeWindow]
    ) -> None:
        self.merges.append((merged, list(parts), place, list(given_up)))

    def place(self, start: int, end: int) -> TimeWindow | None:
        self.windows.load()
        return self.windows.state_window(TimeWindow(start, end))


@pytest.mark.parametrize("by_arrow", [False, True])
def test_contents_stay_where_they_are_while_a_window_grows(by_arrow: bool) -> None:
    merging = _Set(by_arrow=by_arrow)
    assert merging.add(0, 10) == TimeWindow(0, 10)
    assert merging.add(5, 15) == TimeWindow(0, 15)
    assert merging.add(15, 25) == TimeWindow(0, 25)
    assert merging.place(0, 25) == TimeWindow(0, 10)
    assert merging.place(0, 10) is None
    assert merging.merges == [
        (TimeWindow(0, 15), [TimeWindow(0, 10)], TimeWindow(0, 10), []),
        (TimeWindow(0, 25), [TimeWindow(0, 15)], TimeWindow(0, 10), []),
    ]


def test_a_row_between_two_windows_brings_them_together() -> None:
    merging = _Set()
    merging.add(0, 10)
    merging.add(20, 30)
    assert merging.add(8, 22) == TimeWindow(0, 30)
    assert merging.merges == [
        (TimeWindow(0, 30), [TimeWindow(0, 10), TimeWindow(20, 30)], TimeWindow(0, 10), [TimeWindow(20, 30)])
    ]


def test_a_window_inside_another_merges_nothing() -> None:
    merging = _Set()
    merging.add(0, 30)
    assert merging.add(5, 15) == TimeWindow(0, 30)
    assert merging.add(0, 30) == TimeWindow(0, 30)
    assert merging.merges == []


def test_a_window_over_all_takes_the_place_of_the_first() -> None:
    merging = _Set()
    merging.add(20, 30)
    merging.add(40, 50)
    assert merging.add(0, 100) == TimeWindow(0, 100)
    assert merging.place(0, 100) == TimeWindow(20, 30)


def test_a_retired_window_is_gone() -> None:
    merging = _Set()
    merging.add(0, 10)
    merging.windows.load()
    merging.windows.retire(TimeWindow(0, 10))
    merging.windows.retire(TimeWindow(0, 10))
    merging.windows.save()
    assert merging.place(0, 10) is None
    assert merging.kept.held is None


class _MergesAll(WindowAssigner):
    """Keeps one window a key."""

    def assign_windows(self, row: Any, timestamp: Any, context: Any) -> list[TimeWindow]:
        return []

    def merge_windows(self, windows: Sequence[TimeWindow]) -> list[tuple[TimeWindow, list[TimeWindow]]]:
        merged = TimeWindow(min(w.start for w in windows), max(w.end for w in windows))
        return [(merged, list(windows))] if len(windows) > 1 else []


def test_an_assigner_may_say_itself_what_merges() -> None:
    merging = _Set(_MergesAll())
    merging.add(0, 10)
    assert merging.add(1_000, 1_010) == TimeWindow(0, 1_010)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=25), st.booleans())
def test_windows_are_the_unions_of_what_came(rows: list[tuple[int, int]], by_arrow: bool) -> None:
    merging = _Set(by_arrow=by_arrow)
    expected: list[TimeWindow] = []
    for start, length in rows:
        new = TimeWindow(start, start + length)
        touching = [window for window in expected if window.intersects(new)]
        for window in touching:
            new = new.cover(window)
            expected.remove(window)
        expected.append(new)
        assert merging.add(start, start + length) == new
        held = dict(merging.kept.held)
        assert sorted(held) == sorted(expected)
        assert len(set(held.values())) == len(held), "no two windows have their contents at one place"
