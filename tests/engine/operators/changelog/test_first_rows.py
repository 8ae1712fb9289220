"""The first row of each key by time comes once: when the watermark has passed it, or at once by the clock."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.changelog import ChangelogMode
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import GraphError, StateError
from penstock.engine.operators.changelog.first_rows import FirstRowsSpec
from penstock.engine.operators.changelog.over import OverTime
from penstock.engine.operators.changelog.ranks import Order
from penstock.engine.operators.changelog.top_n import TopNSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import ChangelogJob, Row

SCHEMA = pa.schema({"v": pa.int64(), "k": pa.string(), "l": pa.list_(pa.int64())})
ROWS: st.SearchStrategy[Row] = st.tuples(
    st.integers(0, 9), st.sampled_from(["a", "b", "c", None]), st.sampled_from([None, (1,), (1, 2)])
)


def job(partition: tuple[str, ...] = ("k",), backend: str = "heap", **options: Any) -> ChangelogJob:
    return ChangelogJob(FirstRowsSpec(SCHEMA, partition, "n", **options), [SCHEMA], 2, backend)


def sent(tested: ChangelogJob, *rows: tuple[int, str | None, int]) -> list[Row]:
    """What is said when rows come: value, key and time."""
    said = tested.send([("+I", (v, k, None)) for v, k, _ in rows], times=[at for _, _, at in rows])
    return [row for _, row in said]


def advanced(tested: ChangelogJob, watermark: int) -> list[Row]:
    return [(v, k) for _, (v, k, _, _) in tested.advance(watermark)]


def held(tested: ChangelogJob, name: str) -> int:
    captures = [one.capture(CaptureRequest(1, CaptureScope.COMPLETE)) for one in tested.operators]
    return sum(capture.tables[name].rows().num_rows for capture in captures)


class Plain:
    """The obvious way: all rows that are not late, and what has been given."""

    def __init__(self, places: list[int]) -> None:
        self._places = places
        self._waiting: list[tuple[int, Row]] = []
        self._given: set[Row] = set()
        self._watermark = -1

    def send(self, rows: list[tuple[Row, int]]) -> None:
        self._waiting += [(at, row) for row, at in rows if at >= self._watermark]

    def advance(self, watermark: int) -> list[Row]:
        self._watermark = watermark
        said = []
        for at, row in sorted(self._waiting, key=lambda one: one[0]):
            key = tuple(row[place] for place in self._places)
            if at <= watermark and key not in self._given:
                self._given.add(key)
                said.append((*row, 1))
        self._waiting = [(at, row) for at, row in self._waiting if at > watermark]
        return said


@st.composite
def scripts(draw: st.DrawFn) -> list[Any]:
    """Batches of rows with their times, watermarks (a number), and when it is saved (None)."""
    script: list[Any] = []
    watermark = 0
    for _ in range(draw(st.integers(1, 9))):
        step = draw(st.sampled_from(["rows", "rows", "watermark", "save"]))
        if step == "rows":
            times = st.integers(max(watermark - 2, 0), watermark + 8)
            script.append(draw(st.lists(st.tuples(ROWS, times), min_size=1, max_size=6)))
        elif step == "watermark":
            watermark += draw(st.integers(0, 5))
            script.append(watermark)
        else:
            script.append(None)
    return script


def check(script: list[Any], partition: tuple[str, ...], backend: str, by_checkpoints: bool = False) -> None:
    """Savepoints are resumed from at once, and of checkpoints the last one."""
    tested, plain = job(partition, backend), Plain([SCHEMA.names.index(name) for name in partition])
    for number, step in enumerate([*script, None, MAX_TIMESTAMP]):
        if isinstance(step, list):
            assert tested.send([("+I", row) for row, _ in step], times=[at for _, at in step]) == []
            plain.send(step)
        elif isinstance(step, int):
            assert sorted((row for _, row in tested.advance(step)), key=repr) == sorted(plain.advance(step), key=repr)
        elif by_checkpoints:
            tested.checkpoint()
        else:
            tested.restart(3)
        if by_checkpoints and number == len(script):
            tested.recover(3)
    tested.close()


@pytest.mark.parametrize("partition", [("k",), ("k", "v"), ("l", "k"), ()])
@settings(max_examples=drawn(20))
@given(script=scripts(), by_checkpoints=st.booleans())
def test_first_rows_are_those_of_all_rows_that_are_not_late(
    script: list[Any], partition: tuple[str, ...], by_checkpoints: bool
) -> None:
    check(script, partition, "heap", by_checkpoints)


@pytest.mark.parametrize("partition", [("k",), ()])
@settings(max_examples=4)
@given(script=scripts())
def test_what_is_known_of_keys_lies_in_rocksdb_as_well(script: list[Any], partition: tuple[str, ...]) -> None:
    check(script, partition, "rocksdb")


def test_of_rows_of_one_time_the_first_to_come_is_first() -> None:
    tested = job()
    sent(tested, (1, "a", 5), (2, "a", 4), (3, "a", 4))
    tested.restart(1)
    sent(tested, (4, "a", 4), (5, "b", 3))
    assert advanced(tested, 3) == [(5, "b")]
    assert advanced(tested, 9) == [(2, "a")]
    assert tested.timestamps == [3, 4]


def test_one_row_a_key_waits_and_none_once_it_came() -> None:
    tested = job()
    for first in range(0, 500, 50):
        sent(tested, *((v, "ab"[v % 2], 1000 - v) for v in range(first, first + 50)))
    assert held(tested, "pending") == 2
    assert advanced(tested, 1000) == [(499, "b"), (498, "a")]
    sent(tested, (1, "a", 1001), (2, "b", 1002))
    assert (held(tested, "pending"), held(tested, "given")) == (0, 2)


def test_checkpoints_hold_what_has_changed_since_the_last() -> None:
    tested = ChangelogJob(FirstRowsSpec(SCHEMA, ("k",), "n"), [SCHEMA])
    sent(tested, *((v, str(v), 5) for v in range(100)))
    operator = tested.operators[0]
    operator.capture(CaptureRequest(1, CaptureScope.BASE))
    sent(tested, (0, "new", 5))
    captured = operator.capture(CaptureRequest(2, CaptureScope.CHANGES)).tables["pending"]
    assert captured.is_changes
    assert captured.rows().num_rows == 1


def test_rows_behind_the_watermark_are_counted_and_dropped_and_those_of_its_own_time_are_not() -> None:
    tested = ChangelogJob(FirstRowsSpec(SCHEMA, ("k",), "n"), [SCHEMA])
    advanced(tested, 10)
    tested.restart()
    sent(tested, (1, "a", 9), (2, "a", 10))
    assert advanced(tested, 10) == [(2, "a")]
    assert tested.operators[0]._context.metrics.late_rows == 1  # type: ignore[attr-defined]


def test_by_the_clock_the_first_to_come_is_said_at_once() -> None:
    tested = job(time=OverTime.PROCESSING)
    assert sent(tested, (1, "b", 9), (2, "b", 4), (3, "b", 1)) == [(1, "b", None, 1)]
    tested.restart(3)
    assert sent(tested, (4, "b", 9), (5, "a", 4)) == [(5, "a", None, 1)]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_key_is_forgotten_when_its_time_to_live_is_over(backend: str) -> None:
    tested = job(backend=backend, ttl_ms=1000)
    sent(tested, (1, "a", 1))
    assert advanced(tested, 1) == [(1, "a")]
    tested.clock.advance(0.6)
    sent(tested, (2, "a", 2))
    assert advanced(tested, 2) == []
    tested.clock.advance(0.6)
    sent(tested, (3, "a", 3))
    assert advanced(tested, 3) == [(3, "a")]
    tested.close()


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("ttl_ms", [None, 1000])
def test_the_state_of_older_savepoints_says_which_keys_have_had_their_row(backend: str, ttl_ms: int | None) -> None:
    schema = SCHEMA.remove(2)
    before = TopNSpec(schema, ("k",), (Order("v"),), end=1, rank_column="n", takes=ChangelogMode.APPEND, ttl_ms=ttl_ms)
    tested = ChangelogJob(before, [schema], 2, backend)
    tested.send([("+I", (5, "a")), ("+I", (3, "a")), ("+I", (7, None))], times=[5, 3, 7])
    tested.spec = FirstRowsSpec(schema, ("k",), "n", ttl_ms=ttl_ms)
    tested.restart(3)
    tested.send([("+I", (2, "a")), ("+I", (8, None)), ("+I", (9, "b"))], times=[2, 8, 9])
    assert tested.advance(10) == [("+I", (9, "b", 1))]
    tested.close()


def test_another_state_or_column_is_refused() -> None:
    with pytest.raises(GraphError, match="no column 'x'"):
        FirstRowsSpec(SCHEMA, ("x",), "n")
    with pytest.raises(GraphError, match="give the rank another name"):
        FirstRowsSpec(SCHEMA, ("k",), "v")
    tested = ChangelogJob(TopNSpec(SCHEMA, ("k",), (), end=1), [SCHEMA])
    tested.send([("+I", (1, "a", None))], times=[1])
    tested.spec = FirstRowsSpec(SCHEMA.remove(0), ("k",), "n")
    with pytest.raises(StateError, match="keep the query as it was"):
        tested.restart()
