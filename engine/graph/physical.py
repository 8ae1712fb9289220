"""The physical graph: tasks (chains of operators), their subtasks, and the exchanges between them.

Made from the rewritten logical graph, once, where the job is planned. It holds no running thing: each runtime creates
the subtasks from it through `task/build.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.config import JobConfig, check_parallelism
from penstock.engine.connectors import ConnectorContext, Sink, Source, Split, TransactionalSink
from penstock.engine.elements import FEEDBACK_INPUT
from penstock.engine.errors import ConfigurationError, GraphError, PenstockError, SinkNotReadyError, SplitsError, named
from penstock.engine.exchange.partitioners import Forward, Partitioner, Rebalance
from penstock.engine.graph.logical import Chaining, Edge, LogicalGraph, Node, Results, feedback_of, live_part
from penstock.engine.graph.rewrite import rewrite
from penstock.engine.graph.scale import Scale
from penstock.engine.interruption import pass_interruption
from penstock.engine.metrics import OperatorMetrics, SubtaskMetrics
from penstock.engine.operators.base import USER_FAILURES, user_traceback
from penstock.engine.operators.spec import Feedback, OperatorSpec, Resources
from penstock.engine.windows.watermarks import WatermarkStrategy


@dataclass(frozen=True, slots=True)
class SideOutput:
    """Where the rows of one side output go; `chained` and `outputs` as in `OperatorPlan`. `schema`: if it is known."""

    tag: str
    chained: tuple[int, ...]
    outputs: tuple[int, ...]
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One operator of a task.

    Args:
        name: for people and messages.
        spec: describes and creates it.
        chained: indexes (in the task's operators) of those that take its main output by a direct call.
        outputs: indexes (in the task's exchanges) of those that carry its main output.
        sides: the side outputs that somebody reads.
        uid: what its state is known by in checkpoints; the user's, or else made from its place in the program.
    """

    name: str
    spec: OperatorSpec
    chained: tuple[int, ...]
    outputs: tuple[int, ...]
    sides: tuple[SideOutput, ...] = ()
    uid: str = ""


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The source at the head of a task.

    Args:
        splits: one sequence for each subtask.
        watermarks: how it assigns timestamps, or None if it does not.
        uid: as in `OperatorPlan`.
        split_parallelism: the parallelism that the splits were made for: the job's at its first start.
    """

    name: str
    source: Source
    splits: tuple[tuple[Split, ...], ...]
    chained: tuple[int, ...]
    outputs: tuple[int, ...]
    watermarks: WatermarkStrategy | None = None
    uid: str = ""
    split_parallelism: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """All channels from one task to another.

    Args:
        upstream, downstream: task ids; `downstream` is None where the rows go to the client.
        result: the id of the node that marks them as results, where they go to the client.
        uid: what the rows under way on it are known by in checkpoints.
        partitioner: how rows are spread.
        input_index: which input of the downstream head operator they feed.
        where: the operator behind the exchange, for messages.
    """

    upstream: int
    downstream: int | None
    partitioner: Partitioner
    input_index: int
    where: str
    result: int | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task: a chain of operators, run by `parallelism` subtasks.

    Args:
        id: number of the task, from 1, upstream first.
        name: the names of its operators, joined by arrows.
        source: the source at its head, or None if its rows come through exchanges to operator 0.
        operators: upstream first.
        outputs: the exchanges that leave it.
    """

    id: int
    name: str
    parallelism: int
    source: SourcePlan | None
    operators: tuple[OperatorPlan, ...]
    outputs: tuple[Exchange, ...]
    resources: Resources | None

    @property
    def operator_names(self) -> list[str]:
        """The names of its operators, the source's first."""
        source = [] if self.source is None else [self.source.name]
        return [*source, *(operator.name for operator in self.operators)]

    @property
    def uids(self) -> list[str]:
        """The uids of its operators, in the same order."""
        source = [] if self.source is None else [self.source.uid]
        return [*source, *(operator.uid for operator in self.operators)]

    @property
    def calls(self) -> dict[str, int]:
        """By the uids of the exchanges that would be there, the numbers of the operators that are called instead."""
        ways: list[tuple[str, str | None, tuple[int, ...]]] = []
        if self.source is not None:
            ways.append((self.source.uid, None, self.source.chained))
        for one in self.operators:
            ways += [(one.uid, None, one.chained), *((one.uid, side.tag, side.chained) for side in one.sides)]
        return {
            _exchange_uid(sender, tag, self.operators[number].uid): number
            for sender, tag, numbers in ways
            for number in numbers
        }

    @property
    def sinks(self) -> list[Sink]:
        """Those that its operators write to."""
        sinks = [operator.spec.traits.sink for operator in self.operators]
        return [sink for sink in sinks if sink is not None]

    @property
    def commits(self) -> bool:
        """Whether something waits here for each checkpoint to count: a transactional sink, or rows for the client."""
        for_client = any(output.downstream is None for output in self.outputs)
        return for_client or any(operator.spec.traits.commits for operator in self.operators)


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """One channel as its receiver sees it: its number there, its sender, and the input that it feeds."""

    upstream_task: int
    upstream_subtask: int
    output: int
    input_index: int


