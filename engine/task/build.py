"""Builds the running `Task` of one subtask from the physical graph.

Each runtime calls this with its own channels, clock and choice; everything else about a subtask is the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.task_capture import in_flight_key
from penstock.engine.clock import Clock
from penstock.engine.config import JobConfig
from penstock.engine.connectors import ConnectorContext
from penstock.engine.exchange.outputs import BatchLimits, Channel, ChannelBuffer
from penstock.engine.exchange.partial_aggregates import fits
from penstock.engine.exchange.partitioners import SplitterContext, is_overtakable
from penstock.engine.graph.physical import ChannelPlan, PhysicalGraph, SourcePlan, TaskPlan
from penstock.engine.metrics import OperatorMetrics, SubtaskMetrics
from penstock.engine.operators.base import Collector, OperatorContext
from penstock.engine.task.alignment import AlignmentMember
from penstock.engine.task.chain import ChainLink, CountingCollector, GuardedEntry, SourceEntry, fan_out
from penstock.engine.task.checkpoints import TaskInfo
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import MAIN, Task
from penstock.engine.task.pace import Pace
from penstock.engine.task.router import Router, RouterEdge
from penstock.engine.task.source_head import SourceHead
from penstock.engine.task.source_time import SourceTime, TimedSplits, UntimedSplits

OpenChannel: TypeAlias = Callable[[int, int], Channel]
"""Gives the sending end of a channel: (number of the exchange in the task's outputs, index among its targets)."""


def build_task(
    graph: PhysicalGraph,
    task: TaskPlan,
    subtask: int,
    gate: InputGate | None,
    open_channel: OpenChannel,
    clock: Clock,
    alignment: AlignmentMember | None = None,
) -> Task:
    """The subtask, ready to be opened and stepped.

    Args:
        graph, task, subtask: which one.
        gate: where its input arrives; not used by a source.
        open_channel: gives the sending ends of its output channels.
        clock: the runtime's clock.
        alignment: the subtask's part in an alignment group, which the runtime keeps up to date.
    """
    place = task.id, subtask
    edges = [router_edge(graph, place, output, open_channel, clock) for output in range(len(task.outputs))]
    links: dict[int, ChainLink] = {}
    taps: dict[tuple[str, str], CountingCollector] = {}

    def behind(chained: Sequence[int], outputs: Sequence[int]) -> Collector:
        return fan_out([*(links[number] for number in chained), *(edges[number] for number in outputs)])

    for number, operator in reversed(list(enumerate(task.operators))):
        main = behind(operator.chained, operator.outputs)
        metrics = OperatorMetrics()
        sides = {side.tag: CountingCollector(behind(side.chained, side.outputs), metrics) for side in operator.sides}
        schemas = {side.tag: side.schema for side in operator.sides if side.schema is not None}
        context = OperatorContext(
            operator.name,
            subtask,
            task.parallelism,
            clock,
            metrics,
            graph.config,
            sides,
            schemas,
            identity=graph.identity(operator.uid),
            replaced=graph.replaced(operator.uid),
        )
        links[number] = ChainLink(operator.spec.create(), context, main)
        taps |= {(operator.uid, tag): side for tag, side in sides.items()}
        taps[operator.uid, MAIN] = links[number].output
    chain = [links[number] for number in range(len(task.operators))]
    router = Router(edges, {uid: links[number] for uid, number in task.calls.items()})
    info = _info(graph, task, subtask)
    pace = pace_of(graph.config)
    # With one credit, what must not wait could not follow what waits.
    rest = graph.config.buffer_timeout_ms / 1000 if graph.config.channel_credits > 1 else 0.0
    counted = SubtaskMetrics(task.id, subtask, [(link.context.operator, link.context.metrics) for link in chain])
    if task.source is None:
        assert gate is not None, "only sources do without an input gate"
        entry = GuardedEntry(chain[0], f"operator {task.operators[0].name!r}, subtask {subtask}")
        gate.let_overtake(_overtakable_channels(graph, task, subtask))
        return Task(gate, entry, chain, router, clock, counted, info, pace, gate=gate, outputs=taps, rest=rest)
    counters = OperatorMetrics()
    counted.operators.insert(0, (task.source.name, counters))
    emitted = CountingCollector(behind(task.source.chained, task.source.outputs), counters)
    taps[task.source.uid, MAIN] = emitted
    context = OperatorContext(task.source.name, subtask, task.parallelism, clock, counters, graph.config)
    head = _source_head(task.source, context, alignment)
    source_entry = SourceEntry(emitted)
    return Task(head, source_entry, chain, router, clock, counted, info, pace, source=head, outputs=taps, rest=rest)


def pace_of(config: JobConfig) -> Pace:
    """The pace of a task that has not begun."""
    return Pace(config.buffer_debloat_target_ms / 1000, config.max_batch_rows)


def _info(graph: PhysicalGraph, task: TaskPlan, subtask: int) -> TaskInfo:
    operators = [(operator.uid, operator.name) for operator in task.operators]
    source = None if task.source is None else (task.source.uid, task.source.name)
    channels = [channel_key(graph, channel) for channel in graph.input_channels(task.id, subtask)]
    incremental = graph.config.checkpoints.incremental
    return TaskInfo(task.id, subtask, task.parallelism, operators, source, channels, incremental)


def channel_key(graph: PhysicalGraph, channel: ChannelPlan) -> str:
    """What the rows under way on a channel are known by in checkpoints."""
    return in_flight_key(graph.task(channel.upstream_task).outputs[channel.output].uid, channel.upstream_subtask)


def may_overtake(graph: PhysicalGraph, channel: ChannelPlan) -> bool:
    """Whether unaligned barriers may overtake the rows of a channel."""
    return is_overtakable(graph.task(channel.upstream_task).outputs[channel.output].partitioner)


def _overtakable_channels(graph: PhysicalGraph, task: TaskPlan, subtask: int) -> list[int]:
    """The input channels on which an unaligned barrier may overtake rows."""
    return [
        number for number, channel in enumerate(graph.input_channels(task.id, subtask)) if may_overtake(graph, channel)
    ]


def _source_head(plan: SourcePlan, context: OperatorContext, alignment: AlignmentMember | None) -> SourceHead:
    splits, strategy = plan.splits[context.subtask], plan.watermarks

    def event_time(out: Collector) -> SourceTime:
        if strategy is None:
            return UntimedSplits(out)
        return TimedSplits(strategy, context, out, alignment, plan.source.error_column)

    connector = ConnectorContext(
        context.operator, context.subtask, context.parallelism, context.clock, metrics=context.metrics.group
    )
    config = context.config
    all_splits = [split.split_id for share in plan.splits for split in share]
    markers = config.latency_interval_ms / 1000 or math.inf
    return SourceHead(
        plan.source, splits, connector, config.max_batch_rows, config.max_batch_bytes, event_time, all_splits, markers
    )


def router_edge(graph: PhysicalGraph, place: Place, output: int, open_channel: OpenChannel, clock: Clock) -> RouterEdge:
    """One outgoing edge of a subtask; arguments as for `build_task`."""
    config, (task_id, subtask) = graph.config, place
    task = graph.task(task_id)
    exchange, targets = task.outputs[output], graph.output_targets(task, output, subtask)
    timeout = config.buffer_timeout_ms / 1000
    # Who lets no row wait wants event time at once, too.
    interval = config.auto_watermark_interval_ms / 1000 if timeout else 0.0
    limits = BatchLimits(config.max_batch_rows, config.max_batch_bytes, timeout, interval)
    splitter = exchange.partitioner.splitter(
        SplitterContext(exchange.where, len(targets), subtask, config.max_parallelism)
    )
    buffers = [ChannelBuffer(open_channel(output, index), limits) for index in range(len(targets))]
    overtakable, takes_back = is_overtakable(exchange.partitioner), partial(fits, partitioner=exchange.partitioner)
    return RouterEdge(splitter, buffers, clock, exchange.uid, overtakable, takes_back, exchange.downstream, targets)
