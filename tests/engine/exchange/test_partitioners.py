"""Partitioners: where rows go, and that none is lost, doubled or torn from its key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import Batch
from penstock.engine.errors import ColumnTypeError, MissingColumnError, RecordError
from penstock.engine.exchange.partitioners import (
    Broadcast,
    Forward,
    Global,
    Hash,
    HashChanges,
    Partitioner,
    Rebalance,
    Rescale,
    Splitter,
    SplitterContext,
)
from penstock.engine.few_rows import FewRows
from penstock.engine.state.keys.groups import key_group_range, key_groups
from tests.engine.helpers import numbers, numbers_in

ALL: Sequence[Partitioner] = [Forward(), Global(), Broadcast(), Rebalance(), Rescale(), Hash(("n",))]
SPREADING = [Rebalance(), Rescale(), Hash(("n",))]
BATCH_SIZES = st.lists(st.integers(1, 20), max_size=10)


def splitter(partitioner: Partitioner, channels: int, subtask: int = 0, max_parallelism: int = 128) -> Splitter:
    return partitioner.splitter(SplitterContext("operator 'next'", channels, subtask, max_parallelism))


def batches(sizes: Sequence[int]) -> list[Batch]:
    """Batches of these sizes; all numbers are different."""
    made, begin = [], 0
    for size in sizes:
        made.append(numbers(range(begin, begin + size)))
        begin += size
    return made


def split_all(split: Splitter, parts: Sequence[Batch]) -> list[tuple[int, Batch]]:
    return [placed for batch in parts for placed in split(batch)]


def rows_by_channel(placed: Sequence[tuple[int, Batch]], channels: int) -> list[list[int]]:
    return [numbers_in([batch for to, batch in placed if to == channel]) for channel in range(channels)]


# Rows


@given(st.sampled_from(SPREADING), st.integers(1, 7), st.integers(0, 6), BATCH_SIZES)
def test_each_row_goes_to_one_channel_and_stays_in_order_there(
    partitioner: Partitioner, channels: int, subtask: int, sizes: list[int]
) -> None:
    placed = split_all(splitter(partitioner, channels, subtask), batches(sizes))
    by_channel = rows_by_channel(placed, channels)
    assert sorted(n for rows in by_channel for n in rows) == list(range(sum(sizes)))
    assert all(rows == sorted(rows) for rows in by_channel)
    assert all(batch.num_rows for _, batch in placed)


@pytest.mark.parametrize("partitioner", [Forward(), Global()])
def test_rows_for_one_channel_pass_as_they_are(partitioner: Partitioner) -> None:
    batch = numbers([1, 2])
    assert list(splitter(partitioner, 1)(batch)) == [(0, batch)]


@given(st.integers(1, 7), BATCH_SIZES)
def test_broadcast_rows_go_to_every_channel(channels: int, sizes: list[int]) -> None:
    placed = split_all(splitter(Broadcast(), channels), batches(sizes))
    assert rows_by_channel(placed, channels) == [list(range(sum(sizes)))] * channels


@pytest.mark.parametrize("partitioner", SPREADING)
def test_rows_keep_their_timestamps_and_kinds(partitioner: Partitioner) -> None:
    data = numbers(range(10)).data
    batch = Batch(data, pa.array(range(100, 110)), pa.array(range(10), pa.int8()))
    for _, part in splitter(partitioner, 3)(batch):
        assert part.timestamps is not None
        assert part.kinds is not None
        assert [t - 100 for t in part.timestamps.to_pylist()] == part.data.column("n").to_pylist()
        assert part.kinds.to_pylist() == part.data.column("n").to_pylist()


@pytest.mark.parametrize("partitioner", [Hash(("n",)), HashChanges(("n",))])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("large", ["data", "timestamps", "kinds"])
def test_rows_by_key_leave_the_rest_of_what_they_were_cut_from_behind(
    partitioner: Partitioner, rows: int, large: str
) -> None:
    few, many = (_full(size).slice(0, rows) for size in (rows, 1_000_000))
    for _, part in splitter(partitioner, 3)(replace(few, **{large: getattr(many, large)})):
        assert part.timestamps is not None
        assert part.kinds is not None
        held = (one.get_total_buffer_size() for one in (part.data, part.timestamps, part.kinds))
        assert sum(held) < 1000


@pytest.mark.parametrize("partitioner", [Hash(("n",)), HashChanges(("n",))])
def test_a_row_by_key_that_holds_little_is_not_copied(partitioner: Partitioner) -> None:
    row = _full(3).slice(1, 1)
    ((_, part),) = splitter(partitioner, 3)(row)
    assert part is row


@pytest.mark.parametrize("partitioner", [Hash(("n",)), HashChanges(("n",))])
@pytest.mark.parametrize(("rows", "as_bytes"), [(1, True), (63, True), (64, False)])
def test_few_rows_by_key_travel_as_bytes(partitioner: Partitioner, rows: int, as_bytes: bool) -> None:
    numbers = Batch(pa.record_batch({"n": range(rows), "v": range(rows)}))
    parts = [part for _, part in splitter(partitioner, 3)(numbers)]
    assert {isinstance(part, FewRows) for part in parts} == {as_bytes}
    assert sorted(row for part in parts for row in part.data.column("v").to_pylist()) == list(range(rows))


def _full(rows: int) -> Batch:
    """Rows with timestamps and kinds."""
    zeros = np.zeros(rows, np.int64)
    return Batch(pa.record_batch({"n": zeros}), pa.array(zeros), pa.array(zeros.astype(np.int8)))


# Evenness


@given(st.sampled_from([Rebalance(), Rescale()]), st.integers(2, 7), st.integers(1, 20), st.integers(1, 10))
def test_a_batch_is_dealt_out_evenly(partitioner: Partitioner, channels: int, subtask: int, rows: int) -> None:
    placed = split_all(splitter(partitioner, channels, subtask), batches([rows]))
    counts = [len(part) for part in rows_by_channel(placed, channels)]
    assert max(counts) - min(counts) <= 1


def test_many_batches_are_dealt_out_evenly() -> None:
    placed = split_all(splitter(Rebalance(), 3), batches([4] * 30))
    assert [len(part) for part in rows_by_channel(placed, 3)] == [40, 40, 40]


@given(st.integers(2, 7), st.integers(1, 60))
def test_single_rows_are_dealt_out_in_turn(channels: int, count: int) -> None:
    placed = split_all(splitter(Rebalance(), channels), batches([1] * count))
    assert [channel for channel, _ in placed] == [number % channels for number in range(count)]


def test_upstream_subtasks_begin_with_different_channels() -> None:
    firsts = [next(iter(splitter(Rebalance(), 4, subtask)(numbers([1]))))[0] for subtask in range(5)]
    assert firsts == [0, 1, 2, 3, 0]


# Keys


@given(
    st.lists(st.sampled_from(["a", "b", "", "Zürich", "x" * 40, "c", "d"]), min_size=1, max_size=30),
    st.integers(1, 9),
    st.integers(9, 300),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_each_key_goes_to_the_subtask_that_owns_its_key_group(
    keys: list[str], channels: int, max_parallelism: int, cuts: list[int]
) -> None:
    split = splitter(Hash(("key",)), channels, max_parallelism=max_parallelism)
    groups = dict(zip(keys, key_groups([pa.array(keys)], max_parallelism).tolist(), strict=True))
    seen: Counter[str] = Counter()
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(keys)], strict=True):
        if not keys[begin:end]:
            continue
        for channel, part in split(Batch(pa.record_batch({"key": keys[begin:end]}))):
            for key in part.data.column("key").to_pylist():
                assert groups[key] in key_group_range(channel, channels, max_parallelism)
                seen[key] += 1
    assert seen == Counter(keys)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=30), st.integers(1, 6))
def test_keys_of_several_columns_stay_together(rows: list[tuple[int, str]], channels: int) -> None:
    data = pa.record_batch({"n": [n for n, _ in rows], "key": [key for _, key in rows]})
    places: dict[tuple[int, str], set[int]] = {}
    for channel, part in splitter(Hash(("n", "key")), channels)(Batch(data)):
        for row in part.data.to_pylist():
            places.setdefault((row["n"], row["key"]), set()).add(channel)
    assert places.keys() == set(rows)
    assert all(len(channels_of_key) == 1 for channels_of_key in places.values())


@pytest.mark.parametrize("channels", [1, 3])
def test_a_null_key_is_refused_with_its_row_and_a_remedy(channels: int) -> None:
    split = splitter(Hash(("key",)), channels)
    batch = Batch(pa.record_batch({"key": ["a", None], "n": [1, 2]}))
    with pytest.raises(RecordError, match=r"operator 'next'.*'key' is null.*'n': 2.*fill_null"):
        list(split(batch))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_missing_key_column_is_named_with_its_neighbours(channels: int) -> None:
    split = splitter(Hash(("carier",)), channels)
    with pytest.raises(MissingColumnError, match="did you mean 'carrier'"):
        list(split(Batch(pa.record_batch({"carrier": ["a"]}))))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("values", [[0.5], [[1]]])
def test_what_cannot_be_a_key_is_refused_at_every_parallelism(channels: int, values: list[Any]) -> None:
    split = splitter(Hash(("key",)), channels)
    list(split(Batch(pa.record_batch({"key": ["a"]}))))
    with pytest.raises(ColumnTypeError, match=r"operator 'next'.*key_by: column 'key' is "):
        list(split(Batch(pa.record_batch({"key": values}))))


# Targets

PARALLELISMS = st.tuples(st.integers(1, 20), st.integers(1, 20))


@given(PARALLELISMS, st.sampled_from([Broadcast(), Rebalance(), Rescale(), Hash(("n",))]))
def test_every_downstream_subtask_is_reached(sizes: tuple[int, int], partitioner: Partitioner) -> None:
    upstream, downstream = sizes
    targets = [partitioner.targets(subtask, upstream, downstream) for subtask in range(upstream)]
    assert all(targets)
    assert {target for reached in targets for target in reached} == set(range(downstream))


@given(PARALLELISMS)
def test_rescale_connects_neighbours_and_shares_them_out_evenly(sizes: tuple[int, int]) -> None:
    upstream, downstream = sizes
    targets = [Rescale().targets(subtask, upstream, downstream) for subtask in range(upstream)]
    reached = Counter(target for channels in targets for target in channels)
    assert sum(reached.values()) == max(upstream, downstream)
    assert max(reached.values()) - min(reached.values()) <= 1
    lengths = [len(channels) for channels in targets]
    assert max(lengths) - min(lengths) <= 1
    assert [t for channels in targets for t in channels] == sorted(t for channels in targets for t in channels)


def test_forward_connects_equals_and_global_only_the_first() -> None:
    assert [list(Forward().targets(subtask, 3, 3)) for subtask in range(3)] == [[0], [1], [2]]
    assert [list(Global().targets(subtask, 3, 2)) for subtask in range(3)] == [[0], [0], [0]]


def test_plans_say_how_rows_are_spread() -> None:
    described = [partitioner.describe() for partitioner in [*ALL, Hash(("a", "b"))]]
    assert described == ["forward", "global", "broadcast", "rebalance", "rescale", "hash(n)", "hash(a, b)"]


def test_a_null_key_is_told_also_where_python_cannot_hold_the_row() -> None:
    data = pa.record_batch({"key": pa.array([None], pa.string()), "at": pa.array([2**60], pa.timestamp("ms"))})
    with pytest.raises(RecordError, match="key column 'key' is null in row"):
        list(splitter(Hash(("key",)), 1)(Batch(data)))