@dataclass(frozen=True, slots=True)
class PhysicalGraph:
    """The tasks of a job by id, upstream first. `run`, `replaces`: as in `JobProgram`, if it was made from one."""

    name: str
    config: JobConfig
    tasks: tuple[TaskPlan, ...]
    run: str = field(default="", compare=False)
    replaces: tuple[str, ...] = field(default=(), compare=False)

    def identity(self, uid: str) -> str:
        """What no operator has but that with this uid, in all attempts of the job; empty if that is not known."""
        return _identity(self.run, uid)

    def replaced(self, uid: str) -> tuple[str, ...]:
        """The identities that the operator with this uid had in the runs that the job replaces."""
        return tuple(_identity(run, uid) for run in self.replaces if uid)

    @property
    def sinks(self) -> list[Sink]:
        """The sinks that the job writes to."""
        return [sink for task in self.tasks for sink in task.sinks]

    def prepare_sinks(self) -> None:
        """Make the targets of all sinks ready: from here on, a sink's old rows may be gone.

        Called last before the job starts, by who holds all that the job needs: a job that is refused for its name, its
        storage or its slots must not have touched the rows of one that runs.

        Raises:
            SinkNotReadyError: a target cannot be made ready.
        """
        for sink in self.sinks:
            try:
                sink.prepare()
            except ConfigurationError as error:
                raise SinkNotReadyError(str(error)) from error

    def discard_rows(self, clock: Clock) -> list[str]:
        """Let sinks remove what their writers have prepared and nobody is going to commit; what they cannot, in words.

        Called when the job is over, and nothing it can be resumed from holds such rows.
        """
        problems = []
        for task in self.tasks:
            for operator in task.operators:
                sink = operator.spec.traits.sink
                if isinstance(sink, TransactionalSink):
                    context = ConnectorContext(operator.name, 0, task.parallelism, clock, self.identity(operator.uid))
                    try:
                        sink.discard(context)
                    except BaseException as error:
                        pass_interruption(error)
                        problems.append(f"operator {operator.name!r} ({sink.describe()}): {error}")
        return problems

    def task(self, task_id: int) -> TaskPlan:
        return self.tasks[task_id - 1]

    def uncounted(self) -> list[SubtaskMetrics]:
        """The counters of all subtasks before any has counted."""
        return [
            SubtaskMetrics(task.id, subtask, [(name, OperatorMetrics()) for name in task.operator_names])
            for task in self.tasks
            for subtask in range(task.parallelism)
        ]

    def client_channels(self, result: int) -> list[tuple[int, int, int]]:
        """The channels (task id, output, subtask) that carry the rows of one results node."""
        return [
            (task.id, output, subtask)
            for task in self.tasks
            for output, exchange in enumerate(task.outputs)
            if exchange.result == result
            for subtask in range(task.parallelism)
        ]

    def input_channels(self, task_id: int, subtask: int) -> list[ChannelPlan]:
        """The channels into one subtask, in the order of their channel numbers."""
        return [
            ChannelPlan(upstream.id, sender, output, exchange.input_index)
            for upstream in self.tasks
            for output, exchange in enumerate(upstream.outputs)
            if exchange.downstream == task_id
            for sender in range(upstream.parallelism)
            if subtask in self.output_targets(upstream, output, sender)
        ]

    def output_channels(self) -> dict[tuple[int, int], list[list[tuple[tuple[int, int], int]]]]:
        """The channels out of each (task id, subtask), a list for each of its exchanges, in the order of their targets.

        Each is the receiving (task id, subtask) and the number of the channel there; those to the client are left out.
        """
        # In one pass over all channels: looked for one by one, those of a wide shuffle would take minutes to deploy.
        channels: dict[tuple[int, int], list[list[tuple[tuple[int, int], int]]]] = {
            (task.id, subtask): [[] for _ in task.outputs] for task in self.tasks for subtask in range(task.parallelism)
        }
        for receiver in channels:
            for number, channel in enumerate(self.input_channels(*receiver)):
                sender = (channel.upstream_task, channel.upstream_subtask)
                channels[sender][channel.output].append((receiver, number))
        return channels

    def output_targets(self, task: TaskPlan, output: int, subtask: int) -> range:
        """The downstream subtasks that a subtask sends to through exchange number `output`; range(1) is the client."""
        exchange = task.outputs[output]
        if exchange.downstream is None:
            return range(1)
        downstream = self.task(exchange.downstream).parallelism
        return exchange.partitioner.targets(subtask, task.parallelism, downstream)


