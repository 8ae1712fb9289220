"""Fixtures for tests that run jobs on Ray."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
import ray
from ray._private.state import actors as actor_table
from ray.util.placement_group import placement_group_table


@pytest.fixture(autouse=True, scope="module")
def thaw() -> Iterator[None]:
    """An actor that is made in this process keeps all that is there from the garbage collector: not for longer."""
    kept = gc.get_freeze_count()
    yield
    if gc.get_freeze_count() > kept:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@dataclass
class _Blamed:
    """What tests have failed for: placement groups and CPUs that stay taken."""

    groups: set[str] = field(default_factory=set)
    cpus: float = 0.0


@pytest.fixture(scope="session")
def blamed() -> _Blamed:
    return _Blamed()


@pytest.fixture
def no_leak(ray_cluster: None, blamed: _Blamed) -> Iterator[None]:
    """Fail a test whose job left actors or slots behind, and not those behind it once more for the same."""
    yield
    deadline = time.monotonic() + 120
    while (_groups() - blamed.groups or _cpus_taken() > blamed.cpus) and time.monotonic() < deadline:
        threading.Event().wait(0.1)
    known, groups, cpus = replace(blamed), _groups(), _cpus_taken()
    blamed.groups, blamed.cpus = groups, cpus
    assert (groups - known.groups, max(cpus - known.cpus, 0.0)) == (set(), 0.0), f"there are {_actors()}"


def _groups() -> set[str]:
    """The placement groups that are there."""
    return {g["placement_group_id"] for g in placement_group_table().values() if g["state"] != "REMOVED"}


def _cpus_taken() -> float:
    return float(ray.cluster_resources().get("CPU", 0) - ray.available_resources().get("CPU", 0))


def _actors() -> list[str]:
    """What is not dead, for whoever looks for the one that should be."""
    actors = [one for one in actor_table().values() if one["State"] != "DEAD"]
    return [f"{one['ActorClassName']} {one['Name']} ({one['State']}, process {one['Pid']})" for one in actors]
