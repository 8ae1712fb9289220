"""Running aggregates: one update for each key that a batch touched, and the last is right however rows are cut."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import collect_list, count, mean
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.elements import Batch
from penstock.engine.errors import StateError
from penstock.engine.operators.keyed_aggregates import RunningAggregateSpec
from penstock.engine.state.capture import DELETED, CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable, share
from tests.draws import drawn
from tests.engine.helpers import RunningOperator, timed
from tests.engine.state.saved import Saved, captured_snapshot, contents, snapshot_of

TYPES = {"key": pa.string(), "n": pa.int64()}
KeyAndValue = tuple[str, "int | None"]


class Running(RunningOperator):
    """The operator, by `key`; counts rows and sums `n` unless told otherwise."""

    def __init__(self, **aggregates: Any) -> None:
        aggregation = GroupedAggregation(["key"], aggregates or {"rows": count(), "total": agg.sum("n")})
        super().__init__(RunningAggregateSpec(aggregation).create())

    def rows(self, *rows: KeyAndValue) -> list[tuple[Any, ...]]:
        """Process one batch; the updates that it emits."""
        data = {"key": pa.array([key for key, _ in rows]), "n": pa.array([n for _, n in rows], pa.int64())}
        self.process(Batch(pa.record_batch(data)))
        return [tuple(row.values()) for row in self.take_rows()]


def test_a_batch_emits_one_update_for_each_key_that_it_touched() -> None:
    running = Running()
    assert running.rows(("a", 1), ("b", 2), ("a", 3)) == [("a", 2, 4), ("b", 1, 2)]
    assert running.rows(("b", 5)) == [("b", 2, 7)]
    assert running.rows(("c", 1), ("a", 1)) == [("c", 1, 1), ("a", 3, 5)]


def test_an_update_carries_the_largest_timestamp_of_the_batch_for_its_key() -> None:
    running = Running()
    running.process(timed([{"at": at, "key": key, "n": 1} for at, key in ((5, "a"), (9, "b"), (3, "a"))], TYPES))
    assert running.out.timestamps == [5, 9]
    running.process(timed([{"at": 2, "key": "a", "n": 1}], TYPES))
    assert running.out.timestamps == [5, 9, 2]
    assert running.out.rows[-1] == {"key": "a", "rows": 3, "total": 3}


def test_without_timestamps_there_are_none() -> None:
    running = Running()
    running.process(Batch(pa.record_batch({"key": ["a"], "n": [1]})))
    assert running.out.batches[0].timestamps is None


def test_watermarks_pass() -> None:
    running = Running()
    running.advance(7)
    assert running.out.watermarks == [7]


def test_values_that_are_missing_at_first_are_no_sum() -> None:
    running = Running(total=agg.sum("n"), largest=agg.max("n"), average=mean("n"))
    assert running.rows(("a", None)) == [("a", None, None, None)]
    assert running.rows(("a", 3)) == [("a", 3, 3, 3.0)]
    assert running.rows(("a", None)) == [("a", 3, 3, 3.0)]


def test_a_column_of_nulls_takes_its_type_when_the_first_value_comes() -> None:
    running = Running(total=agg.sum("n"))
    running.process(Batch(pa.record_batch({"key": ["a"], "n": pa.nulls(1)})))
    running.process(Batch(pa.record_batch({"key": ["a"], "n": [2]})))
    assert running.out.rows[-1] == {"key": "a", "total": 2}


def test_lists_grow_in_order_of_arrival() -> None:
    running = Running(all=collect_list("n"))
    running.rows(("a", 3), ("a", 1))
    assert running.rows(("a", 2)) == [("a", [3, 1, 2])]


def test_keys_of_several_columns_are_kept_apart() -> None:
    aggregation = GroupedAggregation(["x", "y"], {"rows": count()})
    running = RunningOperator(RunningAggregateSpec(aggregation).create())
    for _ in range(2):
        running.process(Batch(pa.record_batch({"x": [1, 1, 2], "y": ["a", "b", "a"]})))
    assert [row["rows"] for row in running.out.rows] == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("rows_at_once", [2, 1_000])
def test_a_restored_operator_resumes_where_the_other_stopped(
    monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr("penstock.engine.state.snapshot._PART_ROWS", rows_at_once)
    aggregates = {"rows": count(), "total": agg.sum("n"), "average": mean("n"), "all": collect_list("n")}
    running = Running(**aggregates)
    running.rows(("a", 1), ("b", None), ("c", 5))
    snapshot = snapshot_of(running.operator)
    running.rows(("a", 100))
    for parallelism in (1, 3):
        updates = []
        for index in range(parallelism):
            restored = Running(**aggregates)
            restored.operator.restore(share([snapshot], index, parallelism, 128))
            updates.append(restored.rows(("a", 2), ("b", 2), ("c", 2), ("d", 2)))
        owned = [max(of_key, key=lambda update: update[1]) for of_key in zip(*updates, strict=True)]
        assert owned == [
            ("a", 2, 3, 1.5, [1, 2]),
            ("b", 2, 2, 2.0, [2]),
            ("c", 2, 7, 3.5, [5, 2]),
            ("d", 1, 2, 2.0, [2]),
        ]


def test_sums_of_many_keys_are_restored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept in arrays, which lists are not."""
    monkeypatch.setattr("penstock.engine.state.snapshot._PART_ROWS", 2)
    running, restored = Running(), Running()
    running.rows(*((key, number) for number, key in enumerate("abcdefg")))
    restored.operator.restore(snapshot_of(running.operator))
    assert restored.rows(*((key, 10) for key in "gadx")) == [("g", 2, 16), ("a", 2, 10), ("d", 2, 13), ("x", 1, 10)]


