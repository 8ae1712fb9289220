"""Named aggregates give the same results row by row (the general operator) as on whole batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import EventTimeTrigger, WindowAssigner, cumulative, session, sliding, tumbling
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.windows.triggers import PurgingTrigger
from tests.draws import drawn
from tests.engine.helpers import Row
from tests.engine.window_driver import Program, WindowDriver

WINDOWS: dict[str, WindowAssigner] = {
    "tumbling": tumbling("10ms", offset="3ms"),
    "sliding": sliding("10ms", "4ms"),
    "cumulative": cumulative("12ms", "4ms"),
    "session": session("5ms"),
}
AGGREGATES: dict[str, Any] = {
    "n": ps.count(),
    "total": ps.sum("v"),
    "mean": ps.mean("v"),
    "least": ps.min("v"),
    "first": ps.first("at"),
    "last": ps.last("at"),
    "spread": ps.stddev("v"),
    "distinct": ps.count_distinct("v"),
}
NEVER_EARLY = EventTimeTrigger(early_count=2**40)
"""Does what the default trigger does, and is none."""

FIRST_WATERMARK = -20
Step = tuple[list[tuple[str, int, int]], int, bool]
"""Rows, by how much the watermark advances behind them, and whether to restore then."""
_ROWS = st.tuples(st.sampled_from("ab"), st.integers(-20, 40), st.integers(-3, 3))
_STEPS = st.lists(st.tuples(st.lists(_ROWS, max_size=6), st.integers(0, 15), st.booleans()), min_size=1, max_size=6)


def program(windows: WindowAssigner, lateness: int, general: bool) -> Program:
    def make(keyed: Any) -> Any:
        windowed = keyed.window(windows).allowed_lateness(f"{lateness}ms").side_output_late_data(ps.OutputTag("late"))
        return (windowed.trigger(NEVER_EARLY) if general else windowed).aggregate(**AGGREGATES)

    return make


class Emitted(NamedTuple):
    """A row, as text, and of which window it is."""

    text: str
    key: str
    begin: datetime
    end: datetime


@dataclass
class Seen:
    """What came of each step, in no order, and how many rows were late."""

    emitted: list[list[Emitted]] = field(default_factory=list)
    late: list[list[str]] = field(default_factory=list)
    late_rows: int = 0


def run(make: Program, steps: list[Step], batch_rows: int, *, general: bool, keyed: bool = True) -> Seen:
    driver = WindowDriver(make, sides=["late"], keyed=keyed)
    assert driver.is_general == general
    seen = Seen()
    watermark = FIRST_WATERMARK
    for rows, advance, restores in [*steps, ([], MAX_TIMESTAMP, False)]:
        for begin in range(0, len(rows), batch_rows):
            driver.add(*rows[begin : begin + batch_rows])
        seen.emitted.append(_emitted(driver.take(), batch_rows))
        seen.late.append(sorted(map(repr, driver.take_side("late"))))
        watermark = min(watermark + advance, MAX_TIMESTAMP)
        driver.advance(watermark)
        seen.emitted.append(_emitted(driver.take(), batch_rows))
        if restores:
            driver.restore()
    seen.late_rows = driver.metrics.late_rows
    return seen


def _emitted(rows: list[Row], batch_rows: int) -> list[Emitted]:
    """The rows; of whole batches only the last update of each window."""
    if batch_rows > 1:
        rows = list({(row.get("k"), row["window_start"], row["window_end"]): row for row in rows}.values())
    told = (Emitted(repr(_rounded(row)), row.get("k", ""), row["window_start"], row["window_end"]) for row in rows)
    return sorted(told)


def _rounded(row: Row) -> Row:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}


@pytest.mark.parametrize("windows", WINDOWS)
@settings(max_examples=drawn(40))
@given(steps=_STEPS, batch_rows=st.sampled_from([1, 100]), lateness=st.sampled_from([0, 7]))
def test_both_paths_agree(windows: str, batch_rows: int, lateness: int, steps: list[Step]) -> None:
    by_row = run(program(WINDOWS[windows], lateness, general=True), steps, batch_rows, general=True)
    by_batch = run(program(WINDOWS[windows], lateness, general=False), steps, batch_rows, general=False)
    if windows == "session" and batch_rows > 1:
        # A late row may give a session that another row of its batch makes longer: whole batches pass over that.
        by_row.emitted, by_batch.emitted = _without_parts(by_row.emitted), _without_parts(by_batch.emitted)
    assert by_row == by_batch


def test_a_late_session_that_its_batch_makes_longer_is_given_once_by_whole_batches() -> None:
    steps: list[Step] = [([], 10, False), ([("a", -14, 0), ("a", -9, 0)], 0, False)]
    make = program(WINDOWS["session"], 7, general=True), program(WINDOWS["session"], 7, general=False)
    by_row, by_batch = (run(one, steps, 100, general=one is make[0]) for one in make)
    assert (sum(map(len, by_row.emitted)), sum(map(len, by_batch.emitted))) == (2, 1)
    assert _without_parts(by_row.emitted) == _without_parts(by_batch.emitted)


def _without_parts(emitted: list[list[Emitted]]) -> list[list[Emitted]]:
    """Without the sessions that are part of a longer one that comes later."""

    def is_part(at: int, part: Emitted) -> bool:
        later = (one for rows in emitted[at:] for one in rows if one.key == part.key)
        return any(one.begin <= part.begin and part.end <= one.end and one[1:] != part[1:] for one in later)

    return [[row for row in rows if not is_part(at, row)] for at, rows in enumerate(emitted)]


@settings(max_examples=drawn(15))
@given(steps=_STEPS)
def test_both_paths_agree_on_what_windows_with_gaps_emit(steps: list[Step]) -> None:
    windows = sliding("4ms", "10ms")
    by_row = run(program(windows, 0, general=True), steps, 1, general=True)
    by_batch = run(program(windows, 0, general=False), steps, 1, general=False)
    assert by_row.emitted == by_batch.emitted


@settings(max_examples=drawn(15))
@given(steps=_STEPS)
def test_both_paths_agree_over_all_rows(steps: list[Step]) -> None:
    def make(general: bool) -> Program:
        def over_all(stream: Any) -> Any:
            windowed = stream.window_all(sliding("10ms", "4ms")).allowed_lateness("3ms")
            return (windowed.trigger(NEVER_EARLY) if general else windowed).aggregate(**AGGREGATES)

        return over_all

    by_row = run(make(general=True), steps, 1, general=True, keyed=False)
    assert by_row == run(make(general=False), steps, 1, general=False, keyed=False)


@settings(max_examples=drawn(25))
@given(steps=_STEPS, batch_rows=st.sampled_from([2, 3, 100]))
def test_how_rows_are_cut_into_batches_does_not_matter(steps: list[Step], batch_rows: int) -> None:
    def make(keyed: Any) -> Any:
        windowed = keyed.window(session("5ms")).allowed_lateness("4ms").trigger(PurgingTrigger(EventTimeTrigger()))
        return windowed.side_output_late_data(ps.OutputTag("late")).aggregate(**AGGREGATES)

    whole, single = WindowDriver(make, sides=["late"]), WindowDriver(make, sides=["late"])
    watermark = FIRST_WATERMARK
    for rows, advance, _ in steps:
        for begin in range(0, len(rows), batch_rows):
            whole.add(*rows[begin : begin + batch_rows])
        for row in rows:
            single.add(row)
        watermark += advance
        for driver in (whole, single):
            driver.advance(watermark)
        assert whole.take() == single.take()
        assert whole.take_side("late") == single.take_side("late")
