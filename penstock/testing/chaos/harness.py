"""The chaos harness: carries out a schedule against a running job, and watches how the job gets over it.

Users give it a job (a handle, or the name of a job on the cluster) and a schedule. It only looks at the job from
outside: by its `info`, by signals to its processes, and by what any user may ask of it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.actors.client import RayJob
from penstock.actors.nodes import begin_to_drain
from penstock.actors.registry import JobControl, find_job
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ClusterError, JobFailedError, PenstockError, WorkerLostError
from penstock.engine.job.handle import JobHandle
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.savepoints.paths import split_url
from penstock.testing.chaos import faults
from penstock.testing.chaos.elsewhere import Elsewhere, processes_elsewhere
from penstock.testing.chaos.local_process import JobProcess
from penstock.testing.chaos.recoveries import Recoveries
from penstock.testing.chaos.report import (
    DONE,
    HARMLESS,
    NOT_RECOVERED,
    RECOVERED,
    REFUSED,
    UNDER_WAY,
    ChaosRun,
    FaultRecord,
)
from penstock.testing.chaos.schedule import (
    AfterCheckpoints,
    AfterFault,
    AfterSeconds,
    AmidRescale,
    ChaosSchedule,
    DrainNode,
    Fault,
    KillManager,
    KillNode,
    KillServer,
    KillStandby,
    KillSubtask,
    Moment,
    PauseManager,
    PauseServer,
    PauseSubtask,
    Rescale,
    RescaleStorm,
    RestartServer,
    ServerFault,
    SubtaskChoice,
    TakeNode,
    TakeSavepoint,
)
from penstock.testing.chaos.storm import Request, RescaleWatch, ask_in_turn

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

_TICK_SECONDS: Final = 0.05
_AWAY_SECONDS: Final = 900.0
"""Longer than the servers of `penstock.testing.services` take to restart, or give up, several times."""
_OUTPUT_SECONDS: Final = 5.0
"""How long to wait for the first rows behind a recovery: a job may have none to give."""

_NODE_SECONDS: Final = 30.0
"""How long after the death of a node, which Ray notices in seconds, the job resumes if it had nothing there."""
_NOTICED_SECONDS: Final = 1.0
"""How long after a process was resumed the job may still find that it had been stuck."""


class ChaosServer(Protocol):
    """A server that a job uses, as far as chaos goes; those of `penstock.testing.services` are such."""

    def kill(self) -> None:
        """End it at once, as a crash would."""

    def start(self) -> None:
        """Start it again behind `kill`, with its data; returns when it serves."""

    def restart(self) -> None:
        """End it in good order and start it; returns when it serves."""

    def pause(self) -> None:
        """Stop it where it is: connections stay, nothing is answered."""

    def resume(self) -> None:
        """Resume it behind `pause`."""


class ChaosHarness:
    """Runs one schedule against one job.

    Args:
        job: the handle that a submission gave, or the name or id of a job on the connected cluster. Rows for the
            client of a handle are taken meanwhile.
        schedule: what goes wrong when.
        cluster: where the nodes are that may be killed.
        servers: those that may be killed, restarted and stopped, by the names that the schedule has for them.
        patience: how long a recovery may take, once servers and processes that were away are back.
        observe: called a few times a second, such as to `take` rows of a `collect()`.
        tell: hears of each fault that has been fired.

    Raises:
        JobError: no such job.
        ClusterError: the job is not on Ray.

    Example:
        >>> job = env.submit("payments")  # doctest: +SKIP
        >>> run = ChaosHarness(job, ChaosSchedule.random(seed=7, duration="20s")).run()  # doctest: +SKIP
        >>> assert not run.violations  # doctest: +SKIP
    """

    def __init__(
        self,
        job: JobHandle | str,
        schedule: ChaosSchedule,
        cluster: Cluster | None = None,
        patience: Duration = "60s",
        observe: Callable[[], None] = lambda: None,
        tell: Callable[[FaultRecord], None] = lambda record: None,
        servers: Mapping[str, ChaosServer] | None = None,
    ) -> None:
        if isinstance(job, JobHandle) and not isinstance(job, RayJob):
            raise ClusterError(f"job {job.name!r} runs in this process; chaos needs one with runtime='ray'")
        self._handle = job if isinstance(job, RayJob) else None
        self._control: JobControl = job.control if isinstance(job, RayJob) else find_job(str(job))
        self._schedule = schedule
        self._cluster = cluster
        self._patience = parse_duration(patience, "patience") / 1000
        self._observe = observe
        self._tell = tell
        self._servers = servers or {}
        self._one_at_a_time = threading.Lock()
        self._run = ChaosRun(self._control.name, schedule)
        self._recoveries = Recoveries()
        self._rescales = RescaleWatch()
        self._asking: list[threading.Thread] = []
        self._stopped: list[threading.Thread] = []
        self._interrupted = threading.Event()
        self._info: JobInfo | None = None
        self._answers = False
        self._elsewhere: Elsewhere = {}
        self._started = 0.0
        self._last_fault = 0.0
        self._base = 0

    def run(self) -> ChaosRun:
        """Fire all faults at their moments; returns when the job has got over the last one, or has ended.

        Raises:
            ClusterError: a process of the job is not what the job says it is; it got no signal.
        """
        began = time.monotonic()
        try:
            self._await_running()
            for scheduled in self._schedule.faults:
                record = FaultRecord(str(scheduled.fault), optional=scheduled.optional)
                self._run.faults.append(record)
                if self._wait_for(lambda moment=scheduled.at: self._is_due(moment)):  # type: ignore[misc]
                    self._fire(scheduled.fault, record)
            self._settle()
        except BaseException:
            self._interrupted.set()
            raise
        finally:
            self._let_go()
        self._conclude(time.monotonic() - began)
        return self._run

    # Waiting

    def _await_running(self) -> None:
        self._wait_for(lambda: self._status is JobStatus.RUNNING, self._patience)
        self._started = self._last_fault = time.monotonic()
        self._base = self._completed

    @property
    def _status(self) -> JobStatus | None:
        return self._info.status if self._info is not None else None

    @property
    def _completed(self) -> int:
        """How many checkpoints, over all managers of the job: their numbers resume from one to the next."""
        checkpoints = self._info.checkpoints if self._info is not None else None
        return int(checkpoints.latest or 0) if checkpoints else 0

    @property
    def _ended(self) -> bool:
        if self._handle is not None:
            return self._handle.ended
        return self._status is not None and self._status.ended

    def _is_due(self, moment: Moment) -> bool:
        match moment:
            case AfterSeconds(seconds):
                return time.monotonic() >= self._started + seconds
            case AfterFault(seconds):
                return time.monotonic() >= self._last_fault + seconds
            case AfterCheckpoints(completed):
                return self._completed >= self._base + completed
            case AmidRescale(seconds):
                none_comes = not any(asking.is_alive() for asking in self._asking)
                return none_comes or self._rescales.is_due(seconds, time.monotonic())

    def _wait_for(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Watch the job until the condition holds. False: the job ended, or `seconds` went by, before that."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not condition():
            if self._ended or (deadline is not None and time.monotonic() > deadline):
                return False
            self._tick()
        return True

    def _tick(self) -> None:
        """Let a moment go by, with everything that the job needs of us, and look at it again."""
        end = time.monotonic() + _TICK_SECONDS
        if self._handle is not None:
            # Returns at once where rows come; they must not make us ask for the job's state all the time.
            # How it ended is told at the end.
            with contextlib.suppress(JobFailedError):
                while self._handle.pump(max(0.0, end - time.monotonic())) and time.monotonic() < end:
                    self._observe()
            self._observe()
        else:
            time.sleep(_TICK_SECONDS)
            self._observe()
        self._look()

    def _look(self) -> None:
        if self._handle is not None and self._handle.ended:
            return
        self._answers = False
        try:
            self._info = self._control.info()
        except WorkerLostError:
            # The manager is dead, being restarted, or stopped by us.
            self._rescales.lose()
            return
        except PenstockError:
            return
        self._answers = True
        if self._info.checkpoints is not None and self._info.checkpoints.latest_url is not None:
            self._run.log = split_url(self._info.checkpoints.latest_url)[0]
        self._recoveries.see(self._info, time.monotonic())
        self._rescales.see(self._info, time.monotonic())

    # Faults

    def _fire(self, fault: Fault, record: FaultRecord) -> None:
        # A fault that must be fired waits for a process that is just being replaced.
        deadline = time.monotonic() + (0.0 if record.optional else self._patience)
        while not self._fires(fault, record) and time.monotonic() < deadline and not self._ended:
            self._tick()
        self._last_fault = time.monotonic()

    def _fires(self, fault: Fault, record: FaultRecord) -> bool:
        """Whether there is nothing more to try: it was fired, or has nothing to hit that could come yet."""
        self._elsewhere = processes_elsewhere()
        self._look()
        try:
            self._carry_out(fault, record)
        except (ProcessLookupError, _NothingYetError) as error:
            record.note = str(error)
            return False
        except _NothingThereError as error:
            record.note = str(error)
        else:
            self._tell(record)
        return True

    def _carry_out(self, fault: Fault, record: FaultRecord) -> None:
        info = self._info
        if info is None:
            raise _NothingYetError("the job did not answer")
        match fault:
            case KillSubtask(choices):
                _check_matched(info, choices)
                self._kill(faults.choose(faults.living(info, self._elsewhere), choices), record)
            case KillManager():
                record.on_manager = True
                self._kill([faults.manager(info)], record)
            case KillStandby(draw):
                found = faults.standby(faults.living(info, self._elsewhere), draw)
                self._kill([found] if found else [], record)
                record.outcome = DONE
            case PauseSubtask(seconds, choice):
                _check_matched(info, [choice])
                self._stop(faults.choose(faults.living(info, self._elsewhere), [choice]), seconds, record)
            case PauseManager(seconds):
                record.on_manager = True
                self._stop([faults.manager(info)], seconds, record)
            case KillNode(draw):
                self._kill_node(draw, record)
            case DrainNode(seconds, draw):
                node = self._choose_node(faults.worker_nodes(), draw)
                self._drain(node, seconds, record)
            case TakeNode(seconds, draw):
                self._take_node(seconds, draw, record)
            case RescaleStorm():
                self._ask(lambda: self._rescale_single(info, fault), record)
            case Rescale(parallelism):
                self._ask(lambda: f"stood still for {self._control.rescale(parallelism):.2f} s", record)
            case TakeSavepoint(directory):
                self._ask(lambda: self._control.savepoint(directory), record)
            case KillServer() | RestartServer() | PauseServer():
                self._disturb(fault, record)

    def _mark(self, record: FaultRecord, target: str) -> None:
        record.fired, record.fired_ms = time.monotonic(), time.time() * 1000
        record.amid = self._rescales.on_fault(record.fired)
        record.at_s = round(record.fired - self._started, 3)
        record.target, record.note = target, ""
        record.outcome = NOT_RECOVERED

    def _kill(self, processes: Sequence[JobProcess], record: FaultRecord) -> None:
        if not processes:
            raise _NothingYetError("the job has no such process")
        with contextlib.ExitStack() as held:
            live = [faults.hold(process, self._elsewhere) for process in processes]
            for one in live:
                held.callback(one.close)
            self._mark(record, " and ".join(map(str, processes)))
            for one in live:
                one.kill()

    def _stop(self, processes: Sequence[JobProcess], seconds: float, record: FaultRecord) -> None:
        if not processes:
            raise _NothingYetError("the job has no such process")
        live = faults.hold(processes[0], self._elsewhere)
        self._mark(record, str(processes[0]))
        record.outcome = HARMLESS
        record.until = record.fired + seconds + _NOTICED_SECONDS
        live.stop()
        self._later(seconds, live.proceed)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        """Act so many seconds later, or when the run is interrupted: by a thread of its own, as this one may just wait
        for the very process that is stopped."""

        def acted() -> None:
            self._interrupted.wait(seconds)
            act()

        acting = threading.Thread(target=acted, name="chaos-later", daemon=True)
        acting.start()
        self._stopped.append(acting)

    def _kill_node(self, draw: int, record: FaultRecord) -> None:
        cluster, own = self._own_nodes()
        node = self._choose_node(sorted(own), draw)
        self._mark(record, f"node {node[:12]}")
        record.until = record.fired + _NODE_SECONDS
        cluster.remove_node(own[node], allow_graceful=False)

    def _take_node(self, seconds: float, draw: int, record: FaultRecord) -> None:
        cluster, own = self._own_nodes()
        node = self._choose_node(sorted(own), draw)
        self._drain(node, seconds, record)
        record.until = record.fired + seconds + _NODE_SECONDS

        def take() -> None:
            if not self._interrupted.is_set():
                cluster.remove_node(own[node], allow_graceful=False)

        self._later(seconds, take)

    def _drain(self, node: str, seconds: float, record: FaultRecord) -> None:
        self._mark(record, f"node {node[:12]}")
        # It is no failure, and so not recovered from, where the job moves in time.
        record.outcome = HARMLESS
        record.until = record.fired + _NODE_SECONDS
        begin_to_drain(node, seconds)

    def _own_nodes(self) -> tuple[Cluster, Mapping[str, Any]]:
        if self._cluster is None:
            raise _NothingThereError(
                "only nodes of a ray.cluster_utils.Cluster that is given can be killed; drain one, or end it yourself"
            )
        return self._cluster, {str(node.node_id): node for node in self._cluster.worker_nodes}

    def _choose_node(self, nodes: Sequence[str], draw: int) -> str:
        if not nodes:
            raise _NothingThereError("there is no node but the head")
        return nodes[draw % len(nodes)]

    def _rescale_single(self, info: JobInfo, storm: RescaleStorm) -> str:
        uids = [task.uids[0] for task in info.tasks]
        return ask_in_turn(
            [Request(uids[(storm.draw + turn) % len(uids)], wanted) for turn, wanted in enumerate(storm.parallelisms)],
            self._control.rescale,
            lambda: self._status is JobStatus.RUNNING,
            lambda: self._ended or self._interrupted.is_set(),
            self._interrupted.wait,
        )

    def _ask(self, request: Callable[[], str], record: FaultRecord) -> None:
        """Ask the job for something while it runs, and while the next faults fire."""
        self._mark(record, "")
        # Restarts meanwhile are those of the other faults.
        record.outcome = UNDER_WAY

        def asked() -> None:
            try:
                record.note, record.outcome = request(), DONE
            except PenstockError as error:
                # A job that fails meanwhile refuses; that it continues is what counts.
                record.note, record.outcome = str(error), REFUSED

        asking = threading.Thread(target=asked, name="chaos-request", daemon=True)
        asking.start()
        self._asking.append(asking)

    def _disturb(self, fault: ServerFault, record: FaultRecord) -> None:
        """Do it to a server while the job runs, and while the next faults fire."""
        server = self._servers.get(fault.server)
        if server is None:
            raise _NothingThereError(f"there is no server {fault.server!r}; give servers={{...}}")
        self._mark(record, fault.server)
        record.outcome = HARMLESS

        def disturbed() -> None:
            try:
                with self._one_at_a_time:
                    _disturb(server, fault, self._interrupted.wait)
            except Exception as error:
                self._run.problems.append(f"{record.fault}: {error}")
            record.until = time.monotonic() + _NOTICED_SECONDS

        disturbing = threading.Thread(target=disturbed, name="chaos-server", daemon=True)
        disturbing.start()
        self._stopped.append(disturbing)

    # The end

    def _settle(self) -> None:
        """Wait until the job has got over everything; that takes its time from when all that was away is back."""
        if not self._wait_for(lambda: not self._is_disturbed, _AWAY_SECONDS) and not self._ended:
            self._run.problems.append(f"a server or a process is not back within {_AWAY_SECONDS:g} s")
        deadline = time.monotonic() + self._patience
        self._wait_for(self._is_quiet, self._patience)
        if not self._ended and time.monotonic() < deadline:
            self._wait_for(self._has_output, _OUTPUT_SECONDS)
        for asking in self._asking:
            # A job that has ended meanwhile answers all the same, or its manager is gone, which is an answer too.
            asking.join(max(0.0, deadline - time.monotonic()))
        # What has failed again meanwhile, or has not run once, has not got over it.
        self._look()
        self._wait_for(lambda: self._runs, max(0.0, deadline - time.monotonic()))

    @property
    def _is_disturbed(self) -> bool:
        """Whether a server is away, or a process stands still."""
        return any(work.is_alive() for work in self._stopped)

    def _is_quiet(self) -> bool:
        if self._is_disturbed or any(asking.is_alive() for asking in self._asking):
            return False
        self._recoveries.explain(self._run.faults)
        for record in self._run.fired:
            if record.outcome == NOT_RECOVERED and time.monotonic() > record.until:
                record.outcome = HARMLESS
        return self._runs and all(r.outcome != NOT_RECOVERED for r in self._run.fired)

    @property
    def _runs(self) -> bool:
        """Whether the job has just said so: what its manager said before that was lost counts for nothing."""
        return self._answers and self._status is JobStatus.RUNNING

    def _has_output(self) -> bool:
        self._recoveries.explain(self._run.faults)
        return self._recoveries.has_output

    def _let_go(self) -> None:
        """Resume everything that was stopped, whatever happened."""
        for proceeding in self._stopped:
            proceeding.join(max(0.0, self._patience))

    def _conclude(self, seconds: float) -> None:
        run = self._run
        self._recoveries.explain(run.faults)
        finished = self._handle is not None and self._handle.ended and self._handle.status() is JobStatus.FINISHED
        for record in run.fired:
            if record.outcome == NOT_RECOVERED and finished:
                # The job came to its end behind the fault, and its last manager is not there to be asked any more.
                record.outcome = RECOVERED
            if record.outcome == NOT_RECOVERED:
                run.problems.append(f"{record.fault}: the job has not recovered within {self._patience:g} s")
            if record.outcome == UNDER_WAY:
                run.problems.append(f"{record.fault}: the job has not answered within {self._patience:g} s")
        run.seconds = seconds
        run.restarts, run.managers = self._recoveries.restarts, self._recoveries.managers
        run.checkpoints = self._completed - self._base
        status = self._handle.status() if self._handle is not None else self._status
        run.status = status.value if status is not None else "unknown"
        if status in (JobStatus.FAILED, JobStatus.CANCELLED):
            run.problems.append(f"the job {run.status}: {self._info.error if self._info else ''}")
        elif not (self._ended or self._runs or run.problems or self._status is JobStatus.FINISHED):
            seen = f"is {run.status}" if self._answers else "does not answer"
            run.problems.append(f"the job {seen}, and has not come to run within {self._patience:g} s")


def _check_matched(info: JobInfo, choices: Sequence[SubtaskChoice]) -> None:
    if message := faults.unmatched(info, choices):
        raise _NothingThereError(message)


def _disturb(server: ChaosServer, fault: ServerFault, wait: Callable[[float], object]) -> None:
    """Do what the fault says; returns when the server serves again. `wait`: for so many seconds, or less."""
    match fault:
        case KillServer():
            server.kill()
            wait(fault.seconds)
            server.start()
        case RestartServer():
            server.restart()
        case PauseServer():
            server.pause()
            wait(fault.seconds)
            server.resume()


class _NothingThereError(Exception):
    """The fault has nothing to hit."""


class _NothingYetError(Exception):
    """The fault has nothing to hit now, and may have in a moment."""
