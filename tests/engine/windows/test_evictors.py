"""Which rows each evictor lets stay, by Flink's rules."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, TimestampedRow
from penstock.engine.windows.windows import TimeWindow

WINDOW = TimeWindow(0, 100)


def elements(*rows: tuple[int, int | None]) -> list[TimestampedRow]:
    return [TimestampedRow({"v": value}, time) for value, time in rows]


def stay(evictor: Evictor, given: list[TimestampedRow], when: str = "before") -> list[int]:
    evict: Any = evictor.evict_before if when == "before" else evictor.evict_after
    return [element.row["v"] for element in evict(given, WINDOW, None)]


def rise(one: dict[str, Any], last: dict[str, Any]) -> float:
    return float(last["v"] - one["v"])


def test_the_count_evictor_keeps_the_last_rows_by_arrival() -> None:
    assert stay(CountEvictor(2), elements((1, 9), (2, 5), (3, 7))) == [2, 3]
    assert stay(CountEvictor(3), elements((1, 0), (2, 0))) == [1, 2]
    assert stay(CountEvictor(0), elements((1, 0))) == []


def test_the_time_evictor_keeps_rows_younger_than_the_youngest_less_the_span() -> None:
    assert stay(TimeEvictor("10ms"), elements((1, 40), (2, 50), (3, 41), (4, 39))) == [2, 3]


def test_the_time_evictor_keeps_all_rows_without_timestamps() -> None:
    assert stay(TimeEvictor("10ms"), elements((1, None), (2, None))) == [1, 2]


def test_the_delta_evictor_drops_rows_at_the_threshold_from_the_last() -> None:
    assert stay(DeltaEvictor(5, rise), elements((1, 0), (6, 0), (7, 0), (11, 0))) == [7, 11]
    assert stay(DeltaEvictor(5, rise), []) == []


@pytest.mark.parametrize("make", [CountEvictor, TimeEvictor, DeltaEvictor])
def test_evictors_work_on_one_side_of_the_function(make: Any) -> None:
    arguments = {CountEvictor: (1,), TimeEvictor: ("1ms",), DeltaEvictor: (1, rise)}[make]
    rows = elements((1, 0), (9, 50))
    for when, other in (("before", "after"), ("after", "before")):
        evictor = make(*arguments, evict=when)
        assert stay(evictor, rows, when) == [9]
        assert stay(evictor, rows, other) == [1, 9]


def test_evictors_tell_what_they_are() -> None:
    shown = [e.describe() for e in (CountEvictor(2), TimeEvictor("1m", evict="after"), DeltaEvictor(0.5, rise))]
    assert shown == ["count 2", "time 1m after", "delta 0.5"]
    assert Evictor().describe() == "Evictor"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountEvictor(-1), "count must be a whole number of 0 or more, not -1"),
        (lambda: CountEvictor(True), "not True"),
        (lambda: CountEvictor(1, evict="during"), "evict is 'before' or 'after'"),  # type: ignore[arg-type]
        (lambda: TimeEvictor("soon"), "'soon' is no duration"),
        (lambda: DeltaEvictor(1, None), "delta must be a function of two rows"),  # type: ignore[arg-type]
        (lambda: DeltaEvictor("1", rise), "the threshold must be a number"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_used_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()
