"""Column expressions: what is accepted, what it makes of a schema, and that batch boundaries do not matter."""

from __future__ import annotations

import datetime as dt

import narwhals
import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle

from penstock.engine import expressions
from penstock.engine.elements import Batch, concat_batches
from penstock.engine.errors import ColumnTypeError, GraphError, MissingColumnError
from penstock.engine.expressions import (
    Filter,
    RowColumn,
    Step,
    apply,
    bind,
    col,
    concat_str,
    describe,
    failing_row,
    lit,
    max_horizontal,
    select,
    when,
    with_columns,
)

SCHEMA = pa.schema(
    [
        ("x", pa.int64()),
        ("y", pa.float64()),
        ("carrier", pa.string()),
        ("at", pa.timestamp("ms", "UTC")),
        ("flag", pa.bool_()),
    ]
)


def batch_of(rows: int, **beside: pa.Array) -> Batch:
    data = pa.RecordBatch.from_pydict(
        {
            "x": [None if i % 5 == 4 else i for i in range(rows)],
            "y": [i / 2 for i in range(rows)],
            "carrier": [None if i % 7 == 6 else f"{'AB'[i % 2]}{i}" for i in range(rows)],
            "at": [dt.datetime(2020, 1, 1, i % 24, tzinfo=dt.timezone.utc) for i in range(rows)],
            "flag": [i % 3 == 0 for i in range(rows)],
        },
        schema=SCHEMA,
    )
    return Batch(data, **beside)


STEPS: list[Step] = [
    Filter(col("x") > 3),
    Filter("flag"),
    Filter(col("carrier").str.contains("^A[0-9]+$")),
    Filter((col("x") > 1) & ~col("flag") | col("y").is_between(2, 4)),
    Filter(lit(True)),
    Filter(col("y") < 0),
    with_columns(y=col("x") * 2 + 1),
    with_columns(x=col("x") + 1, carrier=col("carrier").str.to_uppercase()),
    with_columns(y=when(col("x") > 2).then(col("y")).otherwise(0.5)),
    with_columns(x=max_horizontal(col("x"), lit(2))),
    with_columns(carrier=lit("k")),
    with_columns(carrier=concat_str(col("carrier"), lit("!"))),
    with_columns(flag=col("x").is_in([1, 2, 3])),
    select("flag", "at", "y", "carrier", x=col("x") - 1),
    select(nw.all()),
    select(x=lit(1), y=lit(2.5), carrier=lit("c"), at="at", flag=lit(False)),
]


@pytest.mark.parametrize(
    ("build", "method"),
    [
        (lambda: Filter(col("x").sum() > 3), "sum"),
        (lambda: Filter(col("x") > col("x").mean()), "mean"),
        (lambda: Filter(col("x").is_between(0, col("x").max())), "max"),
        (lambda: Filter(col("x").is_unique()), "is_unique"),
        (lambda: with_columns(z=1 - col("x").cum_sum()), "cum_sum"),
        (lambda: with_columns(z=(col("x") + col("y").median()).abs()), "median"),
        (lambda: with_columns(z=when(col("x") > col("x").min()).then(1)), "min"),
        (lambda: with_columns(z=when(col("x") > 1).then(col("x").std())), "std"),
        (lambda: with_columns(z=when(col("x") > 1).then(1).otherwise(col("x").var())), "var"),
        (lambda: with_columns(z=concat_str(col("carrier"), col("carrier").max())), "max"),
        (lambda: with_columns(z=col("x").fill_null(strategy="forward")), "fill_null"),
        (lambda: with_columns(z=nw.len()), "len"),
        (lambda: with_columns(z=nw.sum("x")), "sum"),
        (lambda: select(col("x").shift(1)), "shift"),
        (lambda: select(col("x").diff()), "diff"),
        (lambda: select(col("x").rank()), "rank"),
        (lambda: select(col("x").drop_nulls()), "drop_nulls"),
        (lambda: select(col("x").rolling_sum(2)), "rolling_sum"),
        (lambda: select(z=col("x").count().over("carrier")), "count"),
        (lambda: select(narwhals.col("x").n_unique()), "n_unique"),
    ],
)
def test_what_looks_at_other_rows_is_refused_by_name(build: object, method: str) -> None:
    with pytest.raises(GraphError, match=rf"{method}\(\) looks at other rows.*key_by\(\.\.\.\)\.aggregate"):
        build()  # type: ignore[operator]


def test_a_function_of_a_whole_column_is_refused() -> None:
    with pytest.raises(GraphError, match="use map_batches\\(function\\) of the stream"):
        select(col("x").map_batches(lambda series: series))


def test_a_date_format_that_is_guessed_from_the_data_is_refused() -> None:
    with pytest.raises(GraphError, match="guesses the format"):
        with_columns(z=col("carrier").str.to_datetime())
    with_columns(z=col("carrier").str.to_datetime(format="%Y"))


