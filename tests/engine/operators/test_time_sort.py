"""A sort by time gives rows in order as the watermark passes them, in any number of batches, and through savepoints."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.operators.changelog.ranks import Order
from penstock.engine.operators.time_sort import TimeSortSpec
from tests.engine.operators.changelog.jobs import ChangelogJob

SCHEMA = pa.schema({"a": pa.int64(), "n": pa.int64()})


@given(st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=4), max_size=6), st.integers(0, 6))
def test_rows_come_in_order(batches: list[list[tuple[int, int]]], restart_at: int) -> None:
    job, given_rows, late_from, number = ChangelogJob(TimeSortSpec(SCHEMA, (Order("a"),)), [SCHEMA]), [], -1, 0
    for place, batch in enumerate(batches):
        if place == restart_at:
            job.restart()
        job.send([("+I", (a, number + i)) for i, (_, a) in enumerate(batch)], times=[at for at, _ in batch])
        given_rows += [(at, a, number + i) for i, (at, a) in enumerate(batch) if at > late_from]
        number += len(batch)
        watermark = 3 * place
        job.advance(watermark)
        late_from = max([late_from, *(at for at, _, _ in given_rows if at <= watermark)])
    job.advance(MAX_TIMESTAMP)
    assert [(at, *row) for at, (_, row) in zip(job.timestamps, job.log, strict=True)] == sorted(given_rows)
    job.close()
