"""Window joins: transcripts of Flink's rules, and agreement with a model that keeps the rows of each window."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from penstock.engine.operators.join_columns import LEFT, RIGHT, JoinColumns, JoinSide
from penstock.engine.operators.joins import join_buffers, join_windows, row_log, session_rows
from penstock.engine.operators.joins.join_windows import JoinWindows
from penstock.engine.operators.joins.window_join import BOUNDS, OUTER_SIDES, WindowJoinSpec
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows
from tests.draws import drawn
from tests.engine.operators.joins.join_jobs import (
    SIDES,
    TEXT_KEYS,
    TEXT_SIDES,
    JoinJob,
    Row,
    copied_rows,
    in_order,
    rows_of,
    scripts,
    text_rows,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TUMBLING = AlignedWindows(10, 10)


class WindowJoinJob(JoinJob):
    """A window join; its rows are (key, left value, window start, window end, right value, timestamp)."""

    def __init__(self, windows: JoinWindows, how: str = "inner", parallelism: int = 1) -> None:
        spec = WindowJoinSpec(windows, JoinColumns(*SIDES, between=BOUNDS), how)
        super().__init__(spec, parallelism=parallelism)

    def take(self) -> list[tuple[Any, ...]]:
        return in_order([tuple(map(_milliseconds, row)) for row in super().take()])


def _milliseconds(value: Any) -> Any:
    return (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value


def held(join: JoinJob) -> int:
    """Rows that the first subtask holds."""
    operator: Any = join.links[0].operator
    return sum(map(len, operator._pairing._kept))


# Transcripts


def test_rows_of_one_key_in_one_window_meet_when_the_watermark_passes_it() -> None:
    join = WindowJoinJob(TUMBLING)
    join.left((1, 1, 1), (9, 1, 9), (10, 1, 10), (5, 2, 5))
    join.right((0, 1, 0), (12, 1, 12), (5, 3, 5))
    join.advance(8)
    assert join.take() == []
    join.advance(9)
    assert join.take() == [(1, 1, 0, 10, "r0", 9), (1, 9, 0, 10, "r0", 9)]
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 10, 10, 20, "r12", 19)]
    assert held(join) == 0


@pytest.mark.parametrize("how", OUTER_SIDES)
def test_outer_joins_keep_rows_without_a_partner(how: str) -> None:
    join = WindowJoinJob(TUMBLING, how)
    join.left((1, 1, 1), (2, 2, None), (31, 2, 31))
    join.right((1, 1, 7), (3, 3, 9), (21, 2, 21))
    join.advance(MAX_TIMESTAMP)
    lonely = {
        LEFT: [(2, None, 0, 10, None, 9), (2, 31, 30, 40, None, 39)],
        RIGHT: [(3, None, 0, 10, "r9", 9), (2, None, 20, 30, "r21", 29)],
    }
    expected = [(1, 1, 0, 10, "r7", 9), *(row for side in OUTER_SIDES[how] for row in lonely[side])]
    assert join.take() == in_order(expected)


def test_rows_meet_in_every_sliding_window_that_has_both() -> None:
    join = WindowJoinJob(AlignedWindows(10, 5))
    join.left((7, 1, 7))
    join.right((3, 1, 3), (11, 1, 11))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 7, 0, 10, "r3", 9), (1, 7, 5, 15, "r11", 14)]


def test_rows_between_windows_belong_to_none_and_are_not_late() -> None:
    join = WindowJoinJob(AlignedWindows(3, 10), "full")
    join.left((5, 1, 5), (2, 1, 2))
    join.advance(9)
    join.right((4, 1, 4))
    assert join.take() == [(1, 2, 0, 3, None, 2)]
    assert join.late == 0
    assert held(join) == 0


def test_late_rows_are_dropped_and_counted() -> None:
    join = WindowJoinJob(AlignedWindows(10, 5), "full")
    join.advance(14)
    join.left((9, 1, 9), (14, 1, 14))
    join.right((10, 1, 10), (0, 1, 0))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 14, 10, 20, "r10", 19)]
    assert join.late == 2


def test_a_session_lasts_as_long_as_rows_of_either_side_come() -> None:
    join = WindowJoinJob(SessionWindows(5))
    join.left((0, 1, 0), (10, 1, 10))
    join.right((5, 1, 5), (16, 1, 16))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 0, 0, 15, "r5", 14), (1, 10, 0, 15, "r5", 14)]
    assert held(join) == 0


def test_a_late_row_of_a_session_counts_if_it_joins_one_that_is_open() -> None:
    join = WindowJoinJob(SessionWindows(5))
    join.left((8, 1, 8))
    join.advance(10)
    join.right((4, 1, 4), (1, 2, 1))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 8, 4, 13, "r4", 12)]
    assert join.late == 1


def test_a_session_that_ends_costs_no_more_where_many_others_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = copied_rows(monkeypatch, join_windows, join_buffers, row_log)
    gap, step, rows = 2000, 40, 6000
    join = WindowJoinJob(SessionWindows(gap))
    for first in range(0, rows, step):
        join.left(*((at, at, at) for at in range(first, first + step)))
        join.right(*((at, at, at) for at in range(first, first + step)))
        join.advance(first + step - 1)
    assert join.take() == in_order([(at, at, at, at + gap, f"r{at}", at + gap - 1) for at in range(rows - gap + 1)])
    assert sum(copied) < 15 * 2 * rows, "to touch all open sessions at each watermark would take several times as much"


def test_sessions_are_joined_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(at, at % 7, at) for at in range(0, 400, 2)]
    results, taken = [], []
    for at_once in (1 << 20, 10):
        monkeypatch.setattr(join_windows, "_SHARE_ROWS", at_once)
        join = WindowJoinJob(SessionWindows(9), "full")
        join.left(*rows)
        join.right(*rows[::3])
        pairing: Any = join.links[0].operator
        taken.append([sum(len(s.groups) for s in w.sides if s) for w in pairing._pairing.fire(MAX_TIMESTAMP)])
        join = WindowJoinJob(SessionWindows(9), "full")
        join.left(*rows)
        join.right(*rows[::3])
        join.advance(MAX_TIMESTAMP)
        results.append(join.take())
    assert results[0] == results[1]
    assert len(taken[0]) == 1
    assert max(taken[1]) <= 20
    assert sum(taken[1]) == taken[0][0]


def test_many_windows_are_joined_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_windows, "_SHARE_ROWS", 7)
    join = WindowJoinJob(AlignedWindows(10, 5), "full")
    join.left(*((at, at % 3, at) for at in range(100)))
    join.right(*((at, at % 3, at) for at in range(0, 100, 4)))
    join.advance(MAX_TIMESTAMP)
    whole = WindowJoinJob(AlignedWindows(10, 5), "full")
    monkeypatch.undo()
    whole.left(*((at, at % 3, at) for at in range(100)))
    whole.right(*((at, at % 3, at) for at in range(0, 100, 4)))
    whole.advance(MAX_TIMESTAMP)
    assert len(join.out.batches) > len(whole.out.batches)
    assert join.take() == whole.take()


def test_windows_are_emitted_in_order_before_the_watermark() -> None:
    join = WindowJoinJob(AlignedWindows(10, 5))
    join.left(*((at, 1, at) for at in (20, 3, 11, 7)))
    join.right(*((at, 1, at) for at in (4, 12, 22)))
    join.advance(MAX_TIMESTAMP)
    assert join.out.timestamps == sorted(join.out.timestamps)  # type: ignore[type-var]
    assert join.out.elements[-1] is not join.out.batches[-1]


def test_far_apart_times_make_no_windows_in_between() -> None:
    join = WindowJoinJob(AlignedWindows(10, 1))
    for at in (-(2**62), 0, 2**62):
        join.left((at, 1, 1))
        join.right((at, 1, 1))
    join.advance(MAX_TIMESTAMP)
    assert len(join.out.batches[0].data) == 30


def test_a_restored_subtask_does_not_repeat_the_windows_of_its_parts() -> None:
    """Two subtasks had come to different watermarks when the snapshot was taken."""
    join = WindowJoinJob(AlignedWindows(20, 10), parallelism=2)
    for key in range(8):
        join.left((25, key, 25))
        join.right((25, key, 25))
    for link, watermark in zip(join.links, (9, 29), strict=True):
        link.process(0, _watermark(watermark))
    before = join.take()
    join.rescale(1)
    join.advance(MAX_TIMESTAMP)
    both = before + join.take()
    assert len(set(both)) == len(both) == 16


def _watermark(timestamp: int) -> Any:
    from penstock.engine.elements import Watermark

    return Watermark(timestamp)


def test_keys_may_be_several_columns_of_any_type() -> None:
    columns = JoinColumns(*TEXT_SIDES, between=BOUNDS)
    join = JoinJob(WindowJoinSpec(TUMBLING, columns), TEXT_KEYS, parallelism=2)
    join.send(LEFT, text_rows(LEFT, [(1, 1, 1), (2, 2, 2), (3, 3, 3)]))
    join.send(RIGHT, text_rows(RIGHT, [(1, 1, 5), (2, 3, None)]))
    join.advance(MAX_TIMESTAMP)
    assert join.out.batches[0].data.schema.names == ["k", "n", "more", "window_start", "window_end", "n_right"]
    assert sorted((row["k"], row["n"], row["n_right"]) for row in join.out.rows) == [("1", 1, "r5"), ("3", 3, None)]


def test_dictionary_columns_are_joined_as_their_values() -> None:
    sides = (JoinSide(("k",), None), JoinSide(("k",), None))
    join = JoinJob(WindowJoinSpec(TUMBLING, JoinColumns(*sides, between=BOUNDS)), (("k",), ("k",)))
    for side, keys in ((LEFT, ["a", "b"]), (RIGHT, ["b", "c"])):
        column = pa.array(keys).dictionary_encode()
        join.send(side, Batch(pa.record_batch({"k": column, f"v{side}": column}), pa.array([0, 0])))
    join.advance(MAX_TIMESTAMP)
    assert [(row["k"], row["v0"], row["v1"]) for row in join.out.rows] == [("b", "b", "b")]


# Against models


def _text(n: int | None) -> str | None:
    return None if n is None else f"r{n}"


def _joined(how: str, key: int, start: int, end: int, left: list[Row], right: list[Row]) -> list[tuple[Any, ...]]:
    pairs: list[tuple[Any, ...]] = [(key, a[2], start, end, _text(b[2]), end - 1) for a in left for b in right]
    if not right and LEFT in OUTER_SIDES[how]:
        pairs += [(key, a[2], start, end, None, end - 1) for a in left]
    if not left and RIGHT in OUTER_SIDES[how]:
        pairs += [(key, None, start, end, _text(b[2]), end - 1) for b in right]
    return pairs


class _AlignedModel:
    """Each window of each key holds the rows of both sides until it fires."""

    def __init__(self, windows: AlignedWindows, how: str) -> None:
        self.windows = windows
        self.how = how
        self.kept: dict[tuple[int, int], tuple[list[Row], list[Row]]] = {}
        self.watermark = MIN_TIMESTAMP
        self.late = 0

    def rows(self, side: int, rows: list[Row]) -> None:
        size, slide, offset = self.windows.size_ms, self.windows.slide_ms, self.windows.offset_ms
        for row in rows:
            starts = [start for start in range(row[0] - size + 1, row[0] + 1) if (start - offset) % slide == 0]
            still_open = [start for start in starts if start + size - 1 > self.watermark]
            self.late += bool(starts) and not still_open
            for start in still_open:
                self.kept.setdefault((start, row[1]), ([], []))[side].append(row)

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        self.watermark = watermark
        fired: list[tuple[Any, ...]] = []
        for start, key in list(self.kept):
            end = start + self.windows.size_ms
            if end - 1 <= watermark:
                fired += _joined(self.how, key, start, end, *self.kept.pop((start, key)))
        return in_order(fired)


class _SessionModel:
    """Sessions of both sides' rows, merged as rows come."""

    def __init__(self, windows: SessionWindows, how: str) -> None:
        self.gap = windows.gap_ms
        self.how = how
        self.kept: list[tuple[int, int, int, tuple[list[Row], list[Row]]]] = []
        self.watermark = MIN_TIMESTAMP
        self.late = 0

    def rows(self, side: int, rows: list[Row]) -> None:
        for row in rows:
            key, start, end = row[1], row[0], row[0] + self.gap
            content: tuple[list[Row], list[Row]] = ([], [])
            content[side].append(row)
            apart = []
            for session in self.kept:
                if session[0] == key and session[1] <= end and session[2] >= start:
                    start, end = min(start, session[1]), max(end, session[2])
                    for mine, other in zip(content, session[3], strict=True):
                        mine.extend(other)
                else:
                    apart.append(session)
            if end - 1 <= self.watermark:
                self.late += 1
            else:
                self.kept = [*apart, (key, start, end, content)]

    def _take_ended(self) -> list[tuple[int, int, int, tuple[list[Row], list[Row]]]]:
        ended = [session for session in self.kept if session[2] - 1 <= self.watermark]
        self.kept = [session for session in self.kept if session[2] - 1 > self.watermark]
        return ended

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        self.watermark = watermark
        ended = self._take_ended()
        return in_order([row for key, start, end, sides in ended for row in _joined(self.how, key, start, end, *sides)])


