"""What can happen next in a job of this process: steps of its subtasks, and the mails that wait beside them.

The local manager deploys subtasks, steps them, and closes them when the brain says so. Channels have the same credits
as anywhere; what goes to the client waits in `results`, over all attempts in order. Mails are posted and taken by the
manager, in any order; the deterministic simulation has a mailbox of its own, which loses, repeats and delays some as a
network does.
"""

from __future__ import annotations

import enum
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.clock import Clock
from penstock.engine.exchange.outputs import Channel, Message
from penstock.engine.graph.physical import ChannelPlan, PhysicalGraph
from penstock.engine.interruption import pass_interruption
from penstock.engine.metrics import SubtaskMetrics
from penstock.engine.task.alignment import AlignmentMember, alignment_groups, alignment_member, group_minimum
from penstock.engine.task.build import build_task, pace_of, router_edge
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Blocked, Finished, Idle, Progress, Task
from penstock.engine.task.rewiring import Crossings, RunningInputs, crossings

Release: TypeAlias = Callable[[], None]
Mail: TypeAlias = Callable[[], None]
"""What is to be done when it is taken."""


@dataclass(frozen=True, slots=True)
class ResultMessage:
    """A message for the client.

    Args:
        result: the results node.
        place, attempt, restored: who sent it, and the checkpoint that this was restored from, 0 for none.
        message: rows and barriers.
        release: gives the credit back.
    """

    result: int
    place: Place
    attempt: int
    restored: int
    message: Message
    release: Release


class _LocalChannel:
    """A channel between two subtasks of the process: a credit is in use until the receiver takes the message."""

    def __init__(
        self,
        credit: int,
        deliver: Callable[[Message, Release], None],
        wake_receiver: Release,
        wake_sender: Release,
        receiver: InputGate | None = None,
        wanted_rows: float = math.inf,
    ) -> None:
        self.credits = credit
        self.under_way = 0
        self.wanted_rows = wanted_rows
        self._receiver = receiver
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
        if self._receiver is not None:
            self.wanted_rows = self._receiver.wanted_rows
        self._wake_sender()


@dataclass(frozen=True, slots=True)
class _Wiring:
    """Where channels lead.

    Args:
        gates: of the receivers.
        numbers: by sender, output and receiver, the number of the channel there, where the graph gives another one.
    """

    gates: Mapping[Place, InputGate | None]
    numbers: Mapping[tuple[Place, int, Place], int]


@dataclass(slots=True)
class _Subtask:
    """A subtask that is deployed.

    Args:
        task: what is stepped.
        attempt: that it belongs to.
        gate, inputs: where its input arrives, unless it is a source.
        member: of its alignment group, if it has one.
        waits_until: when it wants to be stepped at the latest, monotonic seconds.
        is_open: whether it has been opened.
        is_over: whether it has emitted everything.
        is_lost: whether it has failed, or its process has.
    """

    task: Task
    attempt: int
    gate: InputGate | None
    inputs: RunningInputs
    member: AlignmentMember | None
    waits_until: float | None = None
    is_open: bool = False
    is_over: bool = False
    is_lost: bool = False

    @property
    def can_step(self) -> bool:
        return self.is_open and not self.is_over and not self.is_lost