def _exchange_uid(sender: str, tag: str | None, receiver: str, input_index: int = 0) -> str:
    """What an exchange between two operators is known by; `tag`: of the side output that it carries."""
    return f"{sender}{'' if tag is None else f'[{tag}]'}->{receiver}#{input_index}"


def _identity(run: str, uid: str) -> str:
    return f"{run}/{uid}" if run and uid else ""


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Where an operator's parallelism comes from when it sets none itself: the first of these that is given.

    Args:
        environment: `StreamEnvironment(parallelism=...)`.
        client: `execute(parallelism=...)`.
        system: the installation's default.
    """

    environment: int | None
    client: int | None
    system: int

    def default(self) -> int:
        return self.environment or self.client or self.system


def plan(name: str, logical: LogicalGraph, parallelism: Parallelism, config: JobConfig) -> JobProgram:
    """A program that has been planned once. Checks its sinks, and changes nothing: `explain()` plans too.

    Args:
        name: the job's name.
        logical: the program.
        parallelism: for operators that set none.
        config: the job's settings.

    Raises:
        GraphError, ConfigurationError: the program or a setting cannot be used; nothing was started.
    """
    graph = rewrite(live_part(logical))
    for node in graph:
        if node.traits is not None and node.traits.sink is not None:
            node.traits.sink.check(_known_schema(graph, node))
    program = JobProgram(name, logical, parallelism, config)
    program.physical()
    return program


@dataclass(frozen=True, slots=True)
class JobSplits:
    """The splits of a job's sources, as they were when they were first wanted.

    So a job reads the same ones in all its attempts, whatever the server says later of what is "latest", and whether it
    answers then.
    """

    _made: dict[tuple[str, int], tuple[Split, ...]] = field(default_factory=dict)

    def of(self, source: Source, name: str, uid: str, parallelism: int) -> tuple[Split, ...]:
        """The splits of the source with this name and uid for that many subtasks.

        Raises:
            SplitsError: it cannot make them.
        """
        if (uid, parallelism) not in self._made:
            try:
                self._made[uid, parallelism] = tuple(source.splits(parallelism))
            except PenstockError:
                raise
            except USER_FAILURES as error:
                pass_interruption(error)
                call = f"splits({parallelism})"
                raise SplitsError(name, 0, call, named(error), user_traceback(error)) from error
        return self._made[uid, parallelism]


@dataclass(frozen=True, slots=True)
class JobProgram:
    """A program with all that it takes to plan it again, at another parallelism; picklable.

    Args:
        name, logical, parallelism, config: as in `plan`, which has checked them.
        scale: what it has been rescaled to since.
        run: names this submission of the program, in all its attempts.
        splits: what its sources were found to have.
        replaces: earlier runs that are over, and of which this one takes up all that is left: what their sinks have
            prepared, and this one does not commit as it begins, nobody will.
    """

    name: str
    logical: LogicalGraph
    parallelism: Parallelism
    config: JobConfig
    scale: Scale = field(default_factory=Scale)
    run: str = field(default_factory=partial(secrets.token_hex, 8), compare=False)
    splits: JobSplits = field(default_factory=JobSplits, compare=False)
    replaces: tuple[str, ...] = field(default=(), compare=False)

    def physical(self, split_parallelism: Mapping[str, int] = MappingProxyType({})) -> PhysicalGraph:
        """The plan.

        Args:
            split_parallelism: for sources (by uid) that have been read before, the parallelism that their splits were
                made for: they keep their splits, whoever reads them now.

        Raises:
            GraphError, ConfigurationError: the parallelism cannot be used.
        """
        graph = rewrite(live_part(self.logical))
        resolved = resolve_parallelisms(graph, self.parallelism, self.config, dict(self.scale.operators))
        if self.scale.most is not None:
            resolved = {node: min(parallelism, self.scale.most) for node, parallelism in resolved.items()}
        _check_forward(graph, resolved)
        tasks = _TaskBuilder(graph, resolved, split_parallelism, self.splits).tasks()
        return PhysicalGraph(self.name, self.config, tasks, self.run, self.replaces)

    def rescaled(self, scale: Scale) -> JobProgram:
        """The same program at another scale, instead of the one that it has.

        Raises:
            ConfigurationError: a job that has begun never gets so many subtasks.
        """
        most = self.config.max_parallelism
        for wanted in (scale.default, *(parallelism for _, parallelism in scale.operators)):
            # What is no number at all, `physical` refuses.
            if isinstance(wanted, int) and wanted > most:
                raise ConfigurationError(
                    f"job {self.name!r} cannot be rescaled to {wanted}: it began with max_parallelism {most}, which "
                    f"stays for as long as its state is kept; rescale it to {most} at most, or begin a new "
                    "job, without that state, with a larger max_parallelism (-Dpipeline.max-parallelism=N)"
                )
        if scale.default is None:
            return replace(self, scale=scale)
        return replace(self, parallelism=Parallelism(scale.default, None, self.parallelism.system), scale=scale)


def _known_schema(graph: LogicalGraph, node: Node) -> pa.Schema | None:
    """The columns that reach the node, by the first of its inputs whose columns are known."""
    schemas = [_columns_of(graph, edge) for edge in node.inputs]
    return next((schema for schema in schemas if schema is not None), None)


def _columns_of(graph: LogicalGraph, edge: Edge) -> pa.Schema | None:
    source = graph[edge.source]
    return source.schema if edge.tag is None else source.sides.get(edge.tag)


def resolve_parallelisms(
    graph: LogicalGraph, parallelism: Parallelism, config: JobConfig, operators: Mapping[str, int]
) -> dict[int, int]:
    """The parallelism of each node, by id; `operators`: by uid, of those that have been rescaled by themselves."""
    resolved: dict[int, int] = {}
    for node in graph:
        if feedback_of(node) is not None:
            # The tail of a loop has no parallelism of its own: it goes with the operator before it.
            resolved[node.id] = resolved[node.inputs[0].source]
        else:
            own = replace(node, parallelism=operators.get(uid_of(node), node.parallelism))
            resolved[node.id] = _resolve_parallelism(own, parallelism, config)
    return resolved


def _resolve_parallelism(node: Node, parallelism: Parallelism, config: JobConfig) -> int:
    most = node.role.max_parallelism if isinstance(node.role, Source) else None
    if node.parallelism is None:
        default = check_parallelism(parallelism.default(), config.max_parallelism, "default parallelism")
        return default if most is None else min(default, most)
    if most is not None and node.parallelism > most:
        raise ConfigurationError(
            f"{node.where}: parallelism {node.parallelism} is over the {most} that this source can be read with; "
            "leave it out, and set the parallelism of the next operator"
        )
    return check_parallelism(node.parallelism, config.max_parallelism, node.where)


def _check_forward(graph: LogicalGraph, parallelism: dict[int, int]) -> None:
    for node in graph:
        # The client has no subtasks: it takes the rows of however many there are.
        for edge in () if isinstance(node.role, Results) else node.inputs:
            if isinstance(edge.partitioner, Forward) and parallelism[edge.source] != parallelism[node.id]:
                raise GraphError(
                    f"{node.where} has parallelism {parallelism[node.id]}, but forward() needs that of "
                    f"{graph[edge.source].where}, which is {parallelism[edge.source]}; use rebalance() or rescale()"
                )


def partitioner_of(node: Node, edge: Edge, parallelism: Mapping[int, int]) -> Partitioner:
    """How rows are spread on an edge into `node`, given the parallelism of each node."""
    if edge.partitioner is not None:
        return edge.partitioner
    return Forward() if parallelism[edge.source] == parallelism[node.id] else Rebalance()


class _TaskBuilder:
    """Cuts the graph into chains. A chain starts at a source, or where an edge cannot be a direct call."""

    def __init__(
        self, graph: LogicalGraph, parallelism: dict[int, int], split_parallelism: Mapping[str, int], splits: JobSplits
    ) -> None:
        self._graph = graph
        self._splits = splits
        self._split_parallelism = split_parallelism
        self._parallelism = parallelism
        heads = [node for node in graph if not self._chained_to_input(node) and not isinstance(node.role, Results)]
        self._task_ids = {node.id: number for number, node in enumerate(heads, start=1)}
        self._heads = heads

    def tasks(self) -> tuple[TaskPlan, ...]:
        return tuple(self._task(head) for head in self._heads)

    def _partitioner(self, node: Node, edge: Edge) -> Partitioner:
        return partitioner_of(node, edge, self._parallelism)

    def _chained_to_input(self, node: Node) -> bool:
        if len(node.inputs) != 1 or node.chaining is not Chaining.ALWAYS or isinstance(node.role, Results):
            return False
        edge = node.inputs[0]
        below = self._graph[edge.source]
        return (
            isinstance(self._partitioner(node, edge), Forward)
            and self._parallelism[below.id] == self._parallelism[node.id]
            and below.chaining is not Chaining.NEVER
            and below.resources is None
            and node.resources is None
        )

    def _task(self, head: Node) -> TaskPlan:
        members = self._members(head)
        operators = [node for node in members if not isinstance(node.role, Source)]
        numbers = {node.id: number for number, node in enumerate(operators)}
        exchanges: list[Exchange] = []
        consumers: dict[int, tuple[SideOutput, ...]] = {}
        for node in members:
            consumers[node.id] = self._consumers(head, node, numbers, exchanges)
        return TaskPlan(
            id=self._task_ids[head.id],
            name=" -> ".join(node.name for node in members),
            parallelism=self._parallelism[head.id],
            source=self._source(head, consumers[head.id][0]),
            operators=tuple(_operator(node, *consumers[node.id]) for node in operators),
            outputs=tuple(exchanges),
            resources=head.resources,
        )

    def _consumers(
        self, head: Node, node: Node, numbers: dict[int, int], exchanges: list[Exchange]
    ) -> tuple[SideOutput, ...]:
        """Who reads each output of `node`, the main output first; adds the exchanges that are needed."""
        edges = [(consumer, edge) for consumer in self._graph.consumers(node.id) for edge in consumer.inputs]
        edges = [(consumer, edge) for consumer, edge in edges if edge.source == node.id]
        if (feedback := feedback_of(node)) is not None:
            exchanges.append(self._feedback(head, feedback))
            return (SideOutput("", (), (len(exchanges) - 1,)),)
        tags = sorted({edge.tag for _, edge in edges if edge.tag is not None})
        read = []
        for tag in (None, *tags):
            reading = [(consumer, edge) for consumer, edge in edges if edge.tag == tag]
            leaving = [self._exchange(head, consumer, edge) for consumer, edge in reading if consumer.id not in numbers]
            outputs = tuple(range(len(exchanges), len(exchanges) + len(leaving)))
            exchanges.extend(leaving)
            chained = tuple(numbers[consumer.id] for consumer, _ in reading if consumer.id in numbers)
            read.append(SideOutput(tag or "", chained, outputs, None if tag is None else node.sides.get(tag)))
        return tuple(read)

    def _members(self, head: Node) -> list[Node]:
        members = [head]
        for node in self._graph:
            if self._chained_to_input(node) and any(node.inputs[0].source == member.id for member in members):
                members.append(node)
        return members

    def _exchange(self, head: Node, consumer: Node, edge: Edge) -> Exchange:
        upstream = self._task_ids[head.id]
        uid = _exchange_uid(uid_of(self._graph[edge.source]), edge.tag, uid_of(consumer), edge.input_index)
        if isinstance(consumer.role, Results):
            return Exchange(upstream, None, Forward(), 0, consumer.where, consumer.id, uid)
        partitioner = self._partitioner(consumer, edge)
        return Exchange(upstream, self._task_ids[consumer.id], partitioner, edge.input_index, consumer.where, uid=uid)

    def _feedback(self, head: Node, way: Feedback) -> Exchange:
        """The exchange from the tail of a loop, whose chain begins with `head`, back to the loop's head."""
        where = self._graph[way.loop].where
        return Exchange(self._task_ids[head.id], self._task_ids[way.loop], way.partitioner, FEEDBACK_INPUT, where)

    def _source(self, head: Node, consumers: SideOutput) -> SourcePlan | None:
        if not isinstance(head.role, Source):
            return None
        parallelism, uid = self._parallelism[head.id], uid_of(head)
        made_for = self._split_parallelism.get(uid, parallelism)
        splits = self._splits.of(head.role, head.name, uid, made_for)
        shares = tuple(splits[subtask::parallelism] for subtask in range(parallelism))
        return SourcePlan(
            head.name, head.role, shares, consumers.chained, consumers.outputs, head.watermarks, uid, made_for
        )


def _operator(node: Node, main: SideOutput, *sides: SideOutput) -> OperatorPlan:
    assert isinstance(node.role, OperatorSpec), "sources and results are no operators"
    return OperatorPlan(node.name, node.role, main.chained, main.outputs, sides, uid_of(node))


def uid_of(node: Node) -> str:
    """What the node's state is known by: the user's uid, or else one that holds while the program stays as it is."""
    return node.uid or f"{node.id}:{node.name}"
