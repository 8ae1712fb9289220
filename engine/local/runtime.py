"""The whole job in one process: every subtask stepped by one seeded random scheduler.

For tests, for debugging (the user's functions run in the caller's thread, so pdb works) and for small data. The same
seed and the same clock give the same order of everything. Checkpoints and restarts work as anywhere. Interrupts come
between two steps.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.client_rows import EpochTagger, HeldRows
from penstock.engine.clock import Clock
from penstock.engine.elements import Batch
from penstock.engine.errors import PenstockError
from penstock.engine.graph.physical import JobProgram
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.description import describe, describe_checkpoints
from penstock.engine.job.event_time import EventTimeWatch, has_event_time
from penstock.engine.job.events import CancelJob, Command, DrainJob, RescaleJob, StopJob, TakeCheckpoint, TakeSavepoint
from penstock.engine.job.handle import CollectedRows, JobHandle, ResultConsumer
from penstock.engine.job.info import EventTimeWait, JobInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.local.execution import ResultMessage
from penstock.engine.local.interrupts import InterruptibleClock, Interrupts
from penstock.engine.local.manager import LocalManager, Outcome
from penstock.engine.metrics import JobMetrics, report

_LOG = logging.getLogger(__name__)
_STEP_SECONDS: Final = 1.0
_WATCH_MS: Final = 10_000
"""How often event time is looked at, by the machine's clock: people wait by that one."""


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
        collects = any(isinstance(consumer, CollectedRows) for consumer in consumers.values())
        self._holds_back = folder is not None and program.config.checkpoints.enabled and collects
        self._interrupts = Interrupts(program.name)
        self._folder = folder
        self._held = HeldRows()
        self._shown: list[tuple[int, Batch]] = []
        self._senders: dict[Place, int] = {}
        self._heard = self._seen = 0
        self._taggers: dict[tuple[int, Place], EpochTagger] = {}
        with self._interrupts.held():
            heard = InterruptibleClock(clock, self._interrupts)
            # Restarts are reported as well: an error that comes back for ever must not look like a job that hangs.
            log_store = None if folder is None else folder.store
            chosen = random.Random(seed)
            self._manager = LocalManager(program, heard, chosen, folder, warn=_LOG.warning, log_store=log_store)
            self._brain = self._manager.brain
            self._started_ms = _civil_ms()
            self._watch = EventTimeWatch(self._started_ms)
            self._waits: tuple[EventTimeWait, ...] = ()
            self._watched_ms = self._started_ms
            self._begin()

    def _begin(self) -> None:
        """Let the job begin; what it cannot use is an error for its submitter."""
        self._manager.begin()
        try:
            self._interrupts.handle_pending()
        except BaseException as ended:
            # Nobody has a handle yet by which to end the job.
            self._end(CancelJob(retain=isinstance(ended, SystemExit)))
            raise
        if self._brain.error is not None and not self._brain.attempts.has_deployed:
            raise self._brain.error

    def _pump(self, seconds: float) -> bool:
        with self._interrupts.held():
            return super()._pump(seconds)

    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        deadline = time.monotonic() + seconds
        arrived = self._take_rows()
        while not arrived and not self._brain.ended and (patience := deadline - time.monotonic()) > 0:
            if self._interrupts.pending:
                break
            self._manager.step(patience)
            arrived = self._take_rows()
        self._watch_event_time()
        return arrived

    def _watch_event_time(self) -> None:
        """Tell where windows wait for an event time that does not advance."""
        now_ms = _civil_ms()
        if now_ms - self._watched_ms < _WATCH_MS:
            return
        self._watched_ms = now_ms
        graph = self._manager.execution.graph
        if graph is not None and self._brain.runs and has_event_time(graph):
            self._waits = self._watch.look(graph, list(self._manager.execution.metrics()), now_ms)
            for wait in self._watch.news(self._waits):
                _LOG.warning("job %r: %s", self.name, wait.text(now_ms))

    def _take_rows(self) -> list[tuple[int, Batch]]:
        """The rows that are final now; those of an attempt that failed may not be."""
        results = self._manager.execution.results
        if not results and self._heard == self._manager.heard:
            # Nothing has become final since the last time.
            return []
        self._heard = self._manager.heard
        while results:
            self._handle(results.popleft())
        if self._seen != self._brain.attempts.number:
            self._follow_newest()
        shown, self._shown = self._shown, []
        if not self._holds_back:
            return shown
        final = self._held.release_all() if self._brain.has_finished else self._held.release(self._brain.completed)
        return [*shown, *final]

    def _handle(self, sent: ResultMessage) -> None:
        sent.release()
        self._follow(sent.place, sent.attempt, sent.restored)
        tagger = self._taggers.setdefault((sent.result, sent.place), EpochTagger(sent.restored))
        waits = self._holds_back and isinstance(self._consumers[sent.result], CollectedRows)
        for element in sent.message:
            if (tagged := tagger.tag(element)) is None:
                continue
            if waits:
                self._held.hold(sent.result, *tagged, sent.place)
            else:
                # What is only printed need not wait until no failure can take it back.
                self._shown.append((sent.result, tagged[1]))

    def _follow_newest(self) -> None:
        """There is another attempt: follow the subtasks that run now."""
        attempts = self._brain.attempts
        self._seen = attempts.number
        self._waits = ()
        self._watch.begin(_civil_ms())
        for place, (attempt, restored) in attempts.deployed.items():
            self._follow(place, attempt, restored)
        # Of those that a rescale has left out, others send the rows again.
        for place in self._senders.keys() - attempts.deployed.keys():
            self._follow(place, attempts.number, attempts.restored)

    def _follow(self, place: Place, attempt: int, restored: int) -> None:
        """A subtask runs this attempt: what it had sent before, and will send again, is dropped."""
        if self._senders.get(place, 0) < attempt:
            self._senders[place] = attempt
            self._held.roll_back(restored, place)
            for key in [key for key in self._taggers if key[1] == place]:
                del self._taggers[key]

    @property
    def _drained(self) -> bool:
        return self._brain.ended

    @property
    def _error(self) -> PenstockError | None:
        return self._brain.error

    def status(self) -> JobStatus:
        return self._brain.status

    def metrics(self) -> JobMetrics:
        return report(self._manager.execution.metrics())

    def info(self) -> JobInfo:
        folder, brain = self._folder, self._brain
        # The subtasks are no processes of their own.
        job_id = "" if folder is None else folder.job_id
        found = describe(job_id, self.name, brain, self._manager.execution.graph, self._started_ms, {})
        checkpoints = None if folder is None else describe_checkpoints(brain, self.restored_from, None)
        return replace(
            found, manager_pid=os.getpid(), checkpoints=checkpoints, event_time=self._waits if brain.runs else ()
        )

    def cancel(self) -> None:
        self._end(CancelJob())

    def suspend(self) -> None:
        self._end(CancelJob(retain=True))

    def _end(self, command: CancelJob) -> None:
        with self._interrupts.held():
            request = self._manager.ask(command)
            while request not in self._manager.answers:
                self._manager.step(_STEP_SECONDS)

    def checkpoint(self) -> str:
        return str(self._ask(TakeCheckpoint()))

    def savepoint(self, directory: str | None = None) -> str:
        return str(self._ask(TakeSavepoint(directory)))

    def stop(self, directory: str | None = None) -> str:
        return str(self._ask(StopJob(directory)))

    def drain(self, directory: str | None = None) -> str:
        return str(self._ask(DrainJob(directory)))

    def rescale(self, parallelism: ParallelismRequest) -> float:
        return float(self._ask(RescaleJob(parallelism)))  # type: ignore[arg-type]

    def _ask(self, command: Command) -> Outcome:
        """What came of a request; the job moves meanwhile, and rows that come go to their consumers."""
        with self._interrupts.held():
            request = self._manager.ask(command)
        while request not in self._manager.answers:
            self._advance()
        outcome = self._manager.answers.pop(request)
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome

    def _advance(self) -> None:
        """Let one thing happen; rows that come meanwhile go to their consumers."""
        with self._interrupts.held():
            self._manager.step(_STEP_SECONDS)
            for result, batch in self._take_rows():
                self._consumers[result].accept(batch)


def _civil_ms() -> int:
    return time.time_ns() // 1_000_000
