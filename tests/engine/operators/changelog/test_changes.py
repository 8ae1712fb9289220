"""Sums of changes, and the changes of rows that correspond, beside what plain Python makes of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.changelog import ChangelogMode
from penstock.engine.operators.changelog.changes import keyed_difference, summed

_SCHEMA = pa.schema({"n": pa.int64(), "day": pa.date32(), "t": pa.string(), "x": pa.float64()})
_ROWS = st.tuples(
    st.integers(0, 3) | st.none(),
    st.integers(0, 1),
    st.sampled_from(["a", "b", None]),
    st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]),
)


def _batch(rows: list[Any]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    arrays = [pa.array(column, kind) for column, kind in zip(columns, (pa.int64(), pa.int32()), strict=False)]
    arrays[1] = arrays[1].cast(pa.date32())
    more = [pa.array(columns[2], pa.string()), pa.array(columns[3], pa.float64())]
    return pa.RecordBatch.from_arrays([*arrays, *more], schema=_SCHEMA)


def _value(row: Any) -> tuple[Any, ...]:
    """What SQL calls not distinct is equal: NaN is NaN, and -0.0 is 0.0."""
    return (*row[:3], repr(None if row[3] is None else row[3] + 0.0))


def _values(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    days = rows.column("day").cast(pa.int32())
    columns = [rows.column("n"), days, rows.column("t"), rows.column("x")]
    return [_value(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


@given(st.lists(st.tuples(_ROWS, st.sampled_from([1, -1]))))
def test_rows_are_summed_whether_few_or_many_are_alike(changes: list[tuple[Any, int]]) -> None:
    # Rows that differ from all others stand between those that may not.
    changes = [one for number, change in enumerate(changes) for one in (change, ((10 + number, 0, None, None), 1))]
    expected: Counter[tuple[Any, ...]] = Counter()
    for row, sign in changes:
        expected[_value(row)] += sign
    delta = summed(_batch([row for row, _ in changes]), np.array([sign for _, sign in changes], np.int64))
    found = list(zip(_values(delta.rows), delta.weights.tolist(), strict=True))
    # In the order in which they came first.
    assert found == [(row, weight) for row, weight in expected.items() if weight]


@pytest.mark.parametrize("emits", [ChangelogMode.RETRACT, ChangelogMode.UPSERT], ids=str)
@given(st.lists(st.tuples(_ROWS | st.none(), _ROWS | st.none()), min_size=1))
def test_what_a_row_has_become_is_said_where_it_differs(emits: ChangelogMode, pairs: list[tuple[Any, Any]]) -> None:
    nothing = (None, 0, None, None)
    before, after = (_batch([pair[side] or nothing for pair in pairs]) for side in (0, 1))
    had, has = (np.array([pair[side] is not None for pair in pairs]) for side in (0, 1))
    expected: list[tuple[str, tuple[Any, ...]]] = []
    for one, other in pairs:
        if one is None and other is not None:
            expected.append(("INSERT", _value(other)))
        elif one is not None and other is None:
            expected.append(("DELETE", _value(one)))
        elif one is not None and _value(one) != _value(other):
            if emits is ChangelogMode.RETRACT:
                expected.append(("UPDATE_BEFORE", _value(one)))
            expected.append(("UPDATE_AFTER", _value(other)))
    changes = keyed_difference(before, had, after, has, emits)
    if changes is None:
        assert not expected
        return
    names = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")
    assert changes.kinds is not None
    assert (
        list(zip([names[kind] for kind in changes.kinds.to_pylist()], _values(changes.data), strict=True)) == expected
    )
