"""What comes behind the last row of a subtask: the end of time and of its input, as far as a batch job has no other.

A stage (`stage.py`) says the last words on all channels and steps its task to the end. A job that hands over to a
streaming job ends otherwise: `hand_over.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.engine.elements import MAX_TIMESTAMP, Control, EndOfInput, Watermark
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan
from penstock.engine.task.loop import Blocked, Finished, Idle, StepResult, Task

_LONGEST_SLEEP: Final = 1.0


class Ending(Protocol):
    """How the subtasks of a batch job end. Picklable: it goes to the executors."""

    def begin(self, task: Task) -> None:
        """The task was opened, and nothing has come."""
        ...

    def final_controls(self, watermark: int | None) -> Sequence[Control]:
        """What is said on each channel behind the rows.

        Args:
            watermark: how far event time is at all senders that have some (int64 ms); None: none has, or it has ended.
        """
        ...

    def end(self, task: Task, graph: PhysicalGraph, plan: TaskPlan, subtask: int) -> Iterator[None]:
        """Step the task, which has all its input, to its end; says after each step that it was taken."""
        ...


@dataclass(frozen=True, slots=True)
class EndOfTime:
    """All windows and timers fire, all operators finish."""

    def begin(self, task: Task) -> None:
        """A source says the end by itself."""

    def final_controls(self, watermark: int | None) -> Sequence[Control]:
        return Watermark(MAX_TIMESTAMP), EndOfInput()

    def end(self, task: Task, graph: PhysicalGraph, plan: TaskPlan, subtask: int) -> Iterator[None]:
        for result in steps(task):
            if isinstance(result, Finished):
                return
            yield


def steps(task: Task) -> Iterator[StepResult]:
    """Step for ever, and wait where there is nothing to do: a source for a server, rows for their batch to fill."""
    while True:
        result = task.step()
        yield result
        if isinstance(result, Idle | Blocked):
            now = time.monotonic()
            time.sleep(min(_LONGEST_SLEEP, max(0.0, (result.until or now + _LONGEST_SLEEP) - now)))
