"""Equal values get equal numbers, in order of first occurrence: by counting, hashing, and of several columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.row_numbers import distinct_of, groups_of

_NEAR = st.integers(-5, 20)
_FAR = st.integers(-(2**63), 2**63 - 1)
_COLUMNS = st.sampled_from(
    [
        (pa.int64(), _NEAR),
        (pa.int64(), _FAR),
        (pa.int64(), st.sampled_from([-(2**63), -(2**63) + 3, 2**63 - 1])),
        (pa.int8(), st.integers(-128, 127)),
        (pa.uint16(), st.integers(0, 9)),
        (pa.int64(), st.none() | _NEAR),
        (pa.string(), st.sampled_from(["", "a", "b"])),
    ]
)


@st.composite
def columns(draw: st.DrawFn) -> list[pa.Array]:
    """One to three columns of the same length."""
    rows = draw(st.integers(1, 30))
    kinds = draw(st.lists(_COLUMNS, min_size=1, max_size=3))
    return [pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind) for kind, values in kinds]


def numbered(rows: list[tuple[Any, ...]]) -> tuple[list[int], list[tuple[Any, ...]]]:
    """The obvious way."""
    numbers: dict[tuple[Any, ...], int] = {}
    return [numbers.setdefault(row, len(numbers)) for row in rows], list(numbers)


@given(columns())
def test_rows_are_numbered_as_a_dict_would(given: list[pa.Array]) -> None:
    rows = list(zip(*(column.to_pylist() for column in given), strict=True))
    expected, distinct = numbered(rows)
    numbers, values = distinct_of(given)
    assert numbers.tolist() == expected
    assert list(zip(*(column.to_pylist() for column in values), strict=True)) == distinct
    assert [column.type for column in values] == [column.type for column in given]
    groups = groups_of([pa.chunked_array([column]) for column in given], len(rows))
    assert (groups.ids.tolist(), groups.count) == (expected, len(distinct))


@given(st.lists(st.integers(0, 3), min_size=1), st.lists(_NEAR))
def test_values_that_come_late_among_many_rows_have_the_last_numbers(early: list[int], late: list[int]) -> None:
    rows = [*early * 300, *late, *early]
    expected, distinct = numbered([(row,) for row in rows])
    numbers, (values,) = distinct_of([pa.array(rows)])
    assert numbers.tolist() == expected
    assert list(zip(values.to_pylist(), strict=True)) == distinct


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_no_rows_have_no_numbers(kind: pa.DataType) -> None:
    numbers, (values,) = distinct_of([pa.array([], kind)])
    assert (numbers.tolist(), values.to_pylist(), values.type) == ([], [], kind)


def test_without_columns_all_rows_are_one_group() -> None:
    groups = groups_of([], 3)
    assert (groups.ids.tolist(), groups.count) == ([0, 0, 0], 1)
