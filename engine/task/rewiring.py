"""What changes for subtasks that run on while others, which they have channels to or from, are started in new places.

Both runtimes ask it when a part of a job is deployed. Nothing is under way on the channels that go: their senders have
stopped behind a barrier that the receivers have taken, and who sends to new subtasks keeps its rows back until then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.graph.physical import ChannelPlan, PhysicalGraph
from penstock.engine.task.build import channel_key, may_overtake
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Task

OutputChannels: TypeAlias = Mapping[Place, Sequence[Sequence[tuple[Place, int]]]]
"""As `PhysicalGraph.output_channels` gives them."""


@dataclass(frozen=True, slots=True)
class Crossings:
    """The channels between subtasks that are started and those that run on.

    Args:
        inputs: of each that runs on and is sent to, the new channels.
        outputs: of each that runs on and sends, the numbers of the exchanges.
    """

    inputs: Mapping[Place, Sequence[ChannelPlan]]
    outputs: Mapping[Place, Sequence[int]]


def crossings(graph: PhysicalGraph, channels: OutputChannels, started: Collection[Place]) -> Crossings:
    """The channels that lead from subtasks that run on to some that are started, or back."""
    inputs: dict[Place, list[ChannelPlan]] = {}
    outputs: dict[Place, list[int]] = {}
    if len(started) == len(channels):
        return Crossings(inputs, outputs)
    among = frozenset(started)
    for sender, exchanges in channels.items():
        for output, targets in enumerate(exchanges):
            if sender not in among:
                if any(receiver in among for receiver, _ in targets):
                    outputs.setdefault(sender, []).append(output)
                continue
            input_index = graph.task(sender[0]).outputs[output].input_index
            for receiver, _ in targets:
                if receiver not in among:
                    inputs.setdefault(receiver, []).append(ChannelPlan(*sender, output, input_index))
    return Crossings(inputs, outputs)


class RunningInputs:
    """The input channels of a subtask while it runs; those that are added have the next numbers.

    Args:
        channels: those that it begins with, by number.
    """

    def __init__(self, channels: Sequence[ChannelPlan]) -> None:
        self._channels: list[ChannelPlan | None] = list(channels)

    @property
    def count(self) -> int:
        """How many numbers have been given."""
        return len(self._channels)

    def replace(self, graph: PhysicalGraph, gate: InputGate, task: Task, added: Sequence[ChannelPlan]) -> None:
        """Let the subtask take its input from new channels in the place of all that it had from the same tasks."""
        tasks = {channel.upstream_task for channel in added}
        retired = [
            number
            for number, channel in enumerate(self._channels)
            if channel is not None and channel.upstream_task in tasks
        ]
        for number in retired:
            self._channels[number] = None
        self._channels.extend(added)
        indexes = [channel.input_index for channel in added]
        gate.replace_channels(retired, indexes, [may_overtake(graph, channel) for channel in added])
        task.replace_inputs([channel_key(graph, channel) for channel in added])
