"""OVER in any order, over rows that come and go, equals DuckDB's after every batch."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.changelog import ChangelogMode
from penstock.engine.columns import with_numbers
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.frames import OverCall
from penstock.engine.operators.changelog.over import FrameUnit
from penstock.engine.operators.changelog.ranks import Nulls, Order
from penstock.engine.operators.changelog.updating_over import UpdatingOverSpec
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import Change, ChangelogJob, Row, Table, changelogs
from tests.engine.operators.changelog.oracle import query

SCHEMA = pa.schema({"k": pa.string(), "p": pa.int64(), "t": pa.string()})
ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from(["a", "b", None]), st.sampled_from([None, 1, 2, 3, 9]), st.sampled_from([None, "x", "y"])
)
INT = pa.int64()
CALLS = {
    OverCall("count", "n", INT): "count(*) OVER {w}",
    OverCall("sum", "s", INT, "p"): "(sum(p) OVER {w})::BIGINT",
    OverCall("avg", "a", pa.float64(), "p"): "avg(p) OVER {w}",
    OverCall("min", "lo", pa.string(), "t"): "min(t) OVER {w}",
    OverCall("max", "hi", INT, "p"): "max(p) OVER {w}",
}
NUMBERS = {OverCall("row_number", "r", INT): "row_number() OVER {w}"}
LAG = {OverCall("lag", "b", INT, "p", 1): "lag(p, 1) OVER (PARTITION BY k ORDER BY p NULLS FIRST, t NULLS FIRST)"}
ALL = (Order("p"), Order("t"))
BY_ALL = "ORDER BY p NULLS FIRST, t NULLS FIRST"
DOWN = (Order("p", descending=True, nulls=Nulls.LAST),)
BY_DOWN = "ORDER BY p DESC NULLS LAST"
ROWS_UNIT, RANGE = FrameUnit.ROWS, FrameUnit.RANGE
FRAMES = [
    (ALL, ROWS_UNIT, None, f"{BY_ALL} ROWS UNBOUNDED PRECEDING", CALLS | NUMBERS),
    (ALL, ROWS_UNIT, 1, f"{BY_ALL} ROWS 1 PRECEDING", CALLS | LAG),
    (DOWN, RANGE, None, f"{BY_DOWN} RANGE UNBOUNDED PRECEDING", CALLS),
    (DOWN, RANGE, 1, f"{BY_DOWN} RANGE 1 PRECEDING", CALLS),
    (DOWN, RANGE, 0, f"{BY_DOWN} RANGE 0 PRECEDING", CALLS),
    ((), RANGE, None, "", CALLS),
]


@pytest.mark.parametrize("frame", FRAMES, ids=[frame[3] for frame in FRAMES])
@settings(max_examples=drawn(8))
@given(data=st.data(), takes=st.sampled_from([ChangelogMode.APPEND, ChangelogMode.RETRACT]))
def test_results_equal_those_of_duckdb_after_every_batch(
    frame: tuple[tuple[Order, ...], FrameUnit, int | None, str, dict[OverCall, str]],
    data: st.DataObject,
    takes: ChangelogMode,
) -> None:
    order, unit, preceding, over, calls = frame
    batches: list[list[Change]] = data.draw(changelogs(ROWS, deletes=takes is ChangelogMode.RETRACT))
    restart_at, backend = data.draw(st.integers(0, 5)), data.draw(st.sampled_from(["heap", "heap", "rocksdb"]))
    spec = UpdatingOverSpec(SCHEMA, ("k",), order, unit, preceding, tuple(calls), takes)
    job, table = ChangelogJob(spec, [SCHEMA], 2, backend), Table()
    columns = ", ".join(text.format(w=f"(PARTITION BY k {over})") for text in calls.values())
    for number, batch in enumerate(batches):
        if number == restart_at:
            job.restart(3)
        job.send(batch)
        table.apply(batch)
        wanted = query(f"SELECT k, p, t, {columns} FROM rows", {"rows": (SCHEMA, table.rows)})
        assert job.materialised.rows == wanted
    job.close()


def test_what_has_not_changed_is_not_said() -> None:
    spec = UpdatingOverSpec(SCHEMA, ("k",), (Order("p"),), ROWS_UNIT, None, (OverCall("sum", "s", INT, "p"),))
    job = ChangelogJob(spec, [SCHEMA])
    job.send([("+I", ("a", 1, "x")), ("+I", ("a", 3, "x"))])
    assert job.send([("+I", ("a", 2, "y"))]) == [
        ("-U", ("a", 3, "x", 4)),
        ("+U", ("a", 3, "x", 6)),
        ("+I", ("a", 2, "y", 3)),
    ]
    job.close()


def test_a_range_of_time_is_counted_in_milliseconds() -> None:
    schema = pa.schema({"at": pa.timestamp("us"), "p": INT})
    spec = UpdatingOverSpec(schema, (), (Order("at"),), RANGE, 1_000, (OverCall("sum", "s", INT, "p"),))
    job = ChangelogJob(spec, [schema])
    times = [datetime(2024, 1, 1, 0, 0, second) for second in (5, 6, 8)]
    job.send([("+I", (at, 1)) for at in times])
    assert [row[2] for row in job.materialised.rows] == [1, 2, 1]
    job.close()


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("descending", [False, True])
def test_a_range_of_time_ends_within_a_millisecond(unit: str, descending: bool) -> None:
    schema = pa.schema({"at": pa.timestamp(unit)})
    order = Order("at", descending, Nulls.LAST)
    over = ChangelogJob(UpdatingOverSpec(schema, (), (order,), RANGE, 1_000, (OverCall("count", "n", INT),)), [schema])
    times = [
        datetime(1969, 12, 31, 23, 59, 58),
        *(datetime(2024, 1, 1, 0, 0, *at) for at in ((0, 300), (1, 200), (1, 400))),
    ]
    over.send([("+I", (at,)) for at in (*times, None)])
    counts = {row[0]: row[1] for row in over.materialised.rows}
    shown = [counts[at] for at in with_numbers(pa.array(times, pa.timestamp(unit))).to_pylist()]
    assert shown == ([1, 2, 2, 1] if descending else [1, 1, 2, 2])
    assert counts[None] == 1


def test_a_range_of_the_largest_numbers_ends_where_they_do() -> None:
    schema = pa.schema({"p": INT})
    over = ChangelogJob(UpdatingOverSpec(schema, (), (Order("p"),), RANGE, 5, (OverCall("count", "n", INT),)), [schema])
    rows = [(-(2**63), 1), (-(2**63) + 1, 2), (0, 1), (2**63 - 1, 1), (None, 1)]
    over.send([("+I", (value,)) for value, _ in rows])
    assert sorted(over.materialised.rows, key=str) == sorted(rows, key=str)


def test_a_range_needs_something_to_count_by() -> None:
    with pytest.raises(GraphError, match="one column of whole numbers or times"):
        UpdatingOverSpec(SCHEMA, (), (Order("t"),), RANGE, 1, ())
