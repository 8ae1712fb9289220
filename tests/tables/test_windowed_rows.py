"""Groups, joins and first rows within windows: rows come once, when their window is complete, and its state goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamEnvironment, checkpoints, udaf
from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch, Watermark
from penstock.engine.errors import SqlUnsupportedError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.complete_windows import CompleteWindowsSpec
from penstock.engine.operators.changelog.group_aggregate import GroupAggregateSpec
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from tests.engine.helpers import RecordingCollector
from tests.tables.programs import RECORDED, WAITING, Expected, Given

_BIDS = [
    (1, "pen", "ann", 4),
    (3, "cup", "bob", 2),
    (5, "hat", "ann", 4),
    (12, "pen", "bob", 7),
    (14, "cup", None, None),
]
_NAMES = [(2, "ann", "Ann"), (4, "bob", "Bob"), (13, "bob", "Robert"), (25, "eve", "Eve")]
_TIMED = "{} AS TO_TIMESTAMP_LTZ(seconds, 0), WATERMARK FOR {} AS {}"


def _half(rows: list[Any], kind: str = "+I") -> list[dict[str, Any]]:
    return [{"kind": kind, "values": list(row)} for row in rows]


def _env(
    first: int, halves: tuple[str, ...], held: bool, folder: Path | None = None
) -> tuple[StreamEnvironment, Given]:
    """The tables, whose first rows are those of the first half."""
    steps = {
        "bids": {"dataBeforeRestore": _half(_BIDS[:first]), "dataAfterRestore": _half(_BIDS[first:])},
        "names": {"dataBeforeRestore": _half(_NAMES[:first]), "dataAfterRestore": _half(_NAMES[first:])},
    }
    kept = None if folder is None else checkpoints("5m", str(folder))
    env = StreamEnvironment(runtime="local", parallelism=2, checkpoints=kept, max_batch_rows=1, clock=ManualClock(0))
    given = Given(steps, halves, held)
    env.tables.register_connector(given)
    timed = _TIMED.format("at", "at", "at")
    env.sql(
        f"CREATE TABLE bids (seconds INT, item STRING, who STRING, price INT, {timed}) WITH ('connector' = 'given')"
    )
    env.sql(f"CREATE TABLE names (seconds INT, who STRING, name STRING, {timed}) WITH ('connector' = 'given')")
    for table in ("bids", "names"):
        env.sql(
            f"CREATE VIEW w_{table} AS SELECT * FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(at), INTERVAL '10' SECOND))"
        )
    return env, given


_SAME = "l.window_start = r.window_start AND l.window_end = r.window_end AND l.who = r.who"
_ALL = ("dataBeforeRestore", "dataAfterRestore")
QUERIES: tuple[tuple[str, list[tuple[Any, ...]]], ...] = (
    (
        "SELECT FIRST_VALUE(item) AS a, LAST_VALUE(item) AS b, LISTAGG(item, '-') AS c, SUM(DISTINCT price) AS d, "
        "lowest(price) AS e FROM w_bids GROUP BY window_start, window_end",
        [("pen", "hat", "pen-cup-hat", 6, 2.0), ("pen", "cup", "pen-cup", 7, 7.0)],
    ),
    (
        "SELECT who, VAR_POP(price) AS v FROM w_bids GROUP BY window_start, window_end, GROUPING SETS ((who), ())",
        [("ann", 0), ("bob", 0), (None, 0), ("bob", 0), (None, None), (None, 0)],
    ),
    (
        f"SELECT l.item, r.name FROM w_bids AS l FULL JOIN w_names AS r ON {_SAME}",
        [("pen", "Ann"), ("hat", "Ann"), ("cup", "Bob"), ("pen", "Robert"), ("cup", None), (None, "Eve")],
    ),
    (
        "SELECT item FROM w_bids AS l WHERE who IN (SELECT who FROM w_names AS r WHERE l.window_start = r.window_start "
        "AND l.window_end = r.window_end AND r.name <> 'Ann')",
        [("cup",), ("pen",)],
    ),
    (
        f"SELECT item FROM w_bids AS l WHERE NOT EXISTS (SELECT 1 FROM w_names AS r WHERE {_SAME})",
        [("cup",)],
    ),
    (
        "SELECT item, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC, "
        "item) AS n FROM w_bids) WHERE n <= 2",
        [("hat", 1), ("pen", 2), ("pen", 1), ("cup", 2)],
    ),
    (
        "SELECT s, n FROM (SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY s DESC) AS n "
        "FROM (SELECT window_start, window_end, who, SUM(price) AS s FROM w_bids GROUP BY window_start, window_end, "
        "who)) WHERE n = 1",
        [(8, 1), (7, 1)],
    ),
)


@pytest.mark.parametrize(("query", "wanted"), QUERIES)
def test_results_come_once(query: str, wanted: list[tuple[Any, ...]]) -> None:
    env, _ = _env(2, _ALL, held=False)
    env.tables.create_temporary_function("lowest", udaf(_least, returns="DOUBLE", takes=["DOUBLE"]))
    table = env.sql(query)
    assert table is not None
    shown = table.explain()
    assert "changelogMode=[I]" in shown.splitlines()[0]
    assert "the rows of windows that the watermark has not passed" in shown
    rows = [tuple(row.values()) for row in table.to_stream().collect()]
    assert sorted(map(repr, rows)) == sorted(map(repr, wanted))


@pytest.mark.parametrize("kind", ["RIGHT", "FULL"])
def test_rows_without_bounds_are_one_group_of_all_windows(kind: str) -> None:
    env, _ = _env(2, _ALL, held=False)
    other = "l.window_start = r.window_start AND l.window_end = r.window_end AND l.item = r.who"
    table = env.sql(
        f"SELECT l.window_start AS s, COUNT(r.who) AS n FROM w_bids AS l {kind} JOIN w_names AS r ON {other} "
        "GROUP BY l.window_start, l.window_end"
    )
    assert table is not None
    held: dict[Any, int] = {}
    for row in table.to_changelog().collect():
        if row["op"] in ("+I", "+U"):
            held[row["s"]] = row["n"]
    assert held[None] == len(_NAMES)


@pytest.mark.parametrize("on", ["l.who = r.who", "l.window_end = r.window_end"])
def test_behind_a_join_by_less_than_windows_nothing_goes_by_their_time(on: str) -> None:
    env, _ = _env(2, _ALL, held=False)
    env.sql(
        "CREATE VIEW j AS SELECT l.window_time AS t, l.window_end AS e, r.window_end AS f, item, name "
        f"FROM w_bids AS l JOIN w_names AS r ON {on}"
    )
    windows = "TABLE(TUMBLE(TABLE j, DESCRIPTOR(t), INTERVAL '20' SECOND))"
    with pytest.raises(SqlUnsupportedError, match="column 't' is no time attribute behind a join of rows of any times"):
        env.sql(f"SELECT COUNT(*) AS n FROM {windows} GROUP BY window_start, window_end").explain()
    # It is a plain one.
    found = env.sql("SELECT *, COUNT(*) OVER (ORDER BY t) AS n FROM j")
    assert found is not None
    counts = [row["n"] for row in found.to_changelog().collect() if row["op"] in ("+I", "+U")]
    env, _ = _env(2, _ALL, held=False)
    pairs = env.sql(f"SELECT item, name FROM w_bids AS l JOIN w_names AS r ON {on}")
    assert pairs is not None
    assert max(counts) == len(list(pairs.collect()))


def _least(values: list[float | None]) -> float:
    return min(value for value in values if value is not None)


def _written(env: StreamEnvironment, query: str) -> list[tuple[str, tuple[Any, ...]]]:
    """Adds a sink; the rows that it gets."""
    env.tables.register_connector(Expected())
    env.sql("CREATE TABLE made (item STRING, name STRING) WITH ('connector' = 'expected')")
    RECORDED["made"] = []
    env.sql(f"INSERT INTO made {query}")
    return RECORDED["made"]


def test_rows_that_wait_are_in_savepoints(tmp_path: Path) -> None:
    query, wanted = QUERIES[2]
    first, given = _env(2, _ALL[:1], held=True, folder=tmp_path / "checkpoints")
    before = _written(first, query)
    job = first.submit()
    while any(WAITING[id(table)] < 3 for table in given.tables):
        job.pump(0.01)
    savepoint = job.stop(str(tmp_path / "savepoint"))
    assert before == []
    second, _ = _env(2, _ALL, held=False)
    after = _written(second, query)
    second.submit(savepoint=savepoint).wait()
    assert sorted(map(repr, after)) == sorted(repr(("+I", row)) for row in wanted)


def test_late_rows_are_dropped_and_the_state_goes_with_its_window() -> None:
    rows = pa.schema({"end": pa.int64(), "v": pa.int64()})
    total = GroupAggregateSpec(rows, ("end",), (AggregateCall("sum", "total", pa.int64(), "v"),))
    operator = CompleteWindowsSpec(total, (rows,), total.schema).create()
    operator.open(OperatorContext("windows", 0, 1, ManualClock(0)))
    out = RecordingCollector()

    def come(end: int, *values: int) -> None:
        data = pa.record_batch([pa.array([end] * len(values)), pa.array(values, pa.int64())], schema=rows)
        operator.process_batch(Batch(data, pa.array([end - 1] * len(values))), 0, out)

    come(10, 1, 2)
    come(20, 5)
    operator.on_watermark(Watermark(8), out)
    assert out.batches == []
    operator.on_watermark(Watermark(9), out)
    assert [batch.data.to_pylist() for batch in out.batches] == [[{"end": 10, "total": 3}]]
    come(10, 7)
    operator.on_watermark(Watermark(100), out)
    assert [row["total"] for batch in out.batches for row in batch.data.to_pylist()] == [3, 5]
    captured = operator.capture(CaptureRequest(1, CaptureScope.COMPLETE))
    assert captured.tables == {}
