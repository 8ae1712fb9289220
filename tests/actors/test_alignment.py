"""Watermark alignment on Ray: sources in different processes stay near each other, and a subtask is told the limit."""

from __future__ import annotations

import asyncio

import pytest

import penstock as ps
from penstock import DataGenSource, Sequence, StreamEnvironment, col
from penstock.actors.deployment import Deployment
from penstock.actors.running_task import SubtaskEvent
from penstock.actors.subtask import SubtaskActor
from penstock.connectors.collection import CollectionSource
from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.windows.watermarks import WatermarkStrategy

IN_ORDER = WatermarkStrategy.for_monotonous_timestamps()


def test_a_subtask_waits_until_it_is_told_that_its_group_has_come_as_far() -> None:
    strategy = IN_ORDER.with_timestamp_assigner("value").with_watermark_alignment("all", "10ms")
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1, buffer_timeout="0ms", channel_credits=100)
    env.from_source(CollectionSource.of([0, 20, 40]), watermarks=strategy).collect()
    graph = env.program("one task").physical()

    async def use() -> None:
        actor, more, received = SubtaskActor(), True, 0
        await actor.deploy(graph, Deployment(1, 0, 1, [[]]))
        assert await actor.position() == MIN_TIMESTAMP
        await actor.start(1)

        async def fetch(seconds: float) -> list[int]:
            nonlocal more, received
            fetched = await actor.fetch(1, 0, received, seconds)
            more, received = fetched.more, received + len(fetched.rows)
            return [value for _, batch in fetched.rows for value in batch.data.column("value").to_pylist()]

        async def next_row() -> int:
            while not (rows := await fetch(1.0)):
                pass
            (row,) = rows
            return row

        assert await next_row() == 0
        assert await fetch(0.05) == []
        assert await actor.position() == -1
        await actor.align(-1)
        assert await next_row() == 20
        await actor.align(8)
        # At 19 it is more than 10 ahead of the group.
        assert await fetch(0.05) == []
        assert await actor.position() == 19
        await actor.align(9)
        assert await next_row() == 40
        await actor.align(39)
        while more:
            assert await fetch(1.0) == []
        assert await actor.watch(1, 1) == [SubtaskEvent.FINISHED]
        assert await actor.position() is None
        # Its thread must not outlive the event loop that it reports to.
        await actor.stop()

    async def bounded() -> None:
        await asyncio.wait_for(use(), 30)

    asyncio.run(bounded())


@pytest.mark.long("the test above, and tests/engine/job for the groups")
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster", "no_leak")
def test_a_fast_source_stays_near_a_slow_one_in_another_process() -> None:
    env = StreamEnvironment(parallelism=1, max_batch_rows=20, buffer_timeout="0ms")
    strategy = IN_ORDER.with_timestamp_assigner("n").with_watermark_alignment("all", "50ms", update_interval="50ms")
    slow, fast = (
        env.from_source(DataGenSource({"n": Sequence()}, rows=900, rate=rate), watermarks=strategy, name=name)
        .with_columns(source=ps.lit(name))
        .disable_chaining()
        for name, rate in (("slow", 300), ("fast", None))
    )
    seen, furthest = {"slow": 0, "fast": 0}, 0
    for row in slow.union(fast).filter(col("n") >= 0).collect():
        seen[row["source"]] = row["n"]
        if seen["slow"] < 890:
            furthest = max(furthest, seen["fast"] - seen["slow"])
    assert seen == {"slow": 899, "fast": 899}
    # Drift and a batch are 70; the rest is for rows of the slow source that are under way. Without alignment: 700.
    assert furthest < 250
