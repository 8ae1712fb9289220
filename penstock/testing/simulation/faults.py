"""What goes wrong in a simulated run, and when: decided by the seed, written down as a schedule.

The world, its storage, its mailbox and its sinks ask `Dice`; each fault that happens is a line of the schedule, so that
a failing run can be read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.interruption import Interruption

_FACTORS: Final = (0.0, 0.5, 1.0, 3.0)
_BUDGETS: Final = (0.3, 1.0, 1.5)
_SWARM: Final = (
    "kill_subtask",
    "kill_manager",
    "storage",
    "slow",
    "disk_full",
    "commit",
    "repeat",
    "lose",
    "stuck",
    "clock_jump",
    "rescale",
    "savepoint",
    "branch",
    "suspend",
    "drain",
    "corrupt",
)


class Crash(Interruption):
    """The process that runs this code dies here; nothing in a process outlives its death."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How likely each fault is at each occasion (0 to 1), and how many there are in all.

    Args:
        budget: the most faults of a run; behind them it comes to its end.
        kill_subtask, kill_manager: at each step.
        zombie: that a manager which was taken for dead lives on beside its successor.
        storage: at each call of the storage: it fails before or after it took effect, or the process dies there.
        slow: at each call of the storage: time passes, up to more than a checkpoint may take.
        disk_full: at each step: nothing can be written for a while.
        commit: at each commit of a sink: the process dies before or behind it.
        repeat, delay: of each mail.
        hold: of each mail of storage, and of each that a subtask sends: it comes so late that the job may have been
            restarted.
        late: of each mail in which a subtask tells that it has finished or failed: held up as by `hold`.
        lose: of each call to a subtask about a checkpoint.
        regions: of a run: that what no channel connects restarts by itself.
        stuck: at each step: one subtask gets no turn for a while; half of them are killed in the end.
        clock_jump: at each step: civil time jumps, forth or back.
        rescale, savepoint: at each step.
        branch: at each step: a savepoint, from which a second job starts when the first has ended.
        suspend: at each step: the job is stopped with a savepoint, and another job resumes from it.
        drain: at each step, where the scenario knows what must be there then: the sources end.
        cancel: at each step: the job is cancelled; every other time it keeps its checkpoints, and another job resumes.
        amid_rescale: at each step while a rescale is under way: a subtask is lost, every fourth time the manager.
        passing: at each step: some milliseconds pass, though there is something to do. Without it, rows of sources come
            only once nothing else is left to be done.
        leave: at each step, where there are rescales: the node with one slot is drained, and leaves a while later.
        kill_node: at each step: all processes of a node die, or of two; it comes back after a while.
        standby: that a warm process dies in the moment in which it takes the place of one that died.
        corrupt: at each step: a byte of a file of the newest checkpoint is changed, and a subtask is killed.
    """

    budget: int = 12
    kill_subtask: float = 0.002
    kill_manager: float = 0.001
    zombie: float = 0.5
    storage: float = 0.03
    slow: float = 0.003
    disk_full: float = 0.0003
    commit: float = 0.08
    repeat: float = 0.05
    delay: float = 0.3
    hold: float = 0.0
    lose: float = 0.01
    late: float = 0.0
    regions: float = 0.5
    stuck: float = 0.0005
    clock_jump: float = 0.0005
    rescale: float = 0.0007
    savepoint: float = 0.0005
    branch: float = 0.0004
    suspend: float = 0.0004
    drain: float = 0.0001
    corrupt: float = 0.0001
    cancel: float = 0.0002
    amid_rescale: float = 0.0
    passing: float = 0.0
    leave: float = 0.0004
    kill_node: float = 0.0004
    standby: float = 0.1

    def some(self, chosen: random.Random) -> FaultRates:
        """Other rates for one run: none of some faults and more of others, as who has all of them has few of each.

        Source: Groce et al., "Swarm Testing", ISSTA 2012.
        """
        rates = {name: getattr(self, name) * chosen.choice(_FACTORS) for name in _SWARM}
        # No draw of its own: the seeds that are known stay what they are.
        rates["leave"] = self.leave * rates["rescale"] / self.rescale if self.rescale else 0.0
        return replace(self, budget=max(1, round(self.budget * chosen.choice(_BUDGETS))) if self.budget else 0, **rates)


@dataclass(slots=True)
class Dice:
    """Decides, and keeps the schedule.

    Args:
        chosen: the run's only source of chance.
        rates: how likely what is.

    Attributes:
        schedule: the faults so far, one a line.
        step: the number of the step that is being taken.
    """

    chosen: random.Random
    rates: FaultRates
    schedule: list[str] = field(default_factory=list)
    step: int = 0

    def strikes(self, rate: float, what: str) -> bool:
        """Whether the fault happens now."""
        if len(self.schedule) >= self.rates.budget or self.chosen.random() >= rate:
            return False
        self.note(what)
        return True

    def note(self, what: str) -> None:
        """Write a line of the schedule."""
        self.schedule.append(f"step {self.step}: {what}")