@pytest.mark.parametrize("build", [lambda a: with_columns(z=a), lambda a: with_columns(z=col("x") + a)])
def test_an_array_is_no_column(build: object) -> None:
    with pytest.raises(GraphError, match="has a length of its own"):
        build(np.array([1, 2]))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Filter(True), "the predicate is True, not an expression"),  # type: ignore[arg-type]
        (lambda: select(), "no columns given"),
        (lambda: with_columns(), "no columns given"),
        (lambda: select(5), "5 has no name"),
        (lambda: select(lambda row: 1), "a function has no name"),
    ],
)
def test_what_is_no_column_is_refused(build: object, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        build()  # type: ignore[operator]


def test_bind_gives_the_schema_in_the_order_of_the_arguments() -> None:
    schema = bind((select("carrier", "x", total=col("x") + 0.5, source=lit("nyc")),), SCHEMA, "here")
    assert schema == pa.schema(
        [("carrier", pa.string()), ("x", pa.int64()), ("total", pa.float64()), ("source", pa.string())]
    )


def test_with_columns_replaces_in_place_and_sees_the_columns_as_they_were() -> None:
    data = pa.RecordBatch.from_pydict({"a": [1], "b": [10]})
    result = apply((with_columns(c=col("a"), a=col("b"), b=col("a"), n=7, same="a"),), Batch(data))
    assert result.data.to_pydict() == {"a": [10], "b": [1], "c": [1], "n": [7], "same": [1]}


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (Filter(col("carier") == "UA"), MissingColumnError, "no column 'carier' .did you mean 'carrier'"),
        (select("x", "yy"), MissingColumnError, "no column 'yy'.*the stream has x, y, carrier"),
        (with_columns(z=expressions.coalesce("x", "nothing")), MissingColumnError, "no column 'nothing'"),
        (with_columns(z=col("carrier") + 1), ColumnTypeError, r"z=col\(carrier\) \+ 1.*carrier string"),
        (Filter(col("x").str.contains("a")), ColumnTypeError, "x int64"),
        (Filter(col("x")), ColumnTypeError, "must be boolean, not int64"),
        (Filter(col("x", "y") > 1), GraphError, "gives 2 columns"),
        (select("x", "x"), GraphError, "another name"),
        (with_columns(col("x").alias("z"), z=col("y")), GraphError, "another name"),
        (select(z=col("x", "y")), GraphError, "single output"),
        (select(nw.nth(10)), GraphError, "out of range"),
    ],
)
def test_bind_refuses_what_does_not_fit(step: Step, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        bind((with_columns(k=lit(1)), step), SCHEMA, "operator 'o'")
    assert str(caught.value).startswith("operator 'o': ")


def test_bind_sees_the_columns_that_earlier_steps_made() -> None:
    steps = (with_columns(z=col("x") + 1), Filter(col("z") > 1), select("z"))
    assert bind(steps, SCHEMA, "here").names == ["z"]
    with pytest.raises(MissingColumnError, match="no column 'x'"):
        bind((*steps, Filter(col("x") > 1)), SCHEMA, "here")


def test_a_column_of_nulls_alone_is_named_as_the_likely_reason() -> None:
    with pytest.raises(ColumnTypeError, match=r"only nulls came in 'word' so far: declare returns"):
        bind((Filter(col("word").str.contains("a")),), pa.schema([("word", pa.null())]), "here")


def test_a_null_predicate_drops_the_row() -> None:
    data = pa.RecordBatch.from_pydict({"x": [1, None, 5]})
    assert apply((Filter(col("x") > 0),), Batch(data)).data.to_pydict() == {"x": [1, 5]}


def test_timestamps_and_kinds_follow_filters() -> None:
    batch = batch_of(10, timestamps=pa.array(range(100, 110)), kinds=pa.array([0, 1] * 5, pa.int8()))
    steps = (Filter(col("y") > 1), select(nw.all(), twice=col("y") * 2), Filter(col("twice") < 6))
    result = apply(steps, batch)
    assert result.data["y"].to_pylist() == [1.5, 2.0, 2.5]
    assert result.data.schema.names == [*SCHEMA.names, "twice"]
    assert result.timestamps is not None
    assert result.timestamps.to_pylist() == [103, 104, 105]
    assert result.kinds is not None
    assert result.kinds.to_pylist() == [1, 0, 1]


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_constants_have_one_value_a_row(rows: int) -> None:
    batch = batch_of(5).slice(0, rows)
    assert apply((select(a=lit(1)),), batch).data.to_pydict() == {"a": [1] * rows}
    assert apply((with_columns(a=lit("s")),), batch).data["a"].to_pylist() == ["s"] * rows
    assert apply((Filter(lit(False)),), batch).num_rows == 0
    assert apply((Filter(lit(True)),), batch).num_rows == rows


@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5), st.integers(0, 20), st.data())
def test_steps_together_equal_one_after_the_other_in_any_cut(steps: list[Step], rows: int, data: st.DataObject) -> None:
    batch = batch_of(rows, timestamps=pa.array(range(rows), pa.int64()), kinds=pa.nulls(rows, pa.int8()))
    together = apply(steps, batch)
    assert together.data.schema == bind(steps, SCHEMA, "here")

    one_by_one = batch
    for step in steps:
        one_by_one = apply((step,), one_by_one)
    assert together == one_by_one

    cut = data.draw(st.integers(0, rows))
    parts = [apply(steps, batch.slice(0, cut)), apply(steps, batch.slice(cut))]
    assert concat_batches(parts) == together


