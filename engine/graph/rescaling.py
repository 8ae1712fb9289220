"""What a request to rescale a running job means: which operators get how many subtasks.

The job brain's planner calls it. Operators that hand rows to each other without spreading them (`forward`) keep one
parallelism, so who asks for one of them asks for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.engine.config import LARGEST_MAX_PARALLELISM, check_parallelism
from penstock.engine.connectors import Source
from penstock.engine.errors import ConfigurationError, UnknownOperatorError, nearest
from penstock.engine.exchange.partial_aggregates import PartialAggregates
from penstock.engine.exchange.partitioners import Forward, Global
from penstock.engine.graph.logical import LogicalGraph, Node, Results, live_part
from penstock.engine.graph.physical import JobProgram, partitioner_of, resolve_parallelisms, uid_of
from penstock.engine.graph.rewrite import rewrite
from penstock.engine.graph.scale import ParallelismRequest, Scale

_FUSED: Final = " -> "
"""Stands between the names of operators that run as one."""


def scale_for(program: JobProgram, wanted: ParallelismRequest, running: Scale) -> Scale:
    """The scale that a request asks for.

    Args:
        program: the job, as it was submitted.
        wanted: one number for all operators that set none themselves, which ends what single ones were given; or the
            numbers of single ones, by uid, by name or by the name of their task.
        running: the scale that the job runs at.

    Raises:
        UnknownOperatorError: the program has no such operator, or several of that name.
        ConfigurationError: an operator cannot have so many subtasks.
    """
    if not isinstance(wanted, Mapping):
        return Scale(wanted)
    if not wanted:
        raise ConfigurationError("name at least one operator and its parallelism, such as {'window': 3}")
    graph = rewrite(live_part(program.logical))
    groups = _groups(program, graph)
    chosen: dict[str, tuple[str, int]] = {}
    for name, parallelism in wanted.items():
        check_parallelism(parallelism, LARGEST_MAX_PARALLELISM, f"operator {name!r}")
        for uid, count in _of_group(name, parallelism, _find(name, graph, groups), groups):
            before, other = chosen.setdefault(uid, (name, count))
            if other != count:
                raise ConfigurationError(
                    f"operators {before!r} and {name!r} hand rows to each other one to one, so they have one "
                    f"parallelism: {other} or {count}, not both"
                )
    singles = dict(running.operators) | {uid: count for uid, (_, count) in chosen.items()}
    return Scale(running.default, tuple(sorted(singles.items())))


def _groups(program: JobProgram, graph: LogicalGraph) -> dict[int, list[Node]]:
    """By node, all that have its parallelism as the job is submitted, as rows go between them one to one."""
    resolved = resolve_parallelisms(graph, program.parallelism, program.config, {})
    groups: dict[int, list[Node]] = {node.id: [node] for node in graph if not isinstance(node.role, Results)}
    for node in graph:
        if node.id not in groups:
            continue
        for edge in node.inputs:
            one, other = groups[edge.source], groups[node.id]
            if one is not other and isinstance(partitioner_of(node, edge, resolved), Forward):
                one += other
                groups.update((member.id, one) for member in other)
    return groups


def _find(name: str, graph: LogicalGraph, groups: Mapping[int, list[Node]]) -> Node:
    """The operator that is meant by a uid, by its own name or by that of the task that begins with it."""
    nodes = [node for node in graph if node.id in groups]
    uids = [node for node in nodes if uid_of(node) == name]
    named = uids or [node for node in nodes if name == node.name or name in node.name.split(_FUSED)]
    # The name of a task is those of its chain; the first one stands for all.
    found = named or [node for node in nodes if name.startswith(f"{node.name}{_FUSED}")]
    if len({id(groups[node.id]) for node in found}) == 1:
        return found[0]
    if found:
        listed = ", ".join(uid_of(node) for node in found)
        raise UnknownOperatorError(f"several operators are called {name!r}; name one by its uid: {listed}")
    known = [node.name for node in nodes]
    raise UnknownOperatorError(
        f"the job has no operator {name!r}{nearest(name, [*known, *map(uid_of, nodes)])}; it has {', '.join(known)}"
    )


def _of_group(name: str, parallelism: int, node: Node, groups: Mapping[int, list[Node]]) -> Iterable[tuple[str, int]]:
    """What each operator of the group gets; those that cannot have so many keep to what they can."""
    most = _most(node)
    if most is not None and parallelism > most[0]:
        raise ConfigurationError(f"operator {name!r} cannot have parallelism {parallelism}: {most[1]}")
    for member in groups[node.id]:
        limit = _most(member)
        yield uid_of(member), parallelism if limit is None else min(parallelism, limit[0])


def _most(node: Node) -> tuple[int, str] | None:
    """The most subtasks of an operator, and why; None: as many as there are key groups."""
    if isinstance(node.role, Source):
        most = node.role.max_parallelism
        return None if most is None else (most, f"this source can be read with {most} at most; rescale what follows it")
    spreads = [edge.partitioner for edge in node.inputs]
    if any(isinstance(one.inner if isinstance(one, PartialAggregates) else one, Global) for one in spreads):
        return 1, "all its rows go to a single subtask; divide them by key_by(...) to use more"
    return None
