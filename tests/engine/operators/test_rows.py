"""The operators that call a Python function for each row."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle

from penstock.engine.clock import ManualClock
from penstock.engine.elements import Batch, Control, concat_batches
from penstock.engine.errors import (
    ConfigurationError,
    GraphError,
    MissingColumnError,
    RecordError,
    UserCodeError,
)
from penstock.engine.expressions import RowColumn, Select, col, lit, select, with_columns
from penstock.engine.operators.base import USER_FAILURES, Operator, OperatorContext
from penstock.engine.operators.rows import (
    RowColumnsSpec,
    RowFilterSpec,
    RowFlatMapSpec,
    RowMapSpec,
)
from penstock.engine.operators.spec import OperatorSpec


class Collected:
    """Keeps what an operator emits."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def collect(self, batch: Batch) -> None:
        assert batch.num_rows > 0
        self.batches.append(batch)

    def broadcast(self, element: Control) -> None:
        raise AssertionError(element)


def opened(spec: OperatorSpec) -> Operator:
    operator = cloudpickle.loads(cloudpickle.dumps(spec)).create()
    assert isinstance(operator, Operator)
    operator.open(OperatorContext("words", 3, 4, ManualClock()))
    return operator


def run(spec: OperatorSpec, *batches: Batch) -> Batch | None:
    operator, out = opened(spec), Collected()
    for batch in batches:
        operator.process_batch(batch, 0, out)
    return concat_batches(out.batches) if out.batches else None


def batch_of(**columns: Any) -> Batch:
    data = pa.RecordBatch.from_pydict(columns)
    rows = data.num_rows
    return Batch(data, pa.array(range(100, 100 + rows)), pa.array([i % 2 for i in range(rows)], pa.int8()))


def contents(batch: Batch | None) -> tuple[Any, ...] | None:
    if batch is None:
        return None
    beside = [None if a is None else a.to_pylist() for a in (batch.timestamps, batch.kinds)]
    return (batch.data.schema, batch.data.to_pylist(), *beside)


def test_map_keeps_timestamps_and_kinds() -> None:
    batch = batch_of(x=[1, None, 3])
    result = run(RowMapSpec(lambda row: {"y": (row["x"] or 0) * 2, "x": row["x"]}), batch)
    assert result is not None
    assert result.data.to_pydict() == {"y": [2, 0, 6], "x": [1, None, 3]}
    assert result.timestamps is batch.timestamps
    assert result.kinds is batch.kinds


def test_map_may_change_its_row_and_has_the_declared_types() -> None:
    def function(row: dict[str, Any]) -> dict[str, Any]:
        row["z"] = 5
        row["w"] = None
        return row

    schema = pa.schema([("z", pa.int8()), ("x", pa.int64()), ("w", pa.string())])
    batch = batch_of(x=[1])
    result = run(RowMapSpec(function, schema), batch)
    assert result is not None
    assert result.data.schema == schema
    assert result.data.to_pylist() == [{"z": 5, "x": 1, "w": None}]
    assert batch.data.to_pydict() == {"x": [1]}


@pytest.mark.parametrize("value", [5, None, "text", [1], ("a", 1)])
def test_map_must_return_a_dict(value: Any) -> None:
    with pytest.raises(RecordError, match=r"operator 'words', subtask 3: row 0 is .* not a dict; return a dict"):
        run(RowMapSpec(lambda row: value), batch_of(x=[1]))


def test_types_are_held_from_batch_to_batch() -> None:
    spec = RowMapSpec(lambda row: {"y": row["x"] if row["x"] < 2 else 0.5})
    with pytest.raises(RecordError, match=r"column 'y': 0.5: a value of type float in a column of int"):
        run(spec, batch_of(x=[1]), batch_of(x=[2]))


