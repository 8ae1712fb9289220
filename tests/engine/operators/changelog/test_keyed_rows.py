"""Rows by key in columns agree with a dict of dicts, however many there are and whichever come and go."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.columns import numbers_type, with_numbers
from penstock.engine.operators.changelog.chains import Chains
from penstock.engine.operators.changelog.keyed_rows import KeyedRows, RowsLayout
from penstock.engine.operators.changelog.stored_tables import flat_table
from penstock.engine.state.keys.identity import coded, decoded
from penstock.engine.state.snapshot import KEY_GROUP
from penstock.engine.state.state_tables import START, VALUE
from tests.draws import drawn

LAYOUT = RowsLayout(
    "rows", pa.schema({"k": pa.float64()}), pa.schema({"v": pa.list_(pa.int64())}), pa.schema({"n": pa.int64()})
)
ROWS = st.tuples(st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5]), st.sampled_from([None, (), (1,), (1, 2)]))


def arrays(rows: list[tuple[float | None, tuple[int, ...] | None]]) -> tuple[list[pa.Array], list[pa.Array]]:
    keys = pa.array([key for key, _ in rows], pa.float64())
    return [keys], [pa.array([value for _, value in rows], pa.list_(pa.int64()))]


def plain(key: float | None) -> object:
    return "nan" if key is not None and key != key else key


@settings(max_examples=drawn(40))
@given(st.lists(st.tuples(st.booleans(), ROWS), max_size=25))
def test_rows_agree_with_a_dict(steps: list[tuple[bool, tuple[float | None, tuple[int, ...] | None]]]) -> None:
    rows, model = KeyedRows(LAYOUT), dict[object, dict[object, int]]()
    for number, (comes, row) in enumerate(steps):
        keys, identity = arrays([row])
        of_key = model.setdefault(plain(row[0]), {})
        found = rows.find(keys, identity)
        assert (found[0] >= 0) == (row[1] in of_key)
        if comes:
            slots, new = rows.add(keys, identity)
            assert new[0] == (row[1] not in of_key)
            rows.write(slots, "n", np.array([number]))
            of_key[row[1]] = number
        elif found[0] >= 0:
            rows.remove(found)
            del of_key[row[1]]
        _, slots = rows.of_keys(keys)
        values, numbers = rows.columns(slots, ["v", "n"])
        held = [None if value is None else tuple(value) for value in values.to_pylist()]
        assert dict(zip(held, numbers.to_pylist(), strict=True)) == of_key
    assert len(rows) == sum(map(len, model.values()))


BATCHES = st.lists(st.dictionaries(st.tuples(st.integers(0, 2), st.sampled_from("abcd")), st.booleans(), min_size=1))


@pytest.mark.usefixtures("keys_compiled_on_the_way")
@given(BATCHES)
def test_of_rows_that_were_searched_for_some_come_and_the_others_go(
    batches: list[dict[tuple[int, str], bool]],
) -> None:
    layout = RowsLayout("rows", pa.schema({"k": pa.int64()}), pa.schema({"v": pa.string()}), pa.schema({}))
    rows, model = KeyedRows(layout), set[tuple[int, str]]()
    for batch in batches:
        columns = [pa.array(column) for column in zip(*batch, strict=True)]
        search, stay = rows.search(columns[:1], columns[1:]), np.array([*batch.values()])
        assert (search.slots >= 0).tolist() == [row in model for row in batch]
        rows.remove(search.slots[~stay & (search.slots >= 0)])
        entered = rows.enter(search, stay, columns)
        model = {row for row in model | batch.keys() if batch.get(row, True)}
        assert rows.columns(entered, ["v"])[0].to_pylist() == [row[1] for row in batch if batch[row]]
        _, slots = rows.of_keys([pa.array([0, 1, 2])])
        values, keys = (column.to_pylist() for column in rows.columns(slots, ["v", "k"]))
        assert sorted(zip(keys, values, strict=True)) == sorted(model)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=30))
def test_rows_live_as_long_as_they_are_written_again(steps: list[tuple[int, int]]) -> None:
    rows = KeyedRows(RowsLayout("rows", pa.schema({"k": pa.int64()}), pa.schema([]), pa.schema([]), ttl_ms=10))
    model: dict[int, int] = {}
    now = 0
    for key, later in steps:
        now += later
        rows.remove(rows.expired(now))
        model = {one: written for one, written in model.items() if written + 10 > now}
        rows.add([pa.array([key])], now=now)
        model[key] = now
        held = rows.slots()
        assert dict(zip(rows.columns(held, ["k"])[0].to_pylist(), rows.touched(held).tolist(), strict=True)) == model


def test_what_is_written_again_and_again_is_watched_once() -> None:
    rows = KeyedRows(RowsLayout("rows", pa.schema({"k": pa.int64()}), pa.schema([]), pa.schema([]), ttl_ms=10**9))
    for now in range(100):
        rows.add([pa.array(np.arange(1000))], now=now)
    assert sum(len(due.slots) for due in rows._due) <= 2 * 1000 + 4096
    assert rows.expired(10**9 + 98).tolist() == []
    assert len(rows.expired(10**9 + 99)) == 1000


@pytest.mark.parametrize("count", [200, 9_000])
def test_chains_agree_with_a_dict_also_where_they_are_compiled(count: int) -> None:
    random = np.random.default_rng(7)
    groups = random.integers(0, count // 10, count)
    chains = Chains()
    chains.add(np.arange(count), groups)
    gone = random.permutation(count)[: count // 2]
    emptied = chains.remove(gone)
    stays = np.setdiff1d(np.arange(count), gone)
    assert set(emptied.tolist()) == set(groups.tolist()) - set(groups[stays].tolist())
    chains.add(gone[:5], np.zeros(5, np.int64))
    stays, groups[gone[:5]] = np.concatenate([stays, gone[:5]]), 0
    asked = np.unique(random.integers(0, count // 10 + 5, count))
    of, slots = chains.of(asked)
    assert sorted(zip(asked[of].tolist(), slots.tolist(), strict=True)) == sorted(
        (int(groups[slot]), slot) for slot in stays.tolist() if groups[slot] in asked
    )


def test_codes_tell_values_apart_as_sql_does_and_come_back() -> None:
    floats = pa.array([0.0, -0.0, float("nan"), -float("nan"), None, 1.5])
    codes = coded(floats).to_pylist()
    assert codes[0] == codes[1] != codes[2] == codes[3]
    assert codes[4] is None
    assert decoded(coded(pa.array([1.5, None], pa.float32())), pa.float32()).to_pylist() == [1.5, None]
    assert coded(pa.array([[1, 2], [1], None])).to_pylist() == ["[1, 2]", "[1]", None]
    assert coded(pa.array(["a", "a"]).dictionary_encode()).to_pylist() == ["a", "a"]


def test_nested_times_have_the_codes_that_saved_rows_have() -> None:
    lists = pa.array([[1000], [1], None, [None]], pa.list_(pa.timestamp("ns")))
    told = ["[datetime.datetime(1970, 1, 1, 0, 0, 0, 1)]", "[1]", None, "[None]"]
    assert coded(lists).to_pylist() == told
    assert coded(lists[:1]).to_pylist() == told[:1]


def test_rows_that_rocksdb_saved_have_times_whether_as_times_or_as_numbers() -> None:
    times = pa.schema({"t": pa.timestamp("ns"), "l": pa.list_(pa.timestamp("ns", "UTC"))})
    layout = RowsLayout("s", pa.schema({"k": pa.int64()}), pa.schema({}), times)
    for kind in (pa.struct(list(layout.schema)), numbers_type(pa.struct(list(layout.schema)))):
        values = pa.array([{"k": 1, "t": 5000, "l": [7000]}], kind)
        saved = pa.table({KEY_GROUP: pa.array([3], pa.int32()), START: pa.nulls(1, pa.int64()), VALUE: values})
        (row,) = flat_table(saved, layout, "operator 'f'").select(layout.schema.names).to_batches()
        assert row.schema == layout.schema
        assert [with_numbers(column).to_pylist() for column in row.columns] == [[1], [5000], [[7000]]]
