"""Tumbling and sliding windows: transcripts of Flink's rules, and agreement with a model that takes row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import collect_list, count, last
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark
from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec
from penstock.engine.windows.assigners import AlignedWindows
from tests.engine.helpers import RunningOperator, timed

TYPES = {"key": pa.string(), "n": pa.int64()}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Windows(RunningOperator):
    """A window operator that sums `n` and counts rows, by `key`."""

    def __init__(self, size: int, slide: int | None = None, offset: int = 0, **aggregates: Any) -> None:
        windows = AlignedWindows(size, size if slide is None else slide, offset)
        aggregation = GroupedAggregation(["key"], aggregates or {"rows": count(), "total": agg.sum("n")})
        super().__init__(WindowAggregateSpec(windows, aggregation).create())

    def rows_at(self, *rows: tuple[int, str] | tuple[int, str, int]) -> None:
        """Process one batch of (event time, key, n); n is 1 where not given."""
        self.process(timed([{"at": at, "key": key, "n": n[0] if n else 1} for at, key, *n in rows], TYPES))

    def emitted(self) -> list[tuple[Any, ...]]:
        """What was emitted since the last call: (key, start, end, aggregates...)."""
        return [tuple(_milliseconds(value) for value in row.values()) for row in self.take_rows()]


def _milliseconds(value: Any) -> Any:
    return (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value


def test_a_window_fires_when_the_watermark_reaches_its_last_millisecond() -> None:
    windows = Windows(10)
    windows.rows_at((0, "a"), (9, "a"))
    windows.advance(8)
    assert windows.emitted() == []
    windows.advance(9)
    assert windows.emitted() == [("a", 0, 10, 2, 2)]


def test_a_window_fires_once() -> None:
    windows = Windows(10)
    windows.rows_at((5, "a"))
    windows.advance(9)
    windows.advance(10)
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 0, 10, 1, 1)]


def test_a_row_at_the_end_of_a_window_belongs_to_the_next() -> None:
    windows = Windows(10)
    windows.rows_at((9, "a"), (10, "a"))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 0, 10, 1, 1), ("a", 10, 20, 1, 1)]


def test_each_key_has_windows_of_its_own() -> None:
    windows = Windows(10)
    windows.rows_at((1, "a", 3), (2, "b", 5), (3, "a", 4))
    windows.advance(9)
    assert windows.emitted() == [("a", 0, 10, 2, 7), ("b", 0, 10, 1, 5)]


def test_a_key_without_rows_in_a_window_has_no_result() -> None:
    windows = Windows(10)
    windows.rows_at((1, "a"), (25, "a"))
    windows.advance(MAX_TIMESTAMP)
    assert [(start, end) for _, start, end, *_ in windows.emitted()] == [(0, 10), (20, 30)]


def test_earlier_windows_come_first_and_the_watermark_behind_them() -> None:
    windows = Windows(10)
    windows.rows_at((35, "a"), (1, "a"), (12, "a"))
    windows.advance(29)
    assert [row["window_start"] for row in windows.out.rows] == [EPOCH, EPOCH + timedelta(milliseconds=10)]
    assert windows.out.watermarks == [29]
    assert windows.out.elements[-1] == Watermark(29)


def test_results_carry_the_last_millisecond_of_their_window() -> None:
    windows = Windows(10)
    windows.rows_at((1, "a"), (11, "b"))
    windows.advance(MAX_TIMESTAMP)
    assert windows.out.timestamps == [9, 19]


def test_the_bounds_are_timestamps_in_utc_between_keys_and_results() -> None:
    windows = Windows(10)
    windows.rows_at((1, "a"))
    windows.advance(MAX_TIMESTAMP)
    schema = windows.out.batches[0].data.schema
    assert schema.names == ["key", "window_start", "window_end", "rows", "total"]
    assert schema.field("window_start") == pa.field("window_start", pa.timestamp("ms", "UTC"), nullable=False)
    assert schema.field("window_end") == pa.field("window_end", pa.timestamp("ms", "UTC"), nullable=False)


def test_times_before_the_epoch_have_windows_like_any_other() -> None:
    windows = Windows(10)
    windows.rows_at((-1, "a"), (-10, "a"), (-11, "a"), (0, "a"))
    windows.advance(-1)
    assert windows.emitted() == [("a", -20, -10, 1, 1), ("a", -10, 0, 2, 2)]


def test_an_offset_moves_the_windows() -> None:
    windows = Windows(10, offset=3)
    windows.rows_at((2, "a"), (3, "a"), (12, "a"), (13, "a"))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", -7, 3, 1, 1), ("a", 3, 13, 2, 2), ("a", 13, 23, 1, 1)]


def test_a_row_counts_in_every_sliding_window_that_covers_it() -> None:
    windows = Windows(10, 5)
    windows.rows_at((7, "a"))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 0, 10, 1, 1), ("a", 5, 15, 1, 1)]


def test_sliding_windows_whose_slide_does_not_divide_their_size() -> None:
    windows = Windows(10, 4)
    windows.rows_at((9, "a", 1), (11, "a", 10))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 0, 10, 1, 1), ("a", 4, 14, 2, 11), ("a", 8, 18, 2, 11)]


def test_a_sliding_window_gives_its_keys_in_the_order_in_which_they_came() -> None:
    windows = Windows(10, 5)
    windows.rows_at((1, "b"), (6, "a"), (7, "b"))
    windows.advance(9)
    assert [key for key, start, *_ in windows.emitted() if start == 0] == ["b", "a"]


def test_rows_between_windows_belong_to_none_and_are_not_late() -> None:
    windows = Windows(4, 10)
    windows.rows_at((3, "a"), (4, "a"), (9, "a"), (10, "a"))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 0, 4, 1, 1), ("a", 10, 14, 1, 1)]
    assert windows.metrics.late_rows == 0


def test_a_batch_of_rows_between_windows_emits_nothing() -> None:
    windows = Windows(4, 10)
    windows.rows_at((5, "a"))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == []


def test_late_rows_are_dropped_and_counted() -> None:
    windows = Windows(10)
    windows.advance(9)
    windows.rows_at((9, "a"), (0, "b"), (10, "a"))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 10, 20, 1, 1)]
    assert windows.metrics.late_rows == 2


def test_a_row_behind_the_watermark_counts_while_its_window_is_open() -> None:
    windows = Windows(10)
    windows.advance(8)
    windows.rows_at((3, "a"))
    windows.advance(9)
    assert windows.emitted() == [("a", 0, 10, 1, 1)]
    assert windows.metrics.late_rows == 0


def test_a_row_late_for_one_sliding_window_still_counts_in_those_not_yet_fired() -> None:
    windows = Windows(10, 5)
    windows.rows_at((7, "a"))
    windows.advance(9)
    assert windows.emitted() == [("a", 0, 10, 1, 1)]
    windows.rows_at((8, "a"), (4, "a"))
    windows.advance(14)
    assert windows.emitted() == [("a", 5, 15, 2, 2)]
    assert windows.metrics.late_rows == 1


def test_a_row_in_a_new_slice_does_not_fire_the_windows_that_have_passed() -> None:
    windows = Windows(10, 5)
    windows.advance(9)
    windows.rows_at((8, "a"))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 5, 15, 1, 1)]


def test_windows_fill_up_over_many_batches() -> None:
    windows = Windows(10)
    for at in range(20):
        windows.rows_at((at, "a", at))
    windows.advance(MAX_TIMESTAMP)
    assert windows.emitted() == [("a", 0, 10, 10, 45), ("a", 10, 20, 10, 145)]


def test_nothing_is_kept_of_windows_that_have_fired() -> None:
    windows = Windows(10, 5)
    for at in range(0, 1000, 3):
        windows.rows_at((at, "a"))
        windows.advance(at)
    operator: Any = windows.operator
    assert len(operator._cells.slices) <= 3
    assert operator._cells._pool.end <= 4


def test_windows_without_a_key_column_are_one_group() -> None:
    aggregation = GroupedAggregation([], {"rows": count()})
    operator = RunningOperator(WindowAggregateSpec(AlignedWindows(10, 10), aggregation).create())
    operator.process(timed([{"at": 1, "n": 1}, {"at": 2, "n": 1}], {"n": pa.int64()}))
    operator.advance(9)
    assert [row["rows"] for row in operator.take_rows()] == [2]


def test_the_last_of_two_rows_with_one_timestamp_is_the_one_that_came_last() -> None:
    windows = Windows(10, latest=last("n"))
    windows.rows_at((5, "a", 1), (5, "a", 2))
    windows.rows_at((3, "a", 3), (5, "a", 4))
    windows.rows_at((4, "a", 5))
    windows.advance(9)
    assert windows.emitted() == [("a", 0, 10, 4)]


# Against a model

ROWS = st.lists(st.tuples(st.integers(-40, 60), st.sampled_from("abc"), st.integers(-9, 9)), max_size=30)
WINDOWS = st.tuples(st.integers(1, 12), st.integers(1, 15), st.integers(0, 14))


@st.composite
def steps(draw: st.DrawFn) -> list[Any]:
    """Batches of rows, and watermarks that rise, in any order."""
    script: list[Any] = []
    watermark = -60
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            watermark += draw(st.integers(1, 25))
            script.append(watermark)
        rows = draw(st.lists(st.tuples(st.integers(-40, 60), st.sampled_from("abc"), st.integers(-9, 9)), max_size=6))
        if rows:
            script.append(rows)
    return script


class _Model:
    """Flink's rules, row by row: each row goes to each window that covers it and has not fired."""

    def __init__(self, size: int, slide: int, offset: int) -> None:
        self.size, self.slide, self.offset = size, slide, offset
        self.contents: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.watermark = MIN_TIMESTAMP
        self.late = 0

    def starts(self, at: int) -> Iterator[int]:
        for start in range(at - self.size + 1, at + 1):
            if (start - self.offset) % self.slide == 0:
                yield start

    def rows_at(self, rows: Sequence[tuple[int, str, int]]) -> None:
        for at, key, n in rows:
            covering = list(self.starts(at))
            still_open = [start for start in covering if start + self.size - 1 > self.watermark]
            self.late += not still_open and (bool(covering) or at <= self.watermark)
            for start in still_open:
                self.contents[start, key].append(n)

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        self.watermark = watermark
        due = sorted(place for place in self.contents if place[0] + self.size - 1 <= watermark)
        return [
            (key, start, start + self.size, len(values), sum(values), max(values))
            for start, key in due
            for values in [self.contents.pop((start, key))]
        ]


