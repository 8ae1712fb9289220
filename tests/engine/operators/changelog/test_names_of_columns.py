"""Columns may have the names of what states keep beside them.

Debezium's flattened rows have a column `__deleted`, and tables of Druid one `__time`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.engine.operators.changelog.complete_windows import CompleteWindowsSpec
from penstock.engine.operators.changelog.counted_rows import Ties
from penstock.engine.operators.changelog.first_rows import FirstRowsSpec
from penstock.engine.operators.changelog.frames import OverCall
from penstock.engine.operators.changelog.normalize import NormalizeSpec
from penstock.engine.operators.changelog.over import FrameUnit, OverSpec
from penstock.engine.operators.changelog.top_n import deduplication
from penstock.engine.operators.session_table import SessionTableSpec
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.operators.time_sort import TimeSortSpec
from tests.engine.operators.changelog.jobs import ChangelogJob

KINDS = pytest.mark.parametrize("kind", [pa.bool_(), pa.string()])
STARTS = pytest.mark.parametrize("start", [lambda job: job.recover(3), lambda job: job.restart(3, "rocksdb")])
Start = Callable[[ChangelogJob], None]


def schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema({"id": pa.int64(), "ts": pa.int64(), "__deleted": kind})


def values(kind: pa.DataType) -> tuple[object, object]:
    return (True, False) if pa.types.is_boolean(kind) else ("true", "false")


@KINDS
@STARTS
@pytest.mark.parametrize("by_deleted", [False, True])
def test_the_last_rows_by_key_keep_them(kind: pa.DataType, start: Start, by_deleted: bool) -> None:
    gone, here = values(kind)
    keys = ("id", "__deleted") if by_deleted else ("id",)
    job = ChangelogJob(deduplication(schema(kind), keys, Ties.LAST_ARRIVED, "ts"), [schema(kind)], 2)
    job.send([("+I", (1, 1, gone)), ("+I", (2, 1, here)), ("+I", (3, 1, gone))])
    job.checkpoint()
    job.send([("+I", (1, 2, gone)), ("+I", (4, 1, gone))])
    job.checkpoint()
    start(job)
    assert job.send([("+I", (1, 3, gone))]) == [("-U", (1, 2, gone)), ("+U", (1, 3, gone))]
    assert job.send([("+I", (3, 2, gone))]) == [("-U", (3, 1, gone)), ("+U", (3, 2, gone))]
    job.close()


@KINDS
@STARTS
def test_the_rows_of_an_upsert_source_keep_them(kind: pa.DataType, start: Start) -> None:
    gone, here = values(kind)
    job = ChangelogJob(NormalizeSpec(schema(kind), ("id",)), [schema(kind)], 2)
    job.send([("+U", (1, 1, gone)), ("+U", (2, 1, here))])
    job.checkpoint()
    job.send([("-D", (2, 1, here)), ("+U", (3, 1, gone))])
    job.checkpoint()
    start(job)
    assert job.send([("+U", (1, 2, here))]) == [("-U", (1, 1, gone)), ("+U", (1, 2, here))]
    assert job.send([("+U", (2, 2, here))]) == [("+I", (2, 2, here))]
    job.close()


@KINDS
@pytest.mark.parametrize("is_over", [False, True])
def test_rows_that_wait_for_the_watermark_keep_them(kind: pa.DataType, is_over: bool) -> None:
    gone, here = values(kind)
    count = OverCall("count", "n", pa.int64())
    spec: OperatorSpec = FirstRowsSpec(schema(kind), ("id",), "n")
    if is_over:
        spec = OverSpec(schema(kind), ("id",), FrameUnit.RANGE, 100, (count,))
    job = ChangelogJob(spec, [schema(kind)], 2)
    job.send([("+I", (1, 1, gone)), ("+I", (2, 1, here))], times=[1, 1])
    job.checkpoint()
    job.send([("+I", (3, 1, gone))], times=[2])
    job.checkpoint()
    job.recover(3)
    job.advance(10)
    assert job.materialised.rows == [(1, 1, gone, 1), (2, 1, here, 1), (3, 1, gone, 1)]
    job.close()


INT = pa.int64()
TIMED = pa.schema({"id": INT, "__time": INT})
BOUNDS = pa.schema({"starts": INT, "ends": INT, "last": INT})
LAST = deduplication(TIMED, ("id",), Ties.LAST_ARRIVED)


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        (OverSpec(TIMED, ("id",), FrameUnit.RANGE, 100, (OverCall("count", "n", INT),)), (1,)),
        (OverSpec(TIMED, ("__time",), FrameUnit.ROWS, None, (OverCall("count", "n", INT),)), (1,)),
        (FirstRowsSpec(TIMED, ("__time",), "n"), (1,)),
        (CompleteWindowsSpec(LAST, (TIMED,), LAST.schema), ()),
        (SessionTableSpec(TIMED, ("id",), 5, BOUNDS), (1, 6, 5)),
        (TimeSortSpec(TIMED, ()), ()),
    ],
    ids=["over a range", "over rows", "first rows", "windows", "sessions", "sort"],
)
def test_rows_that_wait_may_have_a_column_for_their_time(spec: OperatorSpec, more: tuple[int, ...]) -> None:
    job = ChangelogJob(spec, [TIMED], 2)
    job.send([("+I", (1, 7)), ("+I", (2, 8))], times=[1, 1])
    job.restart(3)
    job.advance(10)
    assert job.materialised.rows == [(1, 7, *more), (2, 8, *more)]
    job.close()
