"""Writes the stimulus log of a job on Ray: in a thread, once a second at most, and before the end is written down.

The job manager tells it of each event. What the storage refuses is tried again with what comes next, and told once; the
job never waits for it longer than a few seconds, at its end.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from penstock.engine.checkpointing.store import JobStore
from penstock.engine.errors import CheckpointError
from penstock.engine.job.log import LogKeeper, StimulusLog

_LOG = logging.getLogger(__name__)
_SOON_SECONDS: Final = 1.0
"""How long an event waits that is not one of those that come all the time."""
_ROUTINE_SECONDS: Final = 30.0
"""How long the others wait."""
_END_SECONDS: Final = 5.0
"""How long the end of a job waits for its log."""


class LogWriter:
    """Writes one log. Lives on the job manager's event loop.

    Args:
        log: which.
        store: where to.
        name: of the job.
    """

    def __init__(self, log: StimulusLog, store: JobStore, name: str) -> None:
        self._log = log
        self._store = store
        self._name = name
        self._keeper = LogKeeper(log)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._has_warned = False

    def on_event(self, epoch: int) -> None:
        """The log has one event more; `epoch`: of the manager, 0 before the job's folder is claimed."""
        if not epoch or not self._log.is_open:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + (_SOON_SECONDS if self._log.is_urgent else _ROUTINE_SECONDS)
        if self._timer is None or due < self._timer.when():
            self._cancel_timer()
            self._timer = loop.call_later(due - loop.time(), self._write, epoch)

    async def finish(self, epoch: int) -> None:
        """The job is about to end: write all that waits, unless the storage does not answer."""
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=_END_SECONDS)
        self._write(epoch)
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=_END_SECONDS)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self, epoch: int) -> None:
        self._cancel_timer()
        if not len(self._log):
            return
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._put(epoch))
        else:
            # One write at a time: a slow one must not be overtaken by the next.
            self.on_event(epoch)

    async def _put(self, epoch: int) -> None:
        store, taken = self._store, self._log.take()
        put, drop = partial(store.write_log, epoch), partial(store.drop_log, epoch)
        try:
            await asyncio.to_thread(self._keeper.write, taken, put, drop)
        except Exception as error:
            if not isinstance(error, CheckpointError) or self._keeper.is_overdue:
                self._log.close()
            if not self._has_warned:
                self._has_warned = True
                _LOG.warning("the stimulus log of job %r could not be written: %s", self._name, error)
        finally:
            self._writing = None
