"""What batch mode has nothing for, and the plan of what it has, as text: both without Spark.

The environment asks before anything is started, and for `explain`.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.actors.spark.edges import incoming
from penstock.actors.spark.final_updates import with_final_updates
from penstock.actors.spark.native.prefixes import Prefix, native_prefixes
from penstock.engine.errors import GraphError
from penstock.engine.graph.physical import Exchange, PhysicalGraph, TaskPlan
from penstock.engine.operators.relational import Ordered


def check_translatable(graph: PhysicalGraph) -> None:
    """Make sure that the job can run as a batch job.

    Raises:
        GraphError: an input without end, or an operator that batch mode does not have; names all of them.
    """
    if problems := untranslatable(graph):
        raise GraphError(f"job {graph.name!r} cannot run in batch mode: {'; '.join(problems)}")


def untranslatable(graph: PhysicalGraph) -> list[str]:
    """What keeps the job from running in batch mode, each with a remedy."""
    endless = [task.source.name for task in graph.tasks if task.source is not None and not task.source.source.bounded]
    loops = [
        operator.name
        for task in graph.tasks
        for operator in task.operators
        if operator.spec.traits.loop_head is not None
    ]
    reserving = [task.name for task in graph.tasks if task.resources is not None]
    return [
        *(
            f"source {name!r} has no end: give it one (until, rows, no monitor), or run in streaming mode"
            for name in endless
        ),
        *(
            f"operator {name!r} is the head of a loop, which Spark has not: unroll it, or run in streaming mode"
            for name in loops
        ),
        *(
            f"task {name!r} has CPUs or GPUs of its own (num_cpus, num_gpus), which Spark does not reserve: leave them "
            "out, or run in streaming mode"
            for name in reserving
        ),
    ]


def explain_stages(graph: PhysicalGraph) -> str:
    """The stages of the Spark plan, each with what it reads and what Spark runs by itself: stable text."""
    final = with_final_updates(graph)
    prefixes = native_prefixes(final)
    absorbed = {number for prefix in prefixes.values() for number in prefix.absorbed}
    lines: list[str] = []
    for task in graph.tasks:
        if task.id in absorbed:
            lines.append(f"native {task.id}: {task.name}")
            continue
        readers = len({exchange.downstream for exchange in task.outputs})
        kept = f", kept for {readers} readers" if readers > 1 else ""
        lines.append(f"stage {task.id}: {task.name} (partitions {task.parallelism}{kept})")
        if task.id in prefixes:
            own = task.operator_names[: prefixes[task.id].operators]
            lines.append(f"  native: {' -> '.join(own)}")
        for _, exchange in incoming(graph, task):
            source = "native" if exchange.upstream in absorbed else "stage"
            lines.append(f"  <- {source} {exchange.upstream} (shuffle by {_shuffle(task, exchange, prefixes)})")
    return "\n".join(lines)


def _shuffle(task: TaskPlan, exchange: Exchange, prefixes: Mapping[int, Prefix]) -> str:
    """How Spark brings rows to a task."""
    if task.id not in prefixes:
        return f"{exchange.partitioner.describe()}, in order of time"
    match task.operators[0].spec.traits.relational:
        case Ordered(keys):
            return f"range({', '.join(key.describe() for key in keys)})"
        case _:
            return exchange.partitioner.describe()
