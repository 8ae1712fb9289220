"""Event timestamps: from columns of any kind of time, from functions, from the clock, and rows that have none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.errors import ColumnTypeError, MissingColumnError, RecordError, UserCodeError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.timestamp_assigners import check_assigner, create_assigner, event_times
from penstock.engine.windows.watermarks import Row, WatermarkStrategy

IN_ORDER = WatermarkStrategy.for_monotonous_timestamps()
UNITS_IN_A_MILLISECOND = {"us": 1_000, "ns": 1_000_000}


def times(assigner: str | Callable[[Row], Any], *values: Any, kind: pa.DataType | None = None) -> list[int]:
    """The timestamps of rows with a column `at` of `values` and a column `n` that counts them."""
    strategy, clock = IN_ORDER.with_timestamp_assigner(assigner), ManualClock()
    assign = create_assigner(strategy, OperatorContext("assign", 2, 3, clock), clock)
    found: list[int] = assign(pa.record_batch({"at": pa.array(values, kind), "n": range(len(values))})).to_pylist()
    return found


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
    assert times("at", value, kind=kind) == [expected]


@given(st.sampled_from(["us", "ns"]), st.lists(st.integers(-(10**10), 10**10), min_size=1), st.integers(0, 3))
def test_finer_times_are_cut_towards_the_past(unit: str, values: list[int], skipped: int) -> None:
    found = event_times(pa.array(values, pa.timestamp(unit)).slice(min(skipped, len(values) - 1)))
    kept = values[min(skipped, len(values) - 1) :]
    assert found.to_pylist() == [value // UNITS_IN_A_MILLISECOND[unit] for value in kept]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_hour_that_autumn_has_twice_is_two_hours_of_event_time(unit: str) -> None:
    first = datetime(2023, 11, 5, 5, 30, tzinfo=timezone.utc)
    local = pa.array([first, first + timedelta(hours=1)], pa.timestamp(unit, "America/New_York"))
    found = event_times(local).to_pylist()
    assert found[1] - found[0] == 3_600_000
    assert found[0] == 1_699_162_200_000


def test_a_null_time_is_refused_with_its_row_and_a_remedy() -> None:
    with pytest.raises(RecordError, match=r"'assign', subtask 2: .*'at' is null in row \{'at': None, 'n': 1\}; filter"):
        times("at", 5, None)


@pytest.mark.parametrize("time", [2**62 + 1, -(2**62) - 1, 2**63 - 1])
@pytest.mark.parametrize("assigner", ["at", lambda row: row["at"]])
def test_a_time_near_the_ends_of_the_integers_is_refused_with_its_row(assigner: Any, time: int) -> None:
    with pytest.raises(RecordError, match=rf"out of the range of event time in row \{{'at': {time}, 'n': 1\}}"):
        times(assigner, 5, time)


@pytest.mark.parametrize(("value", "kind"), [(2**64 - 1, pa.uint64()), (2**62, pa.timestamp("s"))])
def test_a_time_that_does_not_fit_is_refused(value: int, kind: pa.DataType) -> None:
    with pytest.raises(RecordError, match="'at' holds a time out of range"):
        times("at", value, kind=kind)


def test_a_time_that_python_cannot_hold_is_told_too() -> None:
    with pytest.raises(RecordError, match="the event time in column 'at' is out of the range of event time in row"):
        times("at", 2**62 + 1, kind=pa.timestamp("ms"))


def test_a_column_that_is_not_there_is_named_with_its_neighbours() -> None:
    with pytest.raises(MissingColumnError, match=r"from_source: no column 'tme' .did you mean 'time'"):
        check_assigner(IN_ORDER.with_timestamp_assigner("tme"), pa.schema([("time", pa.int64())]), "from_source")


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.bool_(), pa.null()])
def test_a_column_that_holds_no_time_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ColumnTypeError, match="holds no event time; give a timestamp, a date, or an integer"):
        check_assigner(IN_ORDER.with_timestamp_assigner("at"), pa.schema([("at", kind)]), "from_source")


def test_columns_that_are_not_known_in_advance_are_checked_when_rows_come() -> None:
    check_assigner(IN_ORDER.with_timestamp_assigner("at"), None, "assign_timestamps")
    with pytest.raises(ColumnTypeError, match="operator 'assign', subtask 2"):
        times("at", "noon")


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1))
def test_a_function_of_the_row_gives_what_the_column_would(values: list[int]) -> None:
    assert times(lambda row: row["at"], *values) == times("at", *values) == values


def test_a_function_may_return_a_number_of_numpy() -> None:
    assert times(lambda row: np.int32(row["at"]), 7) == [7]


@pytest.mark.parametrize("given_back", [None, True, 1.5, "noon", datetime(2020, 1, 1)])
def test_a_function_that_gives_no_milliseconds_is_refused_with_the_row(given_back: object) -> None:
    with pytest.raises(RecordError, match=r"with_timestamp_assigner is .*, no int of milliseconds.*in row \{'at': 5"):
        times(lambda row: given_back, 5)


def test_a_function_that_fails_is_shown_with_its_row() -> None:
    with pytest.raises(UserCodeError, match="KeyError: 'att'") as caught:
        times(lambda row: row["att"], 5)
    assert caught.value.given == "{'at': 5, 'n': 0}"


def test_ingestion_time_is_that_of_the_clock() -> None:
    clock = ManualClock(1_000)
    assign = create_assigner(WatermarkStrategy.for_ingestion_time(), OperatorContext("assign", 0, 1, clock), clock)
    assert assign(pa.record_batch({"n": [1, 2]})).to_pylist() == [1_000, 1_000]
    clock.advance(0.5)
    assert assign(pa.record_batch({"n": [3]})).to_pylist() == [1_500]
