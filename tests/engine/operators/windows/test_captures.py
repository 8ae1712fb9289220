"""Captures of vectorised windows: changes add up to all that is held, whatever happens before and behind them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import collect_list, count, first
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.operators.windows.session_aggregate import SessionAggregateSpec
from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.keys.index import KeyIndex
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SessionWindows
from tests.engine.helpers import RunningOperator, timed
from tests.engine.operators.capture_log import CaptureLog
from tests.engine.state.saved import snapshot_of

TYPES = {"key": pa.string(), "n": pa.int64(), "word": pa.string()}
LENGTH = 40

keys = st.sampled_from(["a", "b", "c", "d", "e"])
row = st.tuples(st.integers(-3, LENGTH), keys, st.integers(-5, 5) | st.none())
step = st.one_of(
    st.lists(row, min_size=1, max_size=6),
    st.integers(0, LENGTH + 20),
    st.sampled_from([CaptureScope.CHANGES, CaptureScope.SWITCH, CaptureScope.BASE, CaptureScope.COMPLETE]),
    st.just("restore"),
)
numbers = {"rows": count(), "total": agg.sum("n"), "least": agg.min("n")}
words = {"rows": count(), "first": first("word"), "all": collect_list("n"), "least": agg.min("word")}
by_key = st.sampled_from([["key"], [], ["key", "word"]])
sliced = st.sampled_from(
    [AlignedWindows(10, 10), AlignedWindows(20, 5, 3), AlignedWindows(4, 7), CumulativeWindows(20, 5)]
)
lateness = st.sampled_from([0, 0, 7, 100])


def _batch(rows: list[tuple[int, str, int | None]]) -> Any:
    return timed([{"at": at, "key": key, "n": n, "word": f"w{n}" if n else None} for at, key, n in rows], TYPES)


def _run(spec: OperatorSpec, steps: list[Any]) -> CaptureLog:
    """Take the steps on an operator that is restored from its captures, and on one that never stops."""
    unbroken, restored, log = RunningOperator(spec.create()), RunningOperator(spec.create()), CaptureLog()
    watermark = -10
    for each in [*steps, CaptureScope.CHANGES]:
        if isinstance(each, list):
            for running in (unbroken, restored):
                running.process(_batch(each))
        elif isinstance(each, int):
            if each > watermark:
                watermark = each
                for running in (unbroken, restored):
                    running.advance(each)
        elif isinstance(each, CaptureScope):
            log.take(restored.operator, each)
        else:
            log.take(restored.operator, CaptureScope.CHANGES)
            log.check()
            restored = RunningOperator(spec.create())
            restored.operator.restore(log.merged)
        assert _emitted(unbroken) == _emitted(restored)
    log.check()
    return log


def _emitted(running: RunningOperator) -> list[str]:
    return sorted(map(repr, running.take_rows()))


@given(sliced, by_key, st.sampled_from([numbers, words, {**numbers, **words}]), lateness, st.lists(step, max_size=30))
def test_changes_of_windows_add_up_to_what_is_held(
    windows: Any, by: list[str], aggregates: dict[str, Any], late: int, steps: list[Any]
) -> None:
    _run(WindowAggregateSpec(windows, GroupedAggregation(by, aggregates), late), steps)


@given(st.integers(1, 8), by_key, st.sampled_from([numbers, words]), lateness, st.lists(step, max_size=30))
def test_changes_of_sessions_add_up_to_what_is_held(
    gap: int, by: list[str], aggregates: dict[str, Any], late: int, steps: list[Any]
) -> None:
    _run(SessionAggregateSpec(SessionWindows(gap), GroupedAggregation(by, aggregates), late), steps)


SPECS = [
    WindowAggregateSpec(AlignedWindows(10, 10), GroupedAggregation(["key"], numbers)),
    SessionAggregateSpec(SessionWindows(10), GroupedAggregation(["key"], numbers)),
]


def _rows(running: RunningOperator, scope: CaptureScope = CaptureScope.CHANGES) -> list[dict[str, Any]]:
    table = running.operator.capture(CaptureRequest(1, scope)).tables["window_aggregate"]
    return list(table.rows().to_pylist())


@pytest.mark.parametrize("spec", SPECS)
def test_only_keys_with_new_rows_are_captured_again(spec: OperatorSpec) -> None:
    running = RunningOperator(spec.create())
    running.process(_batch([(at, key, 1) for at, key in enumerate("abcde")]))
    assert len(_rows(running)) == 5
    assert _rows(running) == []
    running.process(_batch([(3, "b", 2)]))
    assert [row["key"] for row in _rows(running, CaptureScope.COMPLETE)] != ["b"]
    assert [row["key"] for row in _rows(running)] == ["b"]
    assert _rows(running) == []
    assert len(_rows(running, CaptureScope.BASE)) == 5


@pytest.mark.parametrize("spec", SPECS)
def test_what_was_restored_is_not_captured_again(spec: OperatorSpec) -> None:
    running, restored = RunningOperator(spec.create()), RunningOperator(spec.create())
    running.process(_batch([(at, key, 1) for at, key in enumerate("abcde")]))
    restored.operator.restore(snapshot_of(running.operator))
    restored.process(_batch([(4, "e", 2)]))
    assert [row["key"] for row in _rows(restored)] == ["e"]


@pytest.mark.parametrize("spec", SPECS)
def test_nothing_is_captured_of_windows_that_are_over(spec: OperatorSpec) -> None:
    running, log = RunningOperator(spec.create()), CaptureLog()
    running.process(_batch([(1, "a", 1), (2, "b", 1), (15, "a", 1)]))
    log.take(running.operator, CaptureScope.BASE)
    running.advance(14)
    log.take(running.operator, CaptureScope.CHANGES)
    log.check()
    assert [row["key"] for row in log.merged.tables["window_aggregate"].data.to_pylist()] == ["a"]
    running.advance(100)
    log.take(running.operator, CaptureScope.CHANGES)
    log.check()
    assert (set(log.merged.tables), log.merged.watermark) == ({"window_form"}, 100)


def test_sessions_that_merge_leave_no_row_behind() -> None:
    running, log = RunningOperator(SPECS[1].create()), CaptureLog()
    running.process(_batch([(at, key, 1) for at in (0, 15, 30) for key in "abcde"]))
    log.take(running.operator, CaptureScope.CHANGES)
    running.process(_batch([(8, "a", 1), (24, "a", 1), (28, "b", 1)]))
    log.take(running.operator, CaptureScope.CHANGES)
    log.check()
    assert log.changes == 1
    held = log.merged.tables["window_aggregate"].data.to_pylist()
    assert sorted((row["__start"], row["__end"]) for row in held if row["key"] == "a") == [(0, 40)]
    assert sorted((row["__start"], row["__end"]) for row in held if row["key"] == "b") == [(0, 10), (15, 25), (28, 40)]


def test_a_key_that_is_forgotten_behind_a_merge_leaves_no_trace() -> None:
    running, log = RunningOperator(SPECS[1].create()), CaptureLog()
    many = [f"k{number}" for number in range(3000)]
    running.process(_batch([(at, key, 1) for at in (0, 15, 30) for key in many] + [(200, "late", 1)]))
    log.take(running.operator, CaptureScope.CHANGES)
    running.process(_batch([(at, many[0], 1) for at in (8, 24)]))
    running.advance(150)
    running.process(_batch([(300, "new", 1), (200, "late", 1), (400, "more", 1)]))
    log.take(running.operator, CaptureScope.CHANGES)
    log.check()
    assert {row["key"] for row in log.merged.tables["window_aggregate"].data.to_pylist()} == {"late", "new", "more"}


@pytest.mark.parametrize(
    "spec",
    [
        WindowAggregateSpec(AlignedWindows(10, 10), GroupedAggregation(["key"], {"rows": count()})),
        SessionAggregateSpec(SessionWindows(10), GroupedAggregation(["key"], {"rows": count()})),
    ],
    ids=["windows", "sessions"],
)
def test_what_many_keys_need_is_compiled_where_state_of_them_warms_the_process(
    spec: OperatorSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[int] = []
    monkeypatch.setattr(KeyIndex, "_compile", lambda self: compiled.append(1))
    before = RunningOperator(spec.create())
    before.process(_batch([(1, f"key {number}", 1) for number in range(5_000)]))
    compiled.clear()
    spec.warm(snapshot_of(before.operator))
    assert compiled, "a table of the kind that so many keys are in was made"
    compiled.clear()
    spec.warm(OperatorSnapshot({}))
    assert not compiled
