"""Outer interval joins: rows that have met nothing come once nothing can meet them, and never behind the watermark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.operators.join_columns import LEFT, RIGHT, JoinColumns
from penstock.engine.operators.joins.interval_join import IntervalJoinSpec, JoinTime
from penstock.engine.state.keys.groups import key_group_range, key_groups
from tests.draws import drawn
from tests.engine.operators.joins.join_jobs import MAX_PARALLELISM, SIDES, JoinJob, Row, in_order, scripts


def _even(pairs: pa.RecordBatch) -> pa.BooleanArray:
    return pc.equal(pc.bit_wise_and(pairs.column("n"), 1), 0)


def _wanted(
    rows: tuple[list[Row], list[Row]], lower: int, upper: int, outer: tuple[int, ...], only_even: bool
) -> list[tuple[Any, ...]]:
    result: list[tuple[Any, ...]] = []
    met: tuple[set[int], set[int]] = (set(), set())
    for i, left in enumerate(rows[LEFT]):
        for j, right in enumerate(rows[RIGHT]):
            near = left[1] == right[1] and left[0] + lower <= right[0] <= left[0] + upper
            if near and (not only_even or (left[2] is not None and left[2] % 2 == 0)):
                met[LEFT].add(i)
                met[RIGHT].add(j)
                result.append((left[1], left[2], _text(right[2]), max(left[0], right[0])))
    if LEFT in outer:
        result += [(row[1], row[2], None, row[0]) for i, row in enumerate(rows[LEFT]) if i not in met[LEFT]]
    if RIGHT in outer:
        result += [(row[1], None, _text(row[2]), row[0]) for j, row in enumerate(rows[RIGHT]) if j not in met[RIGHT]]
    return in_order(result)


def _text(value: int | None) -> str | None:
    return None if value is None else f"r{value}"


@settings(max_examples=drawn(60))
@given(
    scripts(),
    st.integers(-8, 8),
    st.integers(0, 8),
    st.sampled_from([(LEFT,), (RIGHT,), (LEFT, RIGHT)]),
    st.booleans(),
)
def test_the_result_is_that_of_a_plain_outer_join(
    script: list[tuple[str, Any]], lower: int, length: int, outer: tuple[int, ...], only_even: bool
) -> None:
    spec = IntervalJoinSpec(
        JoinColumns(*SIDES), lower, lower + length, outer=outer, condition=_even if only_even else None
    )
    join, watermark = JoinJob(spec, parallelism=2), MIN_TIMESTAMP
    rows: tuple[list[Row], list[Row]] = ([], [])
    came, said = [], MIN_TIMESTAMP
    for step, given_value in [*script, ("watermark", MAX_TIMESTAMP)]:
        if step == "watermark":
            watermark = given_value
            join.advance(given_value)
        elif step == "rescale":
            join.rescale(given_value)
        else:
            (join.left if step == "left" else join.right)(*given_value)
            rows[LEFT if step == "left" else RIGHT].extend(row for row in given_value if row[0] > watermark)
        for element in join.out.elements:
            if isinstance(element, Batch):
                assert pc.min(element.timestamps).as_py() > said or watermark == MAX_TIMESTAMP
        said = max([said, *(one.timestamp for one in join.out.elements if isinstance(one, Watermark))])
        came += join.take()
    assert in_order(came) == _wanted(rows, lower, lower + length, outer, only_even)


@settings(max_examples=drawn(60))
@given(scripts(), st.integers(-8, 8), st.integers(0, 8), st.sampled_from([(LEFT,), (RIGHT,), (LEFT, RIGHT)]))
def test_nothing_comes_twice_where_subtasks_came_to_different_watermarks(
    script: list[tuple[str, Any]], lower: int, length: int, outer: tuple[int, ...]
) -> None:
    """As behind an unaligned checkpoint: the first subtask is ahead of the others whenever all are rescaled."""
    join = JoinJob(IntervalJoinSpec(JoinColumns(*SIDES), lower, lower + length, outer=outer), parallelism=2)
    groups = key_groups([pa.array([0, 1, 2])], MAX_PARALLELISM).tolist()
    come_to = dict.fromkeys(range(MAX_PARALLELISM), MIN_TIMESTAMP)
    at = [MIN_TIMESTAMP] * 2
    rows: tuple[list[Row], list[Row]] = ([], [])
    came = []

    def advance(subtask: int, watermark: int) -> None:
        if watermark > at[subtask]:
            at[subtask] = watermark
            join.links[subtask].process(0, Watermark(watermark))
            for group in key_group_range(subtask, len(at), MAX_PARALLELISM):
                come_to[group] = max(come_to[group], watermark)

    for step, value in [*script, ("watermark", MAX_TIMESTAMP)]:
        if step == "watermark":
            for subtask in range(len(at)):
                advance(subtask, value)
        elif step == "rescale":
            advance(0, max(at[0], -20) + 9)
            at = [min(at)] * value if value != len(at) else at
            join.rescale(value)
        else:
            (join.left if step == "left" else join.right)(*value)
            rows[LEFT if step == "left" else RIGHT].extend(row for row in value if row[0] > come_to[groups[row[1]]])
        came += join.take()
    assert in_order(came) == _wanted(rows, lower, lower + length, outer, False)


def test_a_row_waits_as_long_as_it_may_meet_another() -> None:
    join = JoinJob(IntervalJoinSpec(JoinColumns(*SIDES), -2, 3, outer=(LEFT,)))
    join.left((10, 1, 0))
    join.advance(12)
    assert join.take() == []
    join.advance(13)
    assert join.take() == [(1, 0, None, 10)]


def test_by_processing_time_rows_meet_by_the_clock() -> None:
    join = JoinJob(IntervalJoinSpec(JoinColumns(*SIDES), -5, 5, time=JoinTime.PROCESSING))
    clock: Any = join.links[0].operator._context.clock
    join.left((0, 1, 1))
    clock.advance(0.004)
    join.right((0, 1, 2))
    clock.advance(0.004)
    join.right((0, 1, 3))
    batches = [batch.data.to_pylist() for batch in join.out.batches]
    assert batches == [[{"k": 1, "n": 1, "n_right": "r2"}]]
