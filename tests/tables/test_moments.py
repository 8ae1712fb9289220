"""Times of a zone whose clocks are put forward and back: moments, their distances, and what they are rounded to."""

from __future__ import annotations

import calendar
import datetime as dt
import itertools
import re
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import StreamEnvironment
from penstock.engine.errors import JobFailedError
from penstock.tables.functions.months import add_months, months_between
from penstock.tables.functions.times import epoch_ms

_FORWARD: Final = ("TO_TIMESTAMP_LTZ(1711843200000, 3)", "TO_TIMESTAMP_LTZ(1711850400000, 3)")
"""An hour before the clocks are put forward, and an hour behind."""
_SECOND: Final = "TO_TIMESTAMP_LTZ(1729992645000, 3)"
"""02:30:45, as clocks show it for the second time."""


def _value(expression: str, zone: str = "Europe/Berlin") -> Any:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(f"SET 'table.local-time-zone' = '{zone}'")
    table = env.sql(f"SELECT {expression} AS v")
    assert table is not None
    return next(iter(table.collect()))["v"]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        # These are answers of Flink 2.3.
        (f"TIMESTAMPDIFF(SECOND, {_FORWARD[0]}, {_FORWARD[1]})", 7_200),
        (f"TIMESTAMPDIFF(HOUR, {_FORWARD[0]}, {_FORWARD[1]})", 2),
        ("TIMESTAMPDIFF(DAY, TO_TIMESTAMP_LTZ(1711839600000, 3), TO_TIMESTAMP_LTZ(1711922400000, 3))", 0),
        ("TIMESTAMPDIFF(MONTH, TO_TIMESTAMP_LTZ(1706657400000, 3), TO_TIMESTAMP_LTZ(1709247600000, 3))", 0),
        (f"CAST(({_FORWARD[1]} - {_FORWARD[0]}) SECOND AS STRING)", "+0 02:00:00.000"),
        (f"TIMESTAMPDIFF(SECOND, FLOOR({_SECOND} TO MINUTE), {_SECOND})", 45),
        (f"TIMESTAMPDIFF(SECOND, CEIL({_SECOND} TO MINUTE), {_SECOND})", -15),
        (f"TIMESTAMPDIFF(SECOND, FLOOR({_SECOND} TO HOUR), {_SECOND})", 1_845),
        (f"TIMESTAMPDIFF(SECOND, CEIL({_SECOND} TO HOUR), {_SECOND})", -1_755),
        ("CAST(CAST(TIMESTAMP '2024-03-31 02:30:00' AS TIMESTAMP_LTZ(3)) AS STRING)", "2024-03-31 03:30:00.000"),
        ("CAST(CAST('2024-03-31 02:30:00' AS TIMESTAMP_LTZ(3)) AS STRING)", "2024-03-31 03:30:00.000"),
        (f"TIMESTAMPDIFF(SECOND, CAST(TIMESTAMP '2024-10-27 02:30:00' AS TIMESTAMP_LTZ(3)), {_SECOND})", 3_645),
        # Flink keeps the offset of the moment itself, which is not that of its midnight.
        (f"CAST(FLOOR({_SECOND} TO DAY) AS STRING)", "2024-10-27 00:00:00.000"),
        (f"CAST(CEIL({_SECOND} TO MONTH) AS STRING)", "2024-11-01 00:00:00.000"),
    ],
)
def test_moments_go_by_what_has_passed(expression: str, wanted: object) -> None:
    assert _value(expression) == wanted


def test_months_reach_beyond_the_years_that_python_has() -> None:
    later = "DATE '9999-12-31' + INTERVAL '13' MONTH"
    assert _value(f"EXTRACT(YEAR FROM {later})") == 10_001
    assert _value(f"TIMESTAMPDIFF(MONTH, DATE '2024-01-31', {later})") == 95_724


def _later(time: dt.datetime, months: int) -> dt.datetime:
    year, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    return time.replace(year=year, month=month + 1, day=min(time.day, calendar.monthrange(year, month + 1)[1]))


_TIMES: Final = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))


@given(_TIMES, st.integers(-1_200, 1_200))
def test_months_are_added_as_a_calendar_has_them(time: dt.datetime, months: int) -> None:
    later = _later(time, months)
    for kind, wanted in ((pa.timestamp("us"), later), (pa.date32(), later.date())):
        times = pa.array([time, time, None], pa.timestamp("us")).cast(kind, safe=False)
        assert add_months(times, pa.array([months, None, 1])).to_pylist() == [wanted, None, None]


@given(_TIMES, _TIMES)
def test_months_between_times_are_those_that_fit_between_them(one: dt.datetime, other: dt.datetime) -> None:
    begin, end = sorted(time.replace(microsecond=0) for time in (one, other))
    times = [epoch_ms(pa.array([time], pa.timestamp("ms"))) for time in (begin, end)]
    forth, back = months_between(*times)[0], months_between(*reversed(times))[0]
    assert _later(begin, forth) <= end < _later(begin, forth + 1)
    assert back == -_months_back(end, begin)


