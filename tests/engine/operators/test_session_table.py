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
from tests.engine.operators.changelog.jobs import ChangelogJob
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
