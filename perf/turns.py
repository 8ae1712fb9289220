"""Jobs that take turns on one machine, so that they can be compared though its speed drifts.

What a shared machine gives changes by a fifth within seconds, for minutes at a time: more than most differences worth
measuring. Jobs that both stand ready, one of them stopped while the other works, are measured a few seconds apart and
as often as one likes; which of a pair comes first alternates, so that a steady drift cancels out too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from penstock.actors.client import RayJob

_Measured = TypeVar("_Measured")


class TurnTaking:
    """Two jobs on Ray, of which one works at a time; the processes of the other are stopped (SIGSTOP).

    Their clocks run on: a checkpoint that became due meanwhile is taken at the beginning of the next turn.

    Args:
        first, second: both work when this is called; both do again behind `close`.
    """

    def __init__(self, first: RayJob, second: RayJob) -> None:
        self._jobs = (first, second)
        # Asked while they work: a manager that is stopped does not answer.
        self._processes = [processes_of(job) for job in self._jobs]
        self._stopped: list[int] = []

    def __enter__(self) -> TurnTaking:
        return self

    def __exit__(self, *exc: object) -> None:
        self._go_on()

    def pairs(self, count: int, measured: Callable[[RayJob], _Measured]) -> Iterator[tuple[_Measured, _Measured]]:
        """Measure each job once, so many times; the first job's comes first in every pair.

        Args:
            measured: makes a figure of a job that works alone.
        """
        for number in range(count):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            figures = {}
            for which in order:
                with self._turn(which):
                    figures[which] = measured(self._jobs[which])
            yield figures[0], figures[1]

    @contextmanager
    def _turn(self, which: int) -> Iterator[None]:
        self._go_on()
        _signal(self._processes[1 - which], signal.SIGSTOP)
        self._stopped = self._processes[1 - which]
        yield

    def _go_on(self) -> None:
        _signal(self._stopped, signal.SIGCONT)
        self._stopped = []


def processes_of(job: RayJob) -> list[int]:
    """The ids of the processes of its manager and its subtasks."""
    info = job.info()
    return [info["manager_pid"], *(subtask["pid"] for task in info["tasks"] for subtask in task["subtasks"])]


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for process in processes:
        os.kill(process, number)
