"""Interval joins: transcripts of Flink's rules, and agreement with a model that keeps every row in a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from penstock.engine.errors import RecordError
from penstock.engine.operators.join_columns import LEFT, RIGHT, JoinColumns, JoinSide
from penstock.engine.operators.joins.interval_join import IntervalJoinSpec
from tests.draws import drawn
from tests.engine.operators.joins.join_jobs import (
    SIDES,
    TEXT_KEYS,
    TEXT_SIDES,
    JoinJob,
    Row,
    all_codes_equal,
    in_order,
    left_rows,
    right_rows,
    scripts,
    text_rows,
)
from tests.engine.state.saved import snapshot_of


def job(lower: int, upper: int, parallelism: int = 1, **settings: Any) -> JoinJob:
    spec = IntervalJoinSpec(JoinColumns(*SIDES), lower, upper, settings.pop("late_tags", (None, None)))
    return JoinJob(spec, parallelism=parallelism, **settings)


def held(join: JoinJob) -> list[int]:
    """Rows that the first subtask holds of each side."""
    operator: Any = join.links[0].operator
    return [len(kept) for kept in operator._kept]


# Transcripts


def test_rows_meet_when_the_right_one_is_within_the_bounds_of_the_left_one() -> None:
    join = job(-2, 3)
    join.left((10, 1, 0))
    join.right((7, 1, 7), (8, 1, 8), (10, 1, 10), (13, 1, 13), (14, 1, 14), (10, 2, 99))
    assert join.take() == in_order([(1, 0, "r8", 10), (1, 0, "r10", 10), (1, 0, "r13", 13)])


def test_it_does_not_matter_which_row_comes_first() -> None:
    join = job(-2, 3)
    join.right((8, 1, 8), (13, 1, 13), (14, 1, 14))
    join.left((10, 1, 0))
    assert join.take() == in_order([(1, 0, "r8", 10), (1, 0, "r13", 13)])


@pytest.mark.parametrize(("lower", "upper", "meets"), [(2, 4, [12, 14]), (-4, -2, [6, 8]), (0, 0, [10])])
def test_the_interval_may_lie_on_one_side(lower: int, upper: int, meets: list[int]) -> None:
    join = job(lower, upper)
    join.right(*((at, 1, at) for at in (5, 6, 8, 9, 10, 11, 12, 14, 15)))
    join.left((10, 1, 0))
    assert join.take() == in_order([(1, 0, f"r{at}", max(at, 10)) for at in meets])


def test_rows_behind_the_watermark_are_late_and_counted() -> None:
    join = job(-5, 5)
    join.left((10, 1, 0))
    join.advance(8)
    join.right((7, 1, 7), (9, 1, 9))
    join.left((7, 1, 1), (7, 1, 2))
    assert join.take() == [(1, 0, "r9", 10)]
    assert join.late == 3


def test_late_rows_can_go_to_side_outputs() -> None:
    join = job(-5, 5, late_tags=("early bird", "worm"), sides=("early bird", "worm"))
    join.advance(8)
    join.left((7, 1, 1), (9, 1, 2))
    join.right((0, 1, 3))
    assert join.sides["early bird"].rows == [{"k": 1, "n": 1}]
    assert join.sides["early bird"].timestamps == [7]
    assert join.sides["worm"].rows == [{"n": "r3", "id": 1}]
    assert join.late == 0


def test_rows_are_forgotten_as_soon_as_nothing_can_meet_them() -> None:
    join = job(-3, 5)
    join.left((10, 1, 0))
    join.right((10, 1, 0))
    join.advance(12)
    assert held(join) == [1, 1]
    join.advance(13)
    assert held(join) == [1, 0]
    join.advance(15)
    assert held(join) == [0, 0]


def test_a_row_exactly_at_the_watermark_is_late_whether_its_partners_are_still_there_or_not() -> None:
    for lower, upper, left in ((-4, -2, 12), (-4, 4, 10), (-4, 4, 8)):
        join = job(lower, upper)
        join.left((left, 1, 0))
        join.advance(10)
        join.right((10, 1, 10), (11, 2, 11))
        assert (join.take(), join.late) == ([], 1)


def test_what_is_held_stays_within_twice_what_is_needed() -> None:
    join = job(-20, 20)
    for at in range(0, 600, 2):
        join.left((at, at % 3, at))
        join.right((at, at % 3, at))
        join.advance(at)
        assert sum(held(join)) <= 2 * 2 * 24


def test_hot_keys_are_emitted_in_bounded_batches() -> None:
    join = job(-1000, 1000)
    join.left(*((0, 1, n) for n in range(400)))
    join.right(*((0, 1, n) for n in range(400)))
    assert [batch.num_rows for batch in join.out.batches] == [65_536, 65_536, 160_000 - 2 * 65_536]


def test_times_at_the_ends_of_event_time_do_not_overflow() -> None:
    join = job(-(2**60), 2**60)
    join.left((-(2**62), 1, 0), (2**62, 1, 1), (0, 1, 2))
    join.right((-(2**62) + 2**60, 1, 0), (2**62 - 2**60, 1, 1), (2**62, 1, 2), (-(2**62), 1, 3))
    pairs = [(0, -(2**62) + 2**60), (0, -(2**62)), (1, 2**62 - 2**60), (1, 2**62)]
    assert len(join.take()) == len(pairs)


def test_keys_of_other_types_on_both_sides_are_refused_when_the_data_comes() -> None:
    columns = JoinColumns(JoinSide(("k",), None), JoinSide(("id",), None))
    join = JoinJob(IntervalJoinSpec(columns, 0, 0))
    join.left((0, 1, 0))
    with pytest.raises(Exception, match=r"key 'k' of the left side is int64, key 'id' of the right side string"):
        join.send(RIGHT, right_rows([(0, 1, 0)], {"id": pa.string()}))


def test_columns_that_change_are_refused() -> None:
    join = job(0, 0)
    with pytest.raises(RecordError, match="column 'k' is int64 in some batches and string in others"):
        join.send(LEFT, left_rows([(0, 1, 0)], {"k": pa.string()}))


def test_a_column_of_nulls_takes_its_type_when_the_first_value_comes() -> None:
    columns = JoinColumns(JoinSide(("k",), None), JoinSide(("id",), None))
    join = JoinJob(IntervalJoinSpec(columns, 0, 0))
    join.send(LEFT, Batch(pa.record_batch({"k": [1], "x": pa.nulls(1)}), pa.array([0])))
    join.send(RIGHT, Batch(pa.record_batch({"id": [1], "y": pa.nulls(1)}), pa.array([0])))
    join.rescale(2)
    join.send(RIGHT, Batch(pa.record_batch({"id": [1], "y": ["b"]}), pa.array([0])))
    join.send(LEFT, Batch(pa.record_batch({"k": [1], "x": [2.5]}), pa.array([0])))
    rows = [(1, None, None, 0), (1, None, "b", 0), (1, 2.5, None, 0), (1, 2.5, "b", 0)]
    assert join.take() == in_order(rows)


def test_columns_keep_their_order_through_a_snapshot_where_they_were_not_declared() -> None:
    columns = JoinColumns(JoinSide(("k",), None), JoinSide(("id",), None))
    join = JoinJob(IntervalJoinSpec(columns, 0, 0))
    join.send(LEFT, Batch(pa.record_batch({"x": [1.5], "k": [1]}), pa.array([0])))
    join.rescale(1)
    join.right((0, 1, 5))
    assert join.out.batches[0].data.schema.names == ["x", "k", "n"]


def test_snapshots_hold_keys_first_and_rows_in_key_groups() -> None:
    join = job(-5, 5)
    join.left((1, 1, 10), (2, 2, None), (3, 3, 30))
    join.right((1, 1, 5))
    snapshot = snapshot_of(join.links[0].operator)
    assert sorted(snapshot.tables) == ["join_form", "left", "right"]
    assert snapshot.tables["left"].data.column_names == ["__key_group", "k", "n", "__timestamp"]
    assert snapshot.tables["right"].data.column_names == ["__key_group", "id", "n", "__timestamp"]


# Against a model


class _Model:
    """Flink's IntervalJoinOperator, a row at a time, but that rows at the watermark are late: see `interval_join`."""

    def __init__(self, lower: int, upper: int) -> None:
        self.reach = ((lower, upper), (-upper, -lower))
        self.kept: tuple[list[Row], list[Row]] = ([], [])
        self.watermark = MIN_TIMESTAMP
        self.late = 0

    def rows(self, side: int, rows: list[Row]) -> list[tuple[Any, ...]]:
        pairs = []
        for row in rows:
            if row[0] <= self.watermark:
                self.late += 1
                continue
            self.kept[side].append(row)
            low, high = self.reach[side]
            for other in self.kept[1 - side]:
                if other[1] == row[1] and row[0] + low <= other[0] <= row[0] + high:
                    left, right = (row, other) if side == LEFT else (other, row)
                    value = None if right[2] is None else f"r{right[2]}"
                    pairs.append((left[1], left[2], value, max(left[0], right[0])))
        return in_order(pairs)

    def advance(self, watermark: int) -> None:
        self.watermark = watermark
        for side, kept in enumerate(self.kept):
            kept[:] = [row for row in kept if row[0] + max(self.reach[side][1], 0) > watermark]