@given(steps(), WINDOWS)
def test_each_watermark_emits_what_the_model_emits(script: list[Any], shape: tuple[int, int, int]) -> None:
    windows, model = Windows(*shape, rows=count(), total=agg.sum("n"), most=agg.max("n")), _Model(*shape)
    for step in [*script, MAX_TIMESTAMP]:
        if isinstance(step, int):
            windows.advance(step)
            emitted = windows.emitted()
            assert [start for _, start, *_ in emitted] == sorted(start for _, start, *_ in emitted)
            assert sorted(emitted) == sorted(model.advance(step))
        else:
            windows.rows_at(*step)
            model.rows_at(step)
        assert windows.metrics.late_rows == model.late


@given(ROWS, WINDOWS, st.lists(st.integers(0, 30), max_size=6))
def test_how_rows_are_cut_into_batches_changes_no_result(
    rows: list[tuple[int, str, int]], shape: tuple[int, int, int], cuts: list[int]
) -> None:
    whole = Windows(*shape, latest=last("n"), rows=count(), total=agg.sum("n"))
    parts = Windows(*shape, latest=last("n"), rows=count(), total=agg.sum("n"))
    if rows:
        whole.rows_at(*rows)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        if rows[begin:end]:
            parts.rows_at(*rows[begin:end])
    whole.advance(MAX_TIMESTAMP)
    parts.advance(MAX_TIMESTAMP)
    assert sorted(whole.emitted()) == sorted(parts.emitted())