class LocalExecution:
    """The subtasks of one job.

    Args:
        clock: time.
        chosen: chooses the channel that each step reads.

    Attributes:
        results: messages for the client.
        ready: the subtasks that can be stepped.
        stepping: the one that is stepped, or was last.
        graph: what runs; None before the first deployment.
    """

    def __init__(self, clock: Clock, chosen: random.Random) -> None:
        self.results: deque[ResultMessage] = deque()
        self.ready: list[Place] = []
        self.stepping: Place = (0, 0)
        self.graph: PhysicalGraph | None = None
        self._clock = clock
        self._random = chosen
        self._subtasks: dict[Place, _Subtask] = {}
        self._outgoing: dict[Place, list[list[tuple[Place, int]]]] = {}
        self._groups: Sequence[Sequence[Place]] = ()
        self._last_metrics: dict[Place, SubtaskMetrics] = {}
        self._is_ready: set[Place] = set()
        self._deadlines: list[tuple[float, Place]] = []

    # Deployment

    def deploy(self, graph: PhysicalGraph, places: Sequence[Place], attempt: int, restored: int = 0) -> None:
        """Make the tasks of these subtasks, in the place of what ran there before.

        Args:
            graph, places, attempt: which.
            restored: the checkpoint that they are restored from, 0 for none.
        """
        if graph is not self.graph:
            self.graph = graph
            self._outgoing = graph.output_channels()
            self._groups = [group.places for group in alignment_groups(graph)]
            uncounted = {(one.task, one.subtask): one for one in graph.uncounted()}
            self._last_metrics = {place: self._last_metrics.get(place, one) for place, one in uncounted.items()}
        gates = {place: self._gate(graph, place) for place in places}
        crossing = crossings(graph, self._outgoing, places)
        numbers = dict(self._replaced_inputs(graph, crossing, gates))
        for place in places:
            self._subtasks[place] = self._built(graph, place, (attempt, restored), _Wiring(gates, numbers))
        for place, outputs in crossing.outputs.items():
            self._reconnect(graph, place, outputs, _Wiring(gates, {}))

    def _replaced_inputs(
        self, graph: PhysicalGraph, crossing: Crossings, gates: dict[Place, InputGate | None]
    ) -> Iterator[tuple[tuple[Place, int, Place], int]]:
        """Let subtasks that run on take input from new ones; by sender, output and receiver, the channels' numbers."""
        for place, added in crossing.inputs.items():
            subtask = self._subtasks[place]
            assert subtask.gate is not None, "who is sent to has a gate"
            gates[place] = subtask.gate
            first = subtask.inputs.count
            subtask.inputs.replace(graph, subtask.gate, subtask.task, added)
            for number, channel in enumerate(added, first):
                yield ((channel.upstream_task, channel.upstream_subtask), channel.output, place), number

    def _reconnect(self, graph: PhysicalGraph, place: Place, outputs: Sequence[int], wiring: _Wiring) -> None:
        """Let a subtask that runs on send to new ones."""

        def open_channel(output: int, index: int) -> Channel:
            return self._channel(graph, place, (0, 0), wiring, output, index)

        edges = {output: router_edge(graph, place, output, open_channel, self._clock) for output in outputs}
        self._subtasks[place].task.connect(edges)
        self.wake(place)

    def _gate(self, graph: PhysicalGraph, place: Place) -> InputGate | None:
        if graph.task(place[0]).source is not None:
            return None
        channels: Sequence[ChannelPlan] = graph.input_channels(*place)
        return InputGate([channel.input_index for channel in channels], self._random.choice)

    def _built(self, graph: PhysicalGraph, place: Place, attempt: tuple[int, int], wiring: _Wiring) -> _Subtask:
        def open_channel(output: int, index: int) -> Channel:
            return self._channel(graph, place, attempt, wiring, output, index)

        plan = graph.task(place[0])
        member = alignment_member(plan)
        gate = wiring.gates[place]
        task = build_task(graph, plan, place[1], gate, open_channel, self._clock, member)
        return _Subtask(task, attempt[0], gate, RunningInputs(graph.input_channels(*place)), member)

    def _channel(
        self,
        graph: PhysicalGraph,
        sender: Place,
        attempt: tuple[int, int],
        wiring: _Wiring,
        output: int,
        index: int,
    ) -> Channel:
        exchange = graph.task(sender[0]).outputs[output]
        credit = graph.config.channel_credits
        if exchange.downstream is None:
            result = exchange.result
            assert result is not None
            return _LocalChannel(
                credit,
                lambda message, release: self.results.append(ResultMessage(result, sender, *attempt, message, release)),
                lambda: None,
                lambda: self.wake(sender),
            )
        receiver, number = self._outgoing[sender][output][index]
        number = wiring.numbers.get((sender, output, receiver), number)
        gate = wiring.gates[receiver]
        assert gate is not None, "who is sent to has a gate"
        return _LocalChannel(
            credit,
            partial(gate.put, number),
            partial(self.wake, receiver),
            partial(self.wake, sender),
            gate,
            pace_of(graph.config).worth,
        )

    def open(self, place: Place, restored: RestoredTask | None) -> None:
        """Open one task, with what it is restored from."""
        self._subtasks[place].task.open(restored)
        self._subtasks[place].is_open = True
        self.wake(place)

    def close(self, places: Iterable[Place]) -> Iterator[tuple[Place, BaseException]]:
        """Close the tasks of subtasks; gives the errors of those that could not be."""
        closing = set(places)
        self._is_ready -= closing
        self.ready = [place for place in self.ready if place not in closing]
        for place in sorted(closing):
            subtask = self._subtasks.pop(place, None)
            if subtask is None:
                continue
            self._last_metrics[place] = subtask.task.read_metrics()
            try:
                subtask.task.close()
            except BaseException as error:
                pass_interruption(error)
                yield place, error

    # What runs

    @property
    def places(self) -> Sequence[Place]:
        """The subtasks that are deployed, in a fixed order."""
        return sorted(self._subtasks)

    def runs(self, place: Place, attempt: int) -> bool:
        """Whether a subtask runs this attempt; one that has emitted everything still does."""
        subtask = self._subtasks.get(place)
        return subtask is not None and subtask.attempt == attempt and subtask.is_open and not subtask.is_lost

    def has_finished(self, place: Place) -> bool:
        """Whether a subtask that is deployed has emitted everything."""
        return self._subtasks[place].is_over

    def running(self, place: Place) -> int:
        """The attempt that a subtask runs; 0: none."""
        subtask = self._subtasks.get(place)
        return 0 if subtask is None or subtask.is_lost else subtask.attempt

    def name(self, place: Place) -> str:
        """That of the task of a subtask that runs, or ran last."""
        assert self.graph is not None, "what is named was deployed"
        return self.graph.task(place[0]).name

    def task(self, place: Place) -> Task:
        """The task of one subtask; a caller that gives it something to do wakes it."""
        return self._subtasks[place].task

    def lose(self, place: Place) -> None:
        """A subtask has failed, or its process has: it does nothing any more."""
        self._subtasks[place].is_lost = True

    def metrics(self) -> Iterator[SubtaskMetrics]:
        """The counters of all subtasks, of those that are gone their last ones."""
        for place in sorted(self._last_metrics):
            subtask = self._subtasks.get(place)
            yield self._last_metrics[place] if subtask is None else subtask.task.read_metrics()

    # Steps

    def wake(self, place: Place) -> None:
        """A subtask may have something to do."""
        if place in self._is_ready:
            return
        subtask = self._subtasks.get(place)
        if subtask is not None and subtask.can_step:
            self._is_ready.add(place)
            self.ready.append(place)

    def wake_due(self) -> None:
        """Wake the subtasks whose time has come."""
        while self._deadlines and self._deadlines[0][0] <= self._clock.monotonic():
            place = heapq.heappop(self._deadlines)[1]
            if place in self._subtasks:
                self._subtasks[place].waits_until = None
            self.wake(place)

    @property
    def deadline(self) -> float | None:
        """When (seconds, monotonic) a subtask can be stepped that waits for time to pass, or None."""
        return self._deadlines[0][0] if self._deadlines else None

    def step(self, position: int) -> bool:
        """Step the subtask at `position` among the ready ones; errors are the task's.

        Returns:
            Whether it has emitted everything now. Which one it was is in `stepping`.
        """
        self.ready[position], self.ready[-1] = self.ready[-1], self.ready[position]
        self.stepping = place = self.ready.pop()
        self._is_ready.discard(place)
        subtask = self._subtasks.get(place)
        if subtask is None or not subtask.can_step:
            return False
        result = subtask.task.step()
        if subtask.member is not None:
            self._align()
        match result:
            case Progress():
                self.wake(place)
            case Idle(until) | Blocked(until):
                if until is not None and until != subtask.waits_until:
                    subtask.waits_until = until
                    heapq.heappush(self._deadlines, (until, place))
            case Finished():
                subtask.is_over = True
        return subtask.is_over

    def _align(self) -> None:
        """Tell the sources of each alignment group how far it is, and wake those that may have waited for that."""
        for group in self._groups:
            members = {place: one.member for place in group if (one := self._subtasks.get(place)) and one.member}
            minimum = group_minimum(member.position for member in members.values())
            for place, member in members.items():
                if member.minimum != minimum:
                    member.minimum = minimum
                    self.wake(place)