@given(scripts(), st.integers(-8, 8), st.integers(0, 8), st.booleans())
@settings(max_examples=drawn(20))
def test_each_step_emits_what_flinks_operator_emits(
    script: list[tuple[str, Any]], lower: int, length: int, one_by_one: bool
) -> None:
    join, model = job(lower, lower + length, parallelism=2), _Model(lower, lower + length)
    for step, given_value in script:
        if step == "watermark":
            join.advance(given_value)
            model.advance(given_value)
        elif step == "rescale":
            join.rescale(given_value)
        else:
            side = LEFT if step == "left" else RIGHT
            for part in [[row] for row in given_value] if one_by_one else [given_value]:
                (join.left if side == LEFT else join.right)(*part)
            assert join.take() == model.rows(side, given_value)
        assert join.late == model.late
    join.advance(MAX_TIMESTAMP)
    assert held(join) == [0, 0]


@given(scripts())
def test_keys_whose_hashes_collide_are_told_apart(script: list[tuple[str, Any]]) -> None:
    model = _Model(-4, 4)
    with all_codes_equal():
        join = JoinJob(IntervalJoinSpec(JoinColumns(*TEXT_SIDES), -4, 4), TEXT_KEYS, 2)
        for step, given_value in script:
            if step == "watermark":
                join.advance(given_value)
                model.advance(given_value)
            elif step == "rescale":
                join.rescale(given_value)
            else:
                side = LEFT if step == "left" else RIGHT
                join.send(side, text_rows(side, given_value))
                expected = model.rows(side, given_value)
                assert [(int(row[0]), row[1], row[3], row[4]) for row in join.take()] == expected