@pytest.mark.parametrize("slide", [10, 5, 3])
def test_lists_are_the_same_however_rows_are_cut_into_batches(slide: int) -> None:
    rows = [(7, "a", 1), (2, "a", 2), (9, "a", 3), (8, "a", 4), (2, "a", 5)]
    whole, parts = Windows(10, slide, all=collect_list("n")), Windows(10, slide, all=collect_list("n"))
    whole.rows_at(*rows)
    for row in rows:
        parts.rows_at(row)
    whole.advance(MAX_TIMESTAMP)
    parts.advance(MAX_TIMESTAMP)
    assert whole.emitted() == parts.emitted()


def test_a_firing_looks_at_the_windows_that_are_due_and_not_at_all_that_are_open() -> None:
    # Each row is in 8,640,000 windows: to look at all of them at each watermark would take hours.
    windows = Windows(86_400_000, 10)
    for at in range(0, 1000, 10):
        windows.rows_at((at, "a"))
        windows.advance(at + 9)
        assert windows.emitted() == [("a", at + 10 - 86_400_000, at + 10, at // 10 + 1, at // 10 + 1)]


def test_a_window_that_several_slices_share_is_looked_at_once() -> None:
    windows = Windows(86_400_000, 1)
    windows.rows_at(*((at, "a") for at in range(1000)))
    windows.advance(999)
    assert len(windows.emitted()) == 1000
