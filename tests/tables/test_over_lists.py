"""OVER by time with functions that need the values of their frame one by one: DISTINCT, lists, those in Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamEnvironment, WatermarkStrategy, udaf
from penstock.tables.catalog.catalog import StreamTable
from penstock.tables.environment import stream_columns

_ROWS = {
    "at": pa.array([1000, 2000, 2000, 4000, 9000], pa.timestamp("ms")),
    "k": ["a", "b", "a", "a", None],
    "v": [3, 5, 3, None, 7],
}


def _results(call: str, frame: str, batch_rows: int) -> list[Any]:
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=batch_rows)
    env.tables.create_temporary_function("spread", udaf(_spread, returns="BIGINT", takes=["BIGINT"]))
    stream = env.from_collection(pa.table(_ROWS))
    stream = stream.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    table = env.sql(f"SELECT {call} OVER (ORDER BY at {frame}) AS r FROM t")
    assert table is not None
    return [row["r"] for row in table.to_stream().collect()]


def _spread(values: list[int | None]) -> int:
    known = [value for value in values if value is not None]
    return max(known) - min(known)


_LAST_TWO = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
_SECONDS = "RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW"


@pytest.mark.parametrize("batch_rows", [1, 1024])
@pytest.mark.parametrize(
    ("call", "frame", "wanted"),
    [
        ("COUNT(DISTINCT k)", "", [1, 2, 2, 2, 2]),
        ("SUM(DISTINCT v)", _LAST_TWO, [3, 8, 8, 3, 7]),
        ("AVG(DISTINCT v)", _SECONDS, [3, 4, 4, 4, 7]),
        ("LISTAGG(k, '-')", _LAST_TWO, ["a", "a-b", "b-a", "a-a", "a"]),
        ("ARRAY_AGG(v)", _SECONDS, [[3], [3, 5, 3], [3, 5, 3], [5, 3, None], [7]]),
        ("COLLECT(k)", "", [{"a": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 1}, {"a": 3, "b": 1}]),
        ("spread(v)", "", [0, 2, 2, 2, 4]),
        ("COUNT(DISTINCT v) FILTER (WHERE k = 'a')", "", [1, 1, 1, 1, 1]),
        ("ARRAY_AGG(v) FILTER (WHERE k = 'a')", _SECONDS, [[3], [3, 3], [3, 3], [3, None], None]),
        ("ARRAY_AGG(v IGNORE NULLS)", _LAST_TWO, [[3], [3, 5], [5, 3], [3], [7]]),
        ("LAG(v, 1, -1)", "", [-1, 3, 5, 3, -1]),
    ],
)
def test_values_of_a_frame(call: str, frame: str, wanted: list[Any], batch_rows: int) -> None:
    found = _results(call, frame, batch_rows)
    assert [dict(one) if call.startswith("COLLECT") else one for one in found] == wanted
