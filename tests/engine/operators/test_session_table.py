"""Rows come with their sessions when these are complete, in any batches and subtasks, and through savepoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.operators.session_table import SessionTableSpec
from penstock.engine.state.snapshot import OperatorSnapshot
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import Change, ChangelogJob
from tests.engine.state.saved import snapshot_of

SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64()})
BOUNDS = pa.schema({"begin": pa.int64(), "end": pa.int64(), "last": pa.int64()})
GAP = 5


def _sessions(rows: list[tuple[int, str | None]]) -> list[tuple[Any, ...]]:
    """Each row's key, time, and the bounds of its session."""
    result: list[tuple[Any, ...]] = []
    for key in {key for _, key in rows}:
        times = sorted(at for at, own in rows if own == key)
        groups: list[list[int]] = []
        for at in times:
            if groups and at - groups[-1][-1] <= GAP:
                groups[-1].append(at)
            else:
                groups.append([at])
        result += [(key, at, one[0], one[-1] + GAP, one[-1] + GAP - 1) for one in groups for at in one]
    return sorted(result, key=repr)


# Even times and an odd gap: no two sessions touch, so it does not matter when watermarks come.
ROWS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a", "b", None])), max_size=5)


@settings(max_examples=drawn(30))
@given(st.lists(st.tuples(ROWS, st.integers(0, 6)), max_size=6), st.integers(0, 6), st.booleans())
def test_rows_come_with_the_sessions_that_they_are_in(
    steps: list[tuple[list[tuple[int, str | None]], int]], restart_at: int, apart: bool
) -> None:
    partition = ("k",) if apart else ()
    job, came, watermark = ChangelogJob(SessionTableSpec(SCHEMA, partition, GAP, BOUNDS), [SCHEMA], 2), [], -1
    for number, (batch, step) in enumerate(steps):
        if number == restart_at:
            job.restart(3)
        rows = [(watermark + 1 + (watermark + 1) % 2 + 2 * later, key) for later, key in batch]
        job.send([("+I", (key, at)) for at, key in rows], times=[at for at, _ in rows])
        came += rows
        watermark += step
        job.advance(watermark)
        assert all(last <= watermark for *_, last in (row for _, row in job.log))
    job.advance(MAX_TIMESTAMP)
    if apart:
        assert sorted((row for _, row in job.log), key=repr) == _sessions(came)
    else:
        found = sorted((None, *row[1:]) for _, row in job.log)
        assert found == sorted(_sessions([(at, None) for at, _ in came]))
    assert job.timestamps == [row[-1] for _, row in job.log]
    job.close()


def test_rows_of_a_session_that_is_over_are_late() -> None:
    job = ChangelogJob(SessionTableSpec(SCHEMA, ("k",), GAP, BOUNDS), [SCHEMA])
    job.advance(20)
    job.send([("+I", ("a", 1)), ("+I", ("a", 2)), ("+I", ("b", 3))], times=[18, 22, 10])
    job.advance(MAX_TIMESTAMP)
    assert [row for _, row in job.log] == [("a", 1, 18, 27, 26), ("a", 2, 18, 27, 26)]
    assert job.operators[0]._context.metrics.late_rows == 1
    job.close()


CHANGES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", None]), st.booleans()), max_size=25)


@settings(max_examples=drawn(40))
@given(CHANGES, st.sampled_from([1, 7, 100]), st.integers(0, 25))
def test_sessions_are_those_of_the_rows_that_stand(
    wanted: list[tuple[int, str | None, bool]], size: int, restart_at: int
) -> None:
    changes: list[Change] = []
    standing: list[tuple[int, str | None]] = []
    for at, key, goes in wanted:
        if goes and standing:
            at, key = standing.pop(at % len(standing))
        else:
            standing.append((at, key))
            goes = False
        changes.append(("-D" if goes else "+I", (key, at)))
    job = ChangelogJob(SessionTableSpec(SCHEMA, ("k",), GAP, BOUNDS), [SCHEMA], 2)
    for begin in range(0, len(changes), size):
        if begin <= restart_at < begin + size:
            job.restart(3)
        some = changes[begin : begin + size]
        job.send(some, times=[at for _, (_, at) in some])
    job.advance(MAX_TIMESTAMP)
    assert sorted((row for _, row in job.log), key=repr) == _sessions(standing)
    assert {kind for kind, _ in job.log} <= {"+I"}
    assert not any(operator._context.metrics.late_rows for operator in job.operators)
    job.close()


STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.booleans(), st.integers(0, 4)), max_size=25)


@settings(max_examples=drawn(40))
@given(STEPS)
def test_no_row_is_lost_by_what_is_taken_back_beside_it(steps: list[tuple[str, int, bool, int]]) -> None:
    job = ChangelogJob(SessionTableSpec(SCHEMA, ("k",), GAP, BOUNDS), [SCHEMA])
    standing: list[tuple[str, int]] = []
    watermark = -1
    for key, later, goes, step in steps:
        given = {row[:2] for _, row in job.log}
        waiting = [row for row in standing if row not in given]
        if goes and waiting:
            row = waiting[later % len(waiting)]
            standing.remove(row)
            job.send([("-D", row)], times=[row[1]])
        else:
            row = (key, watermark + 1 + later)
            standing.append(row)
            job.send([("+I", row)], times=[row[1]])
        watermark += step
        said = len(job.log)
        job.advance(watermark)
        assert all(watermark - step < last <= watermark for *_, last in (row for _, row in job.log[said:]))
    job.advance(MAX_TIMESTAMP)
    assert sorted(row[:2] for _, row in job.log) == sorted(standing)
    assert all(begin <= at and at + GAP <= end for _, at, begin, end, _ in (row for _, row in job.log))
    job.close()


def test_a_session_that_the_watermark_would_have_passed_does_not_split_off() -> None:
    job = ChangelogJob(SessionTableSpec(SCHEMA, ("k",), GAP, BOUNDS), [SCHEMA])
    job.send([("+I", ("a", at)) for at in (0, 4, 8)], times=[0, 4, 8])
    job.advance(6)
    job.send([("-D", ("a", 4)), ("-D", ("a", 1))], times=[4, 1])
    job.advance(11)
    job.advance(12)
    assert job.log == [("+I", ("a", 0, 0, 13, 12)), ("+I", ("a", 8, 0, 13, 12))]
    # The row that was never there.
    assert job.operators[0]._context.metrics.late_rows == 1
    job.close()


def test_rows_that_were_saved_without_their_kind_were_inserted() -> None:
    job = ChangelogJob(SessionTableSpec(SCHEMA, ("k",), GAP, BOUNDS), [SCHEMA])
    job.send([("+I", ("a", 1))], times=[1])
    saved = snapshot_of(job.operators[0])
    tables = {name: replace(one, data=one.data.drop_columns(["__kind"])) for name, one in saved.tables.items()}
    job._go_on([OperatorSnapshot(tables, saved.watermark)], None, None)
    job.send([("+I", ("a", 2))], times=[2])
    job.advance(MAX_TIMESTAMP)
    assert job.log == [("+I", ("a", 1, 1, 7, 6)), ("+I", ("a", 2, 1, 7, 6))]
    job.close()
