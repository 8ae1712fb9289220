"""What happens to a job between two of its steps: kills, rescales, savepoints, damage.

The world calls `strike` at each step. What happens within a step (storage, commits, letters) is the affair of the disk,
the warehouse and the mailbox.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError, WorkerLostError
from penstock.engine.job.status import JobStatus
from penstock.engine.local.attempt import LocalAttempt
from penstock.engine.local.manager import LocalManager
from penstock.testing.simulation.disk import Disk, SimulatedClock
from penstock.testing.simulation.faults import Dice

if TYPE_CHECKING:  # the world's values, which the world hands in
    from penstock.testing.simulation.world import Job, ManagerProcess

Happening: TypeAlias = "Callable[[Job, ManagerProcess, str], None]"
"""Does something to a job and its real manager; the text says what."""
PARALLELISMS: Final = (1, 2, 3)
ROOT: Final = "memory://simulation"
SAVEPOINTS: Final = "memory://savepoints"
_STUCK_STEPS: Final = (50, 1500)
_JUMP_MS: Final = 20_000


class Misfortunes:
    """Decides what happens to a job, and does it.

    Args:
        dice: decides.
        disk: can be filled, and damaged.
        clock: can jump.

    Attributes:
        kills: how many subtasks were killed.
        branch: the number of the savepoint that a second job is to start from, while it is under way.
    """

    def __init__(self, dice: Dice, disk: Disk, clock: SimulatedClock) -> None:
        self.kills = 0
        self.branch: int | None = None
        self._dice = dice
        self._disk = disk
        self._clock = clock
        self._stuck: tuple[LocalAttempt, Place, int] | None = None
        rates = dice.rates
        self._table: Sequence[tuple[float, str, Happening]] = (
            (rates.kill_subtask, "kill a subtask", self._kill),
            (rates.kill_manager, "kill the manager", self._kill_manager),
            (rates.disk_full, "the disk is full for a while", self._fill),
            (rates.clock_jump, "civil time jumps", self._jump),
            (rates.stuck, "a subtask is stuck", self._stick),
            (rates.rescale, "rescale", self._rescale),
            (rates.savepoint, "savepoint", self._save),
            (rates.savepoint, "checkpoint", self._take_checkpoint),
            (rates.branch, "savepoint for a second job", self._begin_branch),
            (rates.suspend, "stop with a savepoint", self._suspend),
            (rates.drain, "drain", self._drain),
            (rates.corrupt, "a file is damaged", self._damage),
        )
        self._any = sum(rate for rate, _, _ in self._table)

    def forget(self) -> None:
        """The job has ended."""
        self.branch = None
        self._stuck = None

    def strike(self, job: Job) -> None:
        """What happens before the next step."""
        real = job.real
        assert real is not None
        manager = real.manager
        self._free_stuck(manager)
        # One draw decides whether anything happens, and what: most of the time nothing does.
        drawn = self._dice.chosen.random()
        if drawn >= self._any:
            return
        for rate, what, act in self._table:
            drawn -= rate
            if drawn < 0:
                if manager.status is JobStatus.RUNNING or act in (self._kill_manager, self._fill, self._jump):
                    act(job, real, what)
                return

    def _happens(self, what: str) -> bool:
        return self._dice.strikes(1.0, what)

    def _fill(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            self._disk.fill()

    def _jump(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            self._clock.jump(self._dice.chosen.randint(-_JUMP_MS, _JUMP_MS))

    def _kill_manager(self, job: Job, real: ManagerProcess, what: str) -> None:
        if not self._happens(what):
            return
        if self._dice.chosen.random() < self._dice.rates.zombie:
            self._dice.note("it goes on as a zombie")
            job.zombies.append(real)
        job.real = None
        self.branch = None

    def _kill(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            self.kill_subtask(real.manager)

    def _rescale(self, job: Job, real: ManagerProcess, what: str) -> None:
        parallelism = self._dice.chosen.choice(PARALLELISMS)
        if self._happens(f"{what} to {parallelism}"):
            job.program = job.program.rescaled(parallelism)
            real.manager.rescale(parallelism)

    def _save(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            self._request(real.manager, SnapshotKind.SAVEPOINT)

    def _take_checkpoint(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            self._request(real.manager, SnapshotKind.CHECKPOINT)

    def _begin_branch(self, job: Job, real: ManagerProcess, what: str) -> None:
        if job.savepoint is None and self._happens(what):
            self.branch = self._request(real.manager, SnapshotKind.SAVEPOINT)

    def _suspend(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            self._request(real.manager, SnapshotKind.SUSPEND)

    def _drain(self, job: Job, real: ManagerProcess, what: str) -> None:
        if job.case.check_drained is not None and self._stuck is None and self._happens(what):
            # The storage may fail then, too; the job goes on.
            with contextlib.suppress(CheckpointError):
                real.manager.drain(SAVEPOINTS)
                job.drained = True

    @staticmethod
    def _request(manager: LocalManager, kind: SnapshotKind) -> int | None:
        try:
            return manager.request(kind, SAVEPOINTS)
        except CheckpointError:
            # It is being stopped already.
            return None

    def kill_subtask(self, manager: LocalManager) -> None:
        """The process of one subtask dies."""
        self.kills += 1
        place = self._dice.chosen.choice(manager.attempt.places)
        manager.fail(WorkerLostError(f"killed: subtask {place}"), place)

    def _stick(self, job: Job, real: ManagerProcess, what: str) -> None:
        attempt = real.manager.attempt
        # Of a job that is drained no checkpoint is under way, whose time-out would notice it: heartbeats do, on Ray.
        if self._stuck is not None or job.drained or not attempt.ready or not self._happens(what):
            return
        number = attempt.ready.pop(self._dice.chosen.randrange(len(attempt.ready)))
        until = self._dice.step + self._dice.chosen.randint(*_STUCK_STEPS)
        self._stuck = attempt, attempt.places[number], until

    def _free_stuck(self, manager: LocalManager) -> None:
        if self._stuck is None:
            return
        attempt, place, until = self._stuck
        if attempt is not manager.attempt or manager.status is not JobStatus.RUNNING:
            self._stuck = None
        elif self._dice.step >= until:
            self._stuck = None
            attempt.ready.append(attempt.places.index(place))
            if self._dice.chosen.random() < 0.5:
                manager.fail(WorkerLostError(f"not heard of for long: subtask {place}"), place)

    def _damage(self, job: Job, real: ManagerProcess, what: str) -> None:
        """Change a byte of a file that the job would go on from, and make it do so."""
        latest = real.manager.coordinator.latest
        if latest is None or job.corrupted is not None:
            return
        folder = f"{ROOT}/{job.job_id}"
        files = sorted({f"{folder}/{file.path}" for file in latest.files() if file.length})
        files = [file for file in files if file in self._disk.blobs]
        if files and self._happens(what):
            job.corrupted = self._dice.chosen.choice(files)
            self._disk.flip(job.corrupted)
            self.kill_subtask(real.manager)
