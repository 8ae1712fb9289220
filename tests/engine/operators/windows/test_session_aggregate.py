"""Sessions: transcripts of Flink's rules, and agreement with a model that merges row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import collect_list, count, first, last
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.operators.windows.session_aggregate import SessionAggregateSpec
from penstock.engine.windows.assigners import SessionWindows
from tests.engine.helpers import RunningOperator, timed

TYPES = {"key": pa.string(), "n": pa.int64()}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Sessions(RunningOperator):
    """A session operator that counts rows and sums `n`, by `key`."""

    def __init__(self, gap: int, **aggregates: Any) -> None:
        aggregation = GroupedAggregation(["key"], aggregates or {"rows": count(), "total": agg.sum("n")})
        super().__init__(SessionAggregateSpec(SessionWindows(gap), aggregation).create())

    def rows_at(self, *rows: tuple[int, str] | tuple[int, str, int]) -> None:
        """Process one batch of (event time, key, n); n is 1 where not given."""
        self.process(timed([{"at": at, "key": key, "n": n[0] if n else 1} for at, key, *n in rows], TYPES))

    def emitted(self) -> list[tuple[Any, ...]]:
        """What was emitted since the last call: (key, start, end, aggregates...)."""
        return [tuple(_milliseconds(value) for value in row.values()) for row in self.take_rows()]


def _milliseconds(value: Any) -> Any:
    return (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value


def test_a_session_lasts_from_its_first_row_to_the_gap_behind_its_last() -> None:
    sessions = Sessions(10)
    sessions.rows_at((3, "a"), (8, "a"), (17, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 3, 27, 3, 3)]


def test_a_row_exactly_at_the_end_of_a_session_joins_it() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"), (10, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 0, 20, 2, 2)]


def test_a_row_behind_the_end_of_a_session_opens_another() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"), (11, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 0, 10, 1, 1), ("a", 11, 21, 1, 1)]


def test_a_session_fires_when_the_watermark_reaches_its_last_millisecond() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"))
    sessions.advance(8)
    assert sessions.emitted() == []
    sessions.advance(9)
    assert sessions.emitted() == [("a", 0, 10, 1, 1)]
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == []


def test_a_row_keeps_its_session_open() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"))
    sessions.advance(5)
    sessions.rows_at((6, "a"))
    sessions.advance(14)
    assert sessions.emitted() == []
    sessions.advance(15)
    assert sessions.emitted() == [("a", 0, 16, 2, 2)]


def test_a_row_that_comes_later_joins_two_sessions_into_one() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a", 1))
    sessions.rows_at((15, "a", 10))
    sessions.rows_at((8, "a", 100))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 0, 25, 3, 111)]


def test_a_row_inside_a_long_session_does_not_cut_it() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"), (10, "a"), (20, "a"))
    sessions.rows_at((5, "a"), (18, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 0, 30, 5, 5)]


def test_sessions_of_different_keys_do_not_touch() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"), (5, "b"), (12, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sorted(sessions.emitted()) == [("a", 0, 10, 1, 1), ("a", 12, 22, 1, 1), ("b", 5, 15, 1, 1)]


def test_times_before_the_epoch_have_sessions_like_any_other() -> None:
    sessions = Sessions(10)
    sessions.rows_at((-15, "a"), (-5, "a"), (-40, "a"))
    sessions.advance(4)
    assert sorted(sessions.emitted()) == [("a", -40, -30, 1, 1), ("a", -15, 5, 2, 2)]


def test_results_carry_the_last_millisecond_of_their_session() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"), (4, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.out.timestamps == [13]


def test_the_watermark_follows_the_sessions_that_it_closes() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"))
    sessions.advance(20)
    assert sessions.out.batches
    assert sessions.out.watermarks == [20]
    assert sessions.out.elements[0] is sessions.out.batches[0]


def test_late_rows_are_dropped_and_counted() -> None:
    sessions = Sessions(10)
    sessions.advance(20)
    sessions.rows_at((11, "a"), (3, "a"), (12, "b"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("b", 12, 22, 1, 1)]
    assert sessions.metrics.late_rows == 2


def test_a_row_behind_the_watermark_counts_if_it_joins_an_open_session() -> None:
    sessions = Sessions(10)
    sessions.rows_at((12, "a"))
    sessions.advance(20)
    sessions.rows_at((2, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 2, 22, 2, 2)]
    assert sessions.metrics.late_rows == 0


def test_a_row_that_would_have_joined_a_fired_session_is_late() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"))
    sessions.advance(9)
    sessions.rows_at((0, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 0, 10, 1, 1)]
    assert sessions.metrics.late_rows == 1


def test_a_row_may_touch_a_fired_session_without_joining_it() -> None:
    sessions = Sessions(10)
    sessions.rows_at((0, "a"))
    sessions.advance(9)
    sessions.rows_at((5, "a"))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 0, 10, 1, 1), ("a", 5, 15, 1, 1)]


def test_nothing_is_kept_of_sessions_that_have_fired() -> None:
    sessions = Sessions(10)
    for at in range(0, 1000, 20):
        sessions.rows_at((at, "a"))
        sessions.advance(at)
    operator: Any = sessions.operator
    assert len(operator._sessions) <= 2
    assert operator._sessions.end <= 3


def test_sessions_without_a_key_column_are_one_group() -> None:
    aggregation = GroupedAggregation([], {"rows": count()})
    operator = RunningOperator(SessionAggregateSpec(SessionWindows(10), aggregation).create())
    operator.process(timed([{"at": 1, "n": 1}, {"at": 30, "n": 1}, {"at": 2, "n": 1}], {"n": pa.int64()}))
    operator.advance(MAX_TIMESTAMP)
    assert [row["rows"] for row in operator.take_rows()] == [2, 1]


def test_the_last_of_two_rows_with_one_timestamp_is_the_one_that_came_last() -> None:
    sessions = Sessions(10, latest=last("n"), earliest=first("n"))
    sessions.rows_at((9, "a", 1))
    sessions.rows_at((5, "a", 2), (9, "a", 3))
    sessions.rows_at((5, "a", 4))
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == [("a", 5, 19, 3, 2)]


def test_a_list_is_in_order_of_arrival() -> None:
    sessions = Sessions(10, all=collect_list("n"))
    sessions.rows_at((9, "a", 1), (3, "a", 2))
    sessions.rows_at((1, "a", 3), (12, "b", 4), (6, "a", 5))
    sessions.advance(MAX_TIMESTAMP)
    assert sorted(sessions.emitted()) == [("a", 1, 19, [1, 2, 3, 5]), ("b", 12, 22, [4])]


# Against a model

SCRIPT_ROWS = st.lists(
    st.tuples(st.integers(-10, 30), st.sampled_from("ab"), st.integers(-9, 9)), min_size=1, max_size=6
)


@dataclass
class _Session:
    start: int
    end: int
    values: list[int]


class _Model:
    """Flink's rules: a row opens [t, t + gap) and takes in all open sessions of its key that it touches."""

    def __init__(self, gap: int) -> None:
        self.gap = gap
        self.sessions: dict[str, list[_Session]] = {}
        self.watermark = MIN_TIMESTAMP
        self.late = 0

    def rows_at(self, rows: Sequence[tuple[int, str, int]]) -> None:
        for at, key, n in rows:
            merged, apart = _Session(at, at + self.gap, [n]), []
            for session in self.sessions.get(key, []):
                if session.start <= merged.end and session.end >= merged.start:
                    merged = _Session(
                        min(session.start, merged.start),
                        max(session.end, merged.end),
                        session.values + merged.values,
                    )
                else:
                    apart.append(session)
            if merged.end - 1 <= self.watermark:
                self.late += 1
            else:
                self.sessions[key] = [*apart, merged]

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        self.watermark = watermark
        return self._take_ended()

    def _take_ended(self) -> list[tuple[Any, ...]]:
        ended = []
        for key, sessions in self.sessions.items():
            ended += [
                (key, s.start, s.end, len(s.values), sum(s.values), max(s.values))
                for s in sessions
                if s.end - 1 <= self.watermark
            ]
            self.sessions[key] = [s for s in sessions if s.end - 1 > self.watermark]
        return ended