ALIGNED = st.builds(AlignedWindows, st.integers(1, 12), st.integers(1, 12), st.integers(-5, 5))
WINDOWS = st.one_of(ALIGNED, st.builds(SessionWindows, st.integers(1, 6)))


@given(scripts(), WINDOWS, st.sampled_from(sorted(OUTER_SIDES)))
@settings(max_examples=drawn(20))
def test_each_watermark_emits_what_the_model_emits(
    script: list[tuple[str, Any]], windows: JoinWindows, how: str
) -> None:
    join = WindowJoinJob(windows, how, parallelism=2)
    model = _SessionModel(windows, how) if isinstance(windows, SessionWindows) else _AlignedModel(windows, how)
    for step, given_value in [*script, ("watermark", MAX_TIMESTAMP)]:
        if step == "watermark":
            join.advance(given_value)
            assert join.take() == model.advance(given_value)
        elif step == "rescale":
            join.rescale(given_value)
        else:
            (join.left if step == "left" else join.right)(*given_value)
            model.rows(LEFT if step == "left" else RIGHT, given_value)
        assert join.late == model.late
    assert held(join) == 0


def test_long_inputs_in_sessions_agree_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_rows, "_MIN_DEAD", 16)
    monkeypatch.setattr(row_log, "PART_ROWS", 64)
    windows, rng = SessionWindows(6), np.random.default_rng(3)
    join, model = WindowJoinJob(windows, "full"), _SessionModel(windows, "full")
    emitted = 0
    for step in range(0, 500, 10):
        for side, send in ((LEFT, join.left), (RIGHT, join.right)):
            times, keys = rng.integers(step, step + 30, 9).tolist(), rng.integers(0, 6, 9).tolist()
            # Of key 9 there is one long session, of key 8 a row of one batch in many sessions.
            rows = [*zip(times, keys, times, strict=True), (step, 9, side), (step + 5, 9, side)]
            rows += [(step + n, 8, n) for n in (0, 8, 16)]
            send(*rows)
            model.rows(side, rows)
        if step % 50 == 0:
            join.advance(step)
            expected = model.advance(step)
            emitted += len(expected)
            assert join.take() == expected
            assert join.late == model.late
        if step % 150 == 0:
            join.rescale(1)
    assert emitted > 500
    join.advance(MAX_TIMESTAMP)
    assert join.take() == model.advance(MAX_TIMESTAMP)
    assert held(join) == 0


@given(rows_of(12), rows_of(12), WINDOWS, st.lists(st.integers(0, 12), max_size=6))
def test_how_rows_are_cut_into_batches_changes_no_result(
    left: list[Row], right: list[Row], windows: JoinWindows, cuts: list[int]
) -> None:
    results = []
    for bounds in ([0, 12], [0, *sorted(cuts), 12], list(range(13))):
        join = WindowJoinJob(windows, "full")
        for begin, end in pairwise(bounds):
            for send, rows in ((join.left, left), (join.right, right)):
                if rows[begin:end]:
                    send(*rows[begin:end])
        join.advance(MAX_TIMESTAMP)
        results.append(join.take())
    assert results[0] == results[1] == results[2]
