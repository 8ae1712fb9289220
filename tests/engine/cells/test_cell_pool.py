"""Ids of cells: none is given twice at a time, and the pool is as large as the cells that were in use at once."""

from __future__ import annotations

import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.cells.cell_pool import CellPool


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=60))
def test_no_id_is_in_use_twice(rounds: list[tuple[int, float]]) -> None:
    pool, in_use, most = CellPool(), [], 0
    for count, share in rounds:
        in_use.extend(pool.take(count).tolist())
        most = max(most, len(in_use))
        assert len(set(in_use)) == len(in_use) == pool.used
        assert pool.end == most
        kept = int(len(in_use) * share)
        pool.give_back(np.array(in_use[kept:], np.int64))
        del in_use[kept:]


def test_the_pool_does_not_grow_with_the_rows_that_have_gone_through_it() -> None:
    pool = CellPool()
    for _ in range(1_000):
        cells = pool.take(100)
        pool.give_back(cells[100:])
        pool.give_back(cells)
    assert pool.end == 100
    assert sum(sys.getsizeof(value) for value in vars(pool).values()) < 10_000
