"""The client's side of a job on Ray: submits it, fetches its rows, and is the handle that users hold.

Rows of `collect()` are exactly once: those of a job that takes checkpoints wait here until a checkpoint behind them is
complete. Failures of the job, also of its manager, are no concern of the caller's as long as the job gets over them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import ray
from ray import ObjectRef, cloudpickle
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError

from penstock.actors.client_view import ClientChannel, ClientView, JobReport
from penstock.actors.deaths import not_loaded, remark
from penstock.actors.driver_logging import with_driver_logging
from penstock.actors.embedded import is_embedded, is_lost
from penstock.actors.import_path import Imported
from penstock.actors.manager_start import create_manager
from penstock.actors.registry import JobControl, answer_of
from penstock.actors.results import Fetched
from penstock.actors.slots import remove_slots
from penstock.actors.termination import termination
from penstock.actors.warm_processes import start_early
from penstock.engine.checkpoint_config import NoRestart
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.client_rows import HeldRows
from penstock.engine.elements import Batch
from penstock.engine.errors import ClusterError, ConfigurationError, PenstockError, SerializationError, WorkerLostError
from penstock.engine.graph.physical import JobProgram, PhysicalGraph
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.failover import default_strategy
from penstock.engine.job.handle import DEFAULT_NAME, CollectedRows, JobHandle, ResultConsumer, new_job_id
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.job.termination import Termination
from penstock.engine.metrics import JobMetrics, report

_LOG = logging.getLogger(__name__)
_FETCH_SECONDS: Final = 1.0
_TAKE_SECONDS: Final = 5.0
"""How long an answer that is there may be under way before anything else is looked at.

Where the machines of the cluster do not reach this process, what goes by their object stores never comes (small answers
do), and Ray says nothing."""
_LOST_SECONDS: Final = 60.0
"""From here on it is lost."""
_CANCEL_SECONDS: Final = 20.0
_AGAIN_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 0.1
_LINES_SECONDS: Final = 0.5
"""How long a line that a function printed takes at most until this process shows it: Ray looks ten times a second."""
_SILENT_SECONDS: Final = 1.0
"""After how long people are told what the end of a job waits for."""
_LOST_MANAGER: Final = "the job manager's process died, and the job with it; submit the job again"
_STARTING: Final = (JobStatus.CREATED, JobStatus.DEPLOYING)


def check_serializable(graph: PhysicalGraph) -> None:
    """Check that every part of the job can travel to the cluster.

    Raises:
        SerializationError: names the operator, and what in it cannot be sent.
    """
    for task in graph.tasks:
        parts: list[tuple[str, object]] = [(operator.name, operator.spec) for operator in task.operators]
        if task.source is not None:
            parts.insert(0, (task.source.name, (task.source.source, task.source.splits)))
        for name, part in parts:
            try:
                cloudpickle.dumps(part)  # type: ignore[no-untyped-call]
            except Exception as error:
                raise SerializationError(
                    f"operator {name!r} cannot be sent to the cluster: {error}; create such objects in the worker, "
                    "in the open() of a class given to map_batches, or inside the function"
                ) from error


def _outlives_manager(program: JobProgram, folder: JobFolder | None) -> bool:
    """Whether the job is resumed when its manager dies.

    One without checkpoints would begin anew, and write again what its sinks have written, which nobody has asked for
    who has not asked for restarts.
    """
    config = program.config
    return folder is not None and (config.checkpoints.enabled or not isinstance(default_strategy(config), NoRestart))


def _why_lost(error: RayError) -> str:
    if not isinstance(error, GetTimeoutError):
        return f"{type(error).__name__}: {error}"
    own: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return (
        f"none came to the program that submitted the job within {_LOST_SECONDS:g} s; check that the machines of the "
        f"cluster can reach it at {own}, the address that Ray has for it"
    )


class _Channel:
    """What the client has of one channel: where it fetches, how much has come, and what it holds back."""

    def __init__(self) -> None:
        self.source: ClientChannel | None = None
        self.received = 0
        self.held = HeldRows()


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A call for rows; `waited`: for how many seconds its answer has been under way."""

    channel: _Channel
    source: ClientChannel
    waited: float = 0.0


