"""Slots: equal keys share one, and others never do, whatever their hashes; a removed key's slot is given away again."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.state.keys import hash_tables
from penstock.engine.state.keys import index as module
from penstock.engine.state.keys.index import KeyIndex, Slots
from penstock.engine.state.keys.loading import BesideLoader
from tests.draws import drawn

KINDS: list[tuple[list[pa.DataType], list[Any]]] = [
    ([pa.int64()], [(1,), (-1,), (2**63 - 1,), (-(2**63),), (0,)]),
    ([pa.uint64()], [(0,), (2**64 - 1,), (2**63,)]),
    ([pa.int8()], [(1,), (-128,)]),
    ([pa.bool_()], [(True,), (False,)]),
    ([pa.date32()], [(date(2026, 1, 1),), (date(1900, 1, 1),)]),
    ([pa.timestamp("ns", "UTC")], [(datetime(2026, 1, 1, tzinfo=timezone.utc),), (datetime(1, 1, 2),)][:1]),
    ([pa.string()], [("a",), ("",), ("ä",), ("a" * 40,)]),
    ([pa.binary()], [(b"a",), (b"",)]),
    ([pa.binary(2)], [(b"ab",), (b"cd",)]),
    ([pa.decimal128(10, 2)], [(Decimal("1.50"),), (Decimal("-1.50"),)]),
    ([pa.int64(), pa.bool_()], [(0, False), (0, None), (None, False), (1, True), (-1, True), (None, True)]),
    ([pa.int64(), pa.string()], [(1, "a"), (1, "b"), (2, "a"), (None, "a"), (1, None), (1, "")]),
    ([pa.string(), pa.string()], [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), (None, ""), ("", None)]),
    ([pa.int8(), pa.decimal128(5, 1), pa.bool_()], [(1, Decimal("1.5"), True), (1, None, True), (None, None, False)]),
]


def same_hash(columns: Sequence[pa.Array]) -> Slots:
    """The worst hash there is."""
    return np.zeros(len(columns[0]), np.int64)


def same_code(table: hash_tables.WordRowTable, words: hash_tables.Words) -> hash_tables.Words:
    """The worst codes there are of rows of words."""
    return np.zeros(len(words), np.uint64)


def find_one(index: KeyIndex, key: tuple[Any, ...], kinds: Sequence[pa.DataType]) -> int:
    return index.find_one(key, lambda: columns_of([key], kinds))


def columns_of(keys: Sequence[tuple[Any, ...]], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    return [pa.array([key[index] for key in keys], kind) for index, kind in enumerate(kinds)]


def lookup(index: KeyIndex, *columns: pa.Array) -> list[int]:
    slots: list[int] = index.lookup(list(columns)).tolist()
    return slots


@pytest.fixture(params=["dict", "compiled", "colliding"])
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> KeyIndex:
    if request.param != "dict":
        monkeypatch.setattr(module, "_FEW", 0)
    if request.param != "colliding":
        return KeyIndex()
    monkeypatch.setattr(hash_tables.WordRowTable, "_codes", same_code)
    return KeyIndex(same_hash)


def test_keys_are_numbered_in_the_order_in_which_they_come(index: KeyIndex) -> None:
    assert lookup(index, pa.array(["b", "a", "b"])) == [0, 1, 0]
    assert lookup(index, pa.array(["c", "a"])) == [2, 1]
    assert len(index) == 3


def test_a_key_of_several_columns_is_equal_where_all_of_them_are(index: KeyIndex) -> None:
    assert lookup(index, pa.array([1, 1, 2, 1]), pa.array(["a", "b", "a", "a"])) == [0, 1, 2, 0]


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "Europe/Zurich"), pa.time64("ns")])
def test_times_that_differ_by_a_nanosecond_are_different_keys(index: KeyIndex, kind: pa.DataType) -> None:
    assert lookup(index, pa.array([1, 2, 1], kind)) == [0, 1, 0]
    assert index.keys(np.array([0, 1]))[0].equals(pa.array([1, 2], kind))


@pytest.mark.parametrize(("kinds", "keys"), KINDS, ids=lambda value: str(value)[:40])
def test_keys_of_every_type_come_back(index: KeyIndex, kinds: list[pa.DataType], keys: list[Any]) -> None:
    nothing = tuple(None for _ in kinds)
    distinct = [*keys, nothing]
    slots = index.lookup(columns_of([*distinct, *reversed(distinct)], kinds))
    assert sorted(slots[: len(distinct)].tolist()) == list(range(len(distinct)))
    assert slots.tolist() == slots.tolist()[::-1]
    back = index.keys(slots)
    assert [column.type for column in back] == kinds
    assert [column.to_pylist() for column in back] == [
        column.to_pylist() for column in columns_of([*distinct, *reversed(distinct)], kinds)
    ]


def test_a_column_of_nulls_takes_its_type_when_the_first_value_comes(index: KeyIndex) -> None:
    assert lookup(index, pa.nulls(2)) == [0, 0]
    assert lookup(index, pa.array([None, "a"])) == [0, 1]
    assert lookup(index, pa.nulls(1)) == [0]
    assert index.keys(np.array([0, 1, 0]))[0].to_pylist() == [None, "a", None]


def test_dictionary_columns_are_their_values(index: KeyIndex) -> None:
    assert lookup(index, pa.array(["a", "b", "a"]).dictionary_encode()) == [0, 1, 0]
    assert lookup(index, pa.array(["b"])) == [1]


def test_a_key_that_is_not_held_is_not_found_nor_added(index: KeyIndex) -> None:
    lookup(index, pa.array(["a"]))
    assert index.find([pa.array(["b", "a", None])]).tolist() == [-1, 0, -1]
    assert len(index) == 1


def test_slices_and_empty_batches(index: KeyIndex) -> None:
    assert lookup(index, pa.array(["a", "b", "c", None]).slice(1, 2)) == [0, 1]
    assert lookup(index, pa.array([], pa.string())) == []
    assert index.keys(np.array([], np.int64))[0].to_pylist() == []


NAMES = ["a", "b", "", "ä", "cc", None]
STEPS = st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from(NAMES), max_size=6)), max_size=12)


@pytest.mark.parametrize("few", [0, 3, 4, 4096], ids=["compiled", "on the way", "later", "dict"])
@pytest.mark.parametrize("hash_rows", [None, same_hash], ids=["hashed", "colliding"])
@pytest.mark.parametrize("width", [0, 1, 2, 3], ids=["word", "text", "both", "words"])
@settings(max_examples=drawn(10))
@given(steps=STEPS)
def test_an_index_is_a_dict_with_few_slots(few: int, hash_rows: Any, width: int, steps: list[Any]) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "_FEW", few)
    patch.setattr(module, "_TRICKLE", 1)
    patch.setattr(module, "_EARNED", 40)
    patch.setattr(module, "_MIN_DEAD_BYTES", 0)
    patch.setattr(hash_tables, "_MIN_ROWS", 2)
    patch.setattr(module, "are_loaded", lambda: False)
    if hash_rows:
        patch.setattr(hash_tables.WordRowTable, "_codes", same_code)
    index, model, most = KeyIndex(hash_rows or module.hash_columns), dict[Any, int](), 0

    def columns(names: list[Any]) -> list[pa.Array]:
        numbers = pa.array([None if name is None else NAMES.index(name) for name in names], pa.int64())
        texts, signs = pa.array(names, pa.string()), pa.array([name == "b" or None for name in names], pa.bool_())
        return [[numbers], [texts], [numbers, texts], [signs, numbers]][width]

    try:
        for adds, names in steps:
            if adds:
                slots, is_new = index.place(columns(names)) if len(names) > 1 else (index.lookup(columns(names)), None)
                assert is_new is None or is_new.tolist() == [name not in model for name in names]
                for name, slot in zip(names, slots.tolist(), strict=True):
                    assert model.setdefault(name, slot) == slot
            else:
                gone = [model.pop(name) for name in dict.fromkeys(names) if name in model]
                index.remove(np.array(gone, np.int64))
            most = max(most, len(model))
            assert index.find(columns(NAMES)).tolist() == [model.get(name, -1) for name in NAMES]
            assert index.slots().tolist() == sorted(model.values())
            held = index.keys(index.slots())[-1].to_pylist()
            assert held == [columns([name])[-1][0].as_py() for name in sorted(model, key=model.__getitem__)]
            assert (len(index), index.end) == (len(model), most)
    finally:
        patch.undo()


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_many_keys_are_found_again(kind: pa.DataType) -> None:
    index, numbers = KeyIndex(), pa.array(np.random.default_rng(0).permutation(50_000) * 7919).cast(kind)
    slots = np.concatenate([index.lookup([numbers.slice(start, 9_000)]) for start in range(0, 50_000, 9_000)])
    assert slots.tolist() == list(range(50_000))
    assert index.find([numbers]).tolist() == slots.tolist()
    index.remove(slots[::2])
    assert index.find([numbers]).tolist() == np.where(slots % 2 == 0, -1, slots).tolist()
    assert index.keys(index.slots())[0].equals(numbers.take(pa.array(slots[1::2])))
    assert sorted(index.lookup([numbers]).tolist()) == list(range(50_000))


def test_memory_of_texts_is_bounded_by_those_that_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 0)
    monkeypatch.setattr(module, "_MIN_DEAD_BYTES", 1000)
    index = KeyIndex()
    for number in range(200):
        index.remove(index.lookup([pa.array([f"{number}-{row}" + "x" * 50 for row in range(20)])]))
    assert index.end == 20
    assert len(index._table._arena) < 10_000  # type: ignore[attr-defined]


def test_few_keys_do_without_numba() -> None:
    program = (
        "import sys, pyarrow as pa, penstock\nfrom penstock.engine.state.keys.index import KeyIndex\n"
        "KeyIndex().lookup([pa.array(['a', 'b'])])\nassert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("kinds", "keys"), KINDS, ids=lambda value: str(value)[:30])
def test_one_key_has_the_slot_that_it_has_in_a_batch(
    index: KeyIndex, kinds: list[pa.DataType], keys: list[Any]
) -> None:
    keys = [*keys, (None,) * len(kinds)]
    assert [find_one(index, key, kinds) for key in keys] == [-1] * len(keys)
    held = keys[::2]
    index.lookup(columns_of(held, kinds))
    assert [find_one(index, key, kinds) for key in keys] == index.find(columns_of(keys, kinds)).tolist()
    assert sorted(find_one(index, key, kinds) for key in held) == list(range(len(held)))


@pytest.mark.parametrize(("kind", "key"), [(pa.int64(), -5), (pa.string(), "\u00e4")], ids=str)
def test_one_number_or_text_is_found_without_arrays(index: KeyIndex, kind: pa.DataType, key: Any) -> None:
    index.lookup([pa.array([key], kind)])
    assert index.find_one((key,), lambda: pytest.fail("arrays were asked for")) == 0


def test_small_batches_never_wait_for_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    def stall(index: KeyIndex) -> None:
        raise AssertionError("numba would be imported in the middle of the job")

    monkeypatch.setattr(module, "_FEW", 4)
    monkeypatch.setattr(KeyIndex, "_compile", stall)
    index = KeyIndex()
    slots = [index.lookup([pa.array([key, key + 1])]).tolist() for key in range(0, 100, 2)]
    assert slots == [[key, key + 1] for key in range(0, 100, 2)]
    with pytest.raises(AssertionError):
        index.lookup([pa.array(range(200, 210))])


def test_numba_is_loaded_beside_batches_of_some_rows_when_a_dict_has_taken_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FEW", 20)
    monkeypatch.setattr(module, "_TRICKLE", 2)
    monkeypatch.setattr(module, "_EARNED", 100)
    begun, go_on = threading.Event(), threading.Event()

    def load() -> None:
        begun.set()
        go_on.wait()

    loader = BesideLoader(load)
    monkeypatch.setattr(module, "_loader", loader)
    monkeypatch.setattr(module, "are_loaded", lambda: loader.is_done)
    index = KeyIndex()
    slots = [index.lookup([pa.array(range(key, key + 5))]).tolist() for key in range(0, 80, 5)]
    assert slots == [list(range(key, key + 5)) for key in range(0, 80, 5)]
    assert isinstance(index._table, module._DictTable)
    assert index.lookup([pa.array([3, 99])]).tolist() == [3, 80]
    found = index.search([pa.array([79, 101, 78, 100, 77])])
    assert not begun.is_set()
    for key in range(80, 100, 5):
        index.find([pa.array(range(key, key + 5))])
    assert begun.wait(60)
    # Nothing waits for it.
    index.find([pa.array(range(5))])
    assert isinstance(index._table, module._DictTable)
    go_on.set()
    loader.wait()
    index.find([pa.array(range(5))])
    assert isinstance(index._table, module._WordTable)
    assert index.enter(found, np.array([True, False, True, True, True])).tolist() == [79, 78, 81, 77]


def test_an_index_does_not_wait_for_numba_that_another_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 20)
    monkeypatch.setattr(module, "_TRICKLE", 2)
    monkeypatch.setattr(module, "are_loaded", lambda: True)
    index = KeyIndex()
    slots = [index.lookup([pa.array(range(key, key + 5))]).tolist() for key in range(0, 30, 5)]
    assert slots == [list(range(key, key + 5)) for key in range(0, 30, 5)]
    assert isinstance(index._table, module._WordTable)


@pytest.mark.parametrize("kinds", [[pa.int64(), pa.int8()], [pa.bool_(), pa.timestamp("ns"), pa.date32()]], ids=str)
def test_words_come_out_as_they_went_in_with_nulls_among_them_and_without(
    index: KeyIndex, kinds: list[pa.DataType]
) -> None:
    def column(values: list[int | None], kind: pa.DataType) -> pa.Array:
        return pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)

    without = [column([1, 0, 1], kind) for kind in kinds]
    slots = index.lookup(without).tolist()
    beside = [column([1, 0] if place else [None, 1], kind) for place, kind in enumerate(kinds)]
    more = index.lookup(beside).tolist()
    assert (slots, more) == ([0, 1, 0], [2, 3])
    found = index.keys(np.array([0, 1]))
    assert found == [column.slice(0, 2) for column in without]
    assert index.keys(np.array([0, 2, 3])) == [
        pa.concat_arrays([one.slice(0, 1), other]) for one, other in zip(without, beside, strict=True)
    ]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_keys_that_were_taken_stay_as_they_were_when_others_come_into_their_slots(
    index: KeyIndex, kind: pa.DataType
) -> None:
    first, second = pa.array([5, 6, 7]).cast(kind), pa.array([8, 9, 10]).cast(kind)
    slots = index.lookup([first])
    taken = index.take_first(3)
    index.remove(slots)
    assert sorted(index.lookup([second])) == [0, 1, 2]
    assert taken() == [first]


@pytest.mark.parametrize("places", [[], [0], [1], [2, 0]], ids=str)
def test_some_columns_of_keys_are_as_in_all_of_them(index: KeyIndex, places: list[int]) -> None:
    columns = [pa.array(["a", None, "cc", None]), pa.array([1, 2, None, None]), pa.array([None, "x", "", None])]
    slots = index.lookup(columns)
    assert index.keys(slots, places) == [columns[place] for place in places]


def test_many_keys_that_came_in_small_batches_are_looked_up_without_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 4)
    monkeypatch.setattr(module, "_TRICKLE", 2)
    index = KeyIndex()
    for key in range(0, 20, 2):
        index.lookup([pa.array([key, key + 1])])
    assert index.find([pa.array([3, 99])]).tolist() == [3, -1]
    assert isinstance(index._table, module._DictTable)
    assert index.find([pa.array(range(15, 25))]).tolist() == [*range(15, 20), -1, -1, -1, -1, -1]
    assert isinstance(index._table, module._WordTable)
