"""Sessions with allowed lateness, late rows, snapshots and rescaling: transcripts of Flink's rules, and a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import collect_list, count
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells import session_cells
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.operators.windows import session_aggregate
from penstock.engine.operators.windows.session_aggregate import SessionAggregateSpec
from penstock.engine.windows.assigners import SessionWindows
from tests.draws import drawn
from tests.engine.helpers import RunningOperator, timed
from tests.engine.operators.windows.window_job import AGGREGATES, LATE, Row, WindowJob, assert_agreement, scripts


def job(gap: int, lateness: int = 0, parallelism: int = 1, **aggregates: Any) -> WindowJob:
    aggregation = GroupedAggregation(["key"], aggregates or {"rows": count(), "total": agg.sum("n")})
    return WindowJob(SessionAggregateSpec(SessionWindows(gap), aggregation, lateness, LATE), parallelism)


def test_a_row_within_the_allowed_lateness_fires_its_session_again() -> None:
    sessions = job(10, lateness=5)
    sessions.rows_at((0, "a", 1), (2, "b", 10))
    sessions.advance(11)
    assert sessions.emitted() == [("a", 0, 10, 1, 1), ("b", 2, 12, 1, 10)]
    sessions.rows_at((1, "a", 2), (1, "a", 3))
    assert sessions.emitted() == [("a", 0, 11, 3, 6)]


def test_a_row_that_keeps_an_emitted_session_going_makes_it_wait_again() -> None:
    sessions = job(10, lateness=20)
    sessions.rows_at((0, "a", 1))
    sessions.advance(9)
    assert sessions.emitted() == [("a", 0, 10, 1, 1)]
    sessions.rows_at((8, "a", 2))
    assert sessions.emitted() == []
    sessions.advance(17)
    assert sessions.emitted() == [("a", 0, 18, 2, 3)]


def test_a_late_row_that_bridges_emitted_sessions_emits_them_as_one() -> None:
    sessions = job(10, lateness=50)
    sessions.rows_at((0, "a", 1), (15, "a", 2))
    sessions.advance(30)
    assert sessions.emitted() == [("a", 0, 10, 1, 1), ("a", 15, 25, 1, 2)]
    sessions.rows_at((7, "a", 4))
    assert sessions.emitted() == [("a", 0, 25, 3, 7)]
    sessions.advance(MAX_TIMESTAMP)
    assert sessions.emitted() == []


def test_a_row_that_joins_a_session_still_kept_is_not_late_however_old_it_is() -> None:
    sessions = job(10, lateness=5)
    sessions.rows_at((10, "a", 1))
    sessions.advance(22)
    sessions.emitted()
    sessions.rows_at((0, "a", 2), (0, "b", 2))
    assert sessions.emitted() == [("a", 0, 20, 2, 3)]
    assert sessions.late() == [(0, "b", 2)]
    assert sessions.metrics.late_rows == 0


def test_a_session_takes_no_rows_in_behind_the_allowed_lateness() -> None:
    sessions = job(10, lateness=5)
    sessions.rows_at((10, "a", 1))
    sessions.advance(24)
    sessions.emitted()
    sessions.rows_at((8, "a", 2))
    assert sessions.emitted() == []
    assert sessions.late() == [(8, "a", 2)]


def test_a_snapshot_remembers_which_sessions_were_emitted() -> None:
    sessions = job(10, lateness=50)
    sessions.rows_at((0, "a", 1), (15, "a", 2), (30, "b", 3))
    sessions.advance(30)
    sessions.emitted()
    sessions.rescale(3)
    sessions.advance(39)
    assert sessions.emitted() == [("b", 30, 40, 1, 3)]
    sessions.rows_at((9, "a", 4))
    assert sessions.emitted() == [("a", 0, 25, 3, 7)]


def test_what_cannot_be_added_up_in_numpy_is_restored_and_merged_too() -> None:
    sessions = job(10, list=collect_list("n"), last=agg.last("n"), spread=agg.stddev("n", ddof=0))
    sessions.rows_at((0, "a", 3), (15, "a", 5))
    sessions.rescale(2)
    sessions.rows_at((8, "a", 4))
    sessions.advance(MAX_TIMESTAMP)
    [(_, start, end, values, last, spread)] = sessions.emitted()
    assert (start, end, sorted(values), last, spread) == (0, 25, [3, 4, 5], 5, pytest.approx((2 / 3) ** 0.5))


# Against a model

ROWS = st.lists(st.tuples(st.integers(-10, 40), st.sampled_from("abcdef"), st.integers(-9, 9)), min_size=1, max_size=8)


SCRIPTS = scripts(ROWS, most_steps=12, first=-15, furthest=12)


@dataclass
class _Session:
    start: int
    end: int
    rows: list[Row] = field(default_factory=list)
    touched: bool = True


class _Model:
    """Flink's rules: a row opens [t, t + gap) and takes in all sessions of its key that it touches."""

    def __init__(self, gap: int, lateness: int) -> None:
        self.gap, self.lateness = gap, lateness
        self.sessions: dict[str, list[_Session]] = {}
        self.watermark = MIN_TIMESTAMP
        self.late: list[Row] = []

    def rows_at(self, rows: list[Row]) -> list[tuple[Any, ...]]:
        for row in rows:
            merged, apart = _Session(row[0], row[0] + self.gap, [row]), []
            for session in self.sessions.get(row[1], []):
                if session.start <= merged.end and session.end >= merged.start:
                    start, end = min(session.start, merged.start), max(session.end, merged.end)
                    merged = _Session(start, end, session.rows + merged.rows)
                else:
                    apart.append(session)
            if self._is_closed(merged):
                self.late.append(row)
            else:
                self.sessions[row[1]] = [*apart, merged]
        touched = [(key, each) for key, sessions in self.sessions.items() for each in sessions if each.touched]
        for _, session in touched:
            session.touched = False
        return [_result(key, session) for key, session in touched if session.end - 1 <= self.watermark]

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        due = [
            _result(key, session)
            for key, sessions in self.sessions.items()
            for session in sessions
            if self.watermark < session.end - 1 <= watermark
        ]
        self.watermark = watermark
        self._take(self._is_closed)
        return due

    def _is_closed(self, session: _Session) -> bool:
        return session.end - 1 + self.lateness <= self.watermark

    def _take(self, wanted: Any) -> list[tuple[str, _Session]]:
        taken = [(key, each) for key, sessions in self.sessions.items() for each in sessions if wanted(each)]
        for key, session in taken:
            self.sessions[key].remove(session)
        return taken


