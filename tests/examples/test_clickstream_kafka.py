"""The clickstream example, confirmed visit by visit by plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa

import penstock as ps
from penstock.testing.services import Kafka

GAP_MS = 30 * 60_000


def visits_of(clicks: pa.Table) -> list[tuple[str, int, int, int]]:
    """User, first and last click, number of clicks, of each visit."""
    by_user = defaultdict(list)
    for row in clicks.to_pylist():
        by_user[row["user"]].append(row["at"])
    visits = []
    for user, times in by_user.items():
        visit: list[int] = []
        for at in sorted(times):
            if visit and at - visit[-1] >= GAP_MS:
                visits.append((user, visit[0], visit[-1], len(visit)))
                visit = []
            visit.append(at)
        visits.append((user, visit[0], visit[-1], len(visit)))
    return sorted(visits)


def test_a_reader_of_committed_records_sees_each_visit_once(
    load: Callable[[str], ModuleType], kafka: Kafka, tmp_path: Path
) -> None:
    example = load("clickstream_kafka")
    clicks, servers = example.clicks(20_000), kafka.bootstrap_servers
    for topic in (example.CLICKS, example.VISITS):
        kafka.create_topic(topic, partitions=4)
    example.produce(ps.StreamEnvironment(runtime="local", parallelism=1), servers, clicks)
    env = ps.StreamEnvironment(runtime="local", parallelism=2, checkpoints=ps.checkpoints("100ms", str(tmp_path)))
    example.build(env, servers)
    env.execute("visits")
    found = example.committed(ps.StreamEnvironment(runtime="local"), servers).to_pylist()
    assert sorted((row["user"], row["began"], row["ended"], row["pages"]) for row in found) == visits_of(clicks)
