"""Compiled functions compare timestamps, and take the seconds between, as plain Python does."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.compiled.folding import first_accumulator, translate_add
from penstock.engine.compiled.folding_program import FoldProgram
from penstock.engine.compiled.program import Program
from penstock.engine.compiled.translation import translate
from penstock.engine.errors import GraphError
from penstock.engine.operators.functions.compiled_reduce import reduce_spec
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator
from penstock.engine.operators.functions.keyed_reduce import KeyedReduceSpec
from penstock.engine.rows import batch_rows
from tests.engine.compiled.keyed_programs import outcome

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


def latest(one: Any, other: Any) -> Any:
    return one if one["at"] >= other["at"] else other


def span(one: Any, other: Any) -> Any:
    """Keeps the first time; those between are of any order."""
    first = one["at"]
    if other["at"] < first:
        first = other["at"]
    one["until"] = other["until"]
    since = (other["at"] - one["at"]).total_seconds() if one["until"] != other["at"] else -1.0
    return {**one, "at": first, "seconds": one["seconds"] + since}


class Bounds(ps.AggregateFunction):
    """The latest time of rows, and how often it was before that of another column."""

    def create_accumulator(self) -> Any:
        return {"at": dt.datetime(1970, 1, 1), "before": 0}

    def add(self, row: Any, accumulator: Any) -> Any:
        if row["at"] > accumulator["at"]:
            accumulator["at"] = row["at"]
        if accumulator["at"] < row["until"]:
            accumulator["before"] += 1
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, one: Any, other: Any) -> Any:
        raise NotImplementedError


TIMES = st.lists(st.tuples(st.sampled_from("ab"), MICROSECONDS, MICROSECONDS), min_size=2, max_size=8)


def rows_of(values: list[tuple[str, int, int]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a key and two times."""
    columns: list[Any] = [[key for key, _, _ in values]]
    for place, kind in ((1, schema.field("at").type), (2, schema.field("until").type)):
        micros = pa.array([row[place] for row in values], pa.int64())
        columns.append(micros.cast(pa.timestamp("us", kind.tz)).cast(kind, safe=False))
    return pa.RecordBatch.from_arrays([*map(pa.array, columns), pa.array([0.0] * len(values))], schema=schema)


@pytest.mark.parametrize("function", [latest, span])
@given(TIMES, UNITS, st.sampled_from([None, "UTC"]))
def test_reduce_compares_the_times_of_both_rows(function: Any, values: Any, unit: str, zone: str | None) -> None:
    kinds = {"k": pa.string(), "at": pa.timestamp(unit, zone), "until": pa.timestamp("us", zone), "seconds": "float64"}
    schema = pa.schema(kinds)
    rows = batch_rows(rows_of(values, schema))
    # The second half is reduced behind a restore.
    plain = outcome([KeyedReduceSpec(function, ("k",), schema)] * 2, rows, schema)
    spec = reduce_spec(ps.compiled(function), ("k",), schema, schema, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyedProcessOperator, "process_batch", lambda *_: pytest.fail("rows were made"))
        assert outcome([spec] * 2, rows, schema) == plain


def test_a_time_that_is_missing_in_reduce_is_the_error_of_plain_python() -> None:
    schema = pa.schema({"k": pa.string(), "at": pa.timestamp("us"), "until": pa.timestamp("us"), "seconds": "float64"})
    rows = [{"k": "a", "at": at, "until": None, "seconds": 0.0} for at in (dt.datetime(2026, 1, 1), None)]
    plain = outcome([KeyedReduceSpec(latest, ("k",), schema)], rows, schema)
    assert plain == "[] UserCodeError"
    assert outcome([reduce_spec(ps.compiled(latest), ("k",), schema, schema, False)], rows, schema) == plain


@given(TIMES, UNITS)
def test_aggregates_compare_times(values: Any, unit: str) -> None:
    schema = pa.schema({"k": "string", "at": pa.timestamp("us"), "until": pa.timestamp(unit), "seconds": "float64"})
    batch = rows_of(values, schema)
    kind = pa.struct([("at", pa.timestamp("us")), ("before", pa.int64())])
    held = first_accumulator(function := Bounds(), kind)
    folded = FoldProgram(translate_add(function, schema, kind), schema).run(batch, np.zeros(len(batch), np.int64), held)
    accumulator = function.create_accumulator()
    for row in batch_rows(batch):
        accumulator = function.add(row, accumulator)
    assert folded is not None
    assert folded.accumulators.to_pylist() == [accumulator]


def test_a_first_accumulator_of_another_type_is_refused() -> None:
    kind = pa.struct([("at", pa.timestamp("us", "UTC")), ("before", pa.int64())])
    with pytest.raises(GraphError, match=r"create_accumulator\(\) gave no struct.* is of another type"):
        first_accumulator(Bounds(), kind)
