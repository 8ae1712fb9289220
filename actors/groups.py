"""Removes placement groups, so that what they have reserved is free again.

Ray (2.60) loses it for the life of the cluster where a group is removed in the millisecond between its resources being
prepared on a node and committed there: of groups that are removed as soon as they are asked for, one in thirty.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

_PLACING_SECONDS: Final = 1.0
"""How long groups may take in all until they are on their nodes, or have found no room: a lost node does not answer,
and who removes them does nothing else meanwhile."""
_LOOK_SECONDS: Final = 0.002
_PLACING: Final = frozenset({"QUEUED", "SCHEDULING_STARTED"})


def remove_groups(groups: Iterable[PlacementGroup]) -> None:
    """Remove placement groups, each once Ray is not just placing it; what runs in them is killed."""
    deadline = time.monotonic() + _PLACING_SECONDS
    for group in groups:
        while _is_being_placed(group) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        remove_placement_group(group)


def _is_being_placed(group: PlacementGroup) -> bool:
    return placement_group_table(group).get("stats", {}).get("scheduling_state") in _PLACING
