"""The whole job in one process: every subtask stepped by one seeded random scheduler.

For tests, for debugging (the user's functions run in the caller's thread, so pdb works) and for small data. The same
seed and the same clock give the same order of steps. Channels have the same credits as anywhere.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Mapping

from penstock.engine.clock import Clock
from penstock.engine.elements import Batch
from penstock.engine.errors import PenstockError, located
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job import JobHandle, JobStatus, ResultConsumer, transition
from penstock.engine.metrics import JobMetrics, report
from penstock.engine.task.alignment import AlignmentMember, alignment_groups, alignment_member, group_minimum
from penstock.engine.task.build import build_task
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Blocked, Finished, Idle, Progress, Task
from penstock.engine.task.outputs import Channel, Message


class _LocalChannel:
    """A channel between two subtasks of the process: a credit is in use until the receiver takes the message."""

    def __init__(
        self,
        credit: int,
        deliver: Callable[[Message, Callable[[], None]], None],
        wake_receiver: Callable[[], None],
        wake_sender: Callable[[], None],
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


class LocalJob(JobHandle):
    """A job in this process. It moves only while someone waits for it or reads its rows.

    Args:
        graph: the job.
        consumers: takes the rows of each results node, by node id.
        clock: time; with a `ManualClock` nothing ever waits.
        seed: chooses the order of steps, and the channel that each step reads.
    """

    def __init__(
        self, graph: PhysicalGraph, consumers: Mapping[int, ResultConsumer], clock: Clock, seed: int = 0
    ) -> None:
        super().__init__(graph.name, consumers)
        self._graph = graph
        self._clock = clock
        self._random = random.Random(seed)
        self._status = transition(JobStatus.CREATED, JobStatus.DEPLOYING)
        self._failure: PenstockError | None = None
        self._inbox: deque[tuple[int, Message, Callable[[], None]]] = deque()
        self._places = places = [(task.id, subtask) for task in graph.tasks for subtask in range(task.parallelism)]
        self._numbers = {place: number for number, place in enumerate(places)}
        self._gates = {place: self._gate(*place) for place in places}
        self._aligned: dict[int, AlignmentMember] = {}
        self._groups = [[self._numbers[place] for place in group.places] for group in alignment_groups(graph)]
        self._tasks: list[Task] = []
        self._ready: list[int] = []
        self._is_ready = [False] * len(places)
        self._deadlines: list[tuple[float, int]] = []
        self._waits_until: list[float | None] = [None] * len(places)
        self._unfinished = len(places)
        for task_id, subtask in places:
            self._tasks.append(self._build(task_id, subtask))
        self._start()

    def _gate(self, task_id: int, subtask: int) -> InputGate | None:
        if self._graph.task(task_id).source is not None:
            return None
        channels = self._graph.input_channels(task_id, subtask)
        return InputGate([channel.input_index for channel in channels], self._random.choice)

    def _build(self, task_id: int, subtask: int) -> Task:
        def open_channel(output: int, index: int) -> Channel:
            return self._channel(task_id, subtask, output, index)

        plan = self._graph.task(task_id)
        gate = self._gates[task_id, subtask]
        member = alignment_member(plan)
        if member is not None:
            self._aligned[self._numbers[task_id, subtask]] = member
        return build_task(self._graph, plan, subtask, gate, open_channel, self._clock, member)

    def _channel(self, task_id: int, subtask: int, output: int, index: int) -> Channel:
        plan = self._graph.task(task_id)
        exchange = plan.outputs[output]
        sender = self._numbers[task_id, subtask]
        if exchange.downstream is None:
            result = exchange.result
            assert result is not None
            return _LocalChannel(
                self._graph.config.channel_credits,
                lambda message, release: self._inbox.append((result, message, release)),
                lambda: None,
                lambda: self._wake(sender),
            )
        target = self._graph.output_targets(plan, output, subtask)[index]
        place = (exchange.downstream, target)
        gate = self._gates[place]
        assert gate is not None
        number = self._graph.channel_number(place, (task_id, subtask), output)
        return _LocalChannel(
            self._graph.config.channel_credits,
            lambda message, release: gate.put(number, message, release),
            lambda: self._wake(self._numbers[place]),
            lambda: self._wake(sender),
        )

    def _start(self) -> None:
        for number, task in enumerate(self._tasks):
            try:
                task.open()
            except Exception as error:
                self._fail(error, number)
                return
        self._status = transition(self._status, JobStatus.RUNNING)
        for number in range(len(self._tasks)):
            self._wake(number)

    def _wake(self, number: int) -> None:
        if not self._is_ready[number]:
            self._is_ready[number] = True
            self._ready.append(number)

    def _step(self, patience: float) -> None:
        """Step one ready task, or let time pass until one is, for `patience` seconds at the most."""
        while self._deadlines and self._deadlines[0][0] <= self._clock.monotonic():
            number = heapq.heappop(self._deadlines)[1]
            self._waits_until[number] = None
            self._wake(number)
        if not self._ready:
            assert self._deadlines, "no subtask can go on, and none waits for time: a deadlock of the engine"
            self._clock.wait_until(min(self._deadlines[0][0], self._clock.monotonic() + patience))
            return
        position = self._random.randrange(len(self._ready))
        self._ready[position], self._ready[-1] = self._ready[-1], self._ready[position]
        number = self._ready.pop()
        self._is_ready[number] = False
        try:
            result = self._tasks[number].step()
        except (Exception, SystemExit) as error:
            self._fail(error, number)
            return
        if number in self._aligned:
            self._align()
        match result:
            case Progress():
                self._wake(number)
            case Idle(until) | Blocked(until):
                if until is not None and until != self._waits_until[number]:
                    self._waits_until[number] = until
                    heapq.heappush(self._deadlines, (until, number))
            case Finished():
                # Credit that comes back later must not wake it again.
                self._is_ready[number] = True
                self._unfinished -= 1
                if self._unfinished == 0:
                    self._end(JobStatus.FINISHED)

    def _align(self) -> None:
        """Tell the sources of each alignment group how far it is, and wake those that may have waited for that."""
        for group in self._groups:
            minimum = group_minimum(self._aligned[number].position for number in group)
            for number in group:
                if self._aligned[number].minimum != minimum:
                    self._aligned[number].minimum = minimum
                    self._wake(number)

    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        deadline = time.monotonic() + seconds
        while not self._status.ended and not self._inbox and (patience := deadline - time.monotonic()) > 0:
            self._step(patience)
        arrived: list[tuple[int, Batch]] = []
        while self._inbox:
            result, message, release = self._inbox.popleft()
            release()
            arrived.extend((result, element) for element in message if isinstance(element, Batch))
        return arrived

    def _fail(self, error: BaseException, number: int) -> None:
        self._failure = self._located(error, number)
        self._end(JobStatus.FAILED)

    def _located(self, error: BaseException, number: int) -> PenstockError:
        task_id, subtask = self._places[number]
        return located(error, self._graph.task(task_id).name, subtask)

    def _end(self, status: JobStatus) -> None:
        self._status = transition(self._status, status)
        for number, task in enumerate(self._tasks):
            try:
                task.close()
            except Exception as error:
                # The first error is the one to report: closing after it may well fail too.
                self._failure = self._failure or self._located(error, number)
                self._status = JobStatus.FAILED

    @property
    def _drained(self) -> bool:
        return self._status.ended and not self._inbox

    @property
    def _error(self) -> PenstockError | None:
        return self._failure

    def status(self) -> JobStatus:
        return self._status

    def metrics(self) -> JobMetrics:
        return report(task.metrics for task in self._tasks)

    def cancel(self) -> None:
        if not self._status.ended:
            self._inbox.clear()
            self._end(JobStatus.CANCELLED)