@st.composite
def steps(draw: st.DrawFn) -> list[Any]:
    """Batches of rows, and watermarks that rise, in any order."""
    script: list[Any] = []
    watermark = -15
    for _ in range(draw(st.integers(0, 10))):
        if draw(st.booleans()):
            watermark += draw(st.integers(1, 12))
            script.append(watermark)
        else:
            script.append(draw(SCRIPT_ROWS))
    return script


@given(steps(), st.integers(1, 6))
def test_each_watermark_emits_what_the_model_emits(script: list[Any], gap: int) -> None:
    sessions, model = Sessions(gap, rows=count(), total=agg.sum("n"), most=agg.max("n")), _Model(gap)
    for step in [*script, MAX_TIMESTAMP]:
        if isinstance(step, int):
            sessions.advance(step)
            assert sorted(sessions.emitted()) == sorted(model.advance(step))
        else:
            sessions.rows_at(*step)
            model.rows_at(step)
        assert sessions.metrics.late_rows == model.late


@given(
    st.lists(st.tuples(st.integers(-5, 8), st.sampled_from("ab"), st.integers(-9, 9)), max_size=25),
    st.integers(1, 4),
    st.lists(st.integers(0, 25), max_size=6),
)
def test_how_rows_are_cut_into_batches_changes_no_result(
    rows: list[tuple[int, str, int]], gap: int, cuts: list[int]
) -> None:
    results = []
    for borders in ([], sorted(cuts), list(range(len(rows)))):
        sessions = Sessions(gap, earliest=first("n"), latest=last("n"), rows=count(), total=agg.sum("n"))
        for begin, end in zip([0, *borders], [*borders, len(rows)], strict=True):
            if rows[begin:end]:
                sessions.rows_at(*rows[begin:end])
        sessions.advance(MAX_TIMESTAMP)
        results.append(sorted(sessions.emitted()))
    assert results[0] == results[1] == results[2]
