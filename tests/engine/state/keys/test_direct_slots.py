"""Slots of numbers that lie close together: asked for once, whatever their order, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.engine.state.keys.direct_slots import DirectSlots


class Given:
    """Gives each number the slot that it has plus one hundred, and notes who was asked for."""

    def __init__(self) -> None:
        self.slots, self.asked = DirectSlots(), list[list[int]]()

    def lookup(self, *numbers: int, most: int = 10) -> list[int] | None:
        found = self.slots.lookup(np.array(numbers), most, self._give)
        return None if found is None else found.tolist()

    def _give(self, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        self.asked.append(numbers.tolist())
        return numbers - numbers.min() + 100 * len(self.asked)


def test_a_slot_is_asked_for_once() -> None:
    given = Given()
    assert given.lookup(7, 5, 7) == [102, 100, 102]
    assert given.lookup(5, 7) == [100, 102]
    assert given.lookup(3, 9, 5) == [200, 206, 100]
    assert given.asked == [[5, 7], [3, 9]]
    given.slots.forget()
    assert given.lookup(9, 5) == [304, 300]


def test_slots_are_found_where_all_are_known() -> None:
    given = Given()
    given.lookup(7, 5, most=100)
    found = given.slots.find(np.array([7, 5, 7]))
    assert found is not None
    assert found.tolist() == [102, 100, 102]
    for other in (6, 4, 3, 8, 107, -(2**63), 2**63 - 1):
        assert given.slots.find(np.array([7, other])) is None
    given.slots.forget()
    assert given.slots.find(np.array([7])) is None
    assert given.asked == [[5, 7]]


@pytest.mark.parametrize("first", [0, -(2**63), 2**63 - 1_000])
def test_numbers_that_go_on_take_no_more_memory_than_they_may(first: int) -> None:
    given = Given()
    for begin in range(first, first + 1_000, 5):
        found = given.lookup(*range(begin, begin + 5))
        assert found is not None
        assert len(set(found)) == 5
        assert given.lookup(begin) == found[:1]
        assert len(given.slots._slots) <= 10
    assert len(given.asked) == 200


def test_numbers_that_lie_too_far_apart_are_left_to_others() -> None:
    given = Given()
    assert given.lookup(0, 10) is None
    assert given.lookup(-(2**63), 2**63 - 1) is None
    assert given.asked == []
