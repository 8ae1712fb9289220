"""Aggregates and grouped aggregation: equal to a plain SQL-like model, however the rows are cut into parts."""

from __future__ import annotations

import doctest
import math
import pickle
import statistics
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.aggregates import functions as aggregates
from penstock.engine.aggregates import grouped as aggregation
from penstock.engine.aggregates.functions import Aggregate
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.errors import ColumnTypeError, GraphError, MissingColumnError, RecordError
from penstock.engine.state.keys import groups as key_groups
from tests.draws import drawn

Row = dict[str, Any]
TYPES = {
    "key": pa.string(),
    "int": pa.int32(),
    "unsigned": pa.uint16(),
    "float": pa.float64(),
    "string": pa.string(),
    "time": pa.timestamp("ms", "UTC"),
    "bool": pa.bool_(),
}
NUMBERS = ("int", "unsigned", "float")
COLUMNS = (*NUMBERS, "string", "time", "bool")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["UA", "AA", "", None]),
            "at": st.integers(-3, 3),
            "int": st.none() | st.integers(-50, 50),
            "unsigned": st.none() | st.integers(0, 9),
            "float": st.none() | st.integers(-50, 50).map(float),
            "string": st.none() | st.sampled_from(["", "a", "b", "Zürich"]),
            "time": st.none() | st.integers(-5, 5).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
            "bool": st.none() | st.booleans(),
        }
    ),
    max_size=25,
)
CUTS = st.lists(st.integers(0, 25), max_size=5)


def model(function: str, values: list[Any]) -> Any:
    """The aggregate of the values of one group that are not null, in order."""
    if function == "count":
        return len(values)
    if function == "count_distinct":
        return len(set(values))
    if function == "collect_list":
        return values
    if function == "stddev":
        return statistics.stdev(values) if len(values) > 1 else None
    if not values:
        return None
    of_values: dict[str, Callable[[list[Any]], Any]] = {
        "sum": sum,
        "min": min,
        "max": max,
        "mean": statistics.fmean,
        "first": lambda ordered: ordered[0],
        "last": lambda ordered: ordered[-1],
    }
    return of_values[function](values)


EVERY: dict[str, Aggregate] = {
    "count": aggregates.count(),
    **{
        f"{make.__name__} {column}": make(column)
        for column in COLUMNS
        for make in (
            aggregates.count,
            aggregates.min,
            aggregates.max,
            aggregates.first,
            aggregates.last,
            aggregates.count_distinct,
            aggregates.collect_list,
        )
    },
    **{
        f"{make.__name__} {column}": make(column)
        for column in NUMBERS
        for make in (aggregates.sum, aggregates.mean, aggregates.stddev)
    },
}
IN_ANY_ORDER = {name: part for name, part in EVERY.items() if part.function not in ("first", "last", "collect_list")}