def test_steps_survive_pickling() -> None:
    steps = (Filter(col("x") > 3), select("x", z=when(col("y") > 1).then(lit("a")).otherwise(lit("b"))))
    copy = cloudpickle.loads(cloudpickle.dumps(steps))
    assert apply(copy, batch_of(9)) == apply(steps, batch_of(9))
    assert describe(copy) == describe(steps)


def test_failing_row_finds_the_row() -> None:
    data = pa.RecordBatch.from_pydict({"s": ["1", "2", "x", "4"]})
    steps = (with_columns(n=col("s").cast(nw.Int64)),)
    schema = bind(steps, data.schema, "here")
    found = failing_row(steps, Batch(data), schema)
    assert found is not None
    assert found[0] == 2
    assert "'x'" in str(found[1])
    assert failing_row(steps, Batch(data.slice(3)), schema) is None


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Filter(col("x") > 3), "filter(col(x) > 3)"),
        (Filter((col("x") + 1) * 2 <= col("y")), "filter(((col(x) + 1) * 2) <= col(y))"),
        (Filter(~col("flag") & (col("carrier") == "UA")), "filter(~col(flag) & (col(carrier) == 'UA'))"),
        (Filter(col("carrier").str.contains("a.*")), "filter(col(carrier).str.contains('a.*'))"),
        (select("x", "y", total=2 - col("x")), "select(x, y, total=2 - col(x))"),
        (select(q="x", k=lit(None), off=lit(False)), "select(q=col(x), k=lit(None), off=lit(False))"),
        (with_columns(z=col("x").cast(nw.Int32).abs()), "with_columns(z=col(x).cast(Int32).abs())"),
        (with_columns(f=lambda row: row), "with_columns(f=<lambda>)"),
        (
            with_columns(z=when(col("x") > 1).then(lit("a")).otherwise(col("carrier"))),
            "with_columns(z=when(col(x) > 1).then(lit('a')).otherwise(col(carrier)))",
        ),
        (
            select(nw.all().name.map(lambda name: name + "2")),
            "select(all().name.map(<lambda>))",
        ),
        (Filter(col("x").is_in(range(3, 900))), "filter(col(x).is_in(range(3, 900)))"),
        (with_columns(o=lit(object())), "with_columns(o=lit(<object object>))"),  # type: ignore[arg-type]
    ],
)
def test_describe(step: Step, text: str) -> None:
    assert describe((step,)) == text


def test_describe_joins_steps_and_shortens_long_ones() -> None:
    long = Filter(col("x").is_in(list(range(1000))) | (col("carrier") == "c" * 500) | (col("y") > 1) | col("flag"))
    assert describe((select("x"), Filter(col("x") > 3))) == "select(x).filter(col(x) > 3)"
    assert len(describe((long,))) <= 160


def test_python_functions_are_kept_apart() -> None:
    step = with_columns(a=col("x"), b=len)
    assert [(column.name, column.function) for column in step.row_columns] == [("b", len)]
    assert isinstance(step.columns[1], RowColumn)
    assert with_columns(a=col("x")).row_columns == ()


@pytest.mark.parametrize(
    ("step", "refused"),
    [
        (lambda: Filter(col("x") > 3), False),
        (lambda: select("carrier", z=col("x") + 1, k=lit(1)), False),
        (lambda: with_columns(z=col("x").sum()), True),
        (lambda: with_columns(z=col("x").cum_sum()), True),
        (lambda: select(z=col("y").shift(1)), True),
        (lambda: Filter(col("x") > col("x").mean()), True),
    ],
)
def test_without_narwhals_private_nodes_the_behaviour_tells(
    step: object, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "_nodes", lambda expression: None)
    built = step()  # type: ignore[operator]
    if refused:
        with pytest.raises(GraphError, match="where batches are cut"):
            bind((built,), SCHEMA, "here")
    else:
        assert bind((built,), SCHEMA, "here").names
        assert describe((built,))


def test_narwhals_keeps_its_operations_where_they_are_looked_for() -> None:
    assert expressions._nodes(col("x") + 1) is not None
