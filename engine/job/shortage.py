"""Where the cluster has no room for all of a job: it restarts smaller, if it may, and grows back once there is room.

`Recovery` asks which layout to restart into, and lets it say what is to be waited for. The way back is a rescale like
another: a checkpoint, processes that are prepared while the job runs, a restart.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.engine.job import instructions as say
from penstock.engine.job.layout import Layout
from penstock.engine.job.life import Life
from penstock.engine.job.rescaling import Rescaling
from penstock.engine.job.status import JobStatus


class Shortage:
    """Too little room for one job.

    Args:
        life: of the job.
        rescaling: the rescale that ends it; while another one is under way, nothing is waited for.
    """

    def __init__(self, life: Life, rescaling: Rescaling) -> None:
        self._life = life
        self._rescaling = rescaling
        self._awaits_room = False

    def layout_for(self, room: int | None) -> Layout | None:
        """The layout to restart into where there is room for `room` slots; None: the one that there is.

        A job without storage would begin from its beginning, and could not grow back.
        """
        life = self._life
        least = life.config.failover.min_parallelism
        if least is None or room is None or life.checkpoints is None or life.layout is None:
            return None
        widest = max(life.layout.parallelisms.values())
        if not least <= room < widest:
            return None
        life.said.append(
            say.Warn(
                f"job {life.name!r} restarts with at most {room} subtasks of each operator instead of {widest}, until "
                "there is room for all (penstock.restart.min-parallelism allows it)"
            )
        )
        return life.plan(replace(life.layout.scale, most=room))

    def on_deploy(self) -> None:
        """Subtasks are being started: what the shell waited for beside the job, it waits for no more."""
        self._awaits_room = False

    def on_room(self) -> None:
        """What was waited for is there."""
        self._awaits_room = False

    def proceed(self) -> None:
        """Wait for room if the job runs smaller than it should, and nothing else is being done about it."""
        life = self._life
        if life.layout is None or life.layout.scale.most is None or self._awaits_room:
            return
        if life.status is JobStatus.RUNNING and not self._rescaling.is_under_way:
            self._awaits_room = True
            life.said.append(say.AwaitRoom(life.plan(replace(life.layout.scale, most=None))))