def _result(key: str, session: _Session) -> tuple[Any, ...]:
    values = [n for _, _, n in session.rows]
    return key, session.start, session.end, len(values), sum(values), max(values), key


def _agrees(script: list[Any], gap: int, lateness: int) -> None:
    assert_agreement(script, job(gap, lateness, **AGGREGATES), _Model(gap, lateness))


@given(SCRIPTS, st.integers(1, 12), st.integers(0, 30))
@settings(max_examples=drawn(50))
def test_sessions_agree_with_the_model(script: list[Any], gap: int, lateness: int) -> None:
    _agrees(script, gap, lateness)


@given(SCRIPTS, st.integers(1, 12), st.integers(0, 30))
@settings(max_examples=drawn(50))
def test_compiled_sessions_in_small_arrays_agree_with_the_model(script: list[Any], gap: int, lateness: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_cells, "_FEW", 0)
        patch.setattr(session_aggregate, "_SMALL", 0)
        patch.setattr(session_aggregate, "_ROOMY", 2)
        _agrees(script, gap, lateness)


def test_new_keys_take_the_place_of_those_whose_sessions_have_ended() -> None:
    aggregation = GroupedAggregation(["key"], {"rows": count()})
    sessions = RunningOperator(SessionAggregateSpec(SessionWindows(10), aggregation).create())
    sessions.advance(-500)
    for begin in range(0, 50_000, 500):
        keys = range(begin, begin + 500)
        # Two sessions a key, which the third row makes one; and rows that are late from the start.
        sessions.process(timed([{"at": begin + at, "key": key} for key in keys for at in (0, 15)], {"key": pa.int64()}))
        sessions.process(timed([{"at": begin + 8, "key": key} for key in keys], {"key": pa.int64()}))
        sessions.process(timed([{"at": begin - 600, "key": -key} for key in keys], {"key": pa.int64()}))
        sessions.advance(begin + 24)
    assert len(sessions.take_rows()) == 50_000
    assert sessions.metrics.late_rows == 50_000
    operator: Any = sessions.operator
    assert operator._keys.end < 10_000
    assert operator._sessions.end < 10_000