def test_large_inputs_with_many_segments_agree_with_a_plain_join() -> None:
    rng = np.random.default_rng(7)
    times = [np.sort(rng.integers(0, 20_000, 20_000)) for _ in range(2)]
    keys = [rng.integers(0, 300, 20_000) for _ in range(2)]
    join = job(-30, 50)
    for begin in range(0, 20_000, 777):
        share = slice(begin, begin + 777)
        join.left(*zip(times[0][share].tolist(), keys[0][share].tolist(), range(begin, begin + 777), strict=False))
        join.right(*zip(times[1][share].tolist(), keys[1][share].tolist(), range(begin, begin + 777), strict=False))
        join.advance(int(min(times[0][share][-1], times[1][share][-1])) - 5 if begin % 2 else begin // 100)
    found = {(row[1], int(row[2][1:])) for row in join.take()}
    by_key: dict[int, list[tuple[int, int]]] = {}
    for number, (at, key) in enumerate(zip(times[1].tolist(), keys[1].tolist(), strict=True)):
        by_key.setdefault(key, []).append((at, number))
    expected = {
        (number, other)
        for number, (at, key) in enumerate(zip(times[0].tolist(), keys[0].tolist(), strict=True))
        for right_at, other in by_key.get(key, [])
        if at - 30 <= right_at <= at + 50
    }
    assert join.late == 0
    assert found == expected
