"""The whole job in one process: every subtask stepped by one seeded random scheduler.

For tests, for debugging (the user's functions run in the caller's thread, so pdb works) and for small data. The same
seed and the same clock give the same order of everything. Checkpoints and restarts work as anywhere. Interrupts come
between two steps.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from typing import Final

from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.client_rows import EpochTagger, HeldRows
from penstock.engine.clock import Clock
from penstock.engine.elements import Batch, SnapshotKind
from penstock.engine.errors import CheckpointError, PenstockError
from penstock.engine.graph.physical import JobProgram
from penstock.engine.job.handle import CollectedRows, JobHandle, ResultConsumer
from penstock.engine.job.status import JobStatus
from penstock.engine.local.interrupts import InterruptibleClock, Interrupts
from penstock.engine.local.manager import LocalManager
from penstock.engine.metrics import JobMetrics, report

_LOG = logging.getLogger(__name__)
_STEP_SECONDS: Final = 1.0


class LocalJob(JobHandle):
    """A job in this process. It moves only while someone waits for it or reads its rows.

    Args:
        program: the job.
        consumers: takes the rows of each results node, by node id.
        clock: time; with a `ManualClock` nothing ever waits.
        seed: chooses the order of everything.
        folder: where its checkpoints are kept; None: it takes none.

    Raises:
        CheckpointError: the folder cannot be used.
        SinkNotReadyError: the target of a sink cannot be made ready.
    """

    def __init__(
        self,
        program: JobProgram,
        consumers: Mapping[int, ResultConsumer],
        clock: Clock,
        seed: int = 0,
        folder: JobFolder | None = None,
    ) -> None:
        super().__init__(program.name, consumers)
        self._clock = clock
        self._holds_back = folder is not None and program.config.checkpoints.enabled
        self._interrupts = Interrupts()
        self._held = HeldRows()
        self._shown: list[tuple[int, Batch]] = []
        self._told: PenstockError | None = None
        self._taggers: dict[tuple[int, Place], EpochTagger] = {}
        with self._interrupts.held():
            heard = InterruptibleClock(clock, self._interrupts)
            self._manager = LocalManager(program, heard, random.Random(seed), folder)
            self._attempt = self._manager.attempt
            self._begin()
            if self._interrupts.pending:
                # Nobody gets a handle to end it by.
                self._manager.end(JobStatus.CANCELLED)

    def _begin(self) -> None:
        """Start the job, with sinks that are ready; nothing of them is touched before it holds its folder."""
        if not self._manager.status.ended and not self._manager.restored:
            try:
                self._manager.attempt.graph.prepare_sinks()
            except BaseException:
                self._manager.end(JobStatus.CANCELLED)
                raise
        self._manager.start()

    def pump(self, seconds: float = 1.0) -> bool:
        with self._interrupts.held():
            return super().pump(seconds)

    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        deadline = time.monotonic() + seconds
        arrived = self._take_rows()
        while not arrived and not self._manager.status.ended and (patience := deadline - time.monotonic()) > 0:
            if self._interrupts.pending:
                break
            self._step(patience)
            arrived = self._take_rows()
        return arrived

    def _step(self, seconds: float) -> None:
        self._tell()
        self._manager.step(seconds)
        self._tell()

    def _tell(self) -> None:
        # What is got over is told too: an error that comes back for ever must not look like a job that hangs.
        error = self._manager.error
        if self._manager.status is JobStatus.RESTARTING and error is not None and error is not self._told:
            self._told = error
            _LOG.warning("job %r failed and is restarted (restart-strategy.type sets how often): %s", self.name, error)

    def _take_rows(self) -> list[tuple[int, Batch]]:
        """The rows that are final now; those of an attempt that failed may not be."""
        self._hear()
        if self._attempt is not self._manager.attempt:
            self._held.roll_back(self._manager.restored)
            self._attempt = self._manager.attempt
            self._taggers.clear()
            self._hear()
        shown, self._shown = self._shown, []
        finished = self._manager.status is JobStatus.FINISHED
        return [*shown, *(self._held.release_all() if finished else self._held.release(self._manager.completed))]

    def _hear(self) -> None:
        results = self._attempt.results
        while results:
            result, sender, message, release = results.popleft()
            release()
            tagger = self._taggers.setdefault((result, sender), EpochTagger(self._manager.restored))
            waits = self._holds_back and isinstance(self._consumers[result], CollectedRows)
            for element in message:
                if (tagged := tagger.tag(element)) is None:
                    continue
                if waits:
                    self._held.hold(result, *tagged)
                else:
                    # What is only printed need not wait until no failure can take it back.
                    self._shown.append((result, tagged[1]))

    @property
    def _drained(self) -> bool:
        return self._manager.status.ended

    @property
    def _error(self) -> PenstockError | None:
        return self._manager.error

    def status(self) -> JobStatus:
        return self._manager.status

    def metrics(self) -> JobMetrics:
        return report(self._manager.attempt.metrics())

    def cancel(self) -> None:
        with self._interrupts.held():
            self._manager.end(JobStatus.CANCELLED)

    def suspend(self) -> None:
        self._manager.suspend()

    def checkpoint(self) -> str:
        return self._take(SnapshotKind.CHECKPOINT)

    def savepoint(self, directory: str | None = None) -> str:
        return self._take(SnapshotKind.SAVEPOINT, directory)

    def stop(self, directory: str | None = None) -> str:
        url = self._take(SnapshotKind.SUSPEND, directory)
        self._settle()
        self.raise_if_ended_badly()
        return url

    def drain(self, directory: str | None = None) -> str:
        with self._interrupts.held():
            self._manager.drain(directory)
        while self._manager.drained is None:
            self._advance()
        if isinstance(self._manager.drained, CheckpointError):
            raise self._manager.drained
        self._settle()
        self.raise_if_ended_badly()
        return self._manager.drained

    def rescale(self, parallelism: int) -> float:
        self.checkpoint()
        began = self._clock.monotonic()
        with self._interrupts.held():
            self._manager.rescale(parallelism)
        while self._manager.status is JobStatus.RESTARTING:
            self._advance()
        self.raise_if_ended_badly()
        return self._clock.monotonic() - began

    def _take(self, kind: SnapshotKind, directory: str | None = None) -> str:
        """Take a checkpoint or savepoint; its URL. The job moves meanwhile."""
        with self._interrupts.held():
            number = self._manager.request(kind, directory)
        while number not in self._manager.outcomes:
            if self._manager.status.ended:
                raise CheckpointError(f"job {self.name!r} ended before checkpoint {number} was complete")
            self._advance()
        outcome = self._manager.outcomes.pop(number)
        if isinstance(outcome, CheckpointError):
            raise outcome
        return outcome

    def _settle(self) -> None:
        """Return when the job has ended."""
        while not self._manager.status.ended:
            self._advance()

    def _advance(self) -> None:
        """Let one thing happen; rows that come meanwhile go to their consumers."""
        with self._interrupts.held():
            self._step(_STEP_SECONDS)
            for result, batch in self._take_rows():
                self._consumers[result].accept(batch)
