"""The operators of a program, linked by direct calls: what one emits, the next takes, as if every exchange were local.

The harness builds it of the program that a test writes. It guarantees the engine's own rules: null keys are refused,
several inputs merge their watermarks, and rows of another subtask's keys are an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.clock import ManualClock
from penstock.engine.config import JobConfig
from penstock.engine.elements import Batch, Control, Element
from penstock.engine.errors import GraphError, StateError
from penstock.engine.exchange.partitioners import Hash, SplitterContext
from penstock.engine.graph.logical import Edge, LogicalGraph, Node, Results
from penstock.engine.operators.base import Collector, OperatorContext
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.task.chain import ChainLink, fan_out
from penstock.engine.task.input_gate import WatermarkMerger

Output: TypeAlias = tuple[int, str | None]
"""A node, and the tag of one of its side outputs, or None for the main one."""


class Kept:
    """The end of an output: keeps its rows."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def collect(self, batch: Batch) -> None:
        self.batches.append(batch)

    def broadcast(self, element: Control) -> None:
        """Nothing follows that would hear of it."""


class _Entry:
    """One input edge of an operator, behind its exchange."""

    def __init__(self, take: Callable[[Element], None], check: Callable[[Batch], None]) -> None:
        self._take = take
        self._check = check

    def collect(self, batch: Batch) -> None:
        if batch.num_rows:
            self._check(batch)
            self._take(batch)

    def broadcast(self, element: Control) -> None:
        self._take(element)


class _Sides(dict[str, Collector]):
    """The side outputs of an operator: whatever it emits is kept, under any tag."""

    def __init__(self, read: dict[str, Collector], kept: dict[str, Kept]) -> None:
        super().__init__(read)
        self._kept = kept

    def __contains__(self, tag: object) -> bool:
        return True

    def get(self, tag: str, default: object = None) -> Collector:
        own = self._kept[tag]
        return fan_out([own, self[tag]]) if tag in self.keys() else own


@dataclass(frozen=True, slots=True)
class Place:
    """Where the operators run.

    Args:
        subtask, parallelism: which subtask, of how many.
        clock: the time.
        config: the settings of the job.
    """

    subtask: int
    parallelism: int
    clock: ManualClock
    config: JobConfig


class Wiring:
    """The operators of a graph in one subtask.

    Args:
        graph: the program; its sources are where the test pushes rows.
        place: where they run.

    Attributes:
        links: the operators by name (uid, or place and name), upstream first.
        inputs: where the rows of each source go.
        output: what came to the end of the program.
        sides: what came to each side output, by tag.
    """

    def __init__(self, graph: LogicalGraph, place: Place) -> None:
        self.links: dict[str, ChainLink] = {}
        self.inputs: list[Collector] = []
        self.output = Kept()
        self.sides: defaultdict[str, Kept] = defaultdict(Kept)
        self._place = place
        outputs: defaultdict[Output, list[Collector]] = defaultdict(list)
        for node in reversed(list(graph)):
            main = fan_out(outputs[node.id, None]) if outputs[node.id, None] else Kept()
            if isinstance(node.role, OperatorSpec):
                tags = {str(tag): fan_out(found) for (owner, tag), found in outputs.items() if owner == node.id and tag}
                self._add_operator(node, main, tags, outputs)
            elif isinstance(node.role, Results):
                for edge in node.inputs:
                    outputs[edge.source, edge.tag].append(self.output)
            else:
                self.inputs.insert(0, main)
        self.links = dict(reversed(self.links.items()))

    def _add_operator(
        self,
        node: Node,
        main: Collector,
        tags: dict[str, Collector],
        outputs: defaultdict[Output, list[Collector]],
    ) -> None:
        if not isinstance(node.role, OperatorSpec) or node.role.traits.feedback is not None:
            raise GraphError(f"{node.where}: a harness runs no loops; test the function inside of the loop")
        place = self._place
        context = OperatorContext(
            node.name,
            place.subtask,
            place.parallelism,
            place.clock,
            config=place.config,
            sides=_Sides(tags, self.sides),
            side_schemas={tag: schema for tag, schema in node.sides.items() if schema is not None},
        )
        link = ChainLink(node.role.create(), context, main)
        self.links[node.uid or f"{node.id}: {node.name}"] = link
        merger = WatermarkMerger(len(node.inputs))
        for channel, edge in enumerate(node.inputs):
            entry = _Entry(_taker(link, edge, channel, merger), self._checker(node, edge))
            outputs[edge.source, edge.tag].append(entry)

    def _checker(self, node: Node, edge: Edge) -> Callable[[Batch], None]:
        if not isinstance(edge.partitioner, Hash):
            return lambda batch: None
        place = self._place
        context = SplitterContext(node.where, place.parallelism, 0, place.config.max_parallelism)
        split = edge.partitioner.splitter(context)

        def check(batch: Batch) -> None:
            for subtask, rows in split(batch):
                if subtask != place.subtask:
                    raise StateError(
                        f"{node.where}: {rows.num_rows} rows, such as {rows.data.slice(0, 1).to_pylist()[0]!r:.200}, "
                        f"have keys of subtask {subtask}, and this harness is subtask {place.subtask} of "
                        f"{place.parallelism}; push them there"
                    )

        return check

    def open(self, snapshot_of: Callable[[str], OperatorSnapshot | None]) -> None:
        """Open the operators, downstream first, each with the snapshot that it resumes from."""
        for name, link in reversed(list(self.links.items())):
            link.open(snapshot_of(name))

    def processing_times(self) -> Iterator[int]:
        """When the operators have something to do by the clock."""
        return (time for link in self.links.values() if (time := link.next_processing_time) is not None)

    def on_processing_time(self, now_ms: int) -> None:
        """Let those operators act whose time has come."""
        for link in self.links.values():
            time = link.next_processing_time
            if time is not None and time <= now_ms:
                link.on_processing_time(now_ms)

    def close(self) -> None:
        """Close all operators."""
        for link in self.links.values():
            link.operator.close()


def _taker(link: ChainLink, edge: Edge, channel: int, merger: WatermarkMerger) -> Callable[[Element], None]:
    def take(element: Element) -> None:
        if isinstance(element, Batch):
            link.process(edge.input_index, element)
            return
        for merged in merger.on_control(channel, element):
            link.process(edge.input_index, merged)

    return take
