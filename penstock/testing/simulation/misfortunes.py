"""What happens to a job between two of its steps: kills, rescales, savepoints, damage.

The world calls `strike` at each step. What happens within a step (storage, commits, mails) is the affair of the disk,
the warehouse and the mailbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import WorkerLostError
from penstock.engine.graph.scale import ParallelismRequest, describe_request
from penstock.engine.job.events import CancelJob, DrainJob, RescaleJob, StopJob, TakeCheckpoint, TakeSavepoint
from penstock.engine.job.status import JobStatus
from penstock.testing.simulation.disk import Disk, SimulatedClock
from penstock.testing.simulation.faults import Dice
from penstock.testing.simulation.jobs import Job, ManagerProcess
from penstock.testing.simulation.nodes import Nodes

Misfortune: TypeAlias = "Callable[[Job, ManagerProcess, str], None]"
"""Does something to a job and its real manager; the text says what."""
PARALLELISMS: Final = (1, 2, 3)
ROOT: Final = "memory://simulation"
SAVEPOINTS: Final = "memory://savepoints"
_STUCK_STEPS: Final = (50, 1500)
_JUMP_MS: Final = 20_000
_NOTICE_STEPS: Final = (20, 3000)
_PASSING_SECONDS: Final = 0.002
_AGAIN_STEPS: Final = 40
"""How often a manager hears that a node is about to leave."""


@dataclass(slots=True)
class _LeavingNode:
    """A node that is about to leave.

    Args:
        owner: whose subtasks are there.
        processes: those subtasks, each with the attempt that runs in its process: a later one has another process.
        until: the step in which it leaves.
        again: when the manager is told again.
    """

    owner: ManagerProcess
    processes: Sequence[tuple[Place, int]]
    until: int
    again: int = 0

    @property
    def places(self) -> list[Place]:
        """The subtasks whose processes are still there."""
        execution = self.owner.manager.execution
        return [place for place, attempt in self.processes if attempt and execution.running(place) == attempt]

    def say_so(self, step: int) -> None:
        """Tell the manager."""
        self.again = step + _AGAIN_STEPS
        self.owner.manager.leave(self.places)


class Misfortunes:
    """Decides what happens to a job, and does it.

    Args:
        dice: decides.
        disk: can be filled, and damaged.
        clock: can jump.
        nodes: can be lost.

    Attributes:
        kills: how many subtasks were killed.
        branch: the request for a savepoint that a second job is to start from, while it is under way.
        drain: the request that the job be drained, while nobody knows what comes of it.
    """

    def __init__(self, dice: Dice, disk: Disk, clock: SimulatedClock, nodes: Nodes) -> None:
        self.kills = 0
        self.branch: int | None = None
        self.drain: int | None = None
        self._dice = dice
        self._disk = disk
        self._clock = clock
        self._nodes = nodes
        self._stuck: tuple[ManagerProcess, Place, int, int] | None = None
        self._leaving: _LeavingNode | None = None
        rates = dice.rates
        self._table: Sequence[tuple[float, str, Misfortune]] = (
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
            (rates.cancel, "cancel", self._cancel),
            (rates.leave, "a node is about to leave", self._leave),
            (rates.kill_node, "lose a node", self._lose_node),
        )
        self._any = sum(rate for rate, _, _ in self._table)

    def forget(self) -> None:
        """The job has ended."""
        self.on_manager_lost()
        self._stuck = None
        self._leaving = None

    def on_manager_lost(self) -> None:
        """What was asked of the real manager is answered by no other."""
        self.branch = self.drain = None

    def strike(self, job: Job) -> None:
        """What happens before the next step."""
        real = job.real
        assert real is not None
        if self._stuck is not None:
            self._free_stuck(real, *self._stuck)
        if self._leaving is not None:
            self._end_notice(real, self._leaving)
        self._nodes.return_due()
        for one in (real, *job.zombies):
            one.room.look()
        rates, chosen = self._dice.rates, self._dice.chosen
        if rates.passing and chosen.random() < rates.passing:
            self._clock.wait_until(self._clock.monotonic() + chosen.random() * _PASSING_SECONDS)
        if rates.amid_rescale and real.manager.brain.changing and self._strike_rescale(job, real):
            return
        # One draw decides whether anything happens, and what: most of the time nothing does.
        drawn = chosen.random()
        if drawn >= self._any:
            return
        status = real.manager.brain.status
        for rate, what, act in self._table:
            drawn -= rate
            if drawn < 0:
                restarts = status is JobStatus.RESTARTING and act == self._lose_node
                if status is JobStatus.RUNNING or restarts or act in (self._kill_manager, self._fill, self._jump):
                    act(job, real, what)
                return

    def _strike_rescale(self, job: Job, real: ManagerProcess) -> bool:
        """Whether a process is lost while a rescale is under way; whose, the number of the step says."""
        if self._dice.chosen.random() >= self._dice.rates.amid_rescale:
            return False
        act, whose = (self._kill_manager, "the manager") if self._dice.step % 4 == 0 else (self._kill, "a subtask")
        act(job, real, f"kill {whose} amid a rescale")
        return True

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
            self._dice.note("it lives on as a zombie")
            job.zombies.append(real)
        job.real = None
        self.on_manager_lost()

    def _kill(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            self.kill_subtask(real)

    def _lose_node(self, job: Job, real: ManagerProcess, what: str) -> None:
        """All processes of a node die, or of two; the manager, too, where it is on one of them."""
        lost = self._nodes.some()
        if not lost or not self._happens(f"{what}: {' and '.join(map(str, lost))}"):
            return
        for node in lost:
            self._nodes.lose(node)
            for one in (real, *job.zombies):
                self._lose_processes(one, node)
        job.zombies = [one for one in job.zombies if one.room.node not in lost]
        if real.room.node in lost:
            self._dice.note("the manager was there")
            job.real = None
            self.on_manager_lost()

    def _lose_processes(self, one: ManagerProcess, node: int) -> None:
        for place in one.room.lose_node(node):
            self.kills += 1
            one.lose(place, WorkerLostError(f"node {node} is lost: subtask {place}"))

    def _rescale(self, job: Job, real: ManagerProcess, what: str) -> None:
        parallelism = self._dice.chosen.choice(PARALLELISMS)
        wanted: ParallelismRequest = parallelism
        graph = real.manager.execution.graph
        # Every other time one task alone; by the number of the step, which no draw depends on.
        half, is_single = divmod(self._dice.step, 2)
        if is_single and graph is not None:
            wanted = {graph.tasks[half % len(graph.tasks)].uids[0]: parallelism}
        if self._happens(f"{what} {describe_request(wanted)}"):
            real.manager.ask(RescaleJob(wanted))

    def _save(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            real.manager.ask(TakeSavepoint(SAVEPOINTS))

    def _take_checkpoint(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            real.manager.ask(TakeCheckpoint())

    def _begin_branch(self, job: Job, real: ManagerProcess, what: str) -> None:
        if job.savepoint is None and self._happens(what):
            self.branch = real.manager.ask(TakeSavepoint(SAVEPOINTS))

    def _suspend(self, job: Job, real: ManagerProcess, what: str) -> None:
        if self._happens(what):
            real.manager.ask(StopJob(SAVEPOINTS))

    def _drain(self, job: Job, real: ManagerProcess, what: str) -> None:
        can = job.case.check_drained is not None and self._stuck is None and self.drain is None
        if can and self._happens(what):
            self.drain = real.manager.ask(DrainJob(SAVEPOINTS))

    def _cancel(self, job: Job, real: ManagerProcess, what: str) -> None:
        retain = bool(self._dice.step % 2)
        asked = job.cancelled is not None and job.cancelled[0] is real
        # One that was taken for dead and claims the job once more would have to be asked, too.
        if not asked and not job.zombies and self._happens(f"{what}, checkpoints {'stay' if retain else 'go'}"):
            job.cancelled = real, retain
            real.manager.ask(CancelJob(retain))

    def kill_subtask(self, one: ManagerProcess) -> None:
        """The process of one subtask dies."""
        places = one.manager.execution.places
        if places:
            self.kills += 1
            place = self._dice.chosen.choice(places)
            one.lose(place, WorkerLostError(f"killed: subtask {place}"))

    def _stick(self, job: Job, real: ManagerProcess, what: str) -> None:
        ready = real.manager.execution.ready
        # Of a job that is drained no checkpoint is under way, whose time-out would notice it: heartbeats do, on Ray.
        if self._stuck is not None or self.drain is not None or not ready or not self._happens(what):
            return
        place = ready.pop(self._dice.chosen.randrange(len(ready)))
        until = self._dice.step + self._dice.chosen.randint(*_STUCK_STEPS)
        self._stuck = real, place, real.manager.execution.running(place), until

    def _free_stuck(self, real: ManagerProcess, stuck: ManagerProcess, place: Place, attempt: int, until: int) -> None:
        execution = real.manager.execution
        if stuck is not real or not execution.runs(place, attempt):
            self._stuck = None
        elif self._dice.step >= until:
            self._stuck = None
            execution.ready.append(place)
            if self._dice.chosen.random() < 0.5:
                real.lose(place, WorkerLostError(f"not heard of for long: subtask {place}"))

    def _leave(self, job: Job, real: ManagerProcess, what: str) -> None:
        """The node with a slot is drained: its processes are lost behind a notice, unless they are gone by then."""
        execution = real.manager.execution
        slots = sorted({subtask for _, subtask in execution.places})
        if self._leaving is not None or not slots:
            return
        slot = self._dice.chosen.choice(slots)
        notice = self._dice.chosen.randint(*_NOTICE_STEPS)
        if self._happens(f"{what}, with slot {slot}, in {notice} steps"):
            processes = [(place, execution.running(place)) for place in execution.places if place[1] == slot]
            self._leaving = _LeavingNode(real, processes, self._dice.step + notice)
            self._leaving.say_so(self._dice.step)

    def _end_notice(self, real: ManagerProcess, node: _LeavingNode) -> None:
        if node.owner is not real or not node.places:
            self._leaving = None
        elif self._dice.step >= node.until:
            self._leaving = None
            for place in node.places:
                self.kills += 1
                real.lose(place, WorkerLostError(f"its node has left: subtask {place}"))
        elif self._dice.step >= node.again:
            node.say_so(self._dice.step)

    def _damage(self, job: Job, real: ManagerProcess, what: str) -> None:
        """Change a byte of a file that the job would be restored from, and make it restore."""
        checkpoints = real.manager.brain.checkpoints
        latest = None if checkpoints is None else checkpoints.latest
        if latest is None or job.corrupted is not None:
            return
        folder = f"{ROOT}/{job.job_id}"
        files = sorted({f"{folder}/{file.path}" for file in latest.files() if file.length})
        files = [file for file in files if file in self._disk.blobs]
        if files and self._happens(what):
            job.corrupted = self._dice.chosen.choice(files)
            self._disk.flip(job.corrupted)
            self.kill_subtask(real)
