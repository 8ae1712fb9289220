"""The simulated world: managers of one job, one of which is the real one, their storage, and the end that is judged.

`simulate` runs one seed. Managers that were taken for dead may live on beside their successor (zombies), mails of the
dead still arrive, and time passes only when everybody waits. Jobs follow each other: one that was stopped with a
savepoint is resumed from it, and a savepoint on the way may become a job of its own.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from struct import Struct
from typing import Any, Final

from penstock.engine.checkpoint_config import FixedDelay
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import (
    CheckpointCorruptError,
    CheckpointError,
    ClusterError,
    FencedError,
    PenstockError,
    RestoreError,
    WorkerLostError,
)
from penstock.engine.graph.physical import JobProgram
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.log import StimulusLog
from penstock.engine.job.status import JobStatus
from penstock.engine.local.execution import MailKind
from penstock.engine.local.manager import LocalManager
from penstock.savepoints.paths import checkpoint_folder_name
from penstock.savepoints.restore import plan_restore
from penstock.savepoints.store import START_AGAIN, FolderJobStore, find_checkpoint
from penstock.testing.simulation.disk import Disk, SimulatedClock
from penstock.testing.simulation.faults import Crash, Dice, FaultRates
from penstock.testing.simulation.jobs import Job, ManagerProcess
from penstock.testing.simulation.mail import SimulatedMailbox
from penstock.testing.simulation.misfortunes import ROOT, SAVEPOINTS, Misfortunes
from penstock.testing.simulation.nodes import NodeRoom, Nodes
from penstock.testing.simulation.scenario import Check, Outcome, Scenario
from penstock.testing.simulation.warehouse import Warehouse, WarehouseSink

_PATIENCE: Final = 0.05
_ZOMBIE_TURNS: Final = 0.3
_MEANWHILE: Final = 0.3
_MANAGERS_MAILS: Final = (
    MailKind.CLAIM,
    MailKind.DEPLOY,
    MailKind.PREPARE,
    MailKind.CHECK_FOLDER,
    MailKind.STORE,
    MailKind.DELETE,
    MailKind.WRITE_END,
)
_RESTARTS: Final = 1_000_000
_RECORD: Final = Struct("<qqqd")
_STATUS: Final = {status: status.value.encode() for status in JobStatus}


def simulate(
    scenario: Scenario,
    seed: int,
    rates: FaultRates = FaultRates(),  # noqa: B008 - frozen
    log_folder: Path | None = None,
) -> Outcome:
    """Run the scenario's job to its end in the world that `seed` makes.

    Args:
        scenario, seed, rates: what happens.
        log_folder: where the stimulus logs of all managers are written if something is wrong; the outcome names them.

    Example:
        >>> outcome = simulate(scenario, seed=7)  # doctest: +SKIP
        >>> assert not outcome.violations, outcome
    """
    with _collector_off():
        world = _World(scenario, seed, rates)
        outcome = world.run()
    if log_folder is None or not outcome.violations:
        return outcome
    return replace(outcome, logs=tuple(map(str, world.write_logs(log_folder))))


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """What a run leaves in cycles fits beside the rest until its end; to look for it takes a seventh of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _World:
    def __init__(self, scenario: Scenario, seed: int, rates: FaultRates) -> None:
        self._scenario = scenario
        self._seed = seed
        self._random = random.Random(seed)
        self._dice = Dice(self._random, rates.some(self._random))
        self._clock = SimulatedClock()
        self._disk = Disk(self._dice, self._clock, self._meanwhile)
        self._delay = self._random.choice([0, 10, 1000])
        self._trace = hashlib.sha256()
        self._violations: list[str] = []
        self._rows: list[str] = []
        self._jobs = self._managers = 0
        self._acting: ManagerProcess | None = None
        self._nested = False
        self._nodes = Nodes(random.Random(f"{seed} nodes"), self._dice)
        self._misfortunes = Misfortunes(self._dice, self._disk, self._clock, self._nodes)
        self._logs: list[tuple[str, StimulusLog]] = []
        self._job = self._new_job(Warehouse())

    def run(self) -> Outcome:
        waiting: list[Job] = []
        while True:
            following = self._run_job(waiting)
            self._rows += sorted(map(repr, self._job.warehouse.rows))
            if self._violations or (following is None and not waiting):
                return self._outcome()
            self._job = waiting.pop() if following is None else following

    def _new_job(self, warehouse: Warehouse, start: str | None = None) -> Job:
        self._jobs += 1
        # A job that has never run is not submitted again when there is no room for it.
        self._nodes.return_all()
        sink = WarehouseSink(warehouse, self._dice, self._jobs)
        case = self._scenario.build(sink, random.Random(f"{self._seed} program"))
        program = self._with_restarts(case.program)
        job = Job(self._jobs, f"job-{self._jobs}", case, program, warehouse)
        if start is not None:
            found = find_checkpoint(start, self._calm_disk.open)
            graph = program.physical(found.checkpoint.split_parallelism)
            job.start_url, job.start = start, plan_restore(graph, found.checkpoint, found.location)
        return job

    @property
    def _calm_disk(self) -> Disk:
        """The same blobs, without faults."""
        disk = Disk(Dice(self._random, FaultRates(budget=0)), self._clock)
        disk.blobs = self._disk.blobs
        return disk

    def _with_restarts(self, program: JobProgram) -> JobProgram:
        """The program with as many restarts as there are faults: whether to restart is not what is tested."""
        regions = self._random.random() < self._dice.rates.regions
        failover = replace(
            program.config.failover,
            restart=FixedDelay(_RESTARTS, self._delay),
            regions=regions,
            standbys=self._nodes.standbys,
            min_parallelism=self._nodes.min_parallelism,
        )
        return replace(program, config=replace(program.config, failover=failover))

    # Steps

    def _run_job(self, waiting: list[Job]) -> Job | None:
        """Run the job to its end, and judge it; the job that resumes from where it was stopped, if one does."""
        job, dice = self._job, self._dice
        end = dice.step + self._scenario.most_steps
        while dice.step < end:
            dice.step += 1
            if job.real is None:
                self._nodes.return_due()
                self._start_manager()
                if self._violations:
                    return None
                continue
            try:
                self._misfortunes.strike(job)
            except Crash:
                self._lose_manager(job)
            if job.real is None:
                continue
            self._turn(self._whose_turn(job.real))
            if job.real is not None and job.real.manager.brain.ended:
                if self._gave_up(job, job.real):
                    continue
                return self._judge(job.real, waiting)
            if self._violations:
                return None
        self._violations.append(f"the job had not ended after {self._scenario.most_steps} steps: {self._condition()}")
        return None

    def _condition(self) -> str:
        real = self._job.real
        return "no manager" if real is None else f"{real.manager.brain.status.value}, {real.manager.brain.error}"

    def _start_manager(self) -> None:
        job, node = self._job, self._nodes.choose()
        if node is None:
            return
        store = FolderJobStore(ROOT, job.job_id, job.job_id, SAVEPOINTS, (), self._disk.open, 1)
        mail = SimulatedMailbox(self._dice)
        folder = JobFolder(store, job.job_id, job.start)
        room = NodeRoom(self._nodes, node)
        manager = LocalManager(job.program, self._clock, self._random, folder, mail, room=room)
        job.real = ManagerProcess(manager, mail, room)
        self._managers += 1
        self._logs.append((f"{job.job_id}-manager-{self._managers}", job.real.manager.log))

    @property
    def logs(self) -> Mapping[str, str]:
        """The stimulus logs of all managers, by their names."""
        return {name: log.text() for name, log in self._logs}

    def write_logs(self, folder: Path) -> list[Path]:
        """Write them, each to a file that `penstock job replay` reads."""
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for name, text in self.logs.items():
            files.append(folder / f"{self._scenario.name}-{self._seed}-{name}.jsonl")
            files[-1].write_text(text)
        return files

    def _gave_up(self, job: Job, real: ManagerProcess) -> bool:
        """Whether a manager could not take the job over, or another has since; who runs the job then."""
        brain = real.manager.brain
        if brain.checkpoints is None:
            if isinstance(brain.error, CheckpointCorruptError):
                return False
            self._lose_manager(job)
            return True
        claims = (path for path in self._disk.under(f"{ROOT}/{job.job_id}/claims") if path.isdigit())
        newest = max(map(int, claims), default=0)
        if not isinstance(brain.error, FencedError) or newest <= brain.checkpoints.epoch:
            return False
        # One that was taken for dead before it had claimed the job has done so now.
        self._lose_manager(job)
        job.real = next((one for one in job.zombies if _epoch(one) == newest), None)
        if job.real is not None:
            # Of a zombie less was asked.
            job.real.learned = None
        job.zombies = [one for one in job.zombies if one is not job.real]
        return True

    def _meanwhile(self) -> None:
        """In the middle of what one process does with the storage, another one may do something."""
        job = self._job
        if self._nested or not job.zombies or job.real is None or self._random.random() >= _MEANWHILE:
            return
        self._nested = True
        try:
            others = [one for one in (job.real, *job.zombies) if one is not self._acting]
            if others:
                self._turn(self._random.choice(others))
        finally:
            self._nested = False

    def _whose_turn(self, real: ManagerProcess) -> ManagerProcess:
        zombies = self._job.zombies
        if zombies and self._random.random() < _ZOMBIE_TURNS:
            return self._random.choice(zombies)
        return real

    def _turn(self, one: ManagerProcess) -> None:
        job, before = self._job, self._acting
        self._record(one)
        self._acting = one
        one.mail.last = None
        one.mail.release_due()
        try:
            one.manager.step(_PATIENCE)
        except Crash:
            self._on_crash(one)
        finally:
            self._acting = before
        brain = one.manager.brain
        if one.learned != one.manager.heard:
            one.learned = one.manager.heard
            self._learn(one)
            self._judge_error(brain)
        if one is job.real:
            self._compare_finished(one)
        elif one in job.zombies and (brain.ended or brain.error is not None):
            job.zombies.remove(one)

    def _record(self, one: ManagerProcess) -> None:
        brain = one.manager.brain
        numbers = _RECORD.pack(self._dice.step, brain.attempts.number, len(one.mail), self._clock.monotonic())
        self._trace.update(numbers + _STATUS[brain.status])

    def _learn(self, one: ManagerProcess) -> None:
        """What a user and a checker know of the job, once its brain has heard something."""
        job, brain, misfortunes = self._job, one.manager.brain, self._misfortunes
        job.warehouse.completed.add((job.number, brain.completed))
        checkpoints = brain.checkpoints
        if checkpoints is not None and (suspended := checkpoints.coordinator.suspended) is not None:
            job.suspended = checkpoints.urls[suspended.checkpoint]
            job.warehouse.completed.add((job.number, suspended.checkpoint))
            if brain.attempts.number > suspended.attempt:
                self._violations.append(f"the job runs behind savepoint {suspended.checkpoint}, which stopped it")
        if one is not job.real:
            return
        if misfortunes.branch is not None and (outcome := one.manager.answers.get(misfortunes.branch)) is not None:
            if isinstance(outcome, str):
                job.savepoint = outcome
                number = next(n for n, url in brain.checkpoints.urls.items() if url == outcome)  # type: ignore[union-attr]
                job.branch = job.warehouse.branch(job.number, number)
            misfortunes.branch = None
        self._learn_of_drain(one)

    def _judge_error(self, brain: JobBrain) -> None:
        if brain.error is None:
            return
        # A job that was stopped with a savepoint may fail behind it, also under the next manager.
        suspended = None if brain.checkpoints is None else brain.checkpoints.suspended_url
        stopped = brain.layout is None or suspended is not None
        if not stopped and not self._is_expected(brain.error):
            self._violations.append(f"a subtask failed: {brain.error}")

    def _compare_finished(self, one: ManagerProcess) -> None:
        """What the brain has heard of an attempt that is over must not tell it that the one that runs is."""
        attempts, execution = one.manager.brain.attempts, one.manager.execution
        for place in attempts.finished:
            if execution.runs(place, attempts.deployed[place][0]) and not execution.has_finished(place):
                self._violations.append(f"the brain takes subtask {place} for finished, which runs")

    def _learn_of_drain(self, one: ManagerProcess) -> None:
        job, asked = self._job, self._misfortunes.drain
        if asked is not None:
            job.draining = one
            if not isinstance(one.manager.answers.get(asked), str | None):
                self._misfortunes.drain = None
                if job.suspended is None:
                    # It was refused, or has been undone.
                    job.draining = None
        elif job.draining is not one and one.manager.brain.status is JobStatus.RUNNING:
            # The manager that was asked has died, and its successor resumes from before.
            job.draining = None

    def _is_expected(self, error: BaseException | None) -> bool:
        """Whether nothing but what the world does can have made an attempt fail."""
        while error is not None:
            if isinstance(error, ClusterError | WorkerLostError | CheckpointError | FencedError):
                return True
            error = error.__cause__
        return False

    def _on_crash(self, one: ManagerProcess) -> None:
        """The process died in which the code ran that was called last."""
        job = self._job
        if one in job.zombies:
            job.zombies.remove(one)
        elif one.mail.last in _MANAGERS_MAILS or one.manager.brain.ended:
            self._lose_manager(job)
        else:
            try:
                self._misfortunes.kill_subtask(one)
            except Crash:
                self._lose_manager(job)

    def _lose_manager(self, job: Job) -> None:
        job.real = None
        self._misfortunes.on_manager_lost()

    # The end

    def _find_stop(self, job: Job) -> None:
        """A manager may have died as soon as the savepoint that stopped the job was there; its successor says so."""
        root = f"{ROOT}/{job.job_id}"
        paths = self._disk.under(root)
        ends = [self._content(root, path)["message"] for path in paths if path.endswith(".ended")]
        if job.suspended is not None or not any(START_AGAIN in message for message in ends):
            return
        for mark in (path for path in paths if path.endswith("/savepoint")):
            used = self._content(root, mark)
            if used["kind"] == SnapshotKind.SUSPEND.value and self._disk.under(used["savepoint"]):
                job.suspended = used["savepoint"]
                job.warehouse.completed.add((job.number, used["checkpoint"]))

    def _content(self, root: str, path: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._disk.blobs[f"{root}/{path}"])
        return content

    def _judge(self, real: ManagerProcess, waiting: list[Job]) -> Job | None:
        job, brain = self._job, real.manager.brain
        if brain.status is JobStatus.FAILED:
            self._find_stop(job)
        drained = job.draining is not None
        if job.suspended is not None and not (drained and brain.status is JobStatus.FINISHED):
            job.zombies.clear()
            self._misfortunes.forget()
            following = self._new_job(job.warehouse, job.suspended)
            following.ends_early = job.ends_early or drained
            return following
        if brain.status is JobStatus.CANCELLED and job.cancelled is not None:
            return self._follow_cancelled(real, job.cancelled[1])
        if brain.status is not JobStatus.FINISHED:
            self._judge_failure(brain.error)
            return None
        ended_early = job.ends_early or (drained and self._was_stopped(job))
        self._check(job.case.check_drained if ended_early and job.case.check_drained else job.case.check)
        self._check_folder(real)
        if job.savepoint is not None and job.branch is not None:
            branch = self._new_job(job.branch, job.savepoint)
            branch.ends_early = job.ends_early
            waiting.append(branch)
        self._misfortunes.forget()
        return None

    def _follow_cancelled(self, real: ManagerProcess, retains: bool) -> Job | None:
        """The job that resumes from what a cancelled one has kept, or begins as that one did; None: nothing is kept."""
        job, kept = self._job, real.manager.brain.kept
        self._misfortunes.forget()
        if not retains:
            self._check_folder(real)
            return None
        # Whatever was under way, a checkpoint that was reported is there.
        self._deliver_all(real)
        job.zombies.clear()
        try:
            following = self._new_job(job.warehouse, self._kept_by(job, kept))
        except PenstockError as error:
            self._violations.append(f"what the cancelled job has kept is not there: {error}")
            return None
        following.ends_early, following.corrupted = job.ends_early, job.corrupted
        return following

    def _kept_by(self, job: Job, kept: CompletedCheckpoint | None) -> str | None:
        """Where a job resumes that follows a cancelled one, of which its last manager knew what was `kept`."""
        folder = f"{ROOT}/{job.job_id}"
        if kept is not None:
            return f"{folder}/{checkpoint_folder_name(kept.checkpoint)}"
        # A manager that found the job cancelled knows of no checkpoint: its user looks into the folder. What a replaced
        # manager wrote there counts for nothing.
        with contextlib.suppress(RestoreError):
            find_checkpoint(folder, self._calm_disk.open)
            return folder
        return job.start_url

    def _was_stopped(self, job: Job) -> bool:
        """Whether the savepoint is there that a drain must end with."""
        folders = {path.partition("/")[0] for path in self._disk.under(SAVEPOINTS) if path.endswith("/manifest.json")}
        found = (find_checkpoint(f"{SAVEPOINTS}/{folder}", self._calm_disk.open).checkpoint for folder in folders)
        return any(one.kind is SnapshotKind.SUSPEND and one.job_id == job.job_id for one in found)

    def _judge_failure(self, error: BaseException | None) -> None:
        """A job may fail only because what it resumes from is damaged, and must say what is."""
        damaged = self._job.corrupted
        if damaged is None or damaged not in str(error):
            self._violations.append(f"the job failed: {type(error).__name__}: {error}")

    def _check(self, check: Check) -> None:
        self._violations += check(self._job.warehouse)

    def _check_folder(self, real: ManagerProcess) -> None:
        """Once a job has finished and everything has arrived, nothing is left of it but the claims."""
        if self._job.zombies or not self._deliver_all(real):
            return
        # Behind the last mails: what they ask of the storage may go wrong too.
        if any(self._loses_files(line) for line in self._dice.schedule):
            return
        left = [path for path in self._disk.under(f"{ROOT}/{self._job.job_id}") if not path.startswith("claims/")]
        if left:
            self._violations.append(f"left in the folder of the finished job: {', '.join(left[:5])}")

    @staticmethod
    def _deliver_all(real: ManagerProcess) -> bool:
        """Let all mails come, also those that were held up. False: the manager, which nobody follows, died of one."""
        while real.mail or real.mail.is_expecting:
            # What one brings about may be held up in its turn.
            real.mail.release_all()
            try:
                real.mail.take_next()
            except Crash:
                return False
        return True

    @staticmethod
    def _loses_files(fault: str) -> bool:
        """Whether nobody can know, after this fault, of a file that was written."""
        return any(word in fault for word in ("dies", "fails", "manager", "zombie", "full", "slow"))

    def _outcome(self) -> Outcome:
        self._trace.update("\n".join([*self._dice.schedule, *self._rows, *self._violations]).encode())
        return Outcome(
            self._scenario.name,
            self._seed,
            self._dice.step,
            tuple(self._dice.schedule),
            tuple(self._violations),
            self._trace.hexdigest(),
            self._misfortunes.kills,
            self._managers,
            self._jobs,
        )


def _epoch(one: ManagerProcess) -> int:
    checkpoints = one.manager.brain.checkpoints
    return 0 if checkpoints is None else checkpoints.epoch
