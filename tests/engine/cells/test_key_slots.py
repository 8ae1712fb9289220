"""Slots of keys: equal keys share one, in use they keep it, and unused ones are forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.cells import key_slots
from penstock.engine.cells.key_slots import CountedKeys, map_distinct, slots_of_keys, slots_of_rows
from penstock.engine.state.keys.index import KeyIndex

KEYS = st.one_of(
    st.lists(st.tuples(st.integers(-5, 20)), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(-(2**62), 2**62)), min_size=1, max_size=40),
    st.lists(st.tuples(st.sampled_from("abc") | st.none()), min_size=1, max_size=40),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=40),
)


@given(KEYS, st.integers(1, 3), st.booleans())
def test_equal_keys_share_a_slot_and_slots_know_their_keys(rows: list[Any], parts: int, many: bool) -> None:
    names = [f"k{index}" for index in range(len(rows[0]))]
    keys, slots = CountedKeys(names), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(key_slots, "_MANY_ROWS", 1)
        for part in np.array_split(np.arange(len(rows)), parts):
            if len(part):
                columns = zip(*(rows[row] for row in part), strict=True)
                kinds = [pa.int64() if isinstance(rows[0][0], int) else pa.string(), pa.int64()]
                table = pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=False)})
                found = keys.lookup(table)
                keys.use(found)
                slots += found.tolist()
    assert len(set(zip(slots, rows, strict=True))) == len(set(slots)) == len(set(rows))
    table = keys.table(np.array(slots))
    assert [tuple(row.values()) for row in table.to_pylist()] == rows
    assert max(slots) < keys.end


def test_without_key_columns_there_is_one_slot() -> None:
    keys = CountedKeys([])
    table = pa.table({"x": [1, 2]})
    assert keys.lookup(table).tolist() == [0, 0]
    keys.use(np.array([0, 0]))
    keys.leave(np.array([0, 0]))
    assert keys.lookup(table).tolist() == [0, 0]
    assert keys.end == 1


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.uint64(), pa.date32(), pa.bool_(), pa.decimal128(12, 1)])
def test_keys_keep_their_type(kind: pa.DataType) -> None:
    column = pa.array([1, 0, 1] * 500, pa.int32()).cast(kind)
    keys = CountedKeys(["k"])
    slots = keys.lookup(pa.table({"k": column}))
    assert len(set(slots.tolist())) == 2
    keys.use(slots)
    assert keys.table(slots).column("k").combine_chunks().cast(kind).equals(column)


def test_keys_out_of_use_do_not_pile_up() -> None:
    keys = CountedKeys(["k"])
    in_use = pa.table({"k": np.arange(-100, 0)})
    kept = keys.lookup(in_use)
    keys.use(kept)
    for begin in range(0, 100_000, 500):
        slots = keys.lookup(pa.table({"k": np.arange(begin, begin + 500)}))
        keys.use(slots)
        keys.leave(slots)
    assert keys.end < 5_000
    assert keys.lookup(in_use).tolist() == kept.tolist()
    assert keys.table(kept).equals(in_use)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 3, 40, -30, 10**9, -(2**63)]), st.lists(st.integers(0, 15), min_size=1)),
        min_size=1,
        max_size=12,
    )
)
def test_numbers_that_move_on_keep_their_slots_while_they_are_in_use(batches: list[tuple[int, list[int]]]) -> None:
    keys, in_use = CountedKeys(["k"]), dict[int, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_slots, "_MANY_ROWS", 1)
        patch.setattr(key_slots, "_MIN_UNUSED", 0)
        for begin, offsets in batches:
            numbers = [begin + offset for offset in offsets]
            slots = keys.lookup(pa.table({"k": pa.array(numbers, pa.int64())}))
            assert keys.table(slots).column("k").to_pylist() == numbers
            found = dict(zip(numbers, slots.tolist(), strict=True))
            assert all(in_use.get(number, slot) == slot for number, slot in found.items())
            fresh = {number: slot for number, slot in found.items() if number not in in_use}
            keys.use(np.array(list(fresh.values()), np.int64))
            in_use |= fresh
            gone = [number for number in in_use if number % 3 == 0]
            keys.leave(np.array([in_use.pop(number) for number in gone], np.int64))


NUMBERS = st.integers(-5, 20) | st.sampled_from([10**9, 2**63 - 1, -(2**63)])


@given(st.lists(st.lists(NUMBERS, min_size=1), max_size=4), st.lists(NUMBERS | st.none()), st.booleans())
def test_keys_are_found_as_the_index_finds_them(batches: list[list[int]], asked: list[int | None], gone: bool) -> None:
    index = KeyIndex()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_slots, "_MANY_ROWS", 1)
        for numbers in batches:
            slots = slots_of_rows(index, [pa.array(numbers, pa.int64())])
    if batches and gone:
        index.remove(np.unique(slots)[:1])
    column = pa.array(asked, pa.int64())
    assert slots_of_keys(index, [column]).tolist() == index.find([column]).tolist()


@given(st.lists(st.integers(-(10**12), 10**12) | st.integers(0, 9), min_size=1, max_size=30))
def test_a_function_is_called_once_with_each_number(numbers: list[int]) -> None:
    calls = []

    def square(distinct: Any) -> Any:
        calls.append(distinct.tolist())
        return distinct * 3 + 1

    assert map_distinct(np.array(numbers), square).tolist() == [number * 3 + 1 for number in numbers]
    assert calls == [sorted(set(numbers))]
