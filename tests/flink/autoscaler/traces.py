"""Random jobs under load, as Flink's autoscaler reads them and as ours does.

A trace has readings of a window in which nothing changes but counters and backlog. Members of a task: `id`,
`parallelism`, `most` (key groups), `inputs` (pairs of the id of a sender, and how it ships). Of a reading, by task:
rows `in` and `out` and busy milliseconds so far, `rate`, busy and blocked milliseconds a second of one subtask,
`pending` rows. All subtasks of a task have the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from penstock.engine.autoscaler.evaluation import JobFigures, evaluate
from penstock.engine.autoscaler.readings import JobReading, SubtaskCounters, TaskReading
from penstock.engine.autoscaler.scaling import Advice, advise
from penstock.engine.autoscaler_config import AutoscalerConfig

Trace: TypeAlias = dict[str, Any]

KEY_GROUPS: Final = 128
RESTART_SECONDS: Final = 3
SETTINGS: Final[Mapping[str, str]] = {
    "job.autoscaler.target.utilization": "0.7",
    "job.autoscaler.target.utilization.boundary": "0.2",
    "job.autoscaler.scale-down.interval": "0 s",
    "job.autoscaler.catch-up.duration": "5 min",
    "job.autoscaler.backlog-processing.lag-threshold": "1 min",
    "job.autoscaler.observed-true-processing-rate.lag-threshold": "30 s",
    "job.autoscaler.scale-down.max-factor": "0.6",
}
"""What Flink is told; `CONFIG` is the same here."""
CONFIG: Final = AutoscalerConfig(utilization_max=0.9, utilization_min=0.5, scale_down_interval_ms=0)
_AT: Final = (0, 30, 60)
_SHAPES: Final[Sequence[Sequence[Sequence[int]]]] = (
    ((),),
    ((), (0,)),
    ((), (0,), (1,)),
    ((), (0,), (1,), (2,)),
    ((), (), (0, 1)),
    ((), (), (0, 1), (2,)),
    ((), (0,), (0,)),
)
"""By task, the places of those that send to it."""


def random_trace(seed: int) -> Trace:
    """A job of one to four tasks: a chain, a join of two sources, or two tasks behind one source."""
    draw = random.Random(seed)
    shape = draw.choice(_SHAPES)
    tasks: list[dict[str, Any]] = []
    flows: list[dict[str, float]] = []
    for place, senders in enumerate(shape):
        ship = draw.choice(["HASH", "HASH", "REBALANCE"])
        # One that divides the key groups evenly: of others, Flink says that the fullest subtask has no more than all.
        parallelism = 2 ** draw.randint(0, 4)
        inputs = [[sender + 1, ship] for sender in senders]
        tasks.append({"id": place + 1, "parallelism": parallelism, "most": KEY_GROUPS, "inputs": inputs})
        flows.append(_flow(draw, [flows[sender] for sender in senders]))
    readings = [
        {"at": at, "tasks": [_counted(flow, at, one) for flow, one in zip(flows, tasks, strict=True)]} for at in _AT
    ]
    return {
        "seed": seed,
        "settings": dict(SETTINGS),
        "restart_seconds": RESTART_SECONDS,
        "tasks": tasks,
        "readings": readings,
    }


def _flow(draw: random.Random, senders: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Rows a second, shares of time, and of a source its backlog and by how much that grows a second."""
    rate = sum(one["out"] for one in senders) if senders else float(draw.randint(1, 5000) * 100)
    busy = draw.uniform(0.05, 0.98)
    # Nothing crosses a threshold within the window: Flink looks at each reading there, and we at the last.
    behind = draw.choice([0.0, draw.uniform(0, 10), draw.uniform(35, 55), draw.uniform(65, 600)])
    growth = draw.choice([0.0, draw.uniform(0, 0.3)])
    return {
        "rate": rate,
        "out": float(round(rate * draw.choice([1.0, 1.0, 0.1, 0.5, 3.0]))),
        "busy": busy,
        "blocked": draw.uniform(0, 1 - busy),
        "pending": 0.0 if senders else float(round(rate * behind)),
        "growth": 0.0 if senders else float(round(rate * growth)),
    }


def _counted(flow: Mapping[str, float], at: int, task: Mapping[str, Any]) -> dict[str, float]:
    return {
        "in": round(flow["rate"] * at),
        "out": round(flow["out"] * at),
        "busy_ms": flow["busy"] * 1000 * at * task["parallelism"],
        "rate": flow["rate"],
        "busy_ms_per_second": flow["busy"] * 1000,
        "blocked_ms_per_second": flow["blocked"] * 1000,
        "pending": flow["pending"] + flow["growth"] * at,
    }


def found_here(trace: Trace) -> tuple[JobFigures, Sequence[Advice]]:
    """What our autoscaler makes of a trace: the figures, and what each task should have by them."""
    first, last = (_reading(trace, place) for place in (0, -1))
    figures = evaluate(first, last, CONFIG)
    return figures, [advise(one, figures, trace["restart_seconds"], CONFIG) for one in figures.tasks]


def _reading(trace: Trace, place: int) -> JobReading:
    reading = trace["readings"][place]
    pairs = zip(trace["tasks"], reading["tasks"], strict=True)
    tasks = tuple(_task(task, counted, reading["at"]) for task, counted in pairs)
    return JobReading(reading["at"], reading["at"] * 1000, 1, tasks)


def _task(task: Mapping[str, Any], counted: Mapping[str, float], at: int) -> TaskReading:
    number, inputs = task["id"], tuple(sender for sender, _ in task["inputs"])
    busy, blocked = (counted[f"{name}_ms_per_second"] / 1000 * at for name in ("busy", "blocked"))
    shares = range(task["parallelism"])
    subtasks = tuple(
        SubtaskCounters(
            *(_share(counted[name], one, len(shares)) for name in ("in", "out")), busy, blocked, at - busy - blocked
        )
        for one in shares
    )
    divides = task["most"] if any(ship == "HASH" for _, ship in task["inputs"]) else 0
    name = f"task-{number}"
    pending = None if inputs else counted["pending"]
    return TaskReading(number, name, (name,), (name,), inputs, (number,), task["most"], divides, subtasks, pending)


def _share(rows: float, subtask: int, subtasks: int) -> int:
    return int(rows) // subtasks + (subtask < int(rows) % subtasks)


def is_believed_less(figures: JobFigures, place: int) -> bool:
    """Whether what the task at `place` takes is believed here, as others wait for it, where Flink goes by busy time."""
    one = figures.tasks[place]
    return bool(one.task.inputs) and one.is_observed


def needed(answer: Mapping[str, Any], task: Mapping[str, Any]) -> float:
    """How many subtasks share the work that Flink's figures say there is, before it rounds and aligns."""
    gathered = answer["target_rate"] * RESTART_SECONDS / (CONFIG.catch_up_duration_ms / 1000)
    capacity = answer["catch_up_rate"] + gathered + answer["target_rate"] / CONFIG.utilization_target
    factor = capacity / answer["true_rate"]
    return float(task["parallelism"] * max(factor, 1 - CONFIG.scale_down_max_factor))
