"""Rows sorted digit by digit stand as those that NumPy sorts: by code, then time, those of one time as they came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.patterns import machine
from penstock.engine.patterns.compiler import compile_pattern
from penstock.engine.patterns.machine import Machine
from penstock.engine.patterns.pattern import Pattern
from penstock.engine.patterns.row_order import by_code_and_time, by_digits, has_few_digits

_TIMES = st.one_of(st.integers(-3, 3), st.integers(-(2**40), 2**40), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.tuples(st.integers(0, 5), _TIMES), min_size=1, max_size=30))
def test_both_ways_give_the_same_order(rows: list[tuple[int, int]]) -> None:
    codes, times = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    expected = sorted(range(len(rows)), key=lambda place: rows[place])
    assert by_code_and_time(codes, times).tolist() == expected
    # A span of more than 63 bits is refused before, and is no number of 64 bits with a sign.
    if int(times.max()) - int(times.min()) < 2**63:
        assert by_digits(codes, times).tolist() == expected


@pytest.mark.parametrize("times", [[-(2**62), 0, 2**62, 1], []], ids=["far apart", "none"])
def test_a_machine_of_many_rows_sorts_any_times(times: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_MANY_ROWS", 0)
    codes, far_apart = np.arange(len(times)) % 2, np.array(times, np.int64)
    order = Machine(compile_pattern(Pattern.begin("a"))).order(codes, far_apart)
    assert order.tolist() == sorted(range(len(times)), key=lambda place: (codes[place], times[place]))


def test_digits_are_for_times_near_each_other() -> None:
    assert has_few_digits(np.array([0, 2**33 - 1]))
    assert not has_few_digits(np.array([-(2**63), 2**63 - 1]))
