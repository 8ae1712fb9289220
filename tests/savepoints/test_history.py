"""Segments stay few, whatever comes, and merged changes do what the changes did one after another."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.capture import DELETED, Expiry
from penstock.savepoints.history import first_to_merge, merge_changes, merge_rows


def test_the_first_rows_are_a_base_and_small_changes_stand_beside_it() -> None:
    assert first_to_merge([], 10) == 0
    assert first_to_merge([100_000], 900) == 1
    assert first_to_merge([100_000, *[900] * 14], 600) == 15
    assert first_to_merge([100_000, *[900] * 15], 600) == 1
    assert first_to_merge([100_000, *[99_000] * 4], 4_000) == 5
    assert first_to_merge([100_000, *[99_000] * 4], 4_001) == 0
    assert first_to_merge([100_000, *[3_000] * 15], 3_000) == 1
    assert first_to_merge([100_000, *[4_000] * 40], 4_000) == 41


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=300))
def test_segments_are_few_and_changes_never_outgrow_the_base(sizes: list[int]) -> None:
    segments = [100_000]
    for size in sizes:
        kept = first_to_merge(segments, size)
        segments[kept:] = [sum(segments[kept:]) + size]
        assert len(segments) <= 96
        assert sum(segments[1:]) <= 4 * segments[0]


_ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=6)


def _changes(rows: list[tuple[int, int, bool]]) -> pa.Table:
    last = {key: (at, gone) for key, at, gone in rows}
    return pa.table(
        {
            "k": pa.array(last, pa.int64()),
            "at": pa.array([at for at, _ in last.values()], pa.int64()),
            DELETED: pa.array([gone for _, gone in last.values()], pa.bool_()),
        }
    )


@given(_ROWS, st.lists(_ROWS, min_size=1, max_size=4), st.none() | st.integers(0, 9))
def test_merged_changes_do_what_the_changes_do(
    base: list[tuple[int, int, bool]], changes: list[list[tuple[int, int, bool]]], below: int | None
) -> None:
    expiry = None if below is None else Expiry("at", below)
    stood, parts = merge_rows([_changes(base)], ["k"]), [_changes(rows) for rows in changes]
    merged = merge_rows([stood, merge_changes(parts, ["k"], expiry)], ["k"], expiry)
    assert merged.sort_by("k") == merge_rows([stood, *parts], ["k"], expiry).sort_by("k")


def test_rows_that_have_died_are_left_out_where_no_other_row_could_stand_for_them() -> None:
    changes = _changes([(1, 3, False), (2, 7, False)])
    assert merge_changes([changes], ["k", "at"], Expiry("at", 5)).column("k").to_pylist() == [2]


def test_where_nothing_tells_rows_apart_a_column_with_the_name_of_the_mark_is_theirs() -> None:
    rows = pa.table({"__key_group": pa.array([1, 0], pa.int32()), "__deleted": [True, False]})
    assert merge_rows([rows, rows.slice(0, 1)], ()).column("__deleted").to_pylist() == [False, True, True]
