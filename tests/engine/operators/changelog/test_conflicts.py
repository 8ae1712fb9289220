"""Before a sink that updates by a key: its first row, or a failure, by what is there when the watermark comes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.errors import RecordError
from penstock.engine.operators.changelog.conflicts import Conflict, ConflictSpec
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import Change, ChangelogJob, Materialised, Row, Table, changelogs

SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})
ROWS: st.SearchStrategy[Row] = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3))


def _job(conflict: Conflict, parallelism: int = 1, backend: str = "heap") -> ChangelogJob:
    return ChangelogJob(ConflictSpec(SCHEMA, ("k",), conflict), [SCHEMA], parallelism, backend, Materialised((0,)))


def _rows_of_keys(rows: list[Row]) -> dict[object, list[Row]]:
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


@settings(max_examples=drawn(20))
@given(batches=changelogs(ROWS), restart_at=st.integers(0, 8), conflict=st.sampled_from(Conflict))
def test_each_watermark_leaves_one_of_the_rows_that_are_there(
    batches: list[list[Change]], restart_at: int, conflict: Conflict
) -> None:
    job, table, kept = _job(conflict), Table(), {}
    for number, batch in enumerate(batches):
        job.send(batch)
        table.apply(batch)
        if number == restart_at:
            job.restart(3)
        there = _rows_of_keys(table.rows)
        if conflict is Conflict.FAIL and any(len(rows) > 1 for rows in there.values()):
            with pytest.raises(RecordError, match="another row of the key"):
                job.advance(number)
            return
        job.advance(number)
        said = {row[0]: row for row in job.materialised.rows}
        assert said.keys() == there.keys()
        for key, rows in there.items():
            assert said[key] in rows
            if kept.get(key) in rows:
                assert said[key] == kept[key]
        kept = said
    job.close()


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_the_first_row_of_a_key_stays_until_it_goes(backend: str) -> None:
    job = _job(Conflict.KEEP_FIRST, backend=backend)
    job.send([("+I", ("a", 1))])
    job.send([("+I", ("a", 2)), ("+I", ("b", 3))])
    job.restart()
    assert job.log == []
    assert job.advance(1) == [("+I", ("a", 1)), ("+I", ("b", 3))]
    job.send([("-D", ("a", 1))])
    assert job.advance(2) == [("-U", ("a", 1)), ("+U", ("a", 2))]
    job.close()


def test_a_row_that_goes_behind_the_one_that_takes_its_key_is_no_conflict() -> None:
    job = _job(Conflict.FAIL)
    job.send([("+I", ("a", 1))])
    job.advance(1)
    job.send([("+I", ("a", 2))])
    job.send([("-D", ("a", 1))])
    assert job.advance(2) == [("-U", ("a", 1)), ("+U", ("a", 2))]
    job.close()
