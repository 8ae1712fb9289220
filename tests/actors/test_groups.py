"""What is reserved and given back at once is free again."""

from __future__ import annotations

import time

import pytest
import ray
from ray.util.placement_group import placement_group, placement_group_table

from penstock.actors.groups import remove_groups

pytestmark = pytest.mark.ray


def _free() -> float:
    return float(ray.available_resources().get("CPU", 0))  # type: ignore[no-untyped-call]


def test_groups_that_are_removed_as_soon_as_they_are_asked_for_leave_nothing_reserved(no_leak: None) -> None:
    before = _free()
    for _ in range(100):
        remove_groups([placement_group([{"CPU": 0.01}])])
    deadline = time.monotonic() + 10
    while (free := _free()) < before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert free == before


def test_a_group_without_room_is_removed(no_leak: None) -> None:
    group = placement_group([{"CPU": 10_000}])
    remove_groups([group])
    assert placement_group_table(group)["state"] == "REMOVED"
