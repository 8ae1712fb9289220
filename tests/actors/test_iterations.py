"""Loops on Ray: rows come back to actors that may be their own senders, and the job ends."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock import DataStream, KeyedStream, StreamEnvironment, col
from penstock.engine.operators.iteration import Asynchronous, BulkSynchronous

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


def collatz_steps(n: int) -> int:
    return 0 if n == 1 else 1 + collatz_steps(n // 2 if n % 2 == 0 else 3 * n + 1)


@pytest.mark.long("tests/engine/api/test_iterations.py")
@pytest.mark.parametrize("kind", [Asynchronous(), BulkSynchronous()], ids=lambda kind: type(kind).__name__)
def test_loops_end_with_the_rows_that_they_must_give(kind: Asynchronous | BulkSynchronous) -> None:
    # One message of credit and small batches: the channels of the loop are full all the time.
    env = StreamEnvironment(parallelism=2, max_batch_rows=50, channel_credits=1)
    numbers = env.from_collection([{"id": n, "n": n, "steps": 0} for n in range(1, 301)]).rebalance()
    step = ps.when(col("n") % 2 == 0).then(col("n") // 2).otherwise(3 * col("n") + 1)

    def body(loop: DataStream) -> tuple[DataStream | KeyedStream, DataStream]:
        # A task of its own behind the head of the loop.
        loop = loop.rebalance().map(lambda row: row, returns={"id": "int64", "n": "int64", "steps": "int64"})
        stepped = loop.filter(col("n") > 1).with_columns(n=step, steps=col("steps") + 1)
        return stepped.key_by("n"), loop.filter(col("n") == 1)

    result = numbers.iterate(body, kind).collect()
    env.execute("loop")
    assert sorted((row["id"], row["steps"]) for row in result) == [(n, collatz_steps(n)) for n in range(1, 301)]
