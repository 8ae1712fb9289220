"""The order of rows: that of plain Python, and of DuckDB, for every type that has one."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.errors import ColumnTypeError, MissingColumnError
from penstock.engine.ordering import SortKey, check_sort_keys, row_order
from tests.draws import drawn

DATABASE = duckdb.connect(config={"threads": 1})
FLOATS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan])
TEXTS = st.sampled_from(["", "a", "B", "ab", "ß", "\uffff", "\U0001f600", "a\x00", "\x7f"])
DAYS = st.dates(dt.date(1960, 1, 1), dt.date(2040, 1, 1))
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])),
    "uint64": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "float32": (pa.float32(), FLOATS),
    "float64": (pa.float64(), FLOATS),
    "string": (pa.string(), TEXTS),
    "large_string": (pa.large_string(), TEXTS),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    "binary": (pa.binary(), st.binary(max_size=2)),
    "decimal": (pa.decimal128(6, 2), st.decimals(-100, 100, places=2).map(lambda d: decimal.Decimal(d))),
    "date32": (pa.date32(), DAYS),
    "timestamp": (pa.timestamp("ms"), DAYS.map(lambda day: dt.datetime(day.year, day.month, day.day))),
    "time64": (pa.time64("us"), st.times()),
    "duration": (pa.duration("s"), st.integers(-9, 9).map(lambda n: dt.timedelta(seconds=n))),
}


def rank(value: Any) -> tuple[int, Any]:
    """What a value is compared by in Python."""
    if value is None:
        return 0, 0
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    # Of UTF-8, as the order is by bytes.
    return 1, value.encode() if isinstance(value, str) else value


def ranks(table: pa.Table) -> list[list[Any]]:
    """The rows but for the sign of zeros and the bits of NaN."""
    return [[rank(value) for value in row.values()] for row in table.to_pylist()]


def sorted_rows(rows: Sequence[Sequence[Any]], descending: Sequence[bool]) -> list[int]:
    """The obvious way: a stable sort by each column, the last one first."""
    order = list(range(len(rows)))
    for column, is_descending in reversed(list(enumerate(descending))):
        # With reverse=True, too, rows that are equal stay in their order.
        order.sort(key=lambda place, column=column: rank(rows[place][column]), reverse=is_descending)
    return order


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[str], list[list[Any]], list[bool], list[int]]:
    names = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3))
    values = st.tuples(*(st.none() | TYPES[name][1] for name in names))
    rows = draw(st.lists(values, max_size=25))
    directions = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    cuts = sorted(draw(st.lists(st.integers(0, 25), max_size=3)))
    return names, [list(row) for row in rows], directions, cuts


@given(columns())
def test_the_order_is_that_of_plain_python(
    drawn: tuple[list[str], list[list[Any]], list[bool], list[int]],
) -> None:
    names, rows, descending, cuts = drawn
    arrays = []
    for number, name in enumerate(names):
        whole = pa.array([row[number] for row in rows], TYPES[name][0])
        bounds = [min(cut, len(rows)) for cut in (0, *cuts, len(rows))]
        parts = [whole.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
        arrays.append(pa.chunked_array(parts, TYPES[name][0]))
    keys = [SortKey(f"c{number}", down) for number, down in enumerate(descending)]
    rows = [list(row) for row in zip(*(array.to_pylist() for array in arrays), strict=True)]
    assert row_order(arrays, keys).tolist() == sorted_rows(rows, descending)


@settings(max_examples=drawn(40))
@given(st.lists(st.tuples(st.none() | FLOATS, st.none() | TEXTS), max_size=25), st.booleans(), st.booleans())
def test_the_order_is_that_of_duckdb(rows: list[tuple[Any, Any]], down_x: bool, down_s: bool) -> None:
    table = pa.table(
        {
            "x": pa.array([x for x, _ in rows], pa.float64()),
            "s": pa.array([s for _, s in rows], pa.string()),
        }
    )
    directions = {False: "asc nulls first", True: "desc nulls last"}
    text = f"x {directions[down_x]}, s {directions[down_s]}"
    expected = DATABASE.from_arrow(table).order(text).to_arrow_table()
    order = row_order([table.column("x"), table.column("s")], [SortKey("x", down_x), SortKey("s", down_s)])
    assert ranks(table.take(pa.array(order))) == ranks(expected)


def test_columns_without_order_are_refused() -> None:
    schema = pa.schema({"n": pa.int64(), "l": pa.list_(pa.int64()), "d": pa.struct({"x": pa.int64()})})
    check_sort_keys(schema, [SortKey("n")], "sort")
    for name in ("l", "d"):
        with pytest.raises(ColumnTypeError, match=f"sort: column '{name}' is .*no order"):
            check_sort_keys(schema, [SortKey("n"), SortKey(name)], "sort")
    with pytest.raises(MissingColumnError, match=r"sort: no column 'm'; the stream has n, l, d"):
        check_sort_keys(schema, [SortKey("m")], "sort")
    with pytest.raises(ColumnTypeError, match=r"sort: the name '__deleted' begins with '__', .* rename it"):
        check_sort_keys(schema.append(pa.field("__deleted", pa.bool_())), [SortKey("n")], "sort")


@pytest.mark.parametrize(
    "kind",
    [
        pa.string_view(),
        pa.list_(pa.string_view()),
        pa.list_(pa.binary_view(), 2),
        pa.struct({"x": pa.large_list(pa.string_view())}),
        pa.map_(pa.string(), pa.binary_view()),
        pa.run_end_encoded(pa.int32(), pa.int64()),
    ],
    ids=str,
)
def test_columns_whose_rows_cannot_be_put_in_order_are_refused_wherever_views_are(kind: pa.DataType) -> None:
    schema = pa.schema({"n": pa.int64(), "v": kind})
    with pytest.raises(ColumnTypeError, match=r"sort: column 'v' is .*, whose rows Arrow cannot .* cast"):
        check_sort_keys(schema, [SortKey("n")], "sort")


@pytest.mark.parametrize(
    "kind",
    [pa.list_view(pa.int64()), pa.struct({"x": pa.list_(pa.string())}), pa.map_(pa.string(), pa.int64()), pa.uuid()],
    ids=str,
)
def test_columns_of_other_nested_types_can_be_put_in_order(kind: pa.DataType) -> None:
    check_sort_keys(pa.schema({"n": pa.int64(), "v": kind}), [SortKey("n")], "sort")


def test_without_rows_there_is_nothing_to_order() -> None:
    assert row_order([pa.chunked_array([], pa.int64())], [SortKey("n")]).dtype == np.int64
    assert row_order([pa.chunked_array([pa.nulls(2)])], [SortKey("n", descending=True)]).tolist() == [0, 1]
