"""A job finds warm processes where the one before it has left as many as it had taken."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pytest
import ray

from penstock import StreamEnvironment
from penstock.actors.lifeline import Address
from penstock.actors.nodes import addresses, own_node
from penstock.actors.raylet import idle_workers, start_workers

SECONDS = 60.0


@pytest.fixture
def raylet(ray_cluster: None) -> Address:
    """Where the raylet of the only node is."""
    (address,) = addresses([own_node()]).values()
    return address


def until_idle(raylet: Address, least: int) -> int:
    """How many processes are idle, once so many are."""
    deadline = time.monotonic() + SECONDS
    while True:
        idle = idle_workers(raylet)
        assert idle is not None
        if idle >= least:
            return idle
        assert time.monotonic() < deadline, f"{idle} of {least} processes are idle"
        threading.Event().wait(0.1)


class _Loaded:
    """An actor that says what its process has loaded."""

    def loaded(self) -> set[str]:
        return {"penstock.actors.subtask", "penstock.actors.job_manager", "pandas"} & set(sys.modules)


def occupied(count: int) -> list[Any]:
    """Actors, each in a process that was idle if there was one."""
    actors = [ray.remote(_Loaded).options(num_cpus=0).remote() for _ in range(count)]
    ray.get([actor.loaded.remote() for actor in actors])
    return actors


@pytest.mark.ray
def test_a_process_that_is_started_has_loaded_what_jobs_need(raylet: Address) -> None:
    assert start_workers(raylet, 1, 600)
    until_idle(raylet, 1)
    (actor,) = occupied(1)
    assert ray.get(actor.loaded.remote()) == {"penstock.actors.subtask", "penstock.actors.job_manager"}
    ray.kill(actor)


@pytest.mark.ray
def test_a_job_leaves_as_many_as_it_has_taken(raylet: Address) -> None:
    actors = occupied(idle_workers(raylet) or 0)
    env = StreamEnvironment(parallelism=1)
    rows = env.from_collection([1, 2, 3]).collect()
    env.execute()
    assert len(rows.to_arrow()) == 3
    # Its manager, and its subtask.
    until_idle(raylet, 2)
    for actor in actors:
        ray.kill(actor)


def test_a_raylet_that_is_not_there_is_none() -> None:
    assert idle_workers(("127.0.0.1", 1)) is None
    assert not start_workers(("127.0.0.1", 1), 1, 1)
