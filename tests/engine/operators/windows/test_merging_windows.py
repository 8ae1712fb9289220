"""The set of a key's merging windows, and where their contents are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.functions import ProcessWindowFunction
from penstock.engine.operators.windows import merging_windows
from penstock.engine.operators.windows.merging_windows import MERGING_WINDOWS, MergingWindows
from penstock.engine.state.state_tables import ValueCodec
from penstock.engine.windows.assigners import SessionWindows
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.windows import TimeWindow
from tests.engine.state.backends import make_backend
from tests.engine.window_driver import WindowDriver

Merge = tuple[TimeWindow, list[TimeWindow], TimeWindow, list[TimeWindow]]


class _Set:
    """A set under way, which records merges.

    Args:
        assigner: says what merges.
        rereads: whether the set is read from the state before each use, as behind a restore.
    """

    def __init__(self, assigner: WindowAssigner | None = None, rereads: bool = False) -> None:
        self._assigner = assigner or SessionWindows(10)
        self._backend = make_backend("heap")
        self._rereads = rereads
        self.windows = MergingWindows(self._assigner, self._backend)
        self.merges: list[Merge] = []

    def go_to(self, key: int = 0) -> None:
        if self._rereads:
            self.windows.write()
            self.windows = MergingWindows(self._assigner, self._backend)
        self.windows.go_to(key)

    def add(self, start: int, end: int, key: int = 0) -> TimeWindow:
        """Add one window, as the operator does for a row."""
        self.go_to(key)
        return self.windows.add(TimeWindow(start, end), self._on_merge)

    def _on_merge(
        self, merged: TimeWindow, parts: Sequence[TimeWindow], place: TimeWindow, given_up: Sequence[TimeWindow]
    ) -> None:
        self.merges.append((merged, list(parts), place, list(given_up)))

    def place(self, start: int, end: int) -> TimeWindow | None:
        self.go_to()
        return self.windows.state_window(TimeWindow(start, end))

    def written(self, key: int = 0) -> dict[TimeWindow, TimeWindow]:
        """What the state holds once everything has been written."""
        self.windows.write()
        self._backend.set_current_key(key)
        pairs = self._backend.value_state(MERGING_WINDOWS).value() or []
        return {TimeWindow(*window): TimeWindow(*place) for window, place in pairs}


@pytest.mark.parametrize("rereads", [False, True])
def test_contents_stay_where_they_are_while_a_window_grows(rereads: bool) -> None:
    merging = _Set(rereads=rereads)
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
    merging.windows.retire(TimeWindow(0, 10))
    merging.windows.retire(TimeWindow(0, 10))
    assert merging.place(0, 10) is None
    assert merging.written() == {}


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
def test_windows_are_the_unions_of_what_came(rows: list[tuple[int, int]], rereads: bool) -> None:
    merging = _Set(rereads=rereads)
    expected: list[TimeWindow] = []
    for start, length in rows:
        new = TimeWindow(start, start + length)
        touching = [window for window in expected if window.intersects(new)]
        for window in touching:
            new = new.cover(window)
            expected.remove(window)
        expected.append(new)
        assert merging.add(start, start + length) == new
        held = merging.written()
        assert sorted(held) == sorted(expected)
        assert len(set(held.values())) == len(held), "no two windows have their contents at one place"


_ADDED = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 8)), max_size=40)


@given(_ADDED)
def test_sets_that_are_not_held_any_more_are_those_that_were_written(rows: list[tuple[int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging_windows, "_HELD_WINDOWS", 4)
        few = _Set()
        for key, start, length in rows:
            few.add(start, start + length, key)
        written = [few.written(key) for key in range(4)]
    assert written == [_expected([row[1:] for row in rows if row[0] == key]) for key in range(4)]


def _expected(rows: list[tuple[int, int]]) -> dict[TimeWindow, TimeWindow]:
    """The set of one key alone, of which all is held."""
    alone = _Set()
    for start, length in rows:
        alone.add(start, start + length)
    return alone.written()


class _Count(ProcessWindowFunction):
    def process(self, key: Any, context: Any, rows: Any) -> Any:
        yield {"rows": len(rows)}


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "row by row"])
def test_a_row_costs_the_same_beside_thousands_of_open_sessions(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = 0
    admit = ValueCodec.admit

    def counting(self: ValueCodec, value: Any) -> Any:
        nonlocal encoded
        if self.kind == MERGING_WINDOWS.value_type:
            encoded += len(value)
        return admit(self, value)

    monkeypatch.setattr(ValueCodec, "admit", counting)
    driver = WindowDriver(lambda keyed: keyed.window(SessionWindows(10)).process(_Count, {"rows": "int64"}))
    rows = [("a", 100 * number, 1.0) for number in range(1_000)]
    for batch in [rows] if at_once else [[row] for row in rows]:
        driver.add(*batch)
    driver.snapshot()
    assert encoded == 1_000, "each open session is written once, for the snapshot"
    driver.advance(100 * 999)
    assert driver.take() == [{"rows": 1}] * 999
    driver.snapshot()
    assert encoded == 1_001
