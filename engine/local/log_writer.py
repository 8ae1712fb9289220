"""Writes the stimulus log of a job in this process, between its steps.

The local manager has one where the log is to be kept. What the storage refuses is tried again later, and told once; the
job runs on in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.engine.checkpointing.store import JobStore
from penstock.engine.clock import Clock
from penstock.engine.errors import CheckpointError
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.log import LogKeeper, StimulusLog

_PAUSE_SECONDS: Final = 1.0
"""Between two writes."""
_MANY: Final = 1_000
"""So many events are written, though nothing has happened but what always does."""


class LocalLogWriter:
    """Writes one log.

    Args:
        log: which.
        store: where to.
        clock: time.
        warn: takes messages for the log that people read.
    """

    def __init__(self, log: StimulusLog, store: JobStore, clock: Clock, warn: Callable[[str], None]) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._warn = warn
        self._keeper = LogKeeper(log)
        self._due = clock.monotonic() + _PAUSE_SECONDS
        self._has_warned = False

    def write_if_due(self, brain: JobBrain) -> None:
        """Write what waits, if that is worth it by now."""
        if (self._log.is_urgent or len(self._log) >= _MANY) and self._clock.monotonic() >= self._due:
            self.write(brain)

    def write(self, brain: JobBrain) -> None:
        """Write what waits. Before the folder is claimed there is no name for it, and it waits on."""
        if brain.checkpoints is None or not self._log.is_open:
            return
        epoch, store = brain.checkpoints.epoch, self._store
        try:
            self._keeper.write(self._log.take(), partial(store.write_log, epoch), partial(store.drop_log, epoch))
        except Exception as error:
            self._on_error(error)
        self._due = self._clock.monotonic() + _PAUSE_SECONDS

    def _on_error(self, error: Exception) -> None:
        if not isinstance(error, CheckpointError) or self._keeper.is_overdue:
            self._log.close()
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the stimulus log of the job could not be written: {error}")