def test_before_the_first_row_there_is_nothing_to_save() -> None:
    running = Running()
    assert snapshot_of(running.operator).tables == {}
    running.operator.restore(OperatorSnapshot())
    assert running.rows(("a", 1)) == [("a", 1, 1)]


def test_state_of_other_keys_is_not_restored() -> None:
    running = Running()
    running.rows(("a", 1))
    other = RunningOperator(RunningAggregateSpec(GroupedAggregation(["name"], {"rows": count()})).create())
    with pytest.raises(StateError, match=r"operator 'tested', subtask 0: .* saved by the keys \(key\), .*\(name\) now"):
        other.operator.restore(snapshot_of(running.operator))


def test_state_of_other_aggregates_is_not_restored() -> None:
    running = Running(rows=count())
    running.rows(("a", 1))
    with pytest.raises(StateError, match=r"'tested', .* with the accumulators .* need .* aggregate as before"):
        Running(rows=count(), total=agg.sum("n")).operator.restore(snapshot_of(running.operator))


@pytest.mark.parametrize("keys", [["key"], ["n", "key"]])
def test_state_of_more_keys_or_in_another_order_is_not_restored(keys: list[str]) -> None:
    def by(keys: list[str]) -> RunningOperator:
        return RunningOperator(RunningAggregateSpec(GroupedAggregation(keys, {"rows": count()})).create())

    running = by(["key", "n"])
    running.process(Batch(pa.record_batch({"key": ["a"], "n": [1]})))
    with pytest.raises(StateError, match=rf"saved by the keys \(key, n\), .*keys \({', '.join(keys)}\) now"):
        by(keys).operator.restore(snapshot_of(running.operator))


def test_rows_of_another_type_than_the_saved_state_are_refused() -> None:
    running, again = Running(total=agg.max("n")), Running(total=agg.max("n"))
    running.rows(("a", 1))
    again.operator.restore(snapshot_of(running.operator))
    with pytest.raises(StateError, match=r"'tested', subtask 0: the state was saved as \(.*int64.*make \(.*double"):
        again.process(Batch(pa.record_batch({"key": ["a"], "n": [1.5]})))


