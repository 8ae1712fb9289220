"""Keeps the sources of one alignment group together: asks how far each subtask is, and tells them how far the group is.

The job manager runs one such loop for each group while the job runs. Losing a subtask ends the job elsewhere, so errors
of the calls are not reported from here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayError

from penstock.engine.task.alignment import group_minimum


async def align(actors: Sequence[Any], seconds: float) -> None:
    """Run until cancelled.

    Args:
        actors: the subtask actors of the group.
        seconds: how often.
    """
    told: int | None = None
    while True:
        with contextlib.suppress(RayError):
            minimum = group_minimum(await asyncio.gather(*(actor.position.remote() for actor in actors)))
            if minimum != told:
                await asyncio.gather(*(actor.align.remote(minimum) for actor in actors))
                told = minimum
        await asyncio.sleep(seconds)
