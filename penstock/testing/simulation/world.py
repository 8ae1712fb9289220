"""The simulated world: managers of one job, one of which is the real one, their storage, and the end that is judged.

`simulate` runs one seed. Managers that were taken for dead may go on beside their successor (zombies), letters of the
dead still arrive, and time passes only when everybody waits.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.checkpointing.config import FixedDelay
from penstock.engine.clock import ManualClock
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError, PenstockError, WorkerLostError
from penstock.engine.graph.physical import JobProgram
from penstock.engine.job import JobStatus
from penstock.engine.local_mail import LetterKind
from penstock.engine.local_manager import JobFolder, LocalManager
from penstock.savepoints.storage import BlobStore, open_blobs
from penstock.savepoints.store import FolderJobStore
from penstock.testing.simulation.blobs import SimulatedBlobs
from penstock.testing.simulation.faults import Crash, Dice, FaultRates
from penstock.testing.simulation.mail import SimulatedMailbox
from penstock.testing.simulation.warehouse import Warehouse, WarehouseSink

_JOB: Final = "simulated"
_MOST_STEPS: Final = 60_000
_PATIENCE: Final = 0.05
_ZOMBIE_TURNS: Final = 0.3
_PARALLELISMS: Final = (1, 2, 3)
_MANAGERS_LETTERS: Final = (LetterKind.STORE, LetterKind.DELETE)
_RESTARTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job and what its sink must show in the end.

    Args:
        build: writes the program whose rows go to the given sink; called once a run.
        check: says what is wrong with the committed rows; empty if nothing is.
    """

    build: Callable[[WarehouseSink, random.Random], JobProgram]
    check: Callable[[Warehouse], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went.

    Args:
        seed: chose everything.
        steps: how many there were.
        schedule: the faults that happened, one a line.
        violations: what was wrong; empty if nothing was.
        trace: hash of everything that happened, equal for equal seeds.
        restarts, managers: how many attempts and managers there were.
    """

    seed: int
    steps: int
    schedule: tuple[str, ...]
    violations: tuple[str, ...]
    trace: str
    restarts: int
    managers: int

    def __str__(self) -> str:
        told = "\n".join(f"  {line}" for line in (*self.schedule, *(f"VIOLATION: {v}" for v in self.violations)))
        return f"seed {self.seed}: {self.steps} steps, {self.managers} managers, {self.restarts} restarts\n{told}"


def simulate(scenario: Scenario, seed: int, rates: FaultRates = FaultRates()) -> Outcome:  # noqa: B008 - frozen
    """Run the scenario's job to its end in the world that `seed` makes.

    Example:
        >>> outcome = simulate(scenario, seed=7)  # doctest: +SKIP
        >>> assert not outcome.violations, outcome
    """
    return _World(scenario, seed, rates).run()


@dataclass(slots=True)
class _Manager:
    """A manager and its mailbox."""

    manager: LocalManager
    mail: SimulatedMailbox
    attempts: set[int] = field(default_factory=set)


class _World:
    def __init__(self, scenario: Scenario, seed: int, rates: FaultRates) -> None:
        self._scenario = scenario
        self._seed = seed
        self._random = random.Random(seed)
        self._dice = Dice(self._random, rates)
        self._clock = ManualClock()
        self._warehouse = Warehouse()
        program = scenario.build(WarehouseSink(self._warehouse, self._dice), self._random)
        self._program = self._reliable(program)
        self._root = f"memory://simulation-{seed}-{secrets.token_hex(4)}"
        self._trace = hashlib.sha256()
        self._real: _Manager | None = None
        self._zombies: list[_Manager] = []
        self._managers = self._restarts = 0

    def _reliable(self, program: JobProgram) -> JobProgram:
        """The program with as many restarts as there are faults: whether to restart is not what is tested."""
        failover = replace(program.config.failover, restart=FixedDelay(_RESTARTS, self._random.choice([0, 10, 1000])))
        return replace(program, config=replace(program.config, failover=failover))

    def run(self) -> Outcome:
        while self._dice.step < _MOST_STEPS:
            self._dice.step += 1
            if self._real is None:
                self._new_manager()
                continue
            try:
                self._misfortunes(self._real)
            except Crash:
                self._real = None
            if self._real is None:
                continue
            self._turn(self._whose_turn(self._real))
            if self._real is not None and self._real.manager.status.ended:
                return self._judge(self._real.manager)
        return self._outcome([f"the job had not ended after {_MOST_STEPS} steps"])

    def _new_manager(self) -> None:
        store = FolderJobStore(self._root, _JOB, _JOB, open_blobs=self._open_blobs)
        mail = SimulatedMailbox(self._dice)
        try:
            manager = LocalManager(self._program, self._clock, self._random, JobFolder(store, _JOB), mail)
            self._managers += 1
            self._real = _Manager(manager, mail)
            manager.start()
        except (CheckpointError, Crash):
            # It dies, or gives up, before it has done anything; the next one tries again.
            self._real = None

    def _open_blobs(self, url: str) -> BlobStore:
        return SimulatedBlobs(open_blobs(url), self._dice)

    def _whose_turn(self, real: _Manager) -> _Manager:
        if self._zombies and self._random.random() < _ZOMBIE_TURNS:
            return self._random.choice(self._zombies)
        return real

    def _turn(self, one: _Manager) -> None:
        self._record(one)
        one.mail.last = None
        try:
            one.manager.step(_PATIENCE)
        except Crash:
            self._on_crash(one)
        if one in self._zombies and (one.manager.status.ended or one.manager.error is not None):
            self._zombies.remove(one)

    def _record(self, one: _Manager) -> None:
        manager = one.manager
        what = (self._dice.step, manager.attempt.number, manager.status.value, len(one.mail), self._clock.monotonic())
        self._trace.update(repr(what).encode())
        one.attempts.add(manager.attempt.number)

    def _on_crash(self, one: _Manager) -> None:
        """The process died in which the code ran that was called last."""
        if one in self._zombies:
            self._zombies.remove(one)
        elif one.mail.last in _MANAGERS_LETTERS or one.manager.status.ended:
            self._real = None
        else:
            self._kill_subtask(one.manager)

    def _kill_subtask(self, manager: LocalManager) -> None:
        place = self._random.choice(manager.attempt.places)
        try:
            manager.fail(WorkerLostError(f"killed: subtask {place}"), place)
        except Crash:
            self._real = None

    def _misfortunes(self, real: _Manager) -> None:
        manager, rates = real.manager, self._dice.rates
        if manager.status is JobStatus.RUNNING and self._dice.strikes(rates.kill_subtask, "kill a subtask"):
            self._restarts += 1
            self._kill_subtask(manager)
        if self._dice.strikes(rates.kill_manager, "kill the manager"):
            if self._random.random() < rates.zombie:
                self._dice.schedule.append(f"step {self._dice.step}: it goes on as a zombie")
                self._zombies.append(real)
            self._real = None
            return
        if manager.status is not JobStatus.RUNNING:
            return
        if self._dice.strikes(rates.rescale, "rescale"):
            self._program = self._program.rescaled(parallelism := self._random.choice(_PARALLELISMS))
            manager.rescale(parallelism)
        elif self._dice.strikes(rates.savepoint, "savepoint"):
            manager.request(SnapshotKind.SAVEPOINT, f"{self._root}-savepoints")

    def _judge(self, manager: LocalManager) -> Outcome:
        violations = []
        if manager.status is not JobStatus.FINISHED:
            error: PenstockError | None = manager.error
            violations.append(f"the job ended as {manager.status.value}: {error}")
        return self._outcome([*violations, *self._scenario.check(self._warehouse)])

    def _outcome(self, violations: Sequence[str]) -> Outcome:
        rows = sorted(map(repr, self._warehouse.rows))
        self._trace.update("\n".join([*self._dice.schedule, *rows]).encode())
        return Outcome(
            self._seed,
            self._dice.step,
            tuple(self._dice.schedule),
            tuple(violations),
            self._trace.hexdigest(),
            self._restarts,
            self._managers,
        )
