"""OVER windows equal DuckDB's over the rows that the watermark has passed, and come at once and in order."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import GraphError
from penstock.engine.operators.changelog.frames import OverCall
from penstock.engine.operators.changelog.over import FrameUnit, OverSpec, OverTime
from tests.draws import drawn
from tests.engine.operators.changelog.jobs import ChangelogJob, Row
from tests.engine.operators.changelog.oracle import query

SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64(), "x": pa.float64(), "t": pa.string(), "d": pa.decimal128(5, 2)})
ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from([None, -1, 2, 5]),
    st.sampled_from([None, 0.5, -4.0]),
    st.sampled_from([None, "", "y", "z"]),
    st.sampled_from([None, Decimal("0.25"), Decimal("-1.50")]),
)
INT, TEXT, FLOAT = pa.int64(), pa.string(), pa.float64()
AGGREGATES = {
    OverCall("count", "n", INT): "count(*) OVER {w}",
    OverCall("count", "n_v", INT, "v"): "count(v) OVER {w}",
    OverCall("sum", "sum_v", INT, "v"): "(sum(v) OVER {w})::BIGINT",
    OverCall("sum", "sum_d", pa.decimal128(38, 2), "d"): "sum(d) OVER {w}",
    OverCall("avg", "avg_x", FLOAT, "x"): "avg(x) OVER {w}",
    OverCall("min", "min_v", INT, "v"): "min(v) OVER {w}",
    OverCall("max", "max_t", TEXT, "t"): "max(t) OVER {w}",
    OverCall("min", "min_t", TEXT, "t"): "min(t) OVER {w}",
    OverCall("stddev_pop", "dev", FLOAT, "v"): "round(stddev_pop(v) OVER {w}, 9)",
    OverCall("first_value", "first_t", TEXT, "t"): "first_value(t IGNORE NULLS) OVER {w}",
    OverCall("last_value", "last_v", INT, "v"): "last_value(v IGNORE NULLS) OVER {w}",
}
NUMBERS = {
    OverCall("row_number", "row", INT): "row_number() OVER {w}",
    OverCall("rank", "rank", INT): "rank() OVER (PARTITION BY k ORDER BY ts)",
    OverCall("dense_rank", "dense", INT): "dense_rank() OVER (PARTITION BY k ORDER BY ts)",
}
LAG = {OverCall("lag", "before", TEXT, "t", 2): "lag(t, 2) OVER (PARTITION BY k ORDER BY ts, arrival)"}
FRAMES: list[tuple[FrameUnit, int | None, str, dict[OverCall, str]]] = [
    (FrameUnit.ROWS, None, "ORDER BY ts, arrival ROWS UNBOUNDED PRECEDING", AGGREGATES | NUMBERS),
    (FrameUnit.ROWS, 2, "ORDER BY ts, arrival ROWS 2 PRECEDING", AGGREGATES | LAG),
    (FrameUnit.ROWS, 0, "ORDER BY ts, arrival ROWS 0 PRECEDING", AGGREGATES),
    (FrameUnit.RANGE, None, "ORDER BY ts RANGE UNBOUNDED PRECEDING", AGGREGATES),
    (FrameUnit.RANGE, 4, "ORDER BY ts RANGE 4 PRECEDING", AGGREGATES),
    (FrameUnit.RANGE, 0, "ORDER BY ts RANGE 0 PRECEDING", AGGREGATES),
]


@st.composite
def scripts(draw: st.DrawFn) -> list[Any]:
    """Batches of rows with timestamps above the watermark, watermarks (a number), and restarts (None)."""
    script: list[Any] = []
    watermark = 0
    for _ in range(draw(st.integers(1, 7))):
        step = draw(st.sampled_from(["rows", "rows", "watermark", "restart"]))
        if step == "rows":
            rows = draw(st.lists(st.tuples(ROWS, st.integers(watermark + 1, watermark + 8)), min_size=1, max_size=6))
            script.append(rows)
        elif step == "watermark":
            watermark += draw(st.integers(1, 6))
            script.append(watermark)
        else:
            script.append(None)
    return [*script, MAX_TIMESTAMP]


def job(unit: FrameUnit, preceding: int | None, calls: Any, backend: str = "heap") -> ChangelogJob:
    return ChangelogJob(OverSpec(SCHEMA, ("k",), unit, preceding, tuple(calls)), [SCHEMA], 2, backend)


def check(frame: tuple[FrameUnit, int | None, str, dict[OverCall, str]], script: list[Any], backend: str) -> None:
    unit, preceding, over, calls = frame
    tested, rows, watermark = job(unit, preceding, calls, backend), list[Row](), 0
    window = f"(PARTITION BY k {over})"
    columns = ", ".join(text.format(w=window) for text in calls.values())
    schema = pa.schema([*SCHEMA, ("ts", INT)])
    for step in script:
        if step is None:
            tested.restart(3)
        elif isinstance(step, int):
            watermark = step
            tested.advance(step)
        else:
            tested.send([("+I", row) for row, _ in step], times=[at for _, at in step])
            rows += [(*row, at) for row, at in step]
        passed = [row for row in rows if row[-1] <= watermark]
        wanted = query(f"SELECT k, v, x, t, d, {columns} FROM rows", {"rows": (schema, passed)})
        assert rounded([row for _, row in tested.log]) == rounded(wanted)
    assert sorted(tested.timestamps) == sorted(row[-1] for row in rows)  # type: ignore[type-var]
    tested.close()


def rounded(rows: list[Row]) -> list[Row]:
    return sorted((tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in rows), key=repr)


@pytest.mark.parametrize("frame", FRAMES, ids=[over for _, _, over, _ in FRAMES])
@settings(max_examples=drawn(8))
@given(script=scripts())
def test_results_equal_those_of_duckdb(
    frame: tuple[FrameUnit, int | None, str, dict[OverCall, str]], script: list[Any]
) -> None:
    check(frame, script, "heap")


@settings(max_examples=4)
@given(scripts(), st.sampled_from(FRAMES[:2]))
def test_what_is_kept_lies_in_rocksdb_as_well(
    script: list[Any], frame: tuple[FrameUnit, int | None, str, dict[OverCall, str]]
) -> None:
    check(frame, script, "rocksdb")


def test_late_rows_are_counted_and_dropped() -> None:
    tested = job(FrameUnit.ROWS, None, [OverCall("count", "n", INT)])
    row = ("a", 1, None, None, None)
    tested.advance(10)
    tested.restart(1)
    tested.send([("+I", row), ("+I", row)], times=[10, 11])
    assert tested.advance(20) == [("+I", (*row, 1))]
    assert tested.operators[0]._context.metrics.late_rows == 1  # type: ignore[attr-defined]


def test_a_range_of_time_is_forgotten_once_it_is_over_also_for_keys_that_stay_away() -> None:
    tested = job(FrameUnit.RANGE, 5, [OverCall("count", "n", INT)])
    tested.send([("+I", (key, 1, None, None, None)) for key in "abcd"], times=[1, 2, 3, 4])
    tested.advance(4)
    operators: list[Any] = tested.operators
    assert sum(len(one._held.rows) for one in operators) == 4
    tested.restart(1)
    tested.advance(8)
    operators = tested.operators
    assert sum(len(one._held.rows) for one in operators) == 1


def test_functions_go_with_their_frames() -> None:
    with pytest.raises(GraphError, match="row_number takes a frame of ROWS without bound"):
        job(FrameUnit.ROWS, 3, [OverCall("row_number", "n", INT)])
    with pytest.raises(GraphError, match="lag takes a frame of 2 ROWS or more, with a bound"):
        job(FrameUnit.ROWS, 1, [OverCall("lag", "n", TEXT, "t", 2)])
    with pytest.raises(GraphError, match=r"there is no function 'summ' \(did you mean 'sum'"):
        OverCall("summ", "s", INT, "v")


def test_sums_of_decimals_are_exact_to_the_last_of_their_digits() -> None:
    kind = pa.decimal128(38, 2)
    large, small = Decimal("123456789012345678901234567890123456.78"), Decimal("0.01")
    calls = (OverCall("sum", "s", kind, "d"),)
    schema = pa.schema({"k": pa.string(), "d": kind})
    over = ChangelogJob(OverSpec(schema, ("k",), FrameUnit.ROWS, None, calls), [schema])
    over.send([("+I", ("a", large)), ("+I", ("a", small))], times=[1, 2])
    over.advance(MAX_TIMESTAMP)
    assert [row[2] for _, row in over.log] == [large, Decimal("123456789012345678901234567890123456.79")]
    over.close()


def test_a_range_of_processing_time_goes_back_to_rows_of_its_first_millisecond() -> None:
    spec = OverSpec(SCHEMA, ("k",), FrameUnit.RANGE, 1000, (OverCall("count", "n", INT),), time=OverTime.PROCESSING)
    over, row = ChangelogJob(spec, [SCHEMA]), ("a", 1, None, None, None)
    assert over.send([("+I", row)]) == [("+I", (*row, 1))]
    over.clock.advance(1)
    assert over.send([("+I", row)]) == [("+I", (*row, 2))]
    over.clock.advance(0.001)
    assert over.send([("+I", row)]) == [("+I", (*row, 2))]
    over.close()


def test_sums_of_decimals_beyond_their_type_are_null() -> None:
    kind, large = pa.decimal128(38, 2), Decimal("9" * 36 + ".99")
    schema = pa.schema({"k": pa.string(), "d": kind})
    spec = OverSpec(schema, ("k",), FrameUnit.ROWS, None, (OverCall("sum", "s", kind, "d"),))
    over = ChangelogJob(spec, [schema])
    over.send([("+I", ("a", large)), ("+I", ("a", large)), ("+I", ("a", large.copy_negate()))], times=[1, 2, 3])
    assert [row[2] for _, row in over.advance(3)] == [large, None, large]
    over.close()