class MailKind(enum.Enum):
    """What a mail is about."""

    # Work of the manager's own process, with the storage or with subtasks; each is done once.
    CLAIM = "claim"
    DEPLOY = "deploy"
    CANCEL = "cancel"
    PREPARE = "prepare"
    CHECK_FOLDER = "check folder"
    STORE = "store"
    DELETE = "delete"
    WRITE_END = "write end"
    REPORT = "report"
    """The brain hears what came of it."""

    # Calls between the manager and a subtask, which may get lost or come twice.
    TRIGGER = "trigger"
    """A subtask is asked for its part of a checkpoint."""
    COMMIT = "commit"
    """A subtask is notified that a checkpoint is complete."""
    ABORT = "abort"
    """A subtask is notified that a checkpoint is aborted."""
    END_INPUT = "end input"
    """A source is told to end."""
    ANSWER = "answer"
    """The brain hears what a subtask answers to these."""
    TELL = "tell"
    """A subtask reports by itself that it has finished, or failed."""

    # Work of a subtask's process.
    WRITE = "write"
    """The oldest capture that waits becomes files."""
    PRELOAD = "preload"
    """State is taken in for a subtask that is to be deployed."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A mail and what it is about."""

    kind: MailKind
    mail: Mail


class Mailbox:
    """Mails in any order."""

    def __init__(self) -> None:
        self._posted: list[Posted] = []

    def __len__(self) -> int:
        return len(self._posted)

    @property
    def is_expecting(self) -> bool:
        """Whether a mail is on its way that cannot be taken yet."""
        return False

    def post(self, kind: MailKind, mail: Mail) -> None:
        """Add a mail."""
        self._posted.append(Posted(kind, mail))

    def take(self, number: int) -> None:
        """Deliver mail `number` (from 0)."""
        self._posted.pop(number).mail()
