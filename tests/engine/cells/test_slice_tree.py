"""Blocks of slices: few for a long window, and with the same rows as its slices."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.aggregates.functions import count
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells.slice_cells import SliceCells
from penstock.engine.cells.slice_tree import SliceTree

AGGREGATION = GroupedAggregation(["key"], {"rows": count()})


class _Tree:
    def __init__(self, window_slices: int) -> None:
        self.cells = SliceCells(AGGREGATION)
        self.tree = SliceTree(self.cells, window_slices)

    def add(self, numbers: list[int]) -> None:
        """One row in each of the slices."""
        lifted = AGGREGATION.lift(pa.record_batch({"key": ["a"] * len(numbers)}), None)
        slots = self.cells.lookup(lifted)
        self.cells.add(0, np.array(numbers), slots, lifted)
        self.tree.update(np.array(numbers), slots, lifted)

    def rows(self, begin: int, end: int) -> int:
        (blocks,) = self.tree.blocks([(begin, end)])
        counts: Any = [self.cells.combined(self.cells.cells(block)).column("__count(*)")[0].as_py() for block in blocks]
        return sum(counts)


@given(
    st.lists(st.lists(st.integers(-100, 100), min_size=1, max_size=60), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(-100, 100), st.integers(1, 90)), min_size=1, max_size=4),
)
def test_the_blocks_of_a_range_hold_the_rows_of_its_slices(
    batches: list[list[int]], ranges: list[tuple[int, int]]
) -> None:
    tree, seen = _Tree(90), list[int]()
    for batch in batches:
        tree.add(batch)
        seen += batch
        for begin, length in ranges:
            assert tree.rows(begin, begin + length) == sum(begin <= number < begin + length for number in seen)


def test_a_long_window_is_made_of_few_blocks() -> None:
    tree = _Tree(1440)
    tree.add(list(range(2000)))
    ranges = [(begin, begin + 1440) for begin in range(100)]
    assert max(map(len, tree.tree.blocks(ranges))) <= 21
    assert tree.rows(37, 1477) == 1440


def test_a_slice_that_is_dropped_takes_its_blocks_along() -> None:
    tree = _Tree(64)
    tree.add(list(range(-64, 0)))
    assert tree.rows(-64, 0) == 64
    for number in range(-64, 0, 2):
        tree.tree.drop([number, number + 1])
    inner: Any = tree.cells
    assert inner._blocks == {}
    assert inner._pool.used == 0


def test_slices_far_apart_need_no_blocks_between_them() -> None:
    tree = _Tree(2**40)
    tree.add([number * 2**30 for number in range(40)])
    assert tree.rows(0, 2**40) == 40
    inner: Any = tree.cells
    assert len(inner._blocks) < 2 * 40


def test_what_windows_need_that_are_due_together_is_merged_a_level_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = _Tree(24)
    tree.add(list(range(1000)))
    added = Mock(wraps=tree.cells.add)
    monkeypatch.setattr(tree.cells, "add", added)
    assert len(list(tree.tree.blocks([(begin, begin + 24) for begin in range(976)]))) == 976
    assert added.call_count == 3
