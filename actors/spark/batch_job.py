"""A batch job on Spark, as its user sees it.

A thread of the driver builds the plan, runs it, commits what the sinks have prepared, and completes the savepoint of a
job that hands over; the handle waits for it. Rows for the client come when the job has finished, and never of one that
failed.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession

from penstock.actors.spark.edges import edge_numbers
from penstock.actors.spark.endings import EndOfTime
from penstock.actors.spark.failures import in_short, is_of_stage, job_error
from penstock.actors.spark.final_updates import with_final_updates
from penstock.actors.spark.hand_over import Handles, HandOver, Suspension
from penstock.actors.spark.native.border import border_of
from penstock.actors.spark.native.prefixes import Prefix, native_prefixes
from penstock.actors.spark.native.settings import native_session
from penstock.actors.spark.parcels import unpack
from penstock.actors.spark.reports import AllOfEach, LastOfEach, check_dealt, stage_progress
from penstock.actors.spark.stage import Counters, Dealt, StageReports, stage_of
from penstock.actors.spark.terminals import commit, discard, terminals
from penstock.actors.spark.translate import translated
from penstock.engine.checkpointing.handles import SubtaskHandle
from penstock.engine.elements import Batch
from penstock.engine.errors import CheckpointError, PenstockError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.handle import JobHandle, ResultConsumer, StageProgress, new_job_id
from penstock.engine.job.status import JobStatus, transition
from penstock.engine.metrics import JobMetrics, SubtaskMetrics, report

_LOG = logging.getLogger(__name__)
_CANCEL_SECONDS: Final = 20.0


class SparkJob(JobHandle):
    """A job on Spark. It runs whether or not anybody waits for it.

    Args:
        graph: the job, which `check_translatable` has nothing against.
        consumers: takes the rows of each results node, by node id.
        session: where it runs.
        hand_over: the savepoint that it ends with, and gives up where it fails; None: it ends with none.
    """

    def __init__(
        self,
        graph: PhysicalGraph,
        consumers: Mapping[int, ResultConsumer],
        session: SparkSession,
        hand_over: HandOver | None = None,
    ) -> None:
        super().__init__(graph.name, consumers)
        self.job_id = new_job_id(graph.name) if hand_over is None else hand_over.job_id
        self._terminals = terminals(with_final_updates(graph))
        # What Spark has computed by itself is no state of ours.
        self._prefixes = {} if hand_over is not None else native_prefixes(self._terminals.graph)
        self._session = session
        self._status = JobStatus.CREATED
        self._failure: PenstockError | None = None
        self._rows: list[tuple[int, Batch]] = []
        self._lock = threading.Lock()
        self._commits = False
        self._uncounted = graph.uncounted()
        self._counted: Counters | None = None
        self._tell_anew()
        self._handles: Accumulator[Handles] = session.sparkContext.accumulator({}, LastOfEach[SubtaskHandle]())
        self._hand_over = hand_over
        self._thread = threading.Thread(target=self._run, name=f"batch job {graph.name}", daemon=True)
        self._thread.start()

    # The thread

    def _run(self) -> None:
        secret = secrets.token_hex(16)
        failure, has_committed = None, False
        try:
            has_committed = self._run_to_end(secret)
        except BaseException as error:
            # Whatever a sink raises where it commits: the thread must not end before the job.
            failure = job_error(error, secret)
        # Before the status: the program may end when that tells that the job has, and this thread with it.
        if self._hand_over is not None and not has_committed:
            self._hand_over.discard()
        discard(self._terminals.pending.values())
        self._empty_accumulators()
        with self._lock:
            if not self._status.ended:
                self._failure = failure
                self._status = transition(self._status, JobStatus.FINISHED if has_committed else JobStatus.FAILED)

    def _run_to_end(self, secret: str) -> bool:
        """Whether all sinks have committed: not, where the job was cancelled before."""
        graph = self._terminals.graph
        self._become(JobStatus.DEPLOYING)
        self._session.sparkContext.setJobGroup(self.job_id, self.name, interruptOnCancel=True)
        self._become(JobStatus.RUNNING)
        results = self._by_result(self._parcels(secret))
        check_dealt(graph, self._dealt.value)
        rows = [(number, batch) for number in self._consumers for batch in results[number]]
        if self._hand_over is not None:
            self._hand_over.check(graph, self._handles.value)
        if not self._may_commit():
            return False
        commit(self._terminals.pending, results)
        if self._hand_over is not None:
            self._hand_over.complete(graph, self._handles.value)
        self._rows = rows
        return True

    def _empty_accumulators(self) -> None:
        """Spark keeps those of all jobs as long as the process lives, and must: late news would end its receiver."""
        self._counted = self._counters.value
        self._counters.value, self._dealt.value, self._handles.value = {}, {}, {}

    def _tell_anew(self) -> None:
        spark = self._session.sparkContext
        self._counters: Accumulator[Counters] = spark.accumulator({}, LastOfEach[SubtaskMetrics]())
        self._dealt: Accumulator[Dealt] = spark.accumulator({}, AllOfEach())

    def _parcels(self, secret: str) -> Sequence[Any]:
        """The parcels that lead to the client, from a run of the whole job."""
        try:
            return self._run_plan(secret, self._prefixes)
        except Exception as error:
            if not self._prefixes or self._status.ended or is_of_stage(error, secret):
                raise
            _LOG.warning(
                "job %r: Spark's own operators failed, so the engine's run all of it: %s", self.name, in_short(error)
            )
            # What was told of parts of the other plan would not fit; Spark keeps the accumulators.
            self._counters.value, self._dealt.value = {}, {}
            self._tell_anew()
            return self._run_plan(secret, {})

    def _run_plan(self, secret: str, prefixes: Mapping[int, Prefix]) -> Sequence[Any]:
        graph, over = self._terminals.graph, self._hand_over
        reports = StageReports(self._counters, self._dealt)
        ending = EndOfTime() if over is None else Suspension(over.url, over.job_id, self._handles)
        session = native_session(self._session, graph, prefixes) if prefixes else self._session
        plan = translated(
            session,
            graph,
            lambda task: stage_of(graph, task, reports, secret, ending),
            prefixes,
            lambda task, prefix: border_of(prefix, graph, task, reports, secret),
        )
        try:
            for frame in plan.kept:
                # Before anybody reads it: readers on several executors would run the stage again, each for itself.
                frame.count()
            return plan.output.collect()
        finally:
            _release(plan.kept)

    def _become(self, following: JobStatus) -> None:
        with self._lock:
            if not self._status.ended:
                self._status = transition(self._status, following)

    def _may_commit(self) -> bool:
        """Whether nobody has cancelled the job; from then on it is too late for that."""
        with self._lock:
            self._commits = not self._status.ended
            return self._commits

    def _by_result(self, parcels: Sequence[Any]) -> Mapping[int, list[Batch]]:
        """The rows of each results node and sink, those of a subtask in order."""
        graph = self._terminals.graph
        leaving = {number: place for place, number in edge_numbers(graph).items()}
        results: defaultdict[int, list[Batch]] = defaultdict(list)
        for parcel in sorted(parcels, key=lambda one: (one.edge, one.sender, one.sequence)):
            task, output = leaving[parcel.edge]
            result = graph.task(task).outputs[output].result
            assert result is not None, "only rows for the client come to the driver"
            results[result].append(unpack(bytes(parcel.rows)))
        return results

    # The handle

    def status(self) -> JobStatus:
        return self._status

    def metrics(self) -> JobMetrics:
        # In this order: they are emptied behind the other's being set.
        reported = self._counters.value
        counted = reported if self._counted is None else self._counted
        return report(counted.get((one.task, one.subtask), one) for one in self._uncounted)

    def progress(self) -> Sequence[StageProgress]:
        return () if self._status.ended else stage_progress(self._session.sparkContext, self.job_id)

    def cancel(self) -> None:
        with self._lock:
            if not self._status.ended and not self._commits:
                self._status = transition(self._status, JobStatus.CANCELLED)
        deadline = time.monotonic() + _CANCEL_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            # A Spark that is gone runs nothing.
            with contextlib.suppress(Exception):
                if not self._commits:
                    self._session.sparkContext.cancelJobGroup(self.job_id)
            self._thread.join(0.2)

    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        self._thread.join(seconds)
        if not self._status.ended:
            return []
        rows, self._rows = self._rows, []
        return rows

    @property
    def _drained(self) -> bool:
        return self._status.ended and not self._rows

    @property
    def _error(self) -> PenstockError | None:
        return self._failure

    def checkpoint(self) -> str:
        self._refuse("takes no checkpoints: it has no state between its stages")

    def savepoint(self, directory: str | None = None) -> str:
        self._refuse("takes no savepoints")

    def stop(self, directory: str | None = None) -> str:
        self._refuse("cannot be stopped with a savepoint; cancel() ends it")

    def drain(self, directory: str | None = None) -> str:
        self._refuse("ends by itself, when its input has been read")

    def rescale(self, parallelism: ParallelismRequest) -> float:
        self._refuse("cannot be rescaled; cancel it, and run it at another parallelism")

    def _refuse(self, what: str) -> NoReturn:
        raise CheckpointError(f"job {self.name!r} is a batch job, which {what}")


def _release(kept: Sequence[DataFrame]) -> None:
    """Let Spark forget what was kept for several readers; a session that has ended has forgotten it."""
    for one in kept:
        try:
            one.unpersist()
        except Exception:
            return
