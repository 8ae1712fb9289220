"""Expressions as calls of Arrow's kernels: the same rows as narwhals gives, and nothing that is not known."""

from __future__ import annotations

import operator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import col, lit, when
from penstock.engine.direct_expressions import direct_steps
from penstock.engine.elements import Batch
from penstock.engine.expressions import Expr, Filter, Step, apply, bind, select, with_columns

ROWS = Batch(
    pa.record_batch(
        {
            "i": pa.array([1, None, -3, 2**40, 0, 7], pa.int64()),
            "small": pa.array([1, 2, None, 4, -5, 127], pa.int8()),
            "f": pa.array([0.5, float("nan"), None, -0.0, 1e300, 2.0]),
            "flag": pa.array([True, False, None, True, False, None]),
            "text": pa.array(["a", None, "b", "", "a", "c"]).dictionary_encode(),
        }
    ),
    pa.array([1, 2, 3, 4, 5, 6]),
    pa.array([0, 0, 1, 2, 3, 0], pa.int8()),
)

numbers = st.recursive(
    st.sampled_from([col("i"), col("small"), col("f")]),
    lambda inner: st.tuples(
        st.sampled_from([operator.add, operator.sub, operator.mul]),
        inner,
        st.one_of(inner, st.integers(-5, 5), st.sampled_from([0.5, 2.0**70])),
        st.booleans(),
    ).map(lambda parts: parts[0](parts[2], parts[1]) if parts[3] else parts[0](parts[1], parts[2])),
    max_leaves=4,
)
comparisons = st.tuples(
    st.sampled_from([operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]),
    numbers,
    st.one_of(numbers, st.integers(-5, 5)),
).map(lambda parts: parts[0](parts[1], parts[2]))
conditions = st.recursive(
    st.one_of(
        comparisons, numbers.map(lambda number: number.is_null()), st.just(col("flag")), st.just(col("text") == "a")
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda both: both[0] & both[1]),
        st.tuples(inner, inner).map(lambda both: both[0] | both[1]),
        inner.map(operator.invert),
    ),
    max_leaves=4,
)
steps = st.one_of(
    conditions.map(Filter),
    numbers.map(lambda number: with_columns(i=number * 2, new=number)),
    conditions.map(lambda condition: with_columns(condition.alias("flag"))),
    st.tuples(numbers, conditions).map(
        lambda both: select("i", "small", "f", "text", number=both[0], flag=both[1])
    ),
)  # fmt: skip


@given(st.lists(steps, min_size=1, max_size=3), st.integers(0, 5), st.integers(0, 6))
def test_the_rows_are_those_that_narwhals_gives(chosen: list[Step], begin: int, count: int) -> None:
    rows = ROWS.slice(begin, min(count, ROWS.num_rows - begin))
    schema = bind(chosen, rows.data.schema, "test")
    direct = direct_steps(chosen)
    assert direct is not None
    found, wanted = direct.apply(rows, schema), apply(chosen, rows, schema)
    assert found.data.schema.equals(wanted.data.schema)
    # Equal as texts: a number that is none differs from itself.
    assert str(found.data.to_pydict()) == str(wanted.data.to_pydict())
    assert found.timestamps == wanted.timestamps
    assert found.kinds == wanted.kinds


def test_what_later_steps_read_comes_through_a_filter() -> None:
    # `text` does not: nothing reads it behind the filter.
    number = with_columns(new=col("i") + col("small"))
    chosen: list[Step] = [Filter(col("text") == "a"), number, Filter(col("new") < 2), select("f", "new")]
    direct = direct_steps(chosen)
    assert direct is not None
    rows = direct.apply(ROWS, bind(chosen, ROWS.data.schema, "here"))
    assert rows.data.to_pydict() == {"f": [1e300], "new": [-5]}


@pytest.mark.parametrize(
    "expression",
    [
        col("i") % 3,
        col("i").abs(),
        when(col("flag")).then(1).otherwise(0),
        col("i") + lit(1),
        col("i", "small"),
        col("i") == None,  # noqa: E711
        (col("i") // 2) + 1,
    ],
)
def test_what_is_more_than_that_is_left_to_narwhals(expression: Expr) -> None:
    assert direct_steps((with_columns(expression.alias("x")),)) is None


def test_a_value_that_is_too_large_for_arrow_is_left_to_narwhals() -> None:
    assert direct_steps((with_columns(x=col("i") + 2**70),)) is None
