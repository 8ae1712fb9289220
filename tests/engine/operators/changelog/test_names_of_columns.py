"""Columns may have the names of what states keep beside them.

Debezium's flattened rows have a column `__deleted`, and tables of Druid one `__time`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.engine.changelog import ChangelogMode
from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.complete_windows import CompleteWindowsSpec
from penstock.engine.operators.changelog.conflicts import Conflict, ConflictSpec
from penstock.engine.operators.changelog.counted_rows import Ties
from penstock.engine.operators.changelog.first_rows import FirstRowsSpec
from penstock.engine.operators.changelog.frames import OverCall
from penstock.engine.operators.changelog.group_aggregate import GroupAggregateSpec
from penstock.engine.operators.changelog.join import ChangelogJoinSpec, JoinInput, JoinKind
from penstock.engine.operators.changelog.normalize import NormalizeSpec
from penstock.engine.operators.changelog.over import FrameUnit, OverSpec
from penstock.engine.operators.changelog.ranks import Order
from penstock.engine.operators.changelog.set_operation import SetOperation, SetOperationSpec
from penstock.engine.operators.changelog.top_n import TopNSpec, deduplication
from penstock.engine.operators.changelog.updating_over import UpdatingOverSpec
from penstock.engine.operators.session_table import SessionTableSpec
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.operators.time_sort import TimeSortSpec
from tests.engine.operators.changelog.jobs import Change, ChangelogJob

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


OWN = (
    *("__count", "__number", "__value", "__rows", "__left", "__right", "__matches", "__there", "__place", "__rank"),
    *("__weight", "__kind", "__time", "__deleted", "__touched", "__key_group", "__start", "__end", "__place_"),
    *("__0_count", "__0_sum", "__0_value", "__1_max", "__2_first_value", "__count_"),
)
"""Names that columns have which operators keep beside rows, in memory or in saved tables."""
PLAIN = tuple(f"p{place}" for place in range(len(OWN)))
TEXT = pa.string()
OTHERS = pa.schema({f"o{place}": TEXT for place in range(len(OWN))} | {"other": INT})
INSERTS = [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 1, "b"), ("+I", 2, "a"), ("+I", 3, "a"), ("+I", 1, "c")]
CHANGES = [*INSERTS[:4], ("-D", 2, "b"), ("+I", 4, "b"), ("-D", 1, "b"), ("+I", 1, "b")]
Keys = tuple[str, ...]


def aggregates(columns: pa.Schema, keys: Keys, takes: ChangelogMode) -> GroupAggregateSpec:
    argument, kind = ("id", INT) if keys != ("id",) else (columns.names[1], TEXT)
    functions = ("count", "max", "first_value", "last_value")
    calls = [AggregateCall(one, one, INT if one == "count" else kind, argument) for one in functions]
    distinct = AggregateCall("count", "different", INT, argument, distinct=True)
    sums = AggregateCall("sum", "sum", INT, "id")
    return GroupAggregateSpec(columns, keys, (*calls, distinct, sums), takes, ttl_ms=1_000)


def joined(columns: pa.Schema, keys: Keys) -> ChangelogJoinSpec:
    of_right = tuple(OTHERS.names[:-1]) if keys != ("id",) else ("other",)
    return ChangelogJoinSpec(JoinInput(columns, keys), JoinInput(OTHERS, of_right), JoinKind.LEFT)


def in_windows(columns: pa.Schema, keys: Keys) -> CompleteWindowsSpec:
    last = deduplication(columns, keys, Ties.LAST_ARRIVED)
    return CompleteWindowsSpec(last, (columns,), last.schema)


def over(columns: pa.Schema, keys: Keys, unit: FrameUnit, preceding: int | None) -> OverSpec:
    calls = (OverCall("count", "n", INT), OverCall("max", "most", INT, "id"))
    return OverSpec(columns, keys, unit, preceding, calls)


ORDER = (Order("id"),)
COUNTED = (OverCall("count", "n", INT),)
CHANGING: dict[str, Callable[[pa.Schema, Keys], OperatorSpec]] = {
    "top n": lambda columns, keys: TopNSpec(columns, keys, ORDER, 2, rank_column="rank", ttl_ms=1_000),
    "updating over": lambda columns, keys: UpdatingOverSpec(columns, keys, ORDER, FrameUnit.ROWS, None, COUNTED),
    "groups": lambda columns, keys: aggregates(columns, keys, ChangelogMode.RETRACT),
    "union": lambda columns, keys: SetOperationSpec(columns, columns, SetOperation.UNION),
    "upsert source": lambda columns, keys: NormalizeSpec(columns, keys),
    "conflicts": lambda columns, keys: ConflictSpec(columns, keys, Conflict.KEEP_FIRST),
    "join": joined,
}
GROWING: dict[str, Callable[[pa.Schema, Keys], OperatorSpec]] = {
    "groups that grow": lambda columns, keys: aggregates(columns, keys, ChangelogMode.APPEND),
    "top n that grows": lambda columns, keys: TopNSpec(columns, keys, ORDER, 2, takes=ChangelogMode.APPEND),
    "over a range": lambda columns, keys: over(columns, keys, FrameUnit.RANGE, 100),
    "over rows": lambda columns, keys: over(columns, keys, FrameUnit.ROWS, 2),
    "over all": lambda columns, keys: over(columns, keys, FrameUnit.ROWS, None),
    "first rows": lambda columns, keys: FirstRowsSpec(columns, keys, "n"),
    "windows": in_windows,
    "sessions": lambda columns, keys: SessionTableSpec(columns, keys, 5, BOUNDS),
}


def said(make: Callable[[pa.Schema, Keys], OperatorSpec], names: Keys, is_by_names: bool, grows: bool) -> list[Change]:
    """What an operator says of some rows whose columns have these names, through checkpoints and restarts."""
    columns = pa.schema([("id", INT), *((name, TEXT) for name in names)])
    spec = make(columns, names if is_by_names else ("id",))
    job = ChangelogJob(spec, [columns, OTHERS], 2)
    starts = [lambda: job.recover(3), lambda: job.restart(2, "rocksdb"), lambda: job.restart(3, "heap"), job.checkpoint]
    for time, (kind, number, text) in enumerate(INSERTS if grows else CHANGES):
        job.send([(kind, (number, *[text] * len(names)))], times=[time])
        if time % 3 == 0 and "join" in spec.describe():
            job.send([("+I", (*[text] * len(names), number))], 1, times=[time])
        job.advance(time - 2)
        if time % 2 == 0:
            job.checkpoint()
        else:
            starts[time // 2 % 4]()
    job.advance(100)
    job.close()
    return job.log


@pytest.mark.parametrize("is_by_names", [False, True], ids=["by another", "by them"])
@pytest.mark.parametrize("name", [*CHANGING, *GROWING])
def test_columns_may_have_any_name(name: str, is_by_names: bool) -> None:
    make, grows = {**CHANGING, **GROWING}[name], name in GROWING
    changes = said(make, PLAIN, is_by_names, grows)
    assert changes
    assert said(make, OWN, is_by_names, grows) == changes
