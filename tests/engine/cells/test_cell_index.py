"""Cells by slice and slot: the same as a dict, as a matrix and as a hash table; and memory that the cells bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.cells import cell_index
from penstock.engine.cells.cell_index import CellIndex
from penstock.engine.cells.cell_pool import CellPool

STEPS = st.lists(
    st.tuples(st.booleans(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=9)),
    max_size=12,
)


@given(STEPS, st.sampled_from([0, 64, 1000]))
def test_cells_are_found_where_they_were_entered(
    steps: list[tuple[bool, list[tuple[int, int]]]], sparse_from: int
) -> None:
    model = dict[tuple[int, int], int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_index, "_SMALL", 64)
        patch.setattr(cell_index, "_SPARSE", sparse_from)
        patch.setattr(cell_index, "_MIN_SLICES", 1)
        patch.setattr(cell_index, "_MIN_SLOTS", 1)
        index = CellIndex()
        for enters, pairs in steps:
            slices, slots = (np.array(column) for column in zip(*pairs, strict=True))
            index.reserve(10, 41, len(model))
            if enters:
                cells = np.arange(len(model), len(model) + len(pairs))
                index.enter(slices, slots, cells)
                model.update(zip(pairs, cells.tolist(), strict=True))
            else:
                gone = [pair for pair in model if pair[0] == pairs[0][0]]
                if gone:
                    index.remove(*np.array(gone).T)
                for pair in gone:
                    del model[pair]
            assert index.find(slices, slots).tolist() == [model.get(pair, -1) for pair in pairs]


def test_a_sparse_index_takes_memory_for_its_cells_and_not_for_all_places() -> None:
    index = CellIndex()
    for slice_row in range(300):
        slots = np.arange(slice_row * 100, slice_row * 100 + 5)
        index.reserve(slice_row + 1, int(slots.max()) + 1, 5 * slice_row)
        index.enter(np.full(5, slice_row), slots, np.arange(5 * slice_row, 5 * slice_row + 5))
    inner: Any = index
    assert type(inner._places).__name__ == "_Hashed"
    assert index.find(np.array([299, 299, 0]), np.array([29_904, 0, 4])).tolist() == [1499, -1, 4]
    # Once most places have a cell, or soon may, a matrix takes less.
    index.reserve(300, 30_000, 9_000_000)
    assert type(inner._places).__name__ == "_Matrix"
    assert index.find(np.array([299, 299, 0]), np.array([29_904, 0, 4])).tolist() == [1499, -1, 4]


@given(st.lists(st.integers(0, 9), max_size=20))
def test_ids_are_different_and_given_again(counts: list[int]) -> None:
    pool, held = CellPool(), list[np.ndarray[Any, Any]]()
    most = 0
    for number, count in enumerate(counts):
        held.append(pool.take(count))
        ids = np.concatenate(held).tolist()
        most = max(most, len(ids))
        assert len(set(ids)) == len(ids) == pool.used
        assert max(ids, default=-1) < pool.end <= most
        if number % 3 == 2:
            pool.give_back(held.pop(0))
