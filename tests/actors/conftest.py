"""Fixtures for tests that run jobs on Ray."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest
import ray
from ray.util.placement_group import placement_group_table


@pytest.fixture(autouse=True, scope="module")
def thaw() -> Iterator[None]:
    """An actor that is made in this process keeps all that is there from the garbage collector: not for longer."""
    yield
    gc.unfreeze()


@pytest.fixture
def no_leak() -> Iterator[None]:
    """Fail a test whose job left actors or slots behind."""
    yield
    deadline = time.monotonic() + 20
    while (left := _left_behind()) and time.monotonic() < deadline:
        threading.Event().wait(0.1)
    assert not left


def _left_behind() -> list[str]:
    groups = [g["placement_group_id"] for g in placement_group_table().values() if g["state"] != "REMOVED"]
    free, total = ray.available_resources().get("CPU"), ray.cluster_resources().get("CPU")
    return [*groups, *([] if free == total else [f"{free} of {total} CPUs are free"])]