def expected(rows: list[Row], names: Sequence[str], timestamps: bool) -> list[Row]:
    """One result row for each key, in order of first occurrence."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["key"], []).append(row)
    results = []
    for key, members in groups.items():
        by_time = sorted(members, key=lambda row: row["at"]) if timestamps else members
        result = {"key": key}
        for name in names:
            function, _, column = name.partition(" ")
            ordered = by_time if function in ("first", "last") else members
            values = [row[column] for row in ordered if row[column] is not None] if column else members
            result[name] = model(function, values)
        results.append(result)
    return results


def cut(rows: list[Row], cuts: list[int]) -> list[list[Row]]:
    bounds = [0, *sorted(min(place, len(rows)) for place in cuts), len(rows)]
    return [rows[start:stop] for start, stop in pairwise(bounds)]


def batch_of(rows: list[Row], undecided: bool = False) -> pa.RecordBatch:
    """The rows as a batch; with `undecided`, columns without a value have the type null."""
    arrays = {}
    for name, kind in TYPES.items():
        values = [row[name] for row in rows]
        nothing = undecided and all(value is None for value in values)
        arrays[name] = pa.nulls(len(rows)) if nothing else pa.array(values, kind)
    return pa.record_batch(arrays)


def times_of(rows: list[Row]) -> pa.Int64Array:
    return pa.array([row["at"] for row in rows], pa.int64())


def concat(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default")


def assert_rows_equal(table: pa.Table, rows: list[Row]) -> None:
    found = table.to_pylist()
    assert [row["key"] for row in found] == [row["key"] for row in rows]
    for got, wanted in zip(found, rows, strict=True):
        for name, value in wanted.items():
            if name.startswith(("stddev", "mean")) and value is not None:
                assert got[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name
            else:
                assert got[name] == value, name


def reduce(keys: Sequence[str], named: dict[str, Aggregate], batch: pa.RecordBatch) -> pa.Table:
    """The result of one batch without timestamps."""
    grouped = GroupedAggregation(keys, named)
    return grouped.lower(grouped.combine(grouped.lift(batch, None)))


def single(aggregate: Aggregate, values: pa.Array) -> Any:
    """The aggregate of all the values of column x."""
    batch = pa.record_batch({"x": values})
    return reduce([], {"y": aggregate}, batch).column("y")[0].as_py()


@given(ROWS, CUTS, st.booleans(), st.booleans())
def test_every_aggregate_equals_the_model_however_rows_are_cut(
    rows: list[Row], cuts: list[int], timestamps: bool, undecided: bool
) -> None:
    grouped = GroupedAggregation(["key"], EVERY)
    parts = [
        grouped.combine(grouped.lift(batch_of(part, undecided), times_of(part) if timestamps else None))
        for part in cut(rows, cuts)
    ]
    result = grouped.lower(grouped.combine(concat(parts)))
    assert_rows_equal(result, expected(rows, list(EVERY), timestamps))


@given(ROWS, CUTS)
def test_merging_one_by_one_equals_merging_at_once(rows: list[Row], cuts: list[int]) -> None:
    grouped = GroupedAggregation(["key"], EVERY)
    lifted = [grouped.lift(batch_of(part), times_of(part)) for part in cut(rows, cuts)]
    state = lifted[0]
    for part in lifted[1:]:
        state = grouped.combine(concat([state, part]))
    assert_rows_equal(grouped.lower(grouped.combine(state)), expected(rows, list(EVERY), True))


@given(ROWS, CUTS, st.randoms(use_true_random=False))
@settings(max_examples=drawn(20))
def test_merge_order_does_not_matter_where_arrival_does_not(rows: list[Row], cuts: list[int], random: Any) -> None:
    grouped = GroupedAggregation(["key"], IN_ANY_ORDER)
    parts = [grouped.combine(grouped.lift(batch_of(part), None)) for part in cut(rows, cuts)]
    random.shuffle(parts)
    result = grouped.lower(grouped.combine(concat(parts)))
    order = {key: place for place, key in enumerate(result.column("key").to_pylist())}
    wanted = sorted(expected(rows, list(IN_ANY_ORDER), False), key=lambda row: order[row["key"]])
    assert_rows_equal(result, wanted)


@given(ROWS)
def test_the_result_has_the_bound_types(rows: list[Row]) -> None:
    grouped = GroupedAggregation(["key"], EVERY)
    batch = batch_of(rows)
    assert grouped.lower(grouped.combine(grouped.lift(batch, None))).schema == grouped.bind(batch.schema, "t")


KINDS = [
    pa.null(),
    pa.int8(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.decimal64(9, 2),
    pa.decimal128(9, 2),
    pa.decimal256(50, 2),
    pa.bool_(),
    pa.date32(),
    pa.date64(),
    pa.time32("ms"),
    pa.time64("ns"),
    pa.timestamp("s"),
    pa.duration("ms"),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(2),
    pa.dictionary(pa.int8(), pa.string()),
    pa.list_(pa.int64()),
    pa.struct({"a": pa.int64()}),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_binds_also_computes(kind: pa.DataType) -> None:
    schema = pa.schema({"x": kind})
    batch = pa.record_batch([pa.nulls(2, kind)], schema=schema)
    named: dict[str, Aggregate] = {}
    for make in (
        aggregates.count,
        aggregates.sum,
        aggregates.min,
        aggregates.max,
        aggregates.mean,
        aggregates.first,
        aggregates.last,
        aggregates.stddev,
        aggregates.count_distinct,
        aggregates.collect_list,
    ):
        aggregate: Aggregate = make("x")
        try:
            aggregate.result_type(schema, "t")
        except ColumnTypeError:
            continue
        named[aggregate.function] = aggregate
    assert {"count", "first", "last", "collect_list"} <= set(named)
    grouped = GroupedAggregation([], named)
    part = grouped.combine(grouped.lift(batch, None))
    merged = grouped.combine(concat([part, part]))
    result = grouped.lower(merged)
    assert result.schema == grouped.bind(schema, "t")
    empty = {"count": 0, "count_distinct": 0, "collect_list": []}
    assert result.to_pylist() == [{name: empty.get(name) for name in named}]
    assert merged.schema == part.schema


def test_dictionary_view_and_narrow_types_compute_as_plain_ones() -> None:
    assert single(aggregates.max("x"), pa.array(["a", "c", "b"]).dictionary_encode()) == "c"
    assert single(aggregates.count_distinct("x"), pa.array(["a", "a"], pa.string_view())) == 1
    assert single(aggregates.sum("x"), pa.array([Decimal("1.50"), Decimal("2.25")], pa.decimal32(5, 2))) == 3.75
    assert single(aggregates.min("x"), pa.array([2, 1], pa.float32()).cast(pa.float16())) == 1.0
    assert single(aggregates.mean("x"), pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(5, 2))) == 2.0


def test_dictionary_keys_of_different_dictionaries_merge() -> None:
    grouped = GroupedAggregation(["k"], {"n": aggregates.count()})
    parts = [
        grouped.combine(grouped.lift(pa.record_batch({"k": pa.array(keys).dictionary_encode()}), None))
        for keys in (["a", "b"], ["c", "a"])
    ]
    merged = grouped.lower(grouped.combine(concat(parts)))
    assert merged.to_pylist() == [{"k": "a", "n": 2}, {"k": "b", "n": 1}, {"k": "c", "n": 1}]


def test_groups_come_in_order_of_first_occurrence_also_where_arrow_has_another() -> None:
    keys = np.random.default_rng(0).integers(0, 100_000, 65_536)
    grouped = GroupedAggregation(["k"], {"n": aggregates.count(), "one": aggregates.first("k")})
    result = grouped.lower(grouped.combine(grouped.lift(pa.record_batch({"k": keys}), None)))
    ordered = list(dict.fromkeys(keys.tolist()))
    assert result.column("k").to_pylist() == ordered
    assert result.column("one").to_pylist() == ordered


def test_several_key_columns_and_further_columns() -> None:
    batch = pa.record_batch({"a": [1, 1, 2, None, None], "b": ["x", "y", "x", None, None], "v": [1, 2, 3, 4, 5]})
    grouped = GroupedAggregation(["a", "b"], {"all": aggregates.collect_list("v"), "s": aggregates.sum("v")})
    lifted = grouped.lift(batch, None).append_column("__time", pa.array([5, 4, 3, 2, 1]))
    combined = grouped.combine(lifted, also=[("__time", "max")])
    assert combined.column_names == ["a", "b", "__sum(v)", "__list(v)", "__time"]
    assert combined.column("__time").to_pylist() == [5, 4, 3, 2]
    assert grouped.lower(combined).select(["a", "b", "all", "s"]).to_pylist() == [
        {"a": 1, "b": "x", "all": [1], "s": 1},
        {"a": 1, "b": "y", "all": [2], "s": 2},
        {"a": 2, "b": "x", "all": [3], "s": 3},
        {"a": None, "b": None, "all": [4, 5], "s": 9},
    ]


def test_grouping_by_other_columns_than_the_keys() -> None:
    batch = pa.record_batch({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    grouped = GroupedAggregation(["k"], {"s": aggregates.sum("v"), "last": aggregates.last("v")})
    lifted = grouped.lift(batch, None).append_column("__slice", pa.array([0, 0, 10]))
    by_slice = grouped.combine(lifted, by=["__slice"])
    assert grouped.lower(by_slice).to_pylist() == [{"s": 3, "last": 2}, {"s": 3, "last": 3}]
    both = grouped.combine(lifted, by=["__slice", "k"])
    assert both.column_names[:2] == ["__slice", "k"]
    assert grouped.lower(both).column("k").to_pylist() == ["a", "b", "a"]


def test_no_rows_give_no_rows_and_one_group_gives_one() -> None:
    batch = pa.record_batch({"v": pa.array([1, 2])})
    for make in (aggregates.sum, aggregates.collect_list, aggregates.stddev, aggregates.first):
        grouped = GroupedAggregation([], {"y": make("v")})
        assert grouped.combine(grouped.lift(batch, None)).num_rows == 1
        nothing = grouped.lower(grouped.combine(grouped.lift(batch.slice(2), None)))
        assert nothing.num_rows == 0
        assert nothing.schema == grouped.bind(batch.schema, "t")


def test_only_the_needed_columns_are_lifted_and_shared_ones_once() -> None:
    batch = pa.record_batch({"k": [1], "v": [1], "unused": [1]})
    grouped = GroupedAggregation(
        ["k"],
        {
            "mean": aggregates.mean("v"),
            "sum": aggregates.sum("v"),
            "n": aggregates.count("v"),
            "sd": aggregates.stddev("v"),
            "population": aggregates.stddev("v", ddof=0),
        },
    )
    lifted = grouped.lift(batch, None)
    assert lifted.column_names == ["k", "__sum(v)", "__count(v)", "__mean(v)", "__m2(v)"]
    assert lifted.schema.field("__sum(v)").type == pa.int64()


def test_nan_is_passed_over_by_min_and_max_only() -> None:
    values = pa.array([math.nan, 2.0, 1.0, None])
    assert single(aggregates.min("x"), values) == 1.0
    assert single(aggregates.max("x"), values) == 2.0
    assert single(aggregates.max("x"), pa.array([math.nan])) is None
    assert math.isnan(single(aggregates.sum("x"), values))
    assert math.isnan(single(aggregates.stddev("x"), values))


def test_distinct_floats() -> None:
    assert single(aggregates.count_distinct("x"), pa.array([0.0, -0.0, math.nan, math.nan, None])) == 2
    infinite = pa.array([math.inf])
    other_nan = pc.subtract(infinite, infinite)
    assert single(aggregates.count_distinct("x"), pa.concat_arrays([other_nan, pa.array([math.nan, -math.nan])])) == 1


def test_stddev_of_infinite_and_of_few_values() -> None:
    assert math.isnan(single(aggregates.stddev("x"), pa.array([math.inf, 1.0])))
    assert single(aggregates.stddev("x"), pa.array([5.0, None])) is None
    assert single(aggregates.stddev("x", ddof=0), pa.array([5.0, None])) == 0.0
    assert single(aggregates.stddev("x", ddof=0), pa.array([2, 4])) == 1.0


def test_stddev_is_stable_where_the_mean_is_large() -> None:
    values = np.random.default_rng(0).normal(1e9, 0.001, 10_000)
    grouped = GroupedAggregation([], {"sd": aggregates.stddev("x")})
    parts = [grouped.combine(grouped.lift(pa.record_batch({"x": part}), None)) for part in np.array_split(values, 97)]
    result = grouped.lower(grouped.combine(concat(parts))).column("sd")[0].as_py()
    assert result == pytest.approx(np.std(values - 1e9, ddof=1), rel=1e-6)


def test_first_and_last_by_timestamp_then_by_arrival() -> None:
    grouped = GroupedAggregation([], {"first": aggregates.first("x"), "last": aggregates.last("x")})
    batch = pa.record_batch({"x": ["null comes", None, "early 1", "late 1", "early 2", "late 2"]})
    times = pa.array([5, 0, 1, 9, 1, 9])
    result = grouped.lower(grouped.combine(grouped.lift(batch, times)))
    assert result.to_pylist() == [{"first": "early 1", "last": "late 2"}]


def test_lists_of_many_groups_keep_the_order_of_arrival() -> None:
    keys = np.random.default_rng(0).permutation(np.repeat(np.arange(70_000), 2))
    batch = pa.record_batch({"k": keys, "row": np.arange(len(keys))})
    result = reduce(["k"], {"rows": aggregates.collect_list("row")}, batch).to_pylist()
    wanted: dict[int, list[int]] = {}
    for row, key in enumerate(keys.tolist()):
        wanted.setdefault(key, []).append(row)
    assert {group["k"]: group["rows"] for group in result} == wanted


LARGE = 2**62


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([LARGE, LARGE], pa.int64()),
        ([-LARGE, -LARGE, -1], pa.int64()),
        ([2**63, 2**63], pa.uint64()),
        ([Decimal(10**38 - 1), Decimal(1)], pa.decimal128(38, 0)),
        ([Decimal(1 - 10**38), Decimal(-1)], pa.decimal128(38, 0)),
        ([Decimal(10**76 - 1), Decimal(1)], pa.decimal256(76, 0)),
    ],
)
def test_a_sum_that_does_not_fit_fails_and_says_what_to_do(values: list[Any], kind: pa.DataType) -> None:
    keys = [1] + [7] * len(values)
    batch = pa.record_batch({"k": keys, "x": pa.array([None, *values], kind)})
    for by, group in ((["k"], "for k=" + ("1|7" if pa.types.is_decimal256(kind) else "7")), ([], "")):
        with pytest.raises(RecordError, match=rf"sum of column 'x' {group}.*cast the column to float64"):
            reduce(by, {"s": aggregates.sum("x")}, batch)


@pytest.mark.parametrize(
    ("values", "kind", "total"),
    [
        ([LARGE, LARGE - 1], pa.int64(), 2**63 - 1),
        ([-LARGE, -LARGE], pa.int64(), -(2**63)),
        ([LARGE, LARGE, -LARGE], pa.int64(), LARGE),
        ([2**63, 2**63 - 1], pa.uint64(), 2**64 - 1),
        ([Decimal(10**38 - 2), Decimal(1)], pa.decimal128(38, 0), Decimal(10**38 - 1)),
    ],
)
def test_the_largest_sums_that_fit(values: list[Any], kind: pa.DataType, total: Any) -> None:
    assert single(aggregates.sum("x"), pa.array(values, kind)) == total


def test_large_sums_of_different_groups_do_not_overflow_together() -> None:
    batch = pa.record_batch({"k": [1, 2, 3], "x": [LARGE, LARGE, LARGE]})
    assert reduce(["k"], {"s": aggregates.sum("x")}, batch).column("s").to_pylist() == [LARGE] * 3


def test_a_sum_overflows_when_partials_are_merged() -> None:
    grouped = GroupedAggregation([], {"s": aggregates.sum("x")})
    part = grouped.combine(grouped.lift(pa.record_batch({"x": [LARGE]}), None))
    with pytest.raises(RecordError, match="does not fit int64"):
        grouped.combine(concat([part, part]))


def test_the_mean_of_large_integers_does_not_overflow() -> None:
    assert single(aggregates.mean("x"), pa.array([2**63 - 1] * 3)) == pytest.approx(2.0**63)


def test_missing_columns_suggest_the_nearest() -> None:
    schema = pa.schema({"carrier": pa.string(), "distance": pa.int64()})
    with pytest.raises(MissingColumnError, match=r"window: sum\(distnace\): no column .* mean 'distance'"):
        GroupedAggregation(["carrier"], {"far": aggregates.sum("distnace")}).bind(schema, "window")
    with pytest.raises(MissingColumnError, match="did you mean 'carrier'"):
        GroupedAggregation(["carier"], {"n": aggregates.count()}).bind(schema, "window")
    with pytest.raises(MissingColumnError, match="no column 'v'"):
        GroupedAggregation([], {"far": aggregates.sum("v")}).lift(pa.record_batch({"x": [1]}), None)


def test_rows_of_other_columns_are_checked_again() -> None:
    grouped = GroupedAggregation(["k"], {"far": aggregates.sum("v")})
    for values in ([1], [1.5], [1]):
        assert grouped.lift(pa.record_batch({"k": ["a"], "v": values}), None).num_rows == 1
    for _ in range(2):
        with pytest.raises(ColumnTypeError, match="cannot take a column of type string"):
            grouped.lift(pa.record_batch({"k": ["a"], "v": ["b"]}), None)


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        (aggregates.sum("x"), pa.string()),
        (aggregates.sum("x"), pa.bool_()),
        (aggregates.mean("x"), pa.timestamp("us")),
        (aggregates.stddev("x"), pa.dictionary(pa.int8(), pa.string())),
        (aggregates.min("x"), pa.list_(pa.int64())),
        (aggregates.max("x"), pa.duration("s")),
        (aggregates.count_distinct("x"), pa.struct({"a": pa.int64()})),
    ],
)
def test_wrong_column_types_are_refused_with_a_remedy(aggregate: Aggregate, kind: pa.DataType) -> None:
    with pytest.raises(ColumnTypeError, match=rf"window: {aggregate.function}\(x\) cannot take .*; .*cast it"):
        GroupedAggregation([], {"y": aggregate}).bind(pa.schema({"x": kind}), "window")


def test_result_names_must_be_given_and_differ() -> None:
    with pytest.raises(GraphError, match="aggregate: give at least one aggregate"):
        GroupedAggregation(["k"], {})
    with pytest.raises(GraphError, match="aggregate: two result columns are named 'k'"):
        GroupedAggregation(["k"], {"k": aggregates.count()})
    with pytest.raises(GraphError, match="two result columns"):
        GroupedAggregation(["k", "k"], {"n": aggregates.count()})
    for keys, name in ((["__row"], "n"), (["k"], "__sum(v)")):
        with pytest.raises(GraphError, match="begins with '__', as only internal columns may; rename it"):
            GroupedAggregation(keys, {name: aggregates.sum("v")})


def test_a_key_of_floating_type_is_refused_with_a_remedy() -> None:
    with pytest.raises(ColumnTypeError, match="cast it to an integer or a string"):
        GroupedAggregation(["k"], {"n": aggregates.count()}).bind(pa.schema({"k": pa.float64()}), "window")


def test_bad_arguments() -> None:
    with pytest.raises(GraphError, match="sum: the column must be given by its name, not by 5"):
        aggregates.sum(5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="count: the column must be given by its name"):
        aggregates.count(5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"stddev\(x\): ddof must be a whole number"):
        aggregates.stddev("x", ddof=-1)


def test_an_aggregation_is_a_value() -> None:
    grouped = GroupedAggregation(["key"], EVERY)
    copy = pickle.loads(pickle.dumps(grouped))
    assert copy == grouped
    batch = batch_of([])
    assert copy.bind(batch.schema, "t") == grouped.bind(batch.schema, "t")
    assert len({aggregates.sum("x"), aggregates.sum("x"), aggregates.mean("x")}) == 2


@pytest.mark.parametrize("module", [aggregates, aggregation, key_groups], ids=lambda module: module.__name__)
def test_examples_of_the_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module, extraglobs={"pa": pa, "aggregates": aggregates})
    assert result.attempted > 0
    assert result.failed == 0
