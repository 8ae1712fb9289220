"""Runs a job's autoscaler: gives it readings, and asks the job for the rescales that it wants.

One for each job manager whose job wants it, in its event loop. All that is decided is decided by
`engine/autoscaler`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from penstock.engine.autoscaler.autoscaler import Autoscaler
from penstock.engine.autoscaler.readings import JobReading
from penstock.engine.autoscaler.report import AutoscalerInfo
from penstock.engine.autoscaler_config import AutoscalerConfig
from penstock.engine.errors import NoRoomError, PenstockError

_LOG = logging.getLogger(__name__)


class Autoscaling:
    """The autoscaler of one job.

    Args:
        config: its settings.
        read: gives a reading of the job; None: it does not run now.
        rescale: asks the job for a rescale, and returns the seconds that it stood still.
    """

    def __init__(
        self,
        config: AutoscalerConfig,
        read: Callable[[], Awaitable[JobReading | None]],
        rescale: Callable[[Mapping[str, int]], Awaitable[float]],
    ) -> None:
        self._config = config
        self._read = read
        self._rescale = rescale
        self._autoscaler = Autoscaler(config)

    def report(self) -> AutoscalerInfo:
        """What it has seen and done."""
        return self._autoscaler.report()

    async def run(self) -> None:
        """Watch the job until cancelled."""
        while True:
            await asyncio.sleep(self._config.interval_ms / 1000)
            try:
                await self.look()
            except Exception:
                _LOG.exception("the autoscaler could not look at the job, and looks again")

    async def look(self) -> None:
        """Look at the job once; a rescale is over when this returns."""
        reading = await self._read()
        wanted = None if reading is None else self._autoscaler.observe(reading)
        if wanted is None:
            return
        try:
            seconds = await self._rescale(wanted)
        except Exception as error:
            # Every request is answered, whatever fails: the autoscaler makes no other before.
            _LOG.warning(
                "the autoscaler's rescale was refused: %s", error, exc_info=not isinstance(error, PenstockError)
            )
            message = str(error) or type(error).__name__
            if isinstance(error, NoRoomError):
                self._autoscaler.on_no_room(error.room, message)
            else:
                self._autoscaler.on_refused(message)
        else:
            self._autoscaler.on_rescaled(seconds)