def _months_back(end: dt.datetime, begin: dt.datetime) -> int:
    """As Flink counts: whole months from the earlier day on, one more where they lead to a later time of that day."""
    days = [dt.datetime.combine(time.date(), dt.time()) for time in (begin, end)]
    whole = next(n for n in itertools.count((days[1] - days[0]).days // 31) if _later(days[0], n + 1) > days[1])
    return whole + (_later(days[1], -whole) == days[0] and begin.time() < end.time())


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(DATE '2300-01-01' AS TIMESTAMP(9))",
        "CAST(TIMESTAMP '1600-01-01 00:00:00' AS TIMESTAMP(9))",
        "CAST(DATE '2300-01-01' AS TIMESTAMP_LTZ(9))",
        "TIMESTAMP '2300-01-01 00:00:00' = CAST('2024-01-01 00:00:00' AS TIMESTAMP(9))",
        "TIMESTAMPADD(YEAR, 300, CAST('2024-01-01 00:00:00' AS TIMESTAMP(9)))",
        "TIMESTAMPADD(DAY, 100000, CAST('2024-01-01 00:00:00' AS TIMESTAMP(9)))",
        "TIMESTAMPADD(DAY, 213503982, CAST('1970-01-01 00:00:00' AS TIMESTAMP(6)))",
        "CAST(CAST('2262-04-11 23:47:16' AS TIMESTAMP(6)) AS TIMESTAMP_LTZ(9))",
        "CAST(TIMESTAMPADD(YEAR, 9000, TIMESTAMP '9999-01-01 00:00:00') AS TIMESTAMP(9))",
        "CAST('2024-01-01 00:00:00' AS TIMESTAMP(9)) + INTERVAL '300' YEAR(3)",
    ],
)
def test_times_that_nanoseconds_do_not_reach_fail_and_are_no_other_ones(expression: str) -> None:
    with pytest.raises(JobFailedError, match=r"cannot be cast to TIMESTAMP|overflow"):
        _value(expression)


@pytest.mark.parametrize("kind", ["TIMESTAMP(9)", "TIMESTAMP_LTZ(9)"])
@pytest.mark.parametrize(
    ("call", "time"),
    [
        ("FLOOR", "1677-12-01 00:00:00.5 TO YEAR"),
        ("FLOOR", "1677-09-21 12:00:00 TO DAY"),
        ("FLOOR", "1677-09-21 12:00:00 TO MILLENNIUM"),
        ("CEIL", "2262-01-02 00:00:00 TO YEAR"),
        ("CEIL", "2262-04-11 00:00:00 TO WEEK"),
        ("CEIL", "2262-04-11 12:00:00 TO DAY"),
        ("CEIL", "2262-02-11 12:00:00 TO DECADE"),
        ("CEIL", "2262-04-11 23:30:00 TO HOUR"),
        ("CEIL", "2262-04-11 23:47:16.854775807 TO SECOND"),
    ],
)
def test_units_that_begin_beyond_nanoseconds_fail(kind: str, call: str, time: str) -> None:
    text, _, unit = time.partition(" TO ")
    with pytest.raises(JobFailedError, match=rf"the {unit} begins beyond what {re.escape(kind)} .*holds"):
        _value(f"{call}(CAST('{text}' AS {kind}) TO {unit})", "UTC")
    assert _value(f"TRY_CAST({call}(TIMESTAMP '{text[:19]}.1' TO {unit}) AS {kind})", "UTC") is None


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("CEIL(TIMESTAMP '1677-09-21 00:12:43.2000000' TO YEAR)", "1678-01-01 00:00:00.0000000"),
        ("CEIL(TIMESTAMP '1677-09-21 00:12:43.2000000' TO WEEK)", "1677-09-26 00:00:00.0000000"),
        ("FLOOR(TIMESTAMP '2262-04-11 23:47:16.854775807' TO YEAR)", "2262-01-01 00:00:00.000000000"),
        ("FLOOR(TIMESTAMP '2262-04-11 23:47:16.854775807' TO MICROSECOND)", "2262-04-11 23:47:16.854775000"),
        ("FLOOR(TIMESTAMP '2262-04-11 23:47:16.854775807' TO NANOSECOND)", "2262-04-11 23:47:16.854775807"),
        ("CEIL(TIMESTAMP '1969-12-31 23:59:58.000000001' TO SECOND)", "1969-12-31 23:59:59.000000000"),
        ("CEIL(TIMESTAMP '1969-12-31 23:59:58.000000000' TO SECOND)", "1969-12-31 23:59:58.000000000"),
        ("FLOOR(TIMESTAMP '1969-12-31 23:59:58.000000001' TO SECOND)", "1969-12-31 23:59:58.000000000"),
        # What is less than a day does not count, as in Flink.
        ("CEIL(TIMESTAMP '2024-01-01 23:59:59.999999999' TO YEAR)", "2024-01-01 00:00:00.000000000"),
        ("CEIL(TIMESTAMP '1999-12-31 23:59:59.999999999' TO DECADE)", "2000-01-01 00:00:00.000000000"),
    ],
)
def test_units_of_times_with_nanoseconds(expression: str, wanted: str) -> None:
    assert _value(f"CAST({expression} AS STRING)") == wanted


def test_only_rows_that_need_them_fail() -> None:
    time = "CAST('2024-01-01 00:00:00' AS TIMESTAMP(9))"
    assert (
        _value(f"CASE WHEN {time} < DATE '2000-01-01' THEN {time} + INTERVAL '300' YEAR(3) ELSE {time} END") is not None
    )
    assert _value("CAST(CAST('1677-09-21 12:00:00' AS TIMESTAMP(9)) + INTERVAL '0' MONTH AS DATE)").year == 1677


@pytest.mark.parametrize("given", ["DATE '2300-01-01'", "TIMESTAMP '1600-01-01 00:00:00'"])
@pytest.mark.parametrize("wanted", ["TIMESTAMP(9)", "TIMESTAMP_LTZ(9)"])
def test_a_cast_that_may_fail_gives_null_for_them(given: str, wanted: str) -> None:
    assert _value(f"TRY_CAST({given} AS {wanted})") is None
    assert _value(f"TRY_CAST({given} AS {wanted.replace('9', '3')})") is not None
