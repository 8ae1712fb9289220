"""Windows that go on from the snapshot of another program: rightly, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import CountEvictor, CountTrigger, session, sliding, tumbling
from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import Aggregate, count
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import MIN_TIMESTAMP, Batch
from penstock.engine.errors import StateError
from penstock.engine.operators.windows.session_aggregate import SessionAggregateSpec
from penstock.engine.operators.windows.window_aggregate import WindowAggregateSpec
from penstock.engine.state.snapshot import OperatorSnapshot, share
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SessionWindows
from tests.draws import drawn
from tests.engine.helpers import RunningOperator, local_environment, timed
from tests.engine.state.saved import snapshot_of
from tests.engine.window_driver import OperatorDriver, spec_behind, spec_of

TYPES = {"a": pa.string(), "b": pa.string(), "n": pa.int64()}
SUMS = {"rows": count(), "total": agg.sum("n")}
AGGREGATION = GroupedAggregation(["a", "b"], SUMS)
TUMBLING = WindowAggregateSpec(AlignedWindows(10, 10), AGGREGATION)
SESSIONS = SessionAggregateSpec(SessionWindows(10), AGGREGATION)

Rows = Sequence[tuple[int, int]]
"""Event time and n."""


def _process(running: RunningOperator, rows: Rows) -> None:
    running.process(timed([{"at": at, "a": "x", "b": "y", "n": n} for at, n in rows], TYPES))


def _saved(spec: Any, rows: Rows, watermark: int = 5) -> OperatorSnapshot:
    running = RunningOperator(spec.create())
    _process(running, rows)
    running.advance(watermark)
    return snapshot_of(running.operator)


def _restored(spec: Any, snapshot: OperatorSnapshot) -> RunningOperator:
    running = RunningOperator(spec.create())
    running.operator.restore(snapshot)
    return running


def _older(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    """As it was saved before snapshots told of windows."""
    return replace(snapshot, tables={name: snapshot.tables[name] for name in ("window_aggregate",)})


def _totals(running: RunningOperator) -> list[tuple[int, int]]:
    """The start (ms) and total of what was emitted."""
    return [(row["window_start"].microsecond // 1000, row["total"]) for row in running.take_rows()]


CHANGES = {
    "keys in another order": (TUMBLING, replace(TUMBLING, aggregation=GroupedAggregation(["b", "a"], SUMS))),
    "fewer keys": (TUMBLING, replace(TUMBLING, aggregation=GroupedAggregation(["a"], SUMS))),
    "an aggregate more": (
        TUMBLING,
        replace(TUMBLING, aggregation=GroupedAggregation(["a", "b"], {**SUMS, "m": agg.max("n")})),
    ),
    "an aggregate less": (TUMBLING, replace(TUMBLING, aggregation=GroupedAggregation(["a", "b"], {"rows": count()}))),
    "sessions instead": (TUMBLING, SESSIONS),
    "no sessions any more": (SESSIONS, TUMBLING),
    "keys of sessions in another order": (
        SESSIONS,
        replace(SESSIONS, aggregation=GroupedAggregation(["b", "a"], SUMS)),
    ),
    "an aggregate of sessions less": (
        SESSIONS,
        replace(SESSIONS, aggregation=GroupedAggregation(["a", "b"], {"rows": count()})),
    ),
    "another grid": (TUMBLING, replace(TUMBLING, windows=AlignedWindows(15, 15))),
}


@pytest.mark.parametrize("is_older", [False, True], ids=["", "older"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_does_not_fit_is_refused_with_the_remedy(change: str, is_older: bool) -> None:
    before, now = CHANGES[change]
    snapshot = _saved(before, [(12, 1), (27, 2)])
    with pytest.raises(StateError, match=r"tested.*(uid|without this operator's state)"):
        _restored(now, _older(snapshot) if is_older else snapshot)


@pytest.mark.parametrize("spec", [TUMBLING, SESSIONS], ids=["windows", "sessions"])
def test_older_state_goes_on(spec: Any) -> None:
    running = _restored(spec, _older(_saved(spec, [(12, 1), (16, 2)])))
    _process(running, [(17, 3)])
    running.advance(100)
    assert [row["total"] for row in running.take_rows()] == [6]


def test_slices_of_sliding_windows_make_up_tumbling_ones() -> None:
    sliding_ = replace(TUMBLING, windows=AlignedWindows(10, 5))
    for windows, expected in (
        (AlignedWindows(10, 10), [(10, 3), (20, 4)]),
        (AlignedWindows(5, 5), [(10, 1), (15, 2), (20, 4)]),
    ):
        running = _restored(
            replace(TUMBLING, windows=windows), _saved(sliding_, [(3, 9), (12, 1), (16, 2), (21, 4)], 12)
        )
        running.advance(100)
        assert _totals(running) == expected


def test_windows_that_need_rows_which_are_gone_are_refused() -> None:
    saved = _saved(TUMBLING, [(3, 1), (12, 1)], 12)
    with pytest.raises(StateError, match="saved by tumbling 10ms windows, and they are sliding 20ms by 10ms now"):
        _restored(replace(TUMBLING, windows=AlignedWindows(20, 10)), saved)


def test_open_sessions_keep_their_end_under_another_gap() -> None:
    running = _restored(replace(SESSIONS, windows=SessionWindows(20)), _saved(SESSIONS, [(3, 1), (8, 1)]))
    _process(running, [(18, 1), (50, 1)])
    running.advance(100)
    assert [row["rows"] for row in running.take_rows()] == [3, 1]


@pytest.mark.parametrize("spec", [TUMBLING, SESSIONS], ids=["windows", "sessions"])
def test_a_longer_lateness_does_not_open_again_what_was_dropped(spec: Any) -> None:
    snapshot = _saved(spec, [(2, 1), (35, 1)], 25)
    longer = replace(spec, allowed_lateness_ms=100)
    running = _restored(longer, snapshot)
    running = _restored(longer, snapshot_of(running.operator))
    _process(running, [(4, 1)])
    assert (running.take_rows(), running.metrics.late_rows) == ([], 1), "a total of 1 would replace that of the window"
    running.advance(60)
    _process(running, [(36, 1)])
    assert [row["total"] for row in running.take_rows()] == [1, 2]


def test_a_longer_lateness_waits_for_subtasks_to_come_to_one_watermark() -> None:
    ahead, behind = (_saved(TUMBLING, [(2, 1), (95, 1)], watermark) for watermark in (50, 20))
    longer = replace(TUMBLING, allowed_lateness_ms=100)
    with pytest.raises(StateError, match="take a savepoint"):
        _restored(longer, share([ahead, behind], 0, 1, 128))


assigners = st.one_of(
    st.builds(
        AlignedWindows, st.sampled_from([5, 10, 15, 20]), st.sampled_from([5, 10, 20]), st.sampled_from([0, 5, 7])
    ),
    st.builds(CumulativeWindows, st.sampled_from([10, 20]), st.just(5), st.sampled_from([0, 5])),
)
rows = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=8)


@given(assigners, assigners, rows, rows, st.integers(0, 50), st.sampled_from([0, 8]), st.sampled_from([0, 8]))
@settings(max_examples=drawn(200))
def test_other_windows_are_right_or_refused(
    before: Any, now: Any, first: Rows, second: Rows, watermark: int, late_before: int, late_now: int
) -> None:
    """What the changed program emits is what it emits if it has run from the beginning, but for windows before."""
    saved = _saved(WindowAggregateSpec(before, AGGREGATION, late_before), first, watermark)
    spec = WindowAggregateSpec(now, AGGREGATION, late_now)
    try:
        restored = _restored(spec, saved)
    except StateError:
        assert before != now
        return
    unbroken = RunningOperator(spec.create())
    _process(unbroken, first)
    unbroken.advance(watermark)
    unbroken.take_rows()
    second = [row for row in second if row[0] > watermark]
    for running in (restored, unbroken):
        if second:
            _process(running, second)
        running.advance(200)
    assert sorted(map(repr, restored.take_rows())) == sorted(map(repr, unbroken.take_rows()))


KINDS: dict[str, Any] = {
    "batches": lambda s: s.window(tumbling("10ms")).aggregate(n=count()),
    "sessions": lambda s: s.window(session("10ms")).aggregate(n=count()),
    "trigger": lambda s: s.window(tumbling("10ms")).trigger(CountTrigger(3)).aggregate(n=count()),
    "sessions, trigger": lambda s: s.window(session("10ms")).trigger(CountTrigger(3)).aggregate(n=count()),
    "aggregates more": lambda s: (
        s.window(tumbling("10ms")).trigger(CountTrigger(3)).aggregate(n=count(), most=agg.max("v"))
    ),
    "evictor, aggregates more": lambda s: (
        s.window(tumbling("10ms")).evictor(CountEvictor(3)).aggregate(n=count(), most=agg.max("v"))
    ),
    "evictor": lambda s: s.window(tumbling("10ms")).evictor(CountEvictor(3)).aggregate(n=count()),
    "reduce": lambda s: s.window(sliding("10ms", "5ms")).reduce(lambda one, other: one),
    "sessions, reduce": lambda s: s.window(session("10ms")).reduce(lambda one, other: one),
}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        *[("batches", kind) for kind in ("trigger", "sessions, trigger", "evictor", "reduce")],
        *[("sessions", kind) for kind in ("trigger", "sessions, trigger", "evictor", "reduce", "sessions, reduce")],
        *[(kind, "batches") for kind in ("trigger", "sessions, trigger", "evictor", "reduce")],
        *[(kind, "sessions") for kind in ("trigger", "sessions, trigger", "evictor", "reduce")],
        *[(kind, kind.partition(", ")[2]) for kind in ("sessions, trigger", "sessions, reduce")],
        *[(kind.partition(", ")[2], kind) for kind in ("sessions, trigger", "sessions, reduce")],
        ("trigger", "evictor"),
        ("trigger", "reduce"),
        ("trigger", "aggregates more"),
        ("aggregates more", "trigger"),
        ("evictor", "evictor, aggregates more"),
    ],
)
@pytest.mark.parametrize("declared", [True, False], ids=["", "undeclared"])
def test_windows_of_another_kind_are_refused(before: str, now: str, declared: bool) -> None:
    """Their open windows would never come, or lack rows, and nobody would be told."""
    saved = OperatorDriver(spec_of(KINDS[before], declared=declared))
    saved.add(("x", 12, 1), ("x", 16, 2))
    restored = OperatorDriver(spec_of(KINDS[now], declared=declared))
    with pytest.raises(StateError, match=r"windows.*"):
        restored.operator.restore(saved.snapshot())


def test_sessions_are_not_carried_along_by_a_function() -> None:
    from penstock import KeyedProcessFunction

    class Nothing(KeyedProcessFunction):
        def process_element(self, row: Any, ctx: Any) -> Any:
            return []

    saved = OperatorDriver(spec_of(KINDS["sessions"]))
    saved.add(("x", 12, 1))
    restored = OperatorDriver(spec_of(lambda s: s.process(Nothing, returns={"n": "int64"})))
    with pytest.raises(StateError, match="another uid"):
        restored.operator.restore(_older(saved.snapshot()))


@pytest.mark.parametrize("spec", [TUMBLING, SESSIONS], ids=["windows", "sessions"])
@pytest.mark.parametrize(
    ("before", "now"),
    [(pa.timestamp("ms"), pa.timestamp("us")), (pa.int32(), pa.int64()), (pa.int64(), pa.float64())],
    ids=["units", "widths", "floats"],
)
def test_rows_that_make_accumulators_of_other_types_are_refused(spec: Any, before: Any, now: Any) -> None:
    """Numbers of one unit would be compared with those of another."""
    latest = replace(spec, aggregation=GroupedAggregation(["a"], {"latest": agg.max("n")}))

    def rows(kind: pa.DataType) -> Batch:
        return Batch(pa.record_batch({"a": ["x"], "n": pa.array([12]).cast(kind)}), pa.array([12]))

    saved = RunningOperator(latest.create())
    saved.process(rows(before))
    _restored(latest, snapshot_of(saved.operator)).process(rows(before))
    with pytest.raises(StateError, match=r"saved as \(a: string, __max\(n\): .*\), and the rows now make"):
        _restored(latest, snapshot_of(saved.operator)).process(rows(now))


@pytest.mark.parametrize("of", [agg.max, agg.last, agg.collect_list])
def test_times_of_windows_row_by_row_keep_their_unit(of: Any) -> None:
    """They lie there as numbers."""

    def driver(kind: pa.DataType) -> RunningOperator:
        rows = local_environment().from_collection(
            [], schema=pa.schema([("k", "string"), ("n", kind), ("at", "int64")])
        )
        windows = rows.assign_timestamps("at").key_by("k").window(tumbling("10ms")).evictor(CountEvictor(9))
        return RunningOperator(spec_behind(windows.aggregate(found=of("n"))).create())

    before, now = pa.timestamp("ms"), pa.timestamp("us")
    saved = driver(before)
    data = pa.record_batch({"k": ["x"], "n": pa.array([12]).cast(before), "at": [2]})
    saved.process(Batch(data, pa.array([2])))
    snapshot = snapshot_of(saved.operator)
    driver(before).operator.restore(snapshot)
    for other in (now, pa.int64()):
        with pytest.raises(StateError, match=r"timestamp\[ms\].*keep the type of the column, or give.*uid"):
            driver(other).operator.restore(snapshot)


def test_nothing_that_was_dropped_is_kept_of_a_watermark_that_has_not_come() -> None:
    saved = _saved(TUMBLING, [(12, 1)], MIN_TIMESTAMP + 1)
    running = _restored(replace(TUMBLING, allowed_lateness_ms=50), saved)
    running.advance(100)
    assert [row["total"] for row in running.take_rows()] == [1]


@pytest.mark.parametrize(("before", "now"), [("0", "1m"), ("1m", "0")])
def test_windows_row_by_row_keep_their_lateness(before: str, now: str) -> None:
    def program(lateness: str) -> Any:
        windows = spec_of(lambda s: s.window(tumbling("10ms")).allowed_lateness(lateness).reduce(lambda one, _: one))
        return OperatorDriver(windows)

    saved = program(before)
    saved.add(("x", 12, 1))
    saved.advance(30)
    program(before).operator.restore(saved.snapshot())
    with pytest.raises(StateError, match="keep allowed_lateness as it was"):
        program(now).operator.restore(saved.snapshot())


def test_sums_of_numbers_of_another_type_are_refused_when_rows_come() -> None:
    """Sums in SQL are called by their place, so that those of a changed query may be other numbers."""
    spec = replace(TUMBLING, aggregation=GroupedAggregation([], {"total": agg.sum("n")}))
    before = RunningOperator(spec.create())
    before.process(timed([{"at": 12, "n": 3}], {"at": pa.int64(), "n": pa.int64()}))
    changed = replace(spec, aggregation=GroupedAggregation([], {"total": agg.wide_sum("n")}))
    running = _restored(changed, snapshot_of(before.operator))
    with pytest.raises(StateError, match="aggregate as before"):
        running.process(timed([{"at": 12, "n": Decimal(3)}], {"at": pa.int64(), "n": pa.decimal128(38, 0)}))


@pytest.mark.parametrize("spec", [TUMBLING, SESSIONS], ids=["windows", "sessions"])
def test_sums_of_decimals_go_on_in_more_digits(spec: Any) -> None:
    large = Decimal("9" * 38)

    def program(total: Aggregate) -> Any:
        return replace(spec, aggregation=GroupedAggregation([], {"total": total}))

    def process(running: RunningOperator) -> None:
        running.process(timed([{"at": 12, "n": large}], {"at": pa.int64(), "n": pa.decimal128(38, 0)}))

    before = RunningOperator(program(agg.sum("n")).create())
    process(before)
    running = _restored(program(agg.wide_sum("n")), snapshot_of(before.operator))
    process(running)
    running.advance(100)
    assert [row["total"] for row in running.take_rows()] == [Decimal("1" + "9" * 37 + "8")]
