"""Removes placement groups, so that what they have reserved is free again.

Ray (2.60) loses it for the life of the cluster where a group is removed in the millisecond between its resources being
prepared on a node and committed there: of groups that are removed as soon as they are asked for, one in thirty.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final

from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

_LOG = logging.getLogger(__name__)
_PLACING_SECONDS: Final = 1.0
"""How long groups may take in all until they are on their nodes, or have found no room: a lost node does not answer."""
_LOOK_SECONDS: Final = 0.002
_PLACING: Final = frozenset({"QUEUED", "SCHEDULING_STARTED"})


def remove_groups(groups: Iterable[PlacementGroup]) -> None:
    """Remove placement groups, each once Ray is not just placing it; what runs in them is killed."""
    deadline = time.monotonic() + _PLACING_SECONDS
    for group in groups:
        while _is_being_placed(group) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        remove_placement_group(group)


def remove_groups_soon(groups: Iterable[PlacementGroup]) -> None:
    """The same without waiting, for event loops: those that Ray is just placing are left to another thread."""
    placing = []
    for group in groups:
        if _is_being_placed(group):
            placing.append(group)
        else:
            remove_placement_group(group)
    if placing:
        threading.Thread(target=_remove, args=(placing,), name="placement groups", daemon=True).start()


def _remove(groups: Sequence[PlacementGroup]) -> None:
    try:
        remove_groups(groups)
    except Exception as error:
        _LOG.warning("%d placement groups were not removed: %s; they end with the job's manager", len(groups), error)


def _is_being_placed(group: PlacementGroup) -> bool:
    return placement_group_table(group).get("stats", {}).get("scheduling_state") in _PLACING
