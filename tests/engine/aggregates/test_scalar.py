"""Named aggregates row by row give what they give on whole batches: values, types and errors."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as agg
from penstock.engine.aggregates.functions import collect_list, count, count_distinct, first, last, mean, stddev
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.scalar import ScalarAggregation
from penstock.engine.aggregates.scalar_forms import Accumulators
from penstock.engine.errors import RecordError
from tests.draws import drawn

_NUMBERS = {
    "n": count("x"),
    "rows": count(),
    "total": agg.sum("x"),
    "mean": mean("x"),
    "min": agg.min("x"),
    "max": agg.max("x"),
    "spread": stddev("x"),
    "population": stddev("x", ddof=0),
}
_ANY = {
    "first": first("x"),
    "last": last("x"),
    "distinct": count_distinct("x"),
    "all": collect_list("x"),
    "least": agg.min("x"),
    "n": count("x"),
}
_KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**50), 2**50)),
    "uint64": (pa.uint64(), st.integers(0, 2**50)),
    "float64": (pa.float64(), st.floats(-1e6, 1e6) | st.sampled_from([math.nan, -0.0, 0.0])),
    "float32": (pa.float32(), st.floats(-1e3, 1e3, width=32)),
    "decimal": (pa.decimal128(38, 4), st.decimals(-(10**20), 10**20, places=4)),
    "null": (pa.null(), st.none()),
}
_OTHER_KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **_KINDS,
    "string": (pa.string(), st.text("aä𝄞z", max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "bool": (pa.bool_(), st.booleans()),
    "nanoseconds": (pa.timestamp("ns", "Europe/Paris"), st.integers(-(2**60), 2**60)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    "duration": (pa.duration("ms"), st.integers(-(2**40), 2**40)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), st.text("ab", max_size=2)),
}
_Rows = list[tuple[Any, int]]


def batch_of(kind: pa.DataType, rows: _Rows) -> tuple[pa.RecordBatch, pa.Int64Array]:
    values = [value for value, _ in rows]
    column = (
        pa.array(values, pa.string()).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(values, kind)
    )
    return pa.record_batch({"x": column}), pa.array([at for _, at in rows], pa.int64())


def on_batches(aggregation: GroupedAggregation, parts: list[tuple[pa.RecordBatch, pa.Int64Array]]) -> pa.Table:
    partials = [aggregation.combine(aggregation.lift(*part)) for part in parts]
    combined = aggregation.combine(pa.concat_tables(partials, promote_options="default"))
    return aggregation.lower(combined)


def row_by_row(scalar: ScalarAggregation, parts: list[tuple[pa.RecordBatch, pa.Int64Array]]) -> Accumulators:
    accumulators = scalar.empty()
    for part in parts:
        for lifted in scalar.lift(*part):
            scalar.combine(accumulators, lifted)
    return accumulators


def merged(scalar: ScalarAggregation, parts: list[tuple[pa.RecordBatch, pa.Int64Array]]) -> Accumulators:
    accumulators = scalar.empty()
    for part in parts:
        scalar.combine(accumulators, row_by_row(scalar, [part]))
    return accumulators


def saved(scalar: ScalarAggregation, accumulators: Accumulators) -> Accumulators:
    """What comes back from Arrow state."""
    (back,) = pa.array([accumulators], scalar.state_type).to_pylist()
    return dict(back)


def assert_alike(got: pa.Table, expected: pa.Table) -> None:
    assert got.schema.equals(expected.schema)
    for name in expected.column_names:
        (one,), (other,) = got.column(name).to_pylist(), expected.column(name).to_pylist()
        if isinstance(other, float):
            assert one == pytest.approx(other, rel=1e-9, abs=1e-6, nan_ok=True), name
        elif isinstance(other, list):
            assert [repr(value) for value in one] == [repr(value) for value in other], name
        else:
            assert one == other, name


def check(kind: pa.DataType, aggregates: dict[str, Any], parts: list[_Rows]) -> None:
    aggregation = GroupedAggregation([], aggregates)
    batches = [batch_of(kind, rows) for rows in parts]
    scalar = ScalarAggregation(aggregation, batches[0][0].schema, "here")
    expected = on_batches(aggregation, batches)
    for accumulators in (row_by_row(scalar, batches), merged(scalar, batches)):
        assert_alike(scalar.table([accumulators]), expected)
        assert_alike(scalar.table([saved(scalar, accumulators)]), expected)


def parts_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[_Rows]]:
    rows = st.lists(st.tuples(st.none() | values, st.integers(0, 5)), min_size=1, max_size=8)
    return st.lists(rows, min_size=1, max_size=3)


@pytest.mark.parametrize("kind", _KINDS)
@settings(max_examples=drawn(15))
@given(data=st.data())
def test_numbers(kind: str, data: st.DataObject) -> None:
    arrow, values = _KINDS[kind]
    check(arrow, _NUMBERS, data.draw(parts_of(values)))


@pytest.mark.parametrize("kind", _OTHER_KINDS)
@settings(max_examples=drawn(15))
@given(data=st.data())
def test_values_of_any_type(kind: str, data: st.DataObject) -> None:
    arrow, values = _OTHER_KINDS[kind]
    aggregates = {name: of for name, of in _ANY.items() if name != "least" or not pa.types.is_duration(arrow)}
    check(arrow, aggregates, data.draw(parts_of(values)))


@pytest.mark.parametrize("values", [[math.inf], [math.inf, 1.0], [1.0, -math.inf, math.inf]])
def test_infinite_values(values: list[float]) -> None:
    check(pa.float64(), {"spread": stddev("x", ddof=0), "mean": mean("x")}, [[(value, 0) for value in values]])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 2**63 - 1),
        (pa.uint64(), 2**64 - 1),
        (pa.decimal128(38, 2), Decimal("9" * 36 + ".99")),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error_on_both_paths(kind: pa.DataType, value: Any) -> None:
    aggregation = GroupedAggregation([], {"total": agg.sum("x")})
    part = batch_of(kind, [(value, 0), (value, 1)])
    scalar = ScalarAggregation(aggregation, part[0].schema, "operator 'window', subtask 0")
    with pytest.raises(RecordError, match="sum of column 'x' does not fit") as on_rows:
        row_by_row(scalar, [part])
    with pytest.raises(RecordError, match="sum of column 'x' does not fit") as on_batch:
        on_batches(aggregation, [part])
    assert "cast the column to float64" in str(on_rows.value)
    assert str(on_rows.value).removeprefix("operator 'window', subtask 0: ") == str(on_batch.value)


def test_long_decimals_are_not_rounded() -> None:
    check(pa.decimal128(38, 0), {"total": agg.sum("x")}, [[(Decimal("1" + "0" * 36 + "1"), 0), (Decimal(7), 1)]])


def test_a_column_gets_its_type_later() -> None:
    aggregation = GroupedAggregation([], {"total": agg.sum("x"), "all": collect_list("x"), "d": count_distinct("x")})
    nulls, numbers = batch_of(pa.null(), [(None, 0)]), batch_of(pa.int64(), [(5, 1), (5, 2)])
    before = row_by_row(ScalarAggregation(aggregation, nulls[0].schema, "here"), [nulls])
    scalar = ScalarAggregation(aggregation, numbers[0].schema, "here")
    for lifted in scalar.lift(*numbers):
        scalar.combine(before, lifted)
    assert scalar.row(before) == {"total": 10, "all": [5, 5], "d": 1}


def test_results_of_several_groups_are_one_table() -> None:
    aggregation = GroupedAggregation(["k"], {"n": count(), "last": last("x")})
    data = pa.record_batch({"k": ["a", "b"], "x": [1, 2]})
    scalar = ScalarAggregation(aggregation, data.schema, "here")
    groups = [scalar.combine(scalar.empty(), lifted) for lifted in scalar.lift(data, None)]
    assert scalar.table([*groups, scalar.empty()]).to_pylist() == [
        {"n": 1, "last": 1},
        {"n": 1, "last": 2},
        {"n": 0, "last": None},
    ]