def test_rows_of_another_type_are_refused_behind_nulls_without_one() -> None:
    running, again = Running(total=agg.max("n")), Running(total=agg.max("n"))
    running.rows(("a", 1))
    again.operator.restore(snapshot_of(running.operator))
    again.process(Batch(pa.record_batch({"key": ["a"], "n": pa.nulls(1)})))
    with pytest.raises(StateError, match=r"the state was saved as \(.*int64.*make \(.*double"):
        again.process(Batch(pa.record_batch({"key": ["a"], "n": [7.0]})))


def _model(rows: Sequence[KeyAndValue], key: str) -> list[Any]:
    every = [n for k, n in rows if k == key]
    values = [n for n in every if n is not None]
    total = sum(values) if values else None
    return [len(every), total, values]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(-9, 9)), max_size=30),
    st.lists(st.integers(0, 30), max_size=6),
)
def test_the_last_update_of_a_key_is_its_value_however_rows_are_cut(rows: list[KeyAndValue], cuts: list[int]) -> None:
    running, final = Running(rows=count(), total=agg.sum("n"), all=collect_list("n")), dict[str, list[Any]]()
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        if rows[begin:end]:
            updates = running.rows(*rows[begin:end])
            assert sorted(key for key, *_ in updates) == sorted({key for key, _ in rows[begin:end]})
            final.update((key, rest) for key, *rest in updates)
    assert final == {key: _model(rows, key) for key, _ in rows}


@settings(max_examples=drawn(30))
@given(st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-9, 9))), max_size=6), st.booleans())
def test_captures_add_up_to_the_snapshot(batches: list[list[KeyAndValue]], from_savepoint: bool) -> None:
    aggregates = {"rows": count(), "total": agg.sum("n"), "all": collect_list("n")}
    running, saved = Running(**aggregates), Saved()
    running.rows(*((f"filler{number}", number) for number in range(50)))
    saved.take(running.operator.capture(CaptureRequest(1, CaptureScope.BASE)))
    for batch in batches:
        if batch:
            running.rows(*batch)
        running.operator.capture(CaptureRequest(2, CaptureScope.COMPLETE))
        capture = running.operator.capture(CaptureRequest(2, CaptureScope.CHANGES))
        assert capture.tables["accumulators"].is_changes
        saved.take(capture)
        snapshot = snapshot_of(running.operator)
        running.rows(("later", 1))
        assert contents(saved.snapshot()) == contents(snapshot)
        if from_savepoint:
            running = Running(**aggregates)
            running.operator.restore(saved.snapshot())


@pytest.mark.parametrize("scope", CaptureScope)
def test_a_capture_is_of_the_moment_however_late_its_rows_are_made(scope: CaptureScope) -> None:
    running = Running()
    running.rows(("a", 1), ("b", 2))
    capture = running.operator.capture(CaptureRequest(1, scope))
    running.rows(("a", 10), ("b", 10), ("c", 10))
    rows = capture.tables["accumulators"].rows()
    assert sorted(rows.column("key").to_pylist()) == ["a", "b"]
    assert sum(sum(column) for column in rows.drop_columns(["__key_group", "key"]).to_pydict().values()) < 13


def test_where_most_keys_changed_a_capture_holds_all() -> None:
    running = Running()
    running.rows(*((f"{number}", number) for number in range(10)))
    first = running.operator.capture(CaptureRequest(1, CaptureScope.CHANGES)).tables["accumulators"]
    running.rows(*((f"{number}", number) for number in range(5)))
    second = running.operator.capture(CaptureRequest(2, CaptureScope.CHANGES)).tables["accumulators"]
    running.rows(("0", 0))
    third = running.operator.capture(CaptureRequest(3, CaptureScope.CHANGES)).tables["accumulators"]
    tables = (first, second, third)
    assert [(t.is_changes, t.rows().num_rows) for t in tables] == [(False, 10), (False, 10), (True, 1)]


