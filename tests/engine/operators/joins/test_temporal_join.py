"""Temporal joins: the version that was valid at a row's time, and agreement with a model that keeps all versions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.operators.join_columns import LEFT, RIGHT, JoinColumns
from penstock.engine.operators.joins.temporal_join import TemporalJoinSpec
from tests.draws import drawn
from tests.engine.operators.joins.join_jobs import (
    SIDES,
    TEXT_KEYS,
    TEXT_SIDES,
    JoinJob,
    Row,
    all_codes_equal,
    in_order,
    scripts,
    text_rows,
)


def job(how: str = "inner", parallelism: int = 1) -> JoinJob:
    return JoinJob(TemporalJoinSpec(JoinColumns(*SIDES), how), parallelism=parallelism)


def versions_held(join: JoinJob) -> int:
    operator: Any = join.links[0].operator
    return len(operator._versions)


def test_a_row_meets_the_latest_version_at_or_before_it() -> None:
    join = job()
    join.right((0, 1, 0), (10, 1, 10), (20, 1, 20), (5, 2, 5))
    join.left((9, 1, 9), (10, 1, 10), (25, 1, 25), (4, 2, 4), (6, 2, 6))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == in_order([(1, 9, "r0", 9), (1, 10, "r10", 10), (1, 25, "r20", 25), (2, 6, "r5", 6)])


def test_a_left_join_keeps_rows_without_a_version() -> None:
    join = job("left")
    join.left((4, 2, None), (6, 1, 6))
    join.right((6, 1, None), (5, 2, 5))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == in_order([(2, None, None, 4), (1, 6, None, 6)])


def test_a_row_waits_for_the_watermark_so_that_versions_may_come_later() -> None:
    join = job()
    join.left((10, 1, 1))
    join.right((3, 1, 3))
    join.advance(9)
    assert join.take() == []
    join.right((10, 1, 10))
    join.advance(10)
    assert join.take() == [(1, 1, "r10", 10)]


def test_of_two_versions_with_one_time_the_last_to_come_counts() -> None:
    join = job()
    join.right((5, 1, 1), (5, 1, 2))
    join.right((5, 1, 3))
    join.rescale(2)
    join.right((5, 1, 4))
    join.left((6, 1, 6))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 6, "r4", 6)]


def test_late_rows_are_dropped_and_late_versions_count_from_then_on() -> None:
    join = job()
    join.right((0, 1, 0))
    join.advance(20)
    join.left((19, 1, 19), (18, 1, 18), (20, 1, 20), (21, 1, 21))
    join.right((15, 1, 15))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 20, "r15", 20), (1, 21, "r15", 21)]
    assert join.late == 2


def test_old_versions_are_forgotten_and_the_latest_is_kept() -> None:
    join = job()
    for at in range(600):
        join.right((at, at % 3, at))
        join.advance(at)
        assert versions_held(join) <= 20
    join.left((10_000, 2, 0))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(2, 0, "r599", 10_000)]


def test_versions_of_the_future_are_forgotten_when_their_time_has_passed() -> None:
    join = job()
    join.right(*((at, at % 3, 0) for at in range(2000)))
    join.advance(1000)
    assert versions_held(join) <= 1003
    join.advance(MAX_TIMESTAMP)
    assert versions_held(join) <= 3


class _Model:
    """All versions for ever; every left row looks at all of them."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.pending: list[Row] = []
        self.versions: list[Row] = []
        self.watermark = MIN_TIMESTAMP
        self.late = 0

    def rows(self, side: int, rows: list[Row]) -> None:
        if side == RIGHT:
            self.versions += rows
        else:
            self.pending += [row for row in rows if row[0] >= self.watermark]
            self.late += sum(row[0] < self.watermark for row in rows)

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        self.watermark = watermark
        emitted: list[tuple[Any, ...]] = []
        for at, key, n in [row for row in self.pending if row[0] <= watermark]:
            valid = [version for version in self.versions if version[1] == key and version[0] <= at]
            if valid:
                latest = max(version[0] for version in valid)
                value = [version for version in valid if version[0] == latest][-1][2]
                emitted.append((key, n, None if value is None else f"r{value}", at))
            elif self.how == "left":
                emitted.append((key, n, None, at))
        self.pending = [row for row in self.pending if row[0] > watermark]
        return in_order(emitted)


@given(scripts(), st.sampled_from(["inner", "left"]), st.booleans())
@settings(max_examples=drawn(20))
def test_each_watermark_emits_what_the_model_emits(script: list[tuple[str, Any]], how: str, one_by_one: bool) -> None:
    join, model = job(how, parallelism=2), _Model(how)
    for step, given_value in [*script, ("watermark", MAX_TIMESTAMP)]:
        if step == "watermark":
            join.advance(given_value)
            assert join.take() == model.advance(given_value)
        elif step == "rescale":
            join.rescale(given_value)
        else:
            for part in [[row] for row in given_value] if one_by_one else [given_value]:
                (join.left if step == "left" else join.right)(*part)
            model.rows(LEFT if step == "left" else RIGHT, given_value)
        assert join.late == model.late


@given(scripts())
def test_keys_whose_hashes_collide_are_told_apart(script: list[tuple[str, Any]]) -> None:
    model = _Model("inner")
    with all_codes_equal():
        join = JoinJob(TemporalJoinSpec(JoinColumns(*TEXT_SIDES)), TEXT_KEYS)
        for step, given_value in [*script, ("watermark", MAX_TIMESTAMP)]:
            if step == "watermark":
                join.advance(given_value)
                expected = model.advance(given_value)
                assert [(int(row[0]), row[1], row[3], row[4]) for row in join.take()] == expected
            elif step == "rescale":
                join.rescale(given_value)
            else:
                side = LEFT if step == "left" else RIGHT
                join.send(side, text_rows(side, given_value))
                model.rows(side, given_value)


def test_large_inputs_with_many_segments_agree_with_the_model() -> None:
    rng = np.random.default_rng(3)
    join, model = job("left"), _Model("left")
    for step in range(40):
        for side, send in ((LEFT, join.left), (RIGHT, join.right)):
            times = rng.integers(step * 50, step * 50 + 200, 60)
            rows: list[Row] = list(zip(times.tolist(), rng.integers(0, 20, 60).tolist(), range(60), strict=True))
            send(*rows)
            model.rows(side, rows)
        join.advance(step * 50 + 30)
        assert join.take() == model.advance(step * 50 + 30)
    assert join.late == model.late
