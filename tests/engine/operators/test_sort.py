"""Sort: all rows in order at the end of the input, however they are cut and restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP, Batch, WatermarkStatus
from penstock.engine.errors import ColumnTypeError, RecordError, StateError
from penstock.engine.operators.sort import SortSpec
from penstock.engine.ordering import SortKey
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable, share
from tests.engine.helpers import RunningOperator, timed
from tests.engine.state.saved import Saved, contents, snapshot_of

TYPES = {"at": pa.int64(), "k": pa.int64(), "text": pa.string()}
Row = tuple["int | None", str]


class Sorting(RunningOperator):
    """The operator, by `k` unless told otherwise."""

    def __init__(self, *keys: SortKey, subtask: int = 0, parallelism: int = 1) -> None:
        super().__init__(SortSpec(keys or (SortKey("k"),)).create(), subtask=subtask, parallelism=parallelism)

    def rows(self, *rows: Row) -> None:
        data = {"k": pa.array([k for k, _ in rows], pa.int64()), "text": pa.array([text for _, text in rows])}
        self.process(Batch(pa.record_batch(data)))

    def end(self) -> list[tuple[Any, ...]]:
        self.advance(MAX_TIMESTAMP)
        return [tuple(row.values()) for row in self.out.rows]


def test_rows_come_in_order_at_the_end_and_without_event_time() -> None:
    sorting = Sorting(SortKey("k", descending=True), SortKey("text"))
    rows = [(1, 3, "c"), (2, 9, "b"), (3, 3, "a"), (4, None, "d")]
    sorting.process(timed([{"at": at, "k": k, "text": text} for at, k, text in rows], TYPES))
    sorting.advance(3)
    assert sorting.operator.on_watermark_status(WatermarkStatus(idle=True), sorting.out) is None
    assert sorting.out.elements == []
    assert sorting.end() == [(2, 9, "b"), (3, 3, "a"), (1, 3, "c"), (4, None, "d")]
    assert sorting.out.timestamps == [None] * 4
    assert sorting.out.watermarks == [MAX_TIMESTAMP]


def test_input_that_ends_without_event_time_is_complete_too() -> None:
    sorting = Sorting()
    sorting.rows((2, "b"), (1, "a"))
    sorting.operator.finish(sorting.out)
    assert [row["k"] for row in sorting.out.rows] == [1, 2]


def test_rows_are_given_once() -> None:
    sorting, saved = Sorting(), Saved()
    sorting.rows((1, "a"))
    saved.take(sorting.operator.capture(CaptureRequest(1, CaptureScope.BASE)))
    assert len(sorting.end()) == 1
    sorting.operator.finish(sorting.out)
    assert len(sorting.out.rows) == 1
    saved.take(sorting.operator.capture(CaptureRequest(2, CaptureScope.CHANGES)))
    assert saved.snapshot() == OperatorSnapshot()


def test_a_capture_holds_only_the_rows_that_have_come_since_the_one_before() -> None:
    sorting, saved = Sorting(), Saved()
    for number in range(3):
        sorting.rows((number, "a"), (-number, "b"))
        capture = sorting.operator.capture(CaptureRequest(number, CaptureScope.CHANGES))
        assert capture.tables["rows"].rows().num_rows == 2
        assert capture.tables["rows"].is_changes is (number > 0)
        saved.take(capture)
    assert sorting.operator.capture(CaptureRequest(4, CaptureScope.CHANGES)).tables["rows"].rows().num_rows == 0
    assert snapshot_of(sorting.operator).tables["rows"].data.num_rows == 6
    assert contents(saved.snapshot()) == contents(snapshot_of(sorting.operator))


def test_columns_of_nulls_take_their_type_when_the_first_value_comes() -> None:
    sorting = Sorting(SortKey("k"), SortKey("text"))
    sorting.process(Batch(pa.record_batch({"k": [2, 1], "text": pa.nulls(2)})))
    sorting.rows((1, "a"), (3, "b"))
    assert sorting.end() == [(1, None), (1, "a"), (2, None), (3, "b")]
    assert {batch.data.schema.field("text").type for batch in sorting.out.batches} == {pa.string()}


def test_columns_that_do_not_fit_are_refused() -> None:
    sorting = Sorting()
    sorting.rows((1, "a"))
    with pytest.raises(RecordError, match=r"'tested', subtask 0: column 'text' is string in some batches and int64"):
        sorting.process(Batch(pa.record_batch({"k": [1], "text": [1]})))
    with pytest.raises(ColumnTypeError, match=r"'tested', subtask 0: sort: column 'k' is list<.*no order"):
        Sorting().process(Batch(pa.record_batch({"k": [[1]]})))


def test_state_of_another_kind_of_operator_is_refused() -> None:
    table = StateTable(Redistribution.WHOLE, pa.table({"x": [1]}))
    with pytest.raises(StateError, match=r"'tested', subtask 0: the saved state holds other, which a sort does not"):
        Sorting().operator.restore(OperatorSnapshot({"other": table}))


@given(
    st.lists(st.tuples(st.none() | st.integers(-9, 9), st.sampled_from("abc")), max_size=40),
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(["nothing", "capture", "savepoint", "restore"])), max_size=6
    ),
    st.booleans(),
)
def test_the_order_is_that_of_plain_python_however_rows_are_cut_and_restored(
    rows: Sequence[Row], cuts: Sequence[tuple[int, str]], descending: bool
) -> None:
    key = SortKey("k", descending)
    sorting, saved, begin = Sorting(key), Saved(), 0
    for end, event in [*sorted(cuts), (len(rows), "nothing")]:
        if rows[begin:end]:
            sorting.rows(*rows[begin:end])
        begin = max(begin, end)
        if event == "savepoint":
            sorting.operator.capture(CaptureRequest(1, CaptureScope.COMPLETE))
        elif event != "nothing":
            saved.take(sorting.operator.capture(CaptureRequest(1, CaptureScope.CHANGES)))
            assert contents(saved.snapshot()) == contents(snapshot_of(sorting.operator))
        if event == "restore":
            # At another parallelism all rows are in the first subtask again.
            shares = [share([saved.snapshot(), OperatorSnapshot()], subtask, 3, 128) for subtask in range(3)]
            assert [bool(one.tables) for one in shares[1:]] == [False, False]
            sorting = Sorting(key, parallelism=3)
            sorting.operator.restore(shares[0])
    got = sorting.end()
    assert sorted(got, key=str) == sorted(rows, key=str)
    expected = sorted((k for k, _ in rows), key=lambda k: (k is not None, k or 0), reverse=descending)
    assert [k for k, _ in got] == expected