def test_captures_of_all_have_their_keys_in_common_until_another_comes() -> None:
    running = Running()

    def take(*rows: KeyAndValue) -> TableCapture:
        running.rows(*rows)
        return running.operator.capture(CaptureRequest(1, CaptureScope.BASE)).tables["accumulators"]

    first, second, third = take(("a", 1), ("b", 2)), take(("b", 5)), take(("c", 1))
    assert first.keys is second.keys is not None
    assert not gc.get_referents(first.keys), "whoever remembers it would keep the keys in memory"
    assert third.keys not in (None, second.keys)
    rows = [one.rows().sort_by("key") for one in (first, second, third)]
    assert [one.column("key").to_pylist() for one in rows] == [["a", "b"], ["a", "b"], ["a", "b", "c"]]
    assert rows[0].select(["__key_group", "key"]) == rows[1].select(["__key_group", "key"])
    running.rows(("d", 1), ("e", 1))
    running.operator.capture(CaptureRequest(2, CaptureScope.BASE))
    running.rows(("d", 1))
    changes = running.operator.capture(CaptureRequest(3, CaptureScope.CHANGES)).tables["accumulators"]
    assert (changes.is_changes, changes.keys) == (True, None)


def test_state_of_another_operator_is_not_dropped() -> None:
    running = Running()
    table = StateTable(Redistribution.KEYED, pa.table({"__key_group": pa.array([0], pa.int32()), "key": ["a"]}))
    with pytest.raises(StateError, match=r"holds windows, .* another uid, .*allow_non_restored_state"):
        running.operator.restore(OperatorSnapshot({"windows": table}))


AGGREGATES = {"rows": count(), "total": agg.sum("n"), "least": agg.min("n"), "all": collect_list("n")}
ROWS = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(-9, 9)), max_size=12)


@settings(max_examples=drawn(60))
@given(ROWS, ROWS, ROWS, st.booleans())
def test_state_that_is_held_before_and_changed_is_that_of_the_checkpoint(
    before: list[KeyAndValue], since: list[KeyAndValue], later: list[KeyAndValue], has_list: bool
) -> None:
    aggregates = {name: one for name, one in AGGREGATES.items() if has_list or name != "all"}
    spec = RunningAggregateSpec(GroupedAggregation(["key"], aggregates))
    running = Running(**aggregates)
    running.rows(("a", 1), *before)
    base = captured_snapshot(running.operator.capture(CaptureRequest(1, CaptureScope.BASE)))
    held = spec.hold(base)
    assert held is not None
    running.rows(("b", 2), *since)
    captured = running.operator.capture(CaptureRequest(2, CaptureScope.CHANGES)).tables["accumulators"]
    rows = captured.rows()
    if not captured.is_changes:
        rows = rows.append_column(DELETED, pa.array([False] * rows.num_rows))
    if not held.change({"accumulators": rows}):
        # Where a type was not known then.
        assert any(map(pa.types.is_null, [*base.tables["accumulators"].data.schema.types, *rows.schema.types]))
        return
    other = Running(**aggregates)
    other.operator.restore(OperatorSnapshot(held=held))
    assert other.rows(("a", 3), *later) == running.rows(("a", 3), *later)
    whole = CaptureRequest(3, CaptureScope.COMPLETE)
    assert _sorted(other.operator.capture(whole)) == _sorted(running.operator.capture(whole))


def _sorted(capture: OperatorCapture) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = captured_snapshot(capture).tables["accumulators"].data.to_pylist()
    return sorted(rows, key=lambda row: row["key"])


def test_changes_that_delete_keys_are_no_changes_of_an_aggregate() -> None:
    running = Running()
    running.rows(("a", 1))
    base = captured_snapshot(running.operator.capture(CaptureRequest(1, CaptureScope.BASE)))
    held = RunningAggregateSpec(GroupedAggregation(["key"], {"rows": count(), "total": agg.sum("n")})).hold(base)
    assert held is not None
    gone = base.tables["accumulators"].data
    assert not held.change({"accumulators": gone.append_column(DELETED, pa.array([True]))})
    assert not held.change({"others": gone.append_column(DELETED, pa.array([False]))})
