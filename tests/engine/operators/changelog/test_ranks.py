"""Places of rows in an order, beside those of NumPy's sort by several keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.operators.changelog.ranks import sorted_places

FEW, MANY = st.integers(-1, 1), st.integers(-(2**62), 2**62)


@given(st.lists(st.tuples(FEW, MANY | FEW, FEW, MANY), min_size=1, max_size=40, unique=True), st.permutations(range(4)))
def test_rows_are_sorted_by_keys_however_far_apart_their_values_are(
    rows: list[tuple[int, ...]], places: list[int]
) -> None:
    keys = [np.array([row[place] for row in rows]) for place in places]
    assert sorted_places(keys).tolist() == np.lexsort(keys[::-1]).tolist()


@pytest.mark.parametrize("most", [3, 2**40, 2**62], ids=str)
def test_many_rows_are_sorted_as_few_are(most: int) -> None:
    drawn = np.random.default_rng(1)
    keys = [*(drawn.integers(-most, most, 5_000) for _ in range(3)), drawn.permutation(5_000)]
    assert sorted_places(keys).tolist() == np.lexsort(keys[::-1]).tolist()
