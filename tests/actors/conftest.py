"""Fixtures for tests that run jobs on Ray."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest
import ray
from ray._private.state import actors as actor_table
from ray.util.placement_group import placement_group_table


@pytest.fixture(autouse=True, scope="module")
def thaw() -> Iterator[None]:
    """An actor that is made in this process keeps all that is there from the garbage collector: not for longer."""
    yield
    gc.unfreeze()


@pytest.fixture
def no_leak(ray_cluster: None) -> Iterator[None]:
    """Fail a test whose job left actors or slots behind; what one before it left is not its fault."""
    groups, cpus = _groups(), _cpus_taken()
    yield
    deadline = time.monotonic() + 20
    while (_groups() - groups or _cpus_taken() > cpus) and time.monotonic() < deadline:
        threading.Event().wait(0.1)
    taken = _cpus_taken()
    assert (_groups() - groups, taken) == (set(), min(taken, cpus)), f"there are {_actors()}"


def _groups() -> set[str]:
    """The placement groups that are there."""
    return {g["placement_group_id"] for g in placement_group_table().values() if g["state"] != "REMOVED"}


def _cpus_taken() -> float:
    return float(ray.cluster_resources().get("CPU", 0) - ray.available_resources().get("CPU", 0))


def _actors() -> list[str]:
    """What is not dead, for whoever looks for the one that should be."""
    actors = [one for one in actor_table().values() if one["State"] != "DEAD"]
    return [f"{one['ActorClassName']} {one['Name']} ({one['State']}, process {one['Pid']})" for one in actors]
