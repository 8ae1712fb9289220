"""One execution of a job in this process: its tasks, the channels between them, and which of them can go on.

The local manager (`manager.py`) makes one for each attempt, steps it and throws it away when it fails. Channels
have the same credits as anywhere; what goes to the client waits in `results`.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.clock import Clock
from penstock.engine.exchange.outputs import Channel, Message
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.metrics import SubtaskMetrics
from penstock.engine.task.alignment import AlignmentMember, alignment_groups, alignment_member, group_minimum
from penstock.engine.task.build import build_task
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Blocked, Finished, Idle, Progress, Task

Release: TypeAlias = Callable[[], None]


class _LocalChannel:
    """A channel between two subtasks of the process: a credit is in use until the receiver takes the message."""

    def __init__(
        self, credit: int, deliver: Callable[[Message, Release], None], wake_receiver: Release, wake_sender: Release
    ) -> None:
        self.credits = credit
        self.under_way = 0
        self._deliver = deliver
        self._wake_receiver = wake_receiver
        self._wake_sender = wake_sender

    def send(self, message: Message) -> None:
        self.credits -= 1
        self.under_way += 1
        self._deliver(message, self._give_back)
        self._wake_receiver()

    def _give_back(self) -> None:
        self.credits += 1
        self.under_way -= 1
        self._wake_sender()


class LocalAttempt:
    """The tasks of one attempt.

    Args:
        graph: the job.
        number: of the attempt.
        clock: time.
        chosen: chooses the channel that each step reads.

    Attributes:
        results: messages for the client: results node, sending subtask, message, and what gives their credit back.
        finished: the subtasks that have emitted everything.
    """

    def __init__(self, graph: PhysicalGraph, number: int, clock: Clock, chosen: random.Random) -> None:
        self.graph = graph
        self.number = number
        self.results: deque[tuple[int, Place, Message, Release]] = deque()
        self.finished: set[Place] = set()
        self._clock = clock
        self._random = chosen
        self.places: list[Place] = [(task.id, subtask) for task in graph.tasks for subtask in range(task.parallelism)]
        self._numbers = {place: number for number, place in enumerate(self.places)}
        self._outgoing = graph.output_channels()
        self._gates = {place: self._gate(*place) for place in self.places}
        self._aligned: dict[int, AlignmentMember] = {}
        self._groups = [[self._numbers[place] for place in group.places] for group in alignment_groups(graph)]
        self.ready: list[int] = []
        self._is_ready = [False] * len(self.places)
        self._deadlines: list[tuple[float, int]] = []
        self._waits_until: list[float | None] = [None] * len(self.places)
        self.tasks: list[Task] = [self._build(*place) for place in self.places]

    def _gate(self, task_id: int, subtask: int) -> InputGate | None:
        if self.graph.task(task_id).source is not None:
            return None
        channels = self.graph.input_channels(task_id, subtask)
        return InputGate([channel.input_index for channel in channels], self._random.choice)

    def _build(self, task_id: int, subtask: int) -> Task:
        def open_channel(output: int, index: int) -> Channel:
            return self._channel(task_id, subtask, output, index)

        plan = self.graph.task(task_id)
        member = alignment_member(plan)
        if member is not None:
            self._aligned[self._numbers[task_id, subtask]] = member
        gate = self._gates[task_id, subtask]
        return build_task(self.graph, plan, subtask, gate, open_channel, self._clock, member)

    def _channel(self, task_id: int, subtask: int, output: int, index: int) -> Channel:
        plan = self.graph.task(task_id)
        exchange = plan.outputs[output]
        sender = self._numbers[task_id, subtask]
        credit = self.graph.config.channel_credits
        if exchange.downstream is None:
            result = exchange.result
            assert result is not None
            return _LocalChannel(
                credit,
                lambda message, release: self.results.append((result, (task_id, subtask), message, release)),
                lambda: None,
                lambda: self.wake(sender),
            )
        place, number = self._outgoing[task_id, subtask][output][index]
        gate = self._gates[place]
        assert gate is not None
        return _LocalChannel(
            credit,
            lambda message, release: gate.put(number, message, release),
            lambda: self.wake(self._numbers[place]),
            lambda: self.wake(sender),
        )

    def open(self, place: Place, restored: RestoredTask | None) -> None:
        """Open one task, with what it resumes from."""
        number = self._numbers[place]
        self.tasks[number].open(restored)
        self.wake(number)

    def task(self, place: Place) -> Task:
        """The task of one subtask. Whoever tells it something wakes it."""
        return self.tasks[self._numbers[place]]

    def wake(self, number: int) -> None:
        """Task `number` may be able to go on."""
        if not self._is_ready[number] and self.places[number] not in self.finished:
            self._is_ready[number] = True
            self.ready.append(number)

    def wake_place(self, place: Place) -> None:
        """The same, by its place."""
        self.wake(self._numbers[place])

    def wake_due(self) -> None:
        """Wake the tasks whose time has come."""
        while self._deadlines and self._deadlines[0][0] <= self._clock.monotonic():
            number = heapq.heappop(self._deadlines)[1]
            self._waits_until[number] = None
            self.wake(number)

    @property
    def deadline(self) -> float | None:
        """When (seconds, monotonic) a task can go on that waits for time to pass, or None."""
        return self._deadlines[0][0] if self._deadlines else None

    def step(self, position: int) -> Place:
        """Step the task at `position` among the ready ones; errors are the task's.

        Returns:
            Which subtask it was; also in `stepping` while it is stepped.
        """
        self.ready[position], self.ready[-1] = self.ready[-1], self.ready[position]
        number = self.ready.pop()
        self._is_ready[number] = False
        self.stepping = place = self.places[number]
        result = self.tasks[number].step()
        if number in self._aligned:
            self._align()
        match result:
            case Progress():
                self.wake(number)
            case Idle(until) | Blocked(until):
                if until is not None and until != self._waits_until[number]:
                    self._waits_until[number] = until
                    heapq.heappush(self._deadlines, (until, number))
            case Finished():
                self.finished.add(place)
        return place

    @property
    def all_finished(self) -> bool:
        """Whether every subtask has emitted everything."""
        return len(self.finished) == len(self.places)

    def _align(self) -> None:
        """Tell the sources of each alignment group how far it is, and wake those that may have waited for that."""
        for group in self._groups:
            minimum = group_minimum(self._aligned[number].position for number in group)
            for number in group:
                if self._aligned[number].minimum != minimum:
                    self._aligned[number].minimum = minimum
                    self.wake(number)

    def metrics(self) -> Iterator[SubtaskMetrics]:
        """The counters of all subtasks."""
        return (task.read_metrics() for task in self.tasks)

    def close(self) -> Iterator[tuple[Place, Exception]]:
        """Close all tasks; gives the errors of those that could not be."""
        for place, task in zip(self.places, self.tasks, strict=True):
            try:
                task.close()
            except Exception as error:
                yield place, error
