"""How well a job follows its load: how far behind its parallelism is, and what it reserves beside what it needs.

`perf/sine.py` makes a `Second` of each second of a run. Bounds are those of the autoscaler: a task is busy within
`utilization.min` and `utilization.max`, at best `utilization.target`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What can be seen of a job and its cluster.

    Args:
        parallelism: of the task that has the work.
        slot_cpus: CPUs that the slots of the job reserve.
        nodes: that run, beside the head.
        node_cpus: CPUs of these.
        waiting: events in Kafka that the job has not read; None: it did not say.
        behind: how old the event time of the windows is, seconds; None: it was not known.
    """

    parallelism: int
    slot_cpus: float
    nodes: int
    node_cpus: float
    waiting: float | None
    behind: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Second(Seen):
    """One second of a run.

    Args:
        at: seconds since the load began.
        load: events sent, a second.
    """

    at: int
    load: float


@dataclass(frozen=True, slots=True)
class Work:
    """What a subtask can do, and how busy it is to be.

    Args:
        rate: events a second that keep one busy all the time.
        target, least, most: how busy each is to be, from 0 to 1: at best, and the bounds.
    """

    rate: float
    target: float
    least: float
    most: float

    def ideal(self, load: float) -> int:
        """The fewest subtasks of which none is busier than the target."""
        return _whole(load / self.rate / self.target)

    def enough(self, load: float) -> int:
        """The fewest that the bounds allow."""
        return _whole(load / self.rate / self.most)

    def not_too_many(self, load: float) -> int:
        """The most that the bounds allow."""
        return max(self.ideal(load), math.floor(load / self.rate / self.least))


def _whole(subtasks: float) -> int:
    return max(1, math.ceil(round(subtasks, 6)))


def seconds_up(seconds: Sequence[Second], work: Work) -> int:
    """How far behind a rising load: never were there fewer subtasks than it had needed all that time.

    The least number of seconds D for which, at each second, there were at least as many subtasks as were enough for the
    lightest of the last D seconds.
    """
    least = [work.enough(one.load) for one in seconds]
    return _behind(len(seconds), lambda at, since: seconds[at].parallelism >= min(least[since : at + 1]))


def seconds_down(seconds: Sequence[Second], work: Work) -> int:
    """How far behind a falling load: never were there more subtasks than were allowed in the last so many seconds."""
    most = [work.not_too_many(one.load) for one in seconds]
    return _behind(len(seconds), lambda at, since: seconds[at].parallelism <= max(most[since : at + 1]))


def _behind(count: int, holds: Callable[[int, int], bool]) -> int:
    """The least delay with which it holds at each second; delays do no harm to earlier ones."""
    delay = 0
    for at in range(count):
        while delay < at and not holds(at, max(0, at - delay)):
            delay += 1
    return delay


def costs(seconds: Sequence[Second], work: Work) -> Mapping[str, float]:
    """CPU-hours: of whole subtasks at the target, which is ideal; of slots, of nodes; and how many times the ideal."""
    hours = {
        "ideal_cpu_hours": sum(work.ideal(one.load) for one in seconds) / 3600,
        "slot_cpu_hours": sum(one.slot_cpus for one in seconds) / 3600,
        "node_cpu_hours": sum(one.node_cpus for one in seconds) / 3600,
    }
    ideal = hours["ideal_cpu_hours"]
    return {
        **{name: round(value, 4) for name, value in hours.items()},
        "slots_to_ideal": round(hours["slot_cpu_hours"] / ideal, 3),
        "nodes_to_ideal": round(hours["node_cpu_hours"] / ideal, 3),
    }
