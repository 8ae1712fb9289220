"""In batch mode a key has one result: what its last update would have been."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.spark.final_updates import LastRows
from penstock.engine.elements import Batch

_KEYS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=30)


@given(st.lists(_KEYS, max_size=5), st.integers(1, 40))
def test_the_last_row_of_each_key_is_kept(batches: list[list[tuple[int, str]]], least_rows: int) -> None:
    last, expected, number = LastRows(least_rows), dict[tuple[int, str], int](), 0
    for keys in batches:
        if not keys:
            continue
        values = list(range(number, number + len(keys)))
        number += len(keys)
        columns = [pa.array([one for one, _ in keys], pa.int64()), pa.array([two for _, two in keys])]
        last.add(columns, Batch(pa.record_batch({"v": values}), pa.array(values, pa.int64())))
        expected.update(zip(keys, values, strict=True))
    rows = last.take()
    assert ([] if rows is None else rows.data["v"].to_pylist()) == sorted(expected.values())
    assert last.take() is None