def test_flat_map_gives_each_row_the_timestamp_of_its_origin() -> None:
    def words(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for word in row["line"].split():
            yield {"word": word}

    result = run(RowFlatMapSpec(words), batch_of(line=["a b", "", "c"]))
    assert contents(result) == (
        pa.schema([("word", pa.string())]),
        [{"word": "a"}, {"word": "b"}, {"word": "c"}],
        [100, 100, 102],
        [0, 0, 0],
    )


@pytest.mark.parametrize("make", [list, tuple, iter])
def test_flat_map_takes_any_iterable_and_drops_empty_results(make: Any) -> None:
    spec = RowFlatMapSpec(lambda row: make([{"x": row["x"]}] * row["x"]))
    assert run(spec, batch_of(x=[0, 0])) is None
    result = run(spec, Batch(pa.RecordBatch.from_pydict({"x": [0, 2]})))
    assert contents(result) == (pa.schema([("x", pa.int64())]), [{"x": 2}, {"x": 2}], None, None)


@pytest.mark.parametrize("value", [None, 5, {"a": 1}, "ab", b"ab"])
def test_flat_map_must_return_an_iterable_of_dicts(value: Any) -> None:
    with pytest.raises(RecordError, match=r"operator 'words', subtask 3.*not an iterable of dicts; .*'x': 1"):
        run(RowFlatMapSpec(lambda row: value), batch_of(x=[1]))


def test_flat_map_of_something_else_than_dicts() -> None:
    with pytest.raises(RecordError, match=r"row 1 is 'b' \(str\), not a dict"):
        run(RowFlatMapSpec(lambda row: [{"a": 1}, "b"]), batch_of(x=[1]))  # type: ignore[list-item]


def test_filter_keeps_what_is_true() -> None:
    truths = [True, 1, "a", [0], False, 0, None, "", []]
    result = run(RowFilterSpec(lambda row: truths[row["x"]]), batch_of(x=list(range(9))))
    assert result is not None
    assert result.data["x"].to_pylist() == [0, 1, 2, 3]
    assert result.timestamps is not None
    assert result.timestamps.to_pylist() == [100, 101, 102, 103]
    assert run(RowFilterSpec(lambda row: None), batch_of(x=[1])) is None
    batch = batch_of(x=[1])
    assert run(RowFilterSpec(lambda row: row.clear() or True), batch) == batch


class Ambiguous:
    def __bool__(self) -> bool:
        raise TypeError("neither true nor false")


def failing_generator(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield row
    yield {"x": 1 // (row["x"] - 2)}


@pytest.mark.parametrize(
    ("spec", "error", "line"),
    [
        (RowMapSpec(lambda row: {"y": 1 // (row["x"] - 2)}), "ZeroDivisionError", '{"y": 1 // (row["x"] - 2)}'),
        (RowFlatMapSpec(lambda row: [{"y": 1 // (row["x"] - 2)}]), "ZeroDivisionError", '[{"y": 1 //'),
        (RowFlatMapSpec(failing_generator), "ZeroDivisionError", 'yield {"x": 1 // (row["x"] - 2)}'),
        (RowFilterSpec(lambda row: 1 // (row["x"] - 2)), "ZeroDivisionError", '1 // (row["x"] - 2)'),
        (RowFilterSpec(lambda row: row["x"] != 2 or Ambiguous()), "TypeError", "neither true nor false"),
        (
            RowColumnsSpec(with_columns(y=lambda row: 1 // (row["x"] - 2), z=col("x"))),
            "ZeroDivisionError",
            '1 // (row["x"] - 2)',
        ),
        (RowMapSpec(lambda row: row if row["x"] != 2 else sys.exit("gone")), "SystemExit: gone", "sys.exit"),
    ],
)
def test_what_the_function_raises_comes_with_row_and_line(spec: OperatorSpec, error: str, line: str) -> None:
    operator = spec.create()
    operator.open(OperatorContext("words", 3, 4, ManualClock()))
    with pytest.raises(UserCodeError) as caught:
        operator.process_batch(batch_of(x=[1, 2, 3]), 0, Collected())
    failure = caught.value
    assert (failure.operator, failure.subtask, failure.given) == ("words", 3, "{'x': 2}")
    assert failure.error.startswith(error)
    assert line in failure.traceback
    assert "operators/rows.py" not in failure.traceback
    assert isinstance(failure.__cause__, USER_FAILURES)


def test_computed_columns_stand_where_they_were_given() -> None:
    spec = RowColumnsSpec(
        select("x", double=lambda row: row["x"] * 2, more=col("x") + 1, k=lit("k"), text=lambda row: str(row["x"]))
    )
    result = run(spec, batch_of(x=[1, 2]))
    assert result is not None
    assert result.data.to_pylist() == [
        {"x": 1, "double": 2, "more": 2, "k": "k", "text": "1"},
        {"x": 2, "double": 4, "more": 3, "k": "k", "text": "2"},
    ]
    assert result.timestamps is not None
    assert result.timestamps.to_pylist() == [100, 101]


def test_computed_columns_see_the_input_alone() -> None:
    def spoil(row: dict[str, Any]) -> int:
        row["a"] = 99
        return -1

    spec = RowColumnsSpec(with_columns(a=spoil, c=lambda row: row["a"], b=col("a"), d=lambda row: row["b"]))
    result = run(spec, batch_of(a=[1], b=[10]))
    assert result is not None
    assert list(result.data.to_pylist()[0].items()) == [("a", -1), ("b", 1), ("c", 1), ("d", 10)]


@pytest.mark.parametrize(("kind", "make"), [(pa.list_(pa.int64()), list), (pa.binary(), bytearray), (None, list)])
def test_computed_values_are_kept_as_they_were(kind: pa.DataType | None, make: Callable[[], Any]) -> None:
    kept = make()

    def note(row: dict[str, Any]) -> Any:
        kept.append(row["x"])
        return kept

    declared = None if kind is None else pa.schema([("seen", kind)])
    result = run(RowColumnsSpec(select(seen=note), declared), batch_of(x=[1, 2]))
    assert result is not None
    assert [list(value) for value in result.data["seen"].to_pylist()] == [[1], [1, 2]]


def test_the_schema_of_computed_columns() -> None:
    schema = pa.schema([("a", pa.int64())])
    step = with_columns(c=lambda row: 5, b=col("a") / 2)
    declared = RowColumnsSpec(step, pa.schema([("c", pa.int16())]))
    expected = pa.schema([("a", pa.int64()), ("c", pa.int16()), ("b", pa.float64())])
    assert declared.output_schema(schema, "here") == expected
    result = run(declared, batch_of(a=[1]))
    assert result is not None
    assert result.data.schema == expected
    assert declared.output_schema(None, "here") is None
    assert RowColumnsSpec(step).output_schema(schema, "here") is None


def test_computed_columns_are_checked() -> None:
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(MissingColumnError, match=r"here: .*no column 'z'"):
        RowColumnsSpec(with_columns(c=lambda row: 5, b=col("z"))).output_schema(schema, "here")
    double = RowColumnsSpec(Select((col("a"), RowColumn("a", len))))
    with pytest.raises(GraphError, match="more than one column is named 'a'"):
        double.output_schema(schema, "here")
    with pytest.raises(GraphError, match="more than one column is named 'a'"):
        run(double, batch_of(a=[1]))
    with pytest.raises(ConfigurationError, match=r"declares the column 'b', which no function computes.*c"):
        RowColumnsSpec(with_columns(c=lambda row: 5), pa.schema([("b", pa.int64())]))


def test_a_computed_value_that_does_not_fit() -> None:
    spec = RowColumnsSpec(with_columns(c=lambda row: row["x"] or 0.5))
    with pytest.raises(RecordError, match=r"operator 'words', subtask 3: row 1, column 'c': 0.5: .*\{'x': 0\}"):
        run(spec, batch_of(x=[1, 0]))


SPECS: list[OperatorSpec] = [
    RowMapSpec(lambda row: {"y": row["x"], "n": None}),
    RowMapSpec(lambda row: {"y": [row["x"]] * abs(row["x"] or 0)}),
    RowMapSpec(lambda row: {"y": 0.5 if row["x"] == 3 else row["x"]}),
    RowMapSpec(lambda row: {"y": 1, "x": 2} if row["x"] == 3 else {"y": 1}),
    RowMapSpec(lambda row: {"y": 5 // row["x"]}),
    RowFlatMapSpec(lambda row: [{"y": i} for i in range(row["x"] or 0)]),
    RowFilterSpec(lambda row: row["x"]),
    RowColumnsSpec(with_columns(c=lambda row: None if row["x"] == 2 else str(row["x"]), d=col("x") + 1)),
]


@given(
    st.sampled_from(SPECS),
    st.lists(st.none() | st.integers(-1, 4), min_size=1, max_size=6),
    st.sets(st.integers(1, 5)),
)
def test_batch_boundaries_do_not_matter(spec: OperatorSpec, values: list[int | None], cuts: set[int]) -> None:
    batch = batch_of(x=pa.array(values, pa.int64()))
    edges = [0, *sorted(cut for cut in cuts if cut < len(values)), len(values)]
    parts = [batch.slice(a, b - a) for a, b in pairwise(edges)]

    def outcome(*batches: Batch) -> object:
        try:
            return contents(run(spec, *batches))
        except (RecordError, UserCodeError) as error:
            return type(error)

    assert outcome(*parts) == outcome(batch)
