"""Windows with allowed lateness, late rows, cumulative windows, snapshots and rescaling: transcripts, and a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import collect_list, count
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells import cell_index, slice_cells, slice_tree
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SlicedWindows
from tests.draws import drawn
from tests.engine.helpers import RunningOperator, timed
from tests.engine.operators.windows.window_job import AGGREGATES, LATE, Row, WindowJob, assert_agreement, scripts
from tests.engine.state.saved import snapshot_of


def job(windows: SlicedWindows, lateness: int = 0, parallelism: int = 1, **aggregates: Any) -> WindowJob:
    aggregation = GroupedAggregation(["key"], aggregates or {"rows": count(), "total": agg.sum("n")})
    return WindowJob(WindowAggregateSpec(windows, aggregation, lateness, LATE), parallelism)


TUMBLING = AlignedWindows(10, 10)


def test_a_row_within_the_allowed_lateness_fires_its_window_again() -> None:
    windows = job(TUMBLING, lateness=5)
    windows.rows_at((1, "a", 1), (2, "b", 10))
    windows.advance(9)
    assert windows.emitted() == [("a", 0, 10, 1, 1), ("b", 0, 10, 1, 10)]
    windows.rows_at((3, "a", 2), (4, "a", 3))
    assert windows.emitted() == [("a", 0, 10, 3, 6)]
    windows.advance(13)
    assert windows.emitted() == []
    windows.rows_at((5, "b", 1))
    assert windows.emitted() == [("b", 0, 10, 2, 11)]
    assert windows.late() == []


def test_a_row_later_than_allowed_goes_to_the_side_output() -> None:
    windows = job(TUMBLING, lateness=5)
    windows.rows_at((1, "a", 1))
    windows.advance(14)
    windows.emitted()
    windows.rows_at((2, "a", 7), (10, "a", 8), (3, "b", 9))
    assert windows.late() == [(2, "a", 7), (3, "b", 9)]
    assert windows.metrics.late_rows == 0
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 10, 20, 1, 8)]


def test_a_late_row_fires_a_window_that_had_none_before() -> None:
    windows = job(TUMBLING, lateness=5)
    windows.advance(9)
    windows.rows_at((1, "a", 1))
    assert windows.emitted() == [("a", 0, 10, 1, 1)]


def test_a_late_row_fires_each_sliding_window_that_the_watermark_has_passed() -> None:
    windows = job(AlignedWindows(10, 5), lateness=5)
    windows.rows_at((7, "a", 1))
    windows.advance(14)
    assert windows.emitted() == [("a", 0, 10, 1, 1), ("a", 5, 15, 1, 1)]
    windows.rows_at((8, "a", 1), (4, "a", 1))
    # [0, 10) was closed at 14; the row at 4 was in no other.
    assert windows.emitted() == [("a", 5, 15, 2, 2)]
    assert windows.late() == [(4, "a", 1)]


def test_without_allowed_lateness_a_window_fires_once() -> None:
    windows = job(AlignedWindows(10, 5))
    windows.rows_at((7, "a", 1))
    windows.advance(9)
    windows.emitted()
    windows.rows_at((8, "a", 1))
    assert windows.emitted() == []


def test_state_is_kept_for_the_allowed_lateness_and_no_longer() -> None:
    windows = job(TUMBLING, lateness=100)
    for at in range(0, 1000, 10):
        windows.rows_at((at, "a", 1))
        windows.advance(at)
    operator: Any = windows.operators[0]
    assert len(operator._cells.slices) == 11


def test_cumulative_windows_grow_by_the_step_and_begin_anew() -> None:
    windows = job(CumulativeWindows(30, 10))
    windows.rows_at((5, "a", 1), (15, "a", 2), (25, "a", 4), (35, "a", 8))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [
        ("a", 0, 10, 1, 1),
        ("a", 0, 20, 2, 3),
        ("a", 0, 30, 3, 7),
        ("a", 30, 40, 1, 8),
        ("a", 30, 50, 1, 8),
        ("a", 30, 60, 1, 8),
    ]


def test_a_key_stays_in_the_cumulative_windows_behind_its_last_row() -> None:
    windows = job(CumulativeWindows(30, 10))
    windows.rows_at((5, "a", 1))
    windows.advance(9)
    assert windows.emitted() == [("a", 0, 10, 1, 1)]
    windows.advance(19)
    assert windows.emitted() == [("a", 0, 20, 1, 1)]


def test_without_keys_all_rows_are_one_group() -> None:
    aggregation = GroupedAggregation([], {"rows": count(), "all": collect_list("n")})
    operator = RunningOperator(WindowAggregateSpec(AlignedWindows(10, 5), aggregation).create())
    operator.process(timed([{"at": 1, "n": 1}, {"at": 7, "n": 2}], {"n": pa.int64()}))
    snapshot = snapshot_of(operator.operator)
    restored = RunningOperator(WindowAggregateSpec(AlignedWindows(10, 5), aggregation).create())
    restored.operator.restore(snapshot)
    restored.advance(MAX_TIMESTAMP)
    assert [(row["rows"], row["all"]) for row in restored.take_rows()] == [(1, [1]), (2, [1, 2]), (1, [2])]


def test_a_snapshot_remembers_which_windows_were_emitted() -> None:
    windows = job(TUMBLING, lateness=20)
    windows.rows_at((1, "a", 1), (12, "a", 2))
    windows.advance(9)
    windows.emitted()
    windows.rescale(3)
    windows.advance(19)
    assert windows.emitted() == [("a", 10, 20, 1, 2)]
    windows.rows_at((2, "a", 1))
    assert windows.emitted() == [("a", 0, 10, 2, 2)]


def test_the_snapshot_of_an_operator_without_rows_holds_its_watermark() -> None:
    windows = job(TUMBLING)
    windows.advance(15)
    snapshot = snapshot_of(windows.operators[0])
    assert (snapshot.watermark, set(snapshot.tables)) == (15, {"window_form"})
    windows.rescale(2)
    windows.rows_at((9, "a", 1))
    assert windows.late() == [(9, "a", 1)]


def test_what_cannot_be_added_up_in_numpy_is_restored_too() -> None:
    windows = job(AlignedWindows(10, 5), list=collect_list("n"), last=agg.last("n"), spread=agg.stddev("n", ddof=0))
    windows.rows_at((1, "a", 3), (6, "a", 1))
    windows.rows_at((2, "a", 5))
    windows.rescale(2)
    windows.rows_at((7, "a", 9))
    windows.advance(9)
    assert windows.emitted()[1:] == [("a", 0, 10, [3, 5, 1, 9], 9, pytest.approx(2.958039891549808))]


# Against a model

ROWS = st.lists(st.tuples(st.integers(-40, 60), st.sampled_from("abcdef"), st.integers(-9, 9)), min_size=1, max_size=6)
ALIGNED = st.builds(AlignedWindows, st.integers(1, 12), st.integers(1, 15), st.integers(0, 14))
LONG = st.builds(AlignedWindows, st.integers(30, 80), st.integers(1, 3), st.integers(0, 14))
CUMULATIVE = st.builds(
    lambda step, steps, offset: CumulativeWindows(step * steps, step, offset),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(0, 14),
)


SCRIPTS = scripts(ROWS, most_steps=10, first=-60, furthest=25)


class _Model:
    """Flink's rules, row by row; a window that was emitted is emitted again once a batch."""

    def __init__(self, windows: SlicedWindows, lateness: int) -> None:
        self.windows, self.lateness = windows, lateness
        self.contents: dict[tuple[int, int, str], list[Row]] = defaultdict(list)
        self.watermark = MIN_TIMESTAMP
        self.late: list[Row] = []

    def windows_of(self, at: int) -> Iterator[tuple[int, int]]:
        shape = self.windows
        if isinstance(shape, AlignedWindows):
            for start in range(at - shape.size_ms + 1, at + 1):
                if (start - shape.offset_ms) % shape.slide_ms == 0:
                    yield start, start + shape.size_ms
        else:
            start = at - (at - shape.offset_ms) % shape.max_size_ms
            for end in range(start, start + shape.max_size_ms + 1, shape.step_ms):
                if end > at:
                    yield start, end

    def rows_at(self, rows: list[Row]) -> list[tuple[Any, ...]]:
        again = set()
        for row in rows:
            covering = list(self.windows_of(row[0]))
            still_open = [(start, end) for start, end in covering if end - 1 + self.lateness > self.watermark]
            if not still_open and (covering or row[0] + self.lateness <= self.watermark):
                self.late.append(row)
            for start, end in still_open:
                self.contents[start, end, row[1]].append(row)
                if end - 1 <= self.watermark:
                    again.add((start, end, row[1]))
        return [self._result(place) for place in again]

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        due = [place for place in self.contents if self.watermark < place[1] - 1 <= watermark]
        self.watermark = watermark
        results = [self._result(place) for place in due]
        for place in [place for place in self.contents if place[1] - 1 + self.lateness <= watermark]:
            del self.contents[place]
        return results

    def _result(self, place: tuple[int, int, str]) -> tuple[Any, ...]:
        start, end, key = place
        values = [n for _, _, n in self.contents[place]]
        return key, start, end, len(values), sum(values), max(values), key


