"""Taps: the newest rows of a stream as whoever looks is shown them, and a stream that nobody looks at."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import Batch, Watermark
from penstock.engine.errors import StateError
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.redaction import VARIABLE
from penstock.engine.task.chain import CountingCollector
from penstock.engine.task.tap import RowTap, TappedRows, newest_of_all


def tap(most: int, enough: int = 1000) -> RowTap:
    return RowTap(most, enough, lambda: None)


def numbers(*values: int) -> Batch:
    return Batch(pa.record_batch({"n": pa.array(values, pa.int64())}))


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=7), max_size=9), st.integers(1, 12))
def test_the_newest_rows_are_kept_however_they_come(batches: list[list[int]], most: int) -> None:
    looking = tap(most)
    for values in batches:
        looking.collect(numbers(*values))
    found = looking.rows(3)
    everything = [value for values in batches for value in values]
    assert [row["n"] for row in found.rows.to_pylist()] == everything[-most:]
    assert found.seen == len(everything)


def test_columns_beside_the_rows_are_shown_and_secrets_are_not() -> None:
    looking = tap(5)
    data = pa.record_batch({"subtask": ["mine"], "password": ["hunter2"]})
    looking.collect(Batch(data, pa.array([1_000], pa.int64()), pa.array([3], pa.int8())))
    (row,) = looking.rows(0).rows.to_pylist()
    assert (row["event_time"].timestamp(), row["row_kind"]) == (1.0, "-D")
    assert (row["subtask"], row["password"]) == ("mine", "***")


def test_a_process_that_hides_values_shows_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "hidden")
    with pytest.raises(StateError, match=VARIABLE):
        tap(5).rows(0)


def test_who_waits_is_told_once_when_enough_has_come() -> None:
    told: list[bool] = []
    looking = RowTap(9, 3, lambda: told.append(True))
    for value in range(6):
        looking.collect(numbers(value))
        assert len(told) == (value >= 2)


class Behind:
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.watermarks = 0

    def collect(self, batch: Batch) -> None:
        self.rows += batch.data["n"].to_pylist()

    def broadcast(self, element: object) -> None:
        self.watermarks += 1


def test_a_stream_goes_its_way_with_and_without_taps() -> None:
    behind, first, second = Behind(), tap(9), tap(9)
    output = CountingCollector(behind, OperatorMetrics())
    output.collect(numbers(1))
    output.attach(first)
    output.collect(numbers(2))
    output.broadcast(Watermark(5))
    output.attach(second)
    output.collect(numbers(3))
    output.detach(first)
    output.collect(numbers(4))
    output.detach(second)
    output.collect(numbers(5))
    assert (behind.rows, behind.watermarks) == ([1, 2, 3, 4, 5], 1)
    assert [one.rows(0).rows["n"].to_pylist() for one in (first, second)] == [[2, 3], [3, 4]]
    assert output._behind is behind, "nothing is in the way of the rows any more"


def tapped(subtask: int, count: int) -> TappedRows:
    rows = pa.table({"subtask": [subtask] * count, "n": list(range(count))}) if count else pa.table({})
    return TappedRows(rows, 10 * count)


@pytest.mark.parametrize(
    ("counts", "most", "shown"), [((5, 5), 4, (2, 2)), ((1, 9), 6, (1, 5)), ((0, 2), 9, (0, 2)), ((0, 0), 3, (0, 0))]
)
def test_each_subtask_has_its_share_of_what_is_shown(
    counts: tuple[int, ...], most: int, shown: tuple[int, ...]
) -> None:
    found = newest_of_all([tapped(subtask, count) for subtask, count in enumerate(counts)], most)
    rows = found.rows.to_pylist()
    assert tuple(sum(row["subtask"] == subtask for row in rows) for subtask in range(len(counts))) == shown
    assert found.seen == 10 * sum(counts)
