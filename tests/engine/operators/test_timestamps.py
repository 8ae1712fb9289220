"""assign_timestamps: event time from columns of any kind of time, watermarks behind it, and rows that have none."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP, Batch, Watermark
from penstock.engine.errors import ColumnTypeError, MissingColumnError, RecordError
from penstock.engine.operators.timestamps import TimestampFactory, event_times
from penstock.engine.windows.watermarks import WatermarkStrategy
from tests.engine.helpers import RunningOperator

UNITS_IN_A_MILLISECOND = {"us": 1_000, "ns": 1_000_000}


class Assigning(RunningOperator):
    """The operator over a column `at`."""

    def __init__(self, delay: int = 0) -> None:
        super().__init__(TimestampFactory("at", WatermarkStrategy(delay))(), name="assign", subtask=2)

    def at(self, *values: Any, kind: pa.DataType | None = None) -> None:
        self.process(Batch(pa.record_batch({"at": pa.array(values, kind), "n": range(len(values))})))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1_500, pa.int64(), 1_500),
        (1_500, pa.int16(), 1_500),
        (1_500, pa.uint64(), 1_500),
        (date(1970, 1, 2), pa.date32(), 86_400_000),
        (date(1969, 12, 31), pa.date64(), -86_400_000),
        (datetime(1970, 1, 1, 0, 0, 2), pa.timestamp("s"), 2_000),
        (datetime(1970, 1, 1, 0, 0, 2), pa.timestamp("ms"), 2_000),
        (datetime(1970, 1, 1, 0, 0, 2, 1_999), pa.timestamp("us"), 2_001),
        (datetime(1970, 1, 1, 0, 0, 2, 1_999), pa.timestamp("ns"), 2_001),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=timezone.utc), pa.timestamp("us", "Asia/Tokyo"), 2_000),
    ],
)
def test_any_column_of_time_is_milliseconds_since_the_epoch(value: Any, kind: pa.DataType, expected: int) -> None:
    times = event_times(pa.array([value], kind))
    assert times.type == pa.int64()
    assert times.to_pylist() == [expected]


@given(st.sampled_from(["us", "ns"]), st.lists(st.integers(-(10**10), 10**10), min_size=1), st.integers(0, 3))
def test_finer_times_are_cut_towards_the_past(unit: str, values: list[int], skipped: int) -> None:
    times = event_times(pa.array(values, pa.timestamp(unit)).slice(min(skipped, len(values) - 1)))
    kept = values[min(skipped, len(values) - 1) :]
    assert times.to_pylist() == [value // UNITS_IN_A_MILLISECOND[unit] for value in kept]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_hour_that_autumn_has_twice_is_two_hours_of_event_time(unit: str) -> None:
    first = datetime(2023, 11, 5, 5, 30, tzinfo=timezone.utc)
    local = pa.array([first, first + timedelta(hours=1)], pa.timestamp(unit, "America/New_York"))
    times = event_times(local).to_pylist()
    assert times[1] - times[0] == 3_600_000
    assert times[0] == 1_699_162_200_000


def test_rows_keep_their_columns_and_get_timestamps() -> None:
    assigning = Assigning()
    assigning.at(5, 3)
    assert assigning.out.rows == [{"at": 5, "n": 0}, {"at": 3, "n": 1}]
    assert assigning.out.timestamps == [5, 3]


def test_a_watermark_follows_the_rows_that_moved_time_on() -> None:
    assigning = Assigning(delay=2)
    assigning.at(10, 20)
    assigning.at(15)
    assigning.at(21)
    kinds = [type(element) for element in assigning.out.elements]
    assert kinds == [Batch, Watermark, Batch, Batch, Watermark]
    assert assigning.out.watermarks == [17, 18]


def test_watermarks_from_upstream_are_replaced_but_for_the_last() -> None:
    assigning = Assigning()
    assigning.advance(1_000)
    assigning.advance(MAX_TIMESTAMP)
    assert assigning.out.watermarks == [MAX_TIMESTAMP]


def test_a_null_time_is_refused_with_its_row_and_a_remedy() -> None:
    with pytest.raises(RecordError, match=r"'assign', subtask 2: .*'at' is null in row \{'at': None, 'n': 1\}; filter"):
        Assigning().at(5, None)


@pytest.mark.parametrize("time", [2**62 + 1, -(2**62) - 1, 2**63 - 1])
def test_a_time_near_the_ends_of_the_integers_is_refused_with_its_row(time: int) -> None:
    with pytest.raises(RecordError, match=rf"out of the range of event time in row \{{'at': {time}, 'n': 1\}}"):
        Assigning().at(5, time)


@pytest.mark.parametrize(("value", "kind"), [(2**64 - 1, pa.uint64()), (2**62, pa.timestamp("s"))])
def test_a_time_that_does_not_fit_is_refused(value: int, kind: pa.DataType) -> None:
    with pytest.raises(RecordError, match="'at' holds a time out of range"):
        Assigning().at(value, kind=kind)


def test_a_column_that_is_not_there_is_named_with_its_neighbours() -> None:
    factory = TimestampFactory("tme", WatermarkStrategy(0))
    with pytest.raises(MissingColumnError, match="did you mean 'time'"):
        factory.bind(pa.schema([("time", pa.int64())]), "assign_timestamps")


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.bool_(), pa.null()])
def test_a_column_that_holds_no_time_is_refused(kind: pa.DataType) -> None:
    factory = TimestampFactory("at", WatermarkStrategy(0))
    with pytest.raises(ColumnTypeError, match="holds no event time; give a timestamp, a date, or an integer"):
        factory.bind(pa.schema([("at", kind)]), "assign_timestamps")


def test_columns_that_are_not_known_in_advance_are_checked_when_rows_come() -> None:
    TimestampFactory("at", WatermarkStrategy(0)).bind(None, "assign_timestamps")
    with pytest.raises(ColumnTypeError, match="operator 'assign', subtask 2"):
        Assigning().at("noon")


def test_a_time_that_python_cannot_hold_is_told_too() -> None:
    with pytest.raises(RecordError, match="the event time in column 'at' is out of the range of event time in row"):
        Assigning().at(2**62 + 1, kind=pa.timestamp("ms"))
