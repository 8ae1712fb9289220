"""Columns of booleans go to numpy and back by bits, wherever in Arrow's memory they begin."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.columns import booleans, mask_of, picker


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 20), st.integers(0, 40))
def test_booleans_are_the_same_in_numpy_and_arrow(values: list[bool], begin: int, length: int) -> None:
    column = pa.array(values, pa.bool_()).slice(begin, length)
    mask = mask_of(column)
    assert mask.tolist() == column.to_pylist()
    assert booleans(mask).equals(column)


@given(st.lists(st.tuples(st.text(max_size=2) | st.none(), st.booleans()), max_size=30))
def test_the_values_of_a_mask_are_picked_in_their_order(rows: list[tuple[str | None, bool]]) -> None:
    column = pa.array([text for text, _ in rows], pa.string())
    picked = picker(np.array([chosen for _, chosen in rows], np.bool_))(column)
    assert picked.to_pylist() == [text for text, chosen in rows if chosen]