class RayJob(JobHandle):
    """A job on Ray.

    Args:
        program: the job.
        consumers: takes the rows of each results node, by node id.
        folder: where its checkpoints are kept; None: it takes none.
        detached: whether the job outlives this process; otherwise it ends when the process does.

    Raises:
        JobError: a job of that name is running.
        ConfigurationError: a detached job has rows for its client.
    """

    def __init__(
        self,
        program: JobProgram,
        consumers: Mapping[int, ResultConsumer],
        folder: JobFolder | None = None,
        detached: bool = False,
    ) -> None:
        super().__init__(program.name, consumers)
        program = replace(program, config=with_driver_logging(program.config))
        if detached and consumers:
            raise ConfigurationError(
                f"job {program.name!r} cannot be detached: it ends in collect() or print(), whose rows go to this "
                "process; end it in a sink"
            )
        self.job_id = folder.job_id if folder is not None else new_job_id(program.name)
        content = cloudpickle.dumps(Imported((program, folder)))  # type: ignore[no-untyped-call]
        name = f"{program.name} {self.job_id}" if program.name == DEFAULT_NAME else program.name
        graph = program.physical()
        if is_embedded():
            start_early(1 + sum(task.parallelism for task in graph.tasks))
        self._manager = create_manager(name, self.job_id, content, _outlives_manager(program, folder), detached)
        self._holds_back = folder is not None and program.config.checkpoints.enabled
        self._detached = detached
        self._seen = 0
        self._completed = 0
        self._ending: ObjectRef[Any] | None = self._manager.wait_for_end.remote()
        self._view: ObjectRef[Any] | None = self._ask_view()
        self._channels: dict[tuple[int, tuple[int, int], int], _Channel] = {}
        self._fetches: dict[ObjectRef[Any], _Fetch] = {}
        self._lost: PenstockError = WorkerLostError(_LOST_MANAGER)
        self._report: JobReport | None = None
        self._last_metrics = report(graph.uncounted())

    @property
    def control(self) -> JobControl:
        """The job by its manager, for checkpoints, savepoints and rescaling from a process that takes no rows."""
        return JobControl(self.name, self._manager)

    # Rows

    def _ask_view(self) -> ObjectRef[Any]:
        view: ObjectRef[Any] = self._manager.client_view.remote(list(self._consumers), self._seen)
        return view

    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        waiting = [ref for ref in (self._ending, self._view, *self._fetches) if ref is not None]
        if waiting:
            ready, _ = ray.wait(waiting, num_returns=1, timeout=seconds, fetch_local=False)
            for ref in ready:
                self._on_answer(ref)
        return self._final_rows()

    def _on_answer(self, ref: ObjectRef[Any]) -> None:
        if ref in self._fetches:
            self._take_rows(ref)
        elif ref == self._view:
            self._view = None
            view = self._answer_of_manager(ref, self._ask_view)
            if isinstance(view, ClientView):
                self._follow(view)
                self._view = self._ask_view()
            elif view is not None:
                self._view = view
        else:
            self._ending = None
            answer = self._answer_of_manager(ref, self._manager.wait_for_end.remote)
            if isinstance(answer, ObjectRef):
                self._ending = answer
            else:
                self._end(answer or self._lost_manager())

    def _answer_of_manager(self, ref: ObjectRef[Any], again: Callable[[], ObjectRef[Any]]) -> Any:
        """The manager's answer; another call where it is being restarted, None where it is lost for good."""
        try:
            return ray.get(ref, timeout=_LOST_SECONDS)
        except (ActorUnavailableError, GetTimeoutError):
            # Ray is restarting it: that takes a second or two.
            time.sleep(_AGAIN_SECONDS)
            return again()
        except RayError as error:
            self._lost = not_loaded(error) or WorkerLostError(_LOST_MANAGER + remark(error))
            return None

    def _follow(self, view: ClientView) -> None:
        """Fetch from the attempt that runs now, and drop what it will give again."""
        self._seen = view.attempt
        self._completed = max(self._completed, view.completed)
        sources = {(channel.result, channel.place, channel.output): channel for channel in view.channels}
        for key, channel in self._channels.items():
            if key not in sources:
                channel.source = None
                channel.held.roll_back(view.restored)
        for key, source in sources.items():
            channel = self._channels.setdefault(key, _Channel())
            if channel.source is None or channel.source.attempt != source.attempt:
                channel.held.roll_back(source.restored)
                channel.source, channel.received = source, 0
                self._fetch(channel, source)
        # What the old attempts still answer is not part of the checkpoint, which waits for what the client has.
        self._fetches = {ref: one for ref, one in self._fetches.items() if one.channel.source is one.source}

    def _fetch(self, channel: _Channel, source: ClientChannel) -> None:
        ref = source.actor.fetch.remote(source.attempt, source.output, channel.received, _FETCH_SECONDS)
        self._fetches[ref] = _Fetch(channel, source)

    def _take_rows(self, ref: ObjectRef[Any]) -> None:
        fetch = self._fetches.pop(ref)
        channel, source = fetch.channel, fetch.source
        # Longer each time, as Ray begins anew.
        patience = min(max(_TAKE_SECONDS, fetch.waited), _LOST_SECONDS - fetch.waited)
        try:
            fetched: Fetched = ray.get(ref, timeout=patience)
        except ActorDiedError:
            # The job manager says how it is restored, or why it ends; after the end, all rows had been fetched.
            return
        except RayError as error:
            waited = fetch.waited + patience
            if isinstance(error, GetTimeoutError) and waited < _LOST_SECONDS:
                self._fetches[ref] = replace(fetch, waited=waited)
                return
            self._manager.rows_lost.remote(source.place, source.attempt, _why_lost(error))
            return
        channel.received += len(fetched.rows)
        self._completed = max(self._completed, fetched.completed)
        for behind, batch in fetched.rows:
            channel.held.hold(source.result, behind, batch)
        if fetched.more:
            self._fetch(channel, source)

    def _final_rows(self) -> list[tuple[int, Batch]]:
        """The rows that no failure can take back; those that are only printed need not wait for that."""
        finished = self._report is not None and self._report.status is JobStatus.FINISHED
        final: list[tuple[int, Batch]] = []
        for (result, _, _), channel in self._channels.items():
            waits = self._holds_back and isinstance(self._consumers[result], CollectedRows)
            held = channel.held
            final.extend(held.release(self._completed) if waits and not finished else held.release_all())
        return final

    # The end

    def _lost_manager(self) -> JobReport:
        self._forget_manager()
        return JobReport(JobStatus.FAILED, self._lost, [])

    def _forget_manager(self) -> None:
        """End it for good, and give back its slots, which Ray keeps as long as this process lives."""
        if is_lost():
            # Nothing is left to be given back, and Ray would wait for a minute.
            return
        with contextlib.suppress(RayError):
            ray.kill(self._manager)
            remove_slots(self.job_id)

    def _end(self, ended: JobReport) -> None:
        if isinstance(ended.error, ClusterError) and is_embedded():
            hint = "the cluster of this process keeps its size until ray.shutdown()"
            ended = replace(ended, error=ClusterError(f"{ended.error} ({hint})"))
        self._report = ended
        self._completed = max(self._completed, ended.completed)
        if ended.metrics:
            self._last_metrics = report(ended.metrics)
        if ended.error is not None:
            # What its functions said before they failed is read before the error, which whoever asks next will get.
            time.sleep(_LINES_SECONDS)
        if self._detached:
            # Others may want to know how it ended.
            return
        manager = self._manager
        with contextlib.suppress(RayError):
            # Ray would end it with its last handle, and it has processes to warm for the next job.
            manager.leave.remote().future().add_done_callback(lambda _, _kept=manager: None)

    @property
    def _drained(self) -> bool:
        return self._report is not None and not self._fetches and self._view is None

    @property
    def _error(self) -> PenstockError | None:
        return self._report.error if self._report else None

    def status(self) -> JobStatus:
        if self._report is None and self._ending is not None:
            ready, _ = ray.wait([self._ending], timeout=0)
            if ready:
                self._on_answer(self._ending)
        if self._report is not None:
            return self._report.status
        try:
            return JobStatus(ray.get(self._manager.status.remote(), timeout=_CANCEL_SECONDS))
        except RayError:
            return JobStatus.RESTARTING

    def wait_until_started(self, tell: Callable[[str], None]) -> JobStatus:
        """Return when all subtasks run with what they were restored from, or a failure is being got over.

        Args:
            tell: told what the job waits for, or why its start is tried again.

        Returns:
            where the job is then.

        Raises:
            PenstockError: why the job failed.
            JobCancelledError: somebody has cancelled it.
        """
        told = None
        while not (status := self.status()).ended:
            try:
                info = self.info()
            except WorkerLostError:
                # Its manager is being restarted.
                time.sleep(_AGAIN_SECONDS)
                continue
            status, waiting_for = info.status, info.waiting_for
            if status is JobStatus.RESTARTING and info.restart_history:
                cause = info.restart_history[-1].newest_cause.partition("\n")[0]
                tell(f"job {self.name} failed at its start, which is tried again: {cause}")
            if status not in _STARTING and not status.ended:
                return status
            if waiting_for not in (None, told):
                tell(f"waiting for {waiting_for}")
                told = waiting_for
            time.sleep(_LOOK_SECONDS)
        while self._report is None:
            # The manager says that the job has ended before it has taken it down and tells how.
            time.sleep(_LOOK_SECONDS)
            status = self.status()
        if status is JobStatus.FAILED and self._error is not None and not isinstance(self._error, ConfigurationError):
            raise self._error
        self.raise_if_ended_badly()
        return status

    def metrics(self) -> JobMetrics:
        if self._report is None:
            try:
                subtasks = ray.get(self._manager.metrics.remote(), timeout=_CANCEL_SECONDS)
                # Before its manager has planned the job it knows of none.
                self._last_metrics = report(subtasks) if subtasks else self._last_metrics
            except RayError:
                # The last counters are better than none.
                return self._last_metrics
        return self._last_metrics

    def _termination(self) -> contextlib.AbstractContextManager[Termination]:
        return termination()

    def cancel(self) -> None:
        self._end_now(self._manager.cancel)

    def suspend(self) -> None:
        self._end_now(self._manager.suspend)

    def _end_now(self, ends: Any) -> None:
        if self._ending is None:
            return
        ending, self._ending = self._ending, None
        ended = self._ended_by(ends, ending)
        self._fetches.clear()
        self._view = None
        self._end(ended)

    def _ended_by(self, ends: Any, ending: ObjectRef[Any]) -> JobReport:
        """How the job ended when its manager was asked by `ends`, or, where that does not answer, had to go."""
        began = time.monotonic()
        silent = True
        ends.remote()
        while (waited := time.monotonic() - began) < _CANCEL_SECONDS and not is_lost():
            if not ray.wait([ending], timeout=_LOOK_SECONDS)[0]:
                if silent and waited >= _SILENT_SECONDS:
                    silent = False
                    _LOG.warning(
                        "job %r is being stopped; functions that are at work have some ten seconds to return", self.name
                    )
                continue
            try:
                ended: JobReport = ray.get(ending)
            except ActorUnavailableError:
                # It is being restarted, and the new one would resume the job.
                time.sleep(_AGAIN_SECONDS)
                ending = self._manager.wait_for_end.remote()
                ends.remote()
            except RayError:
                break
            else:
                return ended
        self._forget_manager()
        return JobReport(JobStatus.CANCELLED, None, [])

    # Checkpoints: rows are taken meanwhile, as a checkpoint is complete only when the client has those before it

    def info(self) -> JobInfo:
        """The job: status, tasks, restarts, checkpoints."""
        return self.control.info()

    def checkpoint(self) -> str:
        return str(self._ask(self._manager.checkpoint))

    def savepoint(self, directory: str | None = None) -> str:
        return str(self._ask(self._manager.savepoint, directory))

    def stop(self, directory: str | None = None) -> str:
        return str(self._ask(self._manager.stop, directory))

    def drain(self, directory: str | None = None) -> str:
        return str(self._ask(self._manager.drain, directory))

    def rescale(self, parallelism: ParallelismRequest) -> float:
        return float(self._ask(self._manager.rescale, parallelism))

    def _ask(self, method: Any, *arguments: object) -> Any:
        """What the manager answers. It is asked once the job runs: who has submitted one need not know when that is."""
        # Its process may take long to start, and it answers nothing before.
        self._await(self._manager.status.remote())
        while self.status() in _STARTING and self._pump(_AGAIN_SECONDS):
            pass
        call = method.remote(*arguments)
        self._await(call)
        return answer_of(call, self.name, _CANCEL_SECONDS)

    def _await(self, call: ObjectRef[Any]) -> None:
        """Take rows until the manager has answered, or the job has ended."""
        while not ray.wait([call], timeout=0)[0]:
            if not self._pump(_AGAIN_SECONDS):
                break
