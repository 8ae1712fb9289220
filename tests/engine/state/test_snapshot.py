"""Snapshots are shared out by key group, evenly, to all, or alike, whatever the old and the new parallelism."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.state import snapshot as module
from penstock.engine.state.keys.groups import key_group_range, key_groups
from penstock.engine.state.snapshot import (
    EMPTY_SNAPSHOT,
    KEY_GROUP,
    OperatorSnapshot,
    Redistribution,
    StateTable,
    keyed_table,
    rows_of_groups,
    share,
    with_groups,
)

GROUPS = 8


def test_a_keyed_table_is_sorted_by_key_group_and_keeps_the_order_within() -> None:
    data = pa.table({"k": [3, 1, 2, 3, 1], "n": range(5)})
    table = keyed_table(data, ["k"], GROUPS).data
    groups = table[KEY_GROUP].to_pylist()
    assert groups == sorted(groups) == key_groups([pa.array(table["k"].to_pylist())], GROUPS).tolist()
    assert [n for k, n in zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True) if k == 3] == [0, 3]


@pytest.mark.parametrize("first", [0, 3])
def test_very_many_rows_are_sorted_as_few_are(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(first)
    numbers = rng.integers(0, 50, 400)
    data = pa.table(
        {
            "k": numbers,
            "small": pa.array(numbers % 100, pa.int8()),
            "half": pa.array(numbers.astype(np.float16)),
            "day": pa.array(numbers.astype(np.int32), pa.date32()),
            "at": pa.array(range(400), pa.timestamp("ms")),
            "missing": pa.array(range(400), mask=numbers % 3 == 0),
            "text": pa.array([f"text {n}" for n in numbers]).dictionary_encode(),
            "is_odd": pa.array(numbers % 2 == 1),
            "row": range(400),
        }
    ).slice(first)
    few = keyed_table(data, ["k"], GROUPS).data
    monkeypatch.setattr(module, "_MANY_ROWS", 1)
    many = keyed_table(data, ["k"], GROUPS).data
    many.validate(full=True)
    assert many.equals(few)
    in_chunks = pa.concat_tables([data.slice(0, 100), data.slice(100)])
    assert keyed_table(in_chunks, ["k"], GROUPS).data.equals(few)


def test_without_keys_everything_belongs_to_key_group_0() -> None:
    assert keyed_table(pa.table({"n": [1, 2]}), [], GROUPS).data[KEY_GROUP].to_pylist() == [0, 0]


@given(st.sets(st.integers(0, 99)), st.integers(1, GROUPS), st.integers(1, GROUPS))
def test_each_row_goes_to_the_subtask_that_owns_its_key_group(keys: set[int], before: int, after: int) -> None:
    whole = OperatorSnapshot({"s": keyed_table(pa.table({"k": pa.array(sorted(keys), pa.int64())}), ["k"], GROUPS)})
    old = [share([whole], index, before, GROUPS) for index in range(before)]
    seen = []
    for index in range(after):
        tables = share(old, index, after, GROUPS).tables
        if "s" in tables:
            data = tables["s"].data
            groups = data[KEY_GROUP].to_pylist()
            assert groups == sorted(groups)
            assert set(groups) <= set(key_group_range(index, after, GROUPS))
            seen += data["k"].to_pylist()
    assert sorted(seen) == sorted(keys)


def test_the_rows_of_key_groups_are_found_in_whatever_order_they_lie() -> None:
    rows = with_groups(pa.table({"k": pa.array(range(50), pa.int64())}), ["k"], GROUPS)
    groups = rows[KEY_GROUP].to_pylist()
    assert groups != sorted(groups)
    for owned in (range(3), range(3, GROUPS), range(2, 2)):
        expected = [row for row in rows.to_pylist() if row[KEY_GROUP] in owned]
        assert rows_of_groups(rows, owned).to_pylist() == expected


def test_broadcast_rows_are_those_of_one_subtask() -> None:
    parts = [OperatorSnapshot({"b": StateTable(Redistribution.BROADCAST, pa.table({"v": [1, 2]}))})] * 3
    for index in range(5):
        assert share(parts, index, 5, GROUPS).tables["b"].data["v"].to_pylist() == [1, 2]


def test_a_state_that_some_subtasks_do_not_have_is_shared_out_all_the_same() -> None:
    parts = [EMPTY_SNAPSHOT, OperatorSnapshot({"u": StateTable(Redistribution.UNION, pa.table({"v": [1]}))})]
    assert [share(parts, index, 2, GROUPS).tables["u"].data["v"].to_pylist() for index in range(2)] == [[1], [1]]


def test_a_table_without_chunks_is_a_keyed_table_without_rows() -> None:
    table = pa.Table.from_batches([], pa.schema([("k", pa.int64())]))
    assert keyed_table(table, ["k"], GROUPS).data.num_rows == 0


def test_event_time_resumes_from_the_least_watermark() -> None:
    assert share([OperatorSnapshot({}, 7), OperatorSnapshot({}, 5)], 0, 1, GROUPS).watermark == 5
    assert share([], 0, 1, GROUPS) == OperatorSnapshot({}, MIN_TIMESTAMP)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_all_know_how_far_event_time_had_come(parallelism: int) -> None:
    old = [OperatorSnapshot({}, 7), OperatorSnapshot({}, 5)]
    assert {share(old, index, parallelism, GROUPS).furthest for index in range(parallelism)} == {7}
