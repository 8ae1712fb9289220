"""Compiled functions compare timestamps, and take the seconds between, as plain Python does."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.compiled.program import Program
from penstock.engine.compiled.translation import translate
from penstock.engine.errors import GraphError
from penstock.engine.rows import batch_rows

MICROSECONDS = st.integers(-(2**50), 2**50) | st.integers(-2, 2)
UNITS = st.sampled_from(["s", "ms", "us"])


def compares(row: dict[str, Any]) -> dict[str, Any]:
    at = row["at"]
    if row["until"] is None:
        late = False
        seconds = -1.0
    else:
        late = at > row["until"]
        seconds = (row["until"] - at).total_seconds()
    return {"at": at, "late": late, "seconds": seconds, "is_same": at == row["at"] <= row["other"]}


@given(
    st.lists(st.tuples(MICROSECONDS, MICROSECONDS | st.none(), MICROSECONDS), min_size=1, max_size=5),
    UNITS,
    UNITS,
    st.sampled_from([None, "UTC"]),
)
def test_times_of_any_units_are_those_of_plain_python(rows: list[Any], unit: str, other: str, zone: str | None) -> None:
    kinds = [pa.timestamp(unit, zone), pa.timestamp(other, zone), pa.timestamp("us", zone)]
    columns = [
        pa.array(values, pa.int64()).cast(pa.timestamp("us", zone)).cast(kind, safe=False)
        for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=["at", "until", "other"])
    found = Program(translate(compares, batch.schema), batch.schema).run(batch)
    assert found is not None
    table = pa.RecordBatch.from_arrays(list(found.values()), names=list(found))
    assert batch_rows(table) == [compares(row) for row in batch_rows(batch)]


def test_a_time_that_is_missing_is_left_to_plain_python() -> None:
    schema = pa.schema([(name, pa.timestamp("ms")) for name in ("at", "until", "other")])
    batch = pa.RecordBatch.from_pylist([{"at": dt.datetime(2026, 1, 1)}], schema)
    assert Program(translate(compares, schema), schema).run(batch) is None


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_of_other_sorts_are_refused(zone: str | None) -> None:
    schema = pa.schema([("at", pa.timestamp("ms", zone)), ("until", pa.timestamp("ms", "UTC"))])
    with pytest.raises(GraphError, match="'at' and the value of column 'until' are not compared"):
        translate(compares, schema)
