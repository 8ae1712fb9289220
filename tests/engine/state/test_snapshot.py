"""Snapshots are shared out by key group, evenly, to all, or alike, whatever the old and the new parallelism."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.state.key_groups import key_group_range, key_groups
from penstock.engine.state.snapshot import (
    EMPTY_SNAPSHOT,
    KEY_GROUP,
    OperatorSnapshot,
    Redistribution,
    StateTable,
    keyed_table,
    share,
)

GROUPS = 8


def test_a_keyed_table_is_sorted_by_key_group_and_keeps_the_order_within() -> None:
    data = pa.table({"k": [3, 1, 2, 3, 1], "n": range(5)})
    table = keyed_table(data, ["k"], GROUPS).data
    groups = table[KEY_GROUP].to_pylist()
    assert groups == sorted(groups) == key_groups([pa.array(table["k"].to_pylist())], GROUPS).tolist()
    assert [n for k, n in zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True) if k == 3] == [0, 3]


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


def test_event_time_goes_on_from_the_least_watermark() -> None:
    assert share([OperatorSnapshot({}, 7), OperatorSnapshot({}, 5)], 0, 1, GROUPS).watermark == 5
    assert share([], 0, 1, GROUPS) == OperatorSnapshot({}, MIN_TIMESTAMP)
