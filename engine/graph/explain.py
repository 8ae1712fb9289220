"""The plan of a program as stable text: the same program gives the same text, on every machine.

Called by `StreamEnvironment.explain`. Shows each task with its operators and columns, and the exchanges between tasks.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.engine.graph.logical import LogicalGraph, Node
from penstock.engine.graph.physical import Exchange, PhysicalGraph, TaskPlan
from penstock.engine.windows.watermarks import WatermarkStrategy


def explain_logical(graph: LogicalGraph) -> str:
    """One line a node: its number, its inputs, its name and its columns."""
    return "\n".join(_node_line(node) for node in graph)


def _node_line(node: Node) -> str:
    inputs = ", ".join(
        " ".join(
            (
                f"{edge.source}",
                *(() if edge.tag is None else (f"side {edge.tag!r}",)),
                *(() if edge.partitioner is None else (edge.partitioner.describe(),)),
            )
        )
        for edge in node.inputs
    )
    uid = f" uid={node.uid}" if node.uid else ""
    watermarks = _watermarks(node.watermarks)
    return f"[{node.id}]{f' <- {inputs}' if inputs else ''} {node.name}{watermarks}{uid}{_columns(node.schema)}"


def _watermarks(strategy: WatermarkStrategy | None) -> str:
    return "" if strategy is None else f" watermarks({strategy.describe()})"


def _columns(schema: pa.Schema | None) -> str:
    return "" if schema is None else f" ({', '.join(f'{field.name}: {field.type}' for field in schema)})"


def explain_physical(graph: PhysicalGraph) -> str:
    """The tasks, upstream first: operators that run in one subtask, and where their rows go."""
    return "\n".join(line for task in graph.tasks for line in _task_lines(task))


def _task_lines(task: TaskPlan) -> list[str]:
    lines = [f"task {task.id} x{task.parallelism}"]
    if task.source is not None:
        lines.append(f"  source {task.source.name}{_watermarks(task.source.watermarks)}")
        lines.extend(_output_line(task.outputs[output]) for output in task.source.outputs)
    for operator in task.operators:
        lines.append(f"  {operator.name}")
        lines.extend(_output_line(task.outputs[output]) for output in operator.outputs)
        for side in operator.sides:
            lines.extend(f"{_output_line(task.outputs[output])}, side {side.tag!r}" for output in side.outputs)
    if task.resources is not None:
        lines.append(f"  reserves {task.resources.num_cpus} CPUs, {task.resources.num_gpus} GPUs a subtask")
    return lines


def _output_line(exchange: Exchange) -> str:
    target = "client" if exchange.downstream is None else f"task {exchange.downstream}"
    return f"    -> {target} ({exchange.where if exchange.downstream is None else exchange.partitioner.describe()})"
