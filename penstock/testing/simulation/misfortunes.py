"""What happens to a job between two of its steps: kills, rescales, savepoints, damage.

The world calls `strike` at each step. What happens within a step (storage, commits, letters) is the affair of the disk,
the warehouse and the mailbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError, WorkerLostError
from penstock.engine.job import JobStatus
from penstock.engine.local_attempt import LocalAttempt
from penstock.engine.local_manager import LocalManager
from penstock.testing.simulation.disk import Disk, SimulatedClock
from penstock.testing.simulation.faults import Dice

if TYPE_CHECKING:  # the world's values, which the world hands in
    from penstock.testing.simulation.world import Job, ManagerProcess

PARALLELISMS: Final = (1, 2, 3)
_SAVEPOINTS: Final = "memory://savepoints"
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

    def forget(self) -> None:
        """The job has ended."""
        self.branch = None
        self._stuck = None

    def strike(self, job: Job) -> None:
        """What happens before the next step."""
        real, rates, dice = job.real, self._dice.rates, self._dice
        assert real is not None
        manager = real.manager
        self._free_stuck(manager)
        if dice.strikes(rates.disk_full, "the disk is full for a while"):
            self._disk.fill()
        if dice.strikes(rates.clock_jump, "civil time jumps"):
            self._clock.jump(dice.chosen.randint(-_JUMP_MS, _JUMP_MS))
        if dice.strikes(rates.kill_manager, "kill the manager"):
            self._kill_manager(job, real)
        elif manager.status is JobStatus.RUNNING:
            self._strike_running(job, manager)

    def _strike_running(self, job: Job, manager: LocalManager) -> None:
        rates, dice = self._dice.rates, self._dice
        if dice.strikes(rates.kill_subtask, "kill a subtask"):
            self.kill_subtask(manager)
        elif manager.attempt.ready and self._stuck is None and dice.strikes(rates.stuck, "a subtask is stuck"):
            self._stick(manager.attempt)
        elif dice.strikes(rates.rescale, "rescale"):
            parallelism = dice.chosen.choice(PARALLELISMS)
            job.program = job.program.rescaled(parallelism)
            manager.rescale(parallelism)
        elif manager.coordinator.latest is not None and dice.strikes(rates.corrupt, "a file is damaged"):
            self._damage(job, manager)
        else:
            self._snapshot(job, manager)

    def _snapshot(self, job: Job, manager: LocalManager) -> None:
        rates, dice = self._dice.rates, self._dice
        if dice.strikes(rates.savepoint, "savepoint"):
            self._request(manager, SnapshotKind.SAVEPOINT)
        elif job.savepoint is None and dice.strikes(rates.branch, "savepoint for a second job"):
            self.branch = self._request(manager, SnapshotKind.SAVEPOINT)
        elif dice.strikes(rates.suspend, "stop with a savepoint"):
            self._request(manager, SnapshotKind.SUSPEND)
        elif job.case.check_drained is not None and dice.strikes(rates.drain, "drain"):
            job.drained = True
            manager.drain(_SAVEPOINTS)

    @staticmethod
    def _request(manager: LocalManager, kind: SnapshotKind) -> int | None:
        try:
            return manager.request(kind, _SAVEPOINTS)
        except CheckpointError:
            # It is being stopped already.
            return None

    def kill_subtask(self, manager: LocalManager) -> None:
        """The process of one subtask dies."""
        self.kills += 1
        place = self._dice.chosen.choice(manager.attempt.places)
        manager.fail(WorkerLostError(f"killed: subtask {place}"), place)

    def _kill_manager(self, job: Job, real: ManagerProcess) -> None:
        if self._dice.chosen.random() < self._dice.rates.zombie:
            self._dice.note("it goes on as a zombie")
            job.zombies.append(real)
        job.real = None
        self.branch = None

    def _stick(self, attempt: LocalAttempt) -> None:
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

    def _damage(self, job: Job, manager: LocalManager) -> None:
        """Change a byte of a file that the job would go on from, and make it do so."""
        latest = manager.coordinator.latest
        assert latest is not None
        folder = f"memory://simulation/{job.job_id}"
        files = sorted({f"{folder}/{file.path}" for file in latest.files() if file.length})
        files = [file for file in files if file in self._disk.blobs]
        if files and job.corrupted is None:
            job.corrupted = self._dice.chosen.choice(files)
            self._disk.flip(job.corrupted)
            self.kill_subtask(manager)
