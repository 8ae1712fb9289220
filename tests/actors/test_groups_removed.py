"""Who removes placement groups on an event loop does not wait for those that Ray is just placing; without a cluster."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.actors import groups as module
from penstock.actors.groups import remove_groups_soon

PLACED, PLACING = "placed", "placing"


class Ray:
    """Ray's table of groups, and which were removed, in which thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_placed, self.is_over = threading.Event(), threading.Event()
        self.removed: list[tuple[Any, bool]] = []
        monkeypatch.setattr(module, "placement_group_table", self.table)
        monkeypatch.setattr(module, "remove_placement_group", self.remove)
        monkeypatch.setattr(module, "_PLACING_SECONDS", 60.0)

    def table(self, group: Any) -> dict[str, Any]:
        is_done = group == PLACED or self.is_placed.is_set()
        return {"stats": {"scheduling_state": "FINISHED" if is_done else "SCHEDULING_STARTED"}}

    def remove(self, group: Any) -> None:
        self.removed.append((group, threading.current_thread() is threading.main_thread()))
        if len(self.removed) == 2:
            self.is_over.set()


def test_the_others_are_removed_at_once_and_those_when_they_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(monkeypatch)
    groups: Any = [PLACING, PLACED]
    remove_groups_soon(groups)
    assert ray.removed == [(PLACED, True)]
    ray.is_placed.set()
    assert ray.is_over.wait(60)
    assert ray.removed == [(PLACED, True), (PLACING, False)]
