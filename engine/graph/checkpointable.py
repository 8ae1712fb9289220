"""Whether a job can take checkpoints, asked before anything starts.

The environment calls it for jobs whose configuration has an interval, and a job's manager before a savepoint. The
answer depends on the program alone.
"""

from __future__ import annotations

from penstock.engine.errors import GraphError
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan


def check_checkpointable(graph: PhysicalGraph) -> None:
    """Make sure that each part of the job can resume from a checkpoint.

    Args:
        graph: the job.

    Raises:
        GraphError: it has loops, or sources that cannot resume where they were; names them, and what to do.
    """
    problems = [problem for task in graph.tasks for problem in _problems(task)]
    if problems:
        raise GraphError(f"job {graph.name!r} cannot take checkpoints: {'; '.join(problems)}")


def _problems(task: TaskPlan) -> list[str]:
    problems = [
        f"operator {operator.name!r} {obstacle}"
        for operator in task.operators
        if (obstacle := operator.spec.traits.checkpoint_obstacle) is not None
    ]
    source = task.source
    if source is not None and not source.source.rewindable:
        problems.append(
            f"source {source.name!r} ({type(source.source).__name__}) cannot resume where it was: "
            f"{source.source.rewind_remedy}, or run the job without a checkpoint interval"
        )
    return problems