def _agrees(script: list[Any], windows: SlicedWindows, lateness: int) -> None:
    assert_agreement(script, job(windows, lateness, **AGGREGATES), _Model(windows, lateness))


@given(SCRIPTS, ALIGNED | CUMULATIVE | LONG, st.integers(0, 30))
@settings(max_examples=drawn(50))
def test_windows_agree_with_the_model(script: list[Any], windows: SlicedWindows, lateness: int) -> None:
    _agrees(script, windows, lateness)


@given(SCRIPTS, ALIGNED | CUMULATIVE | LONG, st.integers(0, 30))
@settings(max_examples=drawn(50))
def test_windows_agree_with_the_model_in_small_blocks_hash_tables_and_arrays(
    script: list[Any], windows: SlicedWindows, lateness: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_tree, "_MANY_SLICES", 2)
        patch.setattr(slice_cells, "_SMALL", 0)
        patch.setattr(slice_cells, "_ROOMY", 2)
        patch.setattr(cell_index, "_SMALL", 4)
        patch.setattr(cell_index, "_SPARSE", 0)
        patch.setattr(cell_index, "_MIN_SLICES", 1)
        patch.setattr(cell_index, "_MIN_SLOTS", 1)
        _agrees(script, windows, lateness)


@pytest.mark.parametrize("lateness", [0, 50])
def test_a_burst_of_keys_leaves_nothing_behind(lateness: int) -> None:
    aggregation = GroupedAggregation(["key"], {"rows": count()})
    windows = RunningOperator(WindowAggregateSpec(AlignedWindows(10, 10), aggregation, lateness).create())
    keys = [{"at": 5, "key": key} for key in range(70_000)]
    windows.process(timed(keys, {"key": pa.int64()}))
    windows.advance(9 + lateness)
    assert len(windows.take_rows()) == 70_000
    operator: Any = windows.operator
    assert operator._cells._pool.end == 0
    assert operator._cells.width == 0


def test_new_keys_in_each_window_take_the_place_of_old_ones() -> None:
    aggregation = GroupedAggregation(["key"], {"rows": count()})
    windows = RunningOperator(WindowAggregateSpec(AlignedWindows(10, 5), aggregation).create())
    for number in range(60):
        rows = [{"at": 10 * number, "key": 1000 * number + key} for key in range(1000)]
        windows.process(timed(rows, {"key": pa.int64()}))
        windows.advance(10 * number)
    operator: Any = windows.operator
    assert operator._cells.width < 10_000
    assert operator._cells._pool.end < 10_000
