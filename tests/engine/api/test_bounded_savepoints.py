"""Jobs with `group_by` and `sort` that are stopped before their input ends: what is shown, and how they go on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock import CollectResult, DataGenSource, Sequence, StreamEnvironment, col, savepoints
from penstock.engine.job.status import JobStatus
from penstock.recovery import checkpoints
from tests.engine.helpers import local_environment

KEYS = 3


def build(
    env: StreamEnvironment, rows: int, rate: float | None = None
) -> tuple[CollectResult, CollectResult, CollectResult]:
    """Totals by key, and all numbers in descending order, of the numbers from 0 to `rows`; and these as they come."""
    numbers = env.from_source(DataGenSource({"n": Sequence()}, rows=rows, rate=rate)).uid("numbers")
    totals = numbers.select("n", k=col("n") % KEYS).group_by("k").aggregate(n=ps.count(), total=ps.sum("n"))
    order = numbers.sort("n", descending=True).uid("order")
    return totals.uid("totals").collect(), order.collect(), numbers.collect()


def run_for(rows: int, seen: CollectResult) -> Iterator[dict[str, int]]:
    """Let the job run until so many rows have come; it is cancelled when what is returned goes."""
    reading = iter(seen)
    assert len(list(itertools.islice(reading, rows))) == rows
    return reading


def assert_whole(totals: Iterable[dict[str, int]], order: Iterable[dict[str, int]], rows: int) -> None:
    """These are the results of all rows, each given once."""
    expected = [(k, len(range(k, rows, KEYS)), sum(range(k, rows, KEYS))) for k in range(KEYS)]
    assert sorted((row["k"], row["n"], row["total"]) for row in totals) == expected
    assert [row["n"] for row in order] == list(range(rows - 1, -1, -1))


def assert_in_mid_input(savepoint: str, rows: int) -> None:
    """The savepoint holds some of the rows, and not all."""
    saved = savepoints.read(savepoint).operator("order").all_states[0].rows
    assert 0 < saved < rows
    assert savepoints.read(savepoint).operator("totals").all_states[0].rows == KEYS


def environment(folder: Path, parallelism: int, seed: int, backend: str) -> StreamEnvironment:
    storage = checkpoints(storage=str(folder), savepoints=str(folder))
    return local_environment(parallelism, seed, max_batch_rows=7, checkpoints=storage, state_backend=backend)


@pytest.mark.parametrize(("seed", "backend"), [(0, "heap"), (1, "rocksdb"), (2, "heap")])
def test_a_job_that_is_stopped_shows_nothing_and_goes_on_at_any_parallelism(
    tmp_path: Path, seed: int, backend: str
) -> None:
    url: str | None = None
    # Stopped, started from there, stopped again, and at last let run to its end.
    for parallelism in (1 + seed % 3, 1 + (seed + 1) % 3):
        env = environment(tmp_path, parallelism, seed, backend)
        totals, order, seen = build(env, 1000, rate=1000)
        job = env.submit("stopped", savepoint=url)
        _reading = run_for(200, seen)
        job.checkpoint()
        url = job.stop()
        assert job.status() is JobStatus.FINISHED
        assert [totals.take().num_rows, order.take().num_rows] == [0, 0]
        assert_in_mid_input(url, 1000)
    env = environment(tmp_path, 2, seed, backend)
    totals, order, _ = build(env, 1000)
    env.execute("to the end", savepoint=url)
    assert_whole(totals, order, 1000)


def test_a_job_that_is_drained_gives_the_results_of_the_rows_so_far(tmp_path: Path) -> None:
    env = environment(tmp_path, 2, 0, "heap")
    totals, order, seen = build(env, 1000, rate=1000)
    job = env.submit("drained")
    _reading = run_for(200, seen)
    job.drain()
    numbers = [row["n"] for row in order]
    assert 0 < len(numbers) < 1000
    assert numbers == sorted(numbers, reverse=True)
    by_key = {row["k"]: row["total"] for row in totals}
    assert by_key == {k: sum(n for n in numbers if n % KEYS == k) for k in range(KEYS)}
