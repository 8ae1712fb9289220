"""What goes wrong in a simulated run, and when: decided by the seed, written down as a schedule.

The world, its storage, its mailbox and its sinks ask `Dice`; each fault that happens is a line of the schedule, so that
a failing run can be read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


class Crash(BaseException):
    """The process that runs this code dies here. Not an `Exception`: nothing in a process outlives its death."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How likely each fault is at each occasion (0 to 1), and how many there are in all.

    Args:
        budget: the most faults of a run; behind them it comes to its end.
        kill_subtask, kill_manager: at each step.
        zombie: that a manager which was taken for dead goes on beside its successor.
        storage: at each call of the storage: it fails before or after it took effect, or the process dies there.
        commit: at each commit of a sink: the process dies before or behind it.
        repeat, delay: of each letter.
        rescale, savepoint: at each step.
    """

    budget: int = 12
    kill_subtask: float = 0.002
    kill_manager: float = 0.001
    zombie: float = 0.5
    storage: float = 0.03
    commit: float = 0.08
    repeat: float = 0.05
    delay: float = 0.3
    rescale: float = 0.0007
    savepoint: float = 0.0007


@dataclass(slots=True)
class Dice:
    """Decides, and keeps the schedule.

    Args:
        chosen: the run's only source of chance.
        rates: how likely what is.
    """

    chosen: random.Random
    rates: FaultRates
    schedule: list[str] = field(default_factory=list)
    step: int = 0

    def strikes(self, rate: float, what: str) -> bool:
        """Whether the fault happens now."""
        if len(self.schedule) >= self.rates.budget or self.chosen.random() >= rate:
            return False
        self.schedule.append(f"step {self.step}: {what}")
        return True
