"""Joins that go on from the rows of another program: rightly, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.errors import StateError
from penstock.engine.operators.join_columns import LEFT, RIGHT, JoinColumns, JoinSide
from penstock.engine.operators.joins.co_group import CoGroupSpec
from penstock.engine.operators.joins.interval_join import IntervalJoinSpec
from penstock.engine.operators.joins.temporal_join import TemporalJoinSpec
from penstock.engine.operators.joins.window_join import BOUNDS, WindowJoinSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows
from tests.engine.helpers import RunningOperator, timed
from tests.engine.operators.joins.join_jobs import SIDES, JoinJob
from tests.engine.state.saved import snapshot_of

TYPES = {"a": pa.string(), "b": pa.string()}


def _columns(*keys: str, between: Any = (), schema: pa.Schema | None = None) -> JoinColumns:
    side = JoinSide(keys, schema)
    return JoinColumns(side, side, between=between)


JOINS: dict[str, Callable[..., Any]] = {
    "interval": lambda *keys: IntervalJoinSpec(_columns(*keys), -10, 10),
    "window": lambda *keys: WindowJoinSpec(AlignedWindows(10, 10), _columns(*keys, between=BOUNDS)),
    "session": lambda *keys: WindowJoinSpec(SessionWindows(10), _columns(*keys, between=BOUNDS)),
    "temporal": lambda *keys: TemporalJoinSpec(_columns(*keys)),
    "co_group": lambda *keys: CoGroupSpec(AlignedWindows(10, 10), _columns(*keys), lambda *given: []),
}


def _saved(spec: Any) -> OperatorSnapshot:
    running = RunningOperator(spec.create())
    batch = timed([{"at": 100 + n, "a": f"a{n}", "b": f"b{n}"} for n in range(8)], TYPES)
    for side in (LEFT, RIGHT):
        running.operator.process_batch(batch, side, running.out)
    running.advance(50)
    return snapshot_of(running.operator)


def _older(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    """As it was saved before snapshots told of joins."""
    return replace(snapshot, tables={n: table for n, table in snapshot.tables.items() if n != "join_form"})


def _restore(spec: Any, snapshot: OperatorSnapshot) -> None:
    RunningOperator(spec.create()).operator.restore(snapshot)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("keys", [("b", "a"), ("a",), ("b",)], ids=",".join)
def test_rows_of_other_keys_are_refused(join: str, keys: tuple[str, ...]) -> None:
    """Their key groups are not those of the rows that come: pairs would be lost."""
    with pytest.raises(StateError, match=r"left side were saved by other keys than.*another uid"):
        _restore(JOINS[join](*keys), _saved(JOINS[join]("a", "b")))


@pytest.mark.parametrize("join", JOINS)
def test_rows_that_lack_a_column_are_refused(join: str) -> None:
    spec = JOINS[join]("a", "b")
    side = JoinSide(("a", "b"), pa.schema([*TYPES.items(), ("c", pa.int64())]))
    with pytest.raises(StateError, match="'c' is not among them"):
        _restore(replace(spec, columns=replace(spec.columns, left=side, right=side)), _saved(spec))


@pytest.mark.parametrize("join", JOINS)
def test_older_rows_go_on(join: str) -> None:
    _restore(JOINS[join]("a", "b"), _older(_saved(JOINS[join]("a", "b"))))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        *[
            (before, now)
            for before in JOINS
            for now in JOINS
            if before != now and {before, now} != {"window", "co_group"}
        ],
    ],
)
def test_rows_of_another_kind_of_join_are_refused(before: str, now: str) -> None:
    with pytest.raises(StateError, match="another uid"):
        _restore(JOINS[now]("a", "b"), _saved(JOINS[before]("a", "b")))


def test_older_rows_of_windows_that_may_have_fired_do_not_become_sessions() -> None:
    with pytest.raises(StateError, match="another kind of join"):
        _restore(JOINS["session"]("a", "b"), _older(_saved(JOINS["window"]("a", "b"))))


def _interval(lower: int, upper: int, *outer: int) -> Any:
    return IntervalJoinSpec(_columns("a", "b"), lower, upper, outer=outer)


def _window(windows: Any) -> Any:
    return WindowJoinSpec(windows, _columns("a", "b", between=BOUNDS))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (_interval(-10, 10), _interval(-11, 10)),
        (_interval(-10, 10), _interval(-10, 11)),
        (_interval(-10, 10), _interval(-10, 10, LEFT)),
        (_interval(-10, 10, LEFT), _interval(-10, 10, RIGHT)),
        (_interval(-10, 10, LEFT), _interval(-10, 5, LEFT)),
        (_window(AlignedWindows(10, 10)), _window(AlignedWindows(15, 15))),
        (_window(AlignedWindows(10, 10)), _window(AlignedWindows(10, 10, 5))),
        (_window(SessionWindows(10)), _window(SessionWindows(11))),
    ],
)
def test_a_join_that_needs_rows_for_longer_is_refused(before: Any, now: Any) -> None:
    with pytest.raises(StateError, match="may have been dropped"):
        _restore(now, _saved(before))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (_interval(-10, 10), _interval(-5, 3)),
        (_interval(-10, 10, LEFT, RIGHT), _interval(-10, 10, LEFT)),
        (_window(AlignedWindows(10, 10)), _window(AlignedWindows(5, 5))),
        (_window(AlignedWindows(10, 5)), _window(AlignedWindows(10, 10))),
        (_window(SessionWindows(10)), _window(SessionWindows(9))),
        (JOINS["window"]("a", "b"), JOINS["co_group"]("a", "b")),
    ],
)
def test_a_join_that_needs_rows_for_less_goes_on(before: Any, now: Any) -> None:
    _restore(now, _saved(before))


def test_a_row_without_a_partner_comes_once_where_subtasks_had_come_to_different_watermarks() -> None:
    """Rows of both sides are kept for longer than they wait, and rescaled from an unaligned checkpoint."""
    from penstock.engine.elements import MAX_TIMESTAMP, Watermark

    join = JoinJob(IntervalJoinSpec(JoinColumns(*SIDES), -10, 10, outer=(LEFT, RIGHT)), parallelism=2)
    join.left(*[(85, key, key) for key in range(8)])
    for link, watermark in zip(join.links, (100, 50), strict=True):
        link.process(0, Watermark(watermark))
    came = join.take()
    assert 0 < len(came) < 8, "those of the one subtask"
    join.rescale(1)
    join.advance(60)
    came += join.take()
    join.rescale(3)
    join.right(*[(80, key, 100 + key) for key in range(8)])
    join.advance(MAX_TIMESTAMP)
    came += join.take()
    lonely = [row for row in came if row[2] is None]
    assert len(set(lonely)) == len(lonely), "each once"
    met = {row[0] for row in came if row[1] is not None and row[2] is not None}
    assert met.isdisjoint(row[0] for row in lonely), "none of them has met a row that came too late for it"
    assert len(met) + len(lonely) == 8


@pytest.mark.parametrize("join", JOINS)
def test_checkpoints_make_no_table_of_what_the_join_is_again(join: str) -> None:
    running = RunningOperator(JOINS[join]("a").create())
    captures = [running.operator.capture(CaptureRequest(number, CaptureScope.CHANGES)) for number in (1, 2)]
    first, second = (capture.tables["join_form"].rows() for capture in captures)
    assert first is second
