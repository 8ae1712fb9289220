"""The advertising example that answers from state: windows, and what Redis holds, are as plain counting has them."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow.json as pj
import pytest

import penstock as ps
from penstock.testing.services import Redis

CAMPAIGNS, EVENTS = 7, 300_000


def _counted(example: ModuleType) -> dict[tuple[str, int], int]:
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    counts: Counter[tuple[str, int]] = Counter()
    for row in env.from_source(example.events(CAMPAIGNS, EVENTS)).collect():
        if row["event_type"] == "view":
            at = int(row["event_time"].timestamp() * 1000)
            counts[f"campaign-{row['ad'] // example.ADS_PER_CAMPAIGN}", at - at % 10_000] += 1
    return dict(counts)


def test_windows_and_redis_have_the_views_of_each_campaign(
    load: Callable[[str], ModuleType], redis: Redis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = load("advertising_answers")
    env = ps.StreamEnvironment(runtime="local", parallelism=2)
    viewed = example.views(env, example.events(CAMPAIGNS, EVENTS), CAMPAIGNS)
    example.keep_in_state(viewed, str(tmp_path))
    example.keep_in_redis(viewed, redis.url)
    job = env.submit("advertising")
    ask = example.from_redis(redis.url)
    asked = argparse.Namespace(campaigns=CAMPAIGNS, lookups=50.0, seconds=0.1, warm_up=0.1)
    example.measure("redis", job, ask, asked)
    assert " lookups=" in capsys.readouterr().out
    job.wait()
    right = _counted(example)
    found = [row for file in tmp_path.rglob("*.json*") for row in pj.read_json(file).to_pylist()]
    assert sum(row["views"] for row in found) == sum(right.values())
    assert sorted(row["views"] for row in found) == sorted(right.values())
    newest = max(at for _, at in right)
    for campaign in range(CAMPAIGNS):
        assert ask(f"campaign-{campaign}") == {newest: right[f"campaign-{campaign}", newest]}
    assert ask("campaign-999") == {}
