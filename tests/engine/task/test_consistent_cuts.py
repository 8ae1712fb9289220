"""Whatever the order of steps, deliveries and triggers: a restored checkpoint gives each row exactly once."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.elements import Barrier, CheckpointMode, SnapshotKind
from penstock.engine.exchange.partitioners import Forward, Global, Hash, Partitioner, Rebalance, Rescale
from tests.draws import drawn
from tests.engine.task.network import BY_KEY, Network, Seen, Shape, rescaled, restored

MODES = {
    "aligned": Barrier(0),
    "unaligned": Barrier(0, CheckpointMode.UNALIGNED),
    "aligned, with a time-out": Barrier(0, alignment_timeout_ms=20),
    "at least once": Barrier(0, CheckpointMode.AT_LEAST_ONCE),
    "savepoint": Barrier(0, kind=SnapshotKind.SAVEPOINT),
}
EXACTLY_ONCE = [name for name in MODES if name != "at least once"]


def barrier(mode: str, number: int) -> Barrier:
    pattern = MODES[mode]
    return Barrier(number, pattern.mode, pattern.kind, alignment_timeout_ms=pattern.alignment_timeout_ms)


def in_order(seen: Seen) -> bool:
    """Whether the rows of each split have come in their order, for each key."""
    for rows in seen.values():
        by_split: dict[str, list[int]] = {}
        for split, n in rows:
            by_split.setdefault(split, []).append(n)
        if any(numbers != sorted(numbers) for numbers in by_split.values()):
            return False
    return True


def run_with_checkpoints(network: Network, modes: list[str], chosen: random.Random, first: int = 1) -> None:
    """Run to the end, and take a checkpoint of each mode some time; now and then abort one."""
    for number, mode in enumerate(modes, start=first):
        for _ in range(chosen.randrange(chosen.choice((40, 400)))):
            network.act()
        network.trigger(barrier(mode, number))
        if chosen.random() < 0.2:
            for _ in range(chosen.randrange(60)):
                network.act()
            network.abort(number)
    network.run()


def check(shape: Shape, modes: list[str], seed: int, parallelism: tuple[int, int, int, int] | None = None) -> int:
    """Restore from each complete checkpoint, and compare the end with the oracle. Returns how many there were."""
    chosen = random.Random(seed)
    network = Network(shape, chosen)
    run_with_checkpoints(network, modes, chosen)
    assert sorted_rows(network.seen(3)) == sorted_rows(network.seen(4)) == shape.oracle()
    then = shape if parallelism is None else rescaled(shape, parallelism)
    for number in network.complete:
        again = Network(then, chosen, restored(network.captures[number], then))
        run_with_checkpoints(again, modes[:1], chosen, first=100)
        compare(again, modes[number - 1], keeps_order=parallelism is None)
        for later in again.complete:
            third = Network(then, chosen, restored(again.captures[later], then))
            third.run()
            compare(third, modes[0], keeps_order=parallelism is None)
    return len(network.complete)


def compare(network: Network, mode: str, keeps_order: bool) -> None:
    shape = network.shape
    for task in (3, 4):
        seen = network.seen(task)
        if mode == "at least once":
            assert_no_loss(seen, shape.oracle())
            continue
        assert sorted_rows(seen) == shape.oracle()
        exchanges = [*shape.into_first, *([shape.into_last] if task == 4 else [])]
        if keeps_order and all(isinstance(exchange, Hash) for exchange in exchanges):
            assert in_order(seen)


def sorted_rows(seen: Seen) -> Seen:
    return {key: sorted(rows) for key, rows in seen.items()}


def assert_no_loss(seen: Seen, oracle: Seen) -> None:
    for key, rows in oracle.items():
        assert not Counter(rows) - Counter(seen[key])


@pytest.mark.parametrize("mode", MODES)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
@settings(max_examples=drawn(5))
def test_a_restored_network_has_seen_each_row_exactly_once(mode: str, seed: int, count: int) -> None:
    check(Shape(), [mode] * count, seed)


@given(seed=st.integers(0, 2**32), modes=st.lists(st.sampled_from(EXACTLY_ONCE), min_size=2, max_size=4))
@settings(max_examples=drawn(12))
def test_checkpoints_of_several_kinds_may_be_under_way_together(seed: int, modes: list[str]) -> None:
    check(Shape(), modes, seed)


@pytest.mark.parametrize("mode", EXACTLY_ONCE)
@pytest.mark.parametrize("partitioner", [Rebalance(), Rescale(), Forward(), Global(), BY_KEY])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=drawn(1))
def test_the_cut_is_consistent_however_tasks_are_connected(mode: str, partitioner: Partitioner, seed: int) -> None:
    check(Shape(into_first=(partitioner, BY_KEY), into_last=BY_KEY), [mode] * 2, seed)
    check(Shape(into_first=(BY_KEY, BY_KEY), into_last=partitioner), [mode] * 2, seed)


@pytest.mark.parametrize("mode", EXACTLY_ONCE)
@pytest.mark.parametrize("parallelism", [(1, 1, 1, 1), (3, 1, 3, 1), (2, 2, 1, 4)])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=drawn(3))
def test_the_cut_is_consistent_at_another_parallelism(
    mode: str, parallelism: tuple[int, int, int, int], seed: int
) -> None:
    check(Shape(), [mode] * 2, seed, parallelism)


@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_complete(mode: str) -> None:
    assert sum(check(Shape(), [mode] * 2, seed) for seed in range(4)) > 4
