"""A simulated job for the autoscaler: a source and tasks behind it, as flows of rows. Hours take milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.autoscaler.autoscaler import Autoscaler
from penstock.engine.autoscaler.readings import JobReading, SubtaskCounters, TaskReading
from penstock.engine.autoscaler_config import AutoscalerConfig

HOUR = 3600.0


@dataclass
class Stage:
    """A task.

    Args:
        name: its name and uid.
        rate: rows a second that one subtask can take.
        ratio: rows that it emits for each.
        parallelism: subtasks.
        hot: share of the rows that one key has.
        seen: share of its work that counts as busy time; the rest looks idle.
        most: subtasks that do any good: more make it no faster.
    """

    name: str
    rate: float
    ratio: float = 1.0
    parallelism: int = 1
    hot: float = 0.0
    seen: float = 1.0
    most: int = 1000
    counters: list[SubtaskCounters] = field(default_factory=list)

    @property
    def shares(self) -> list[float]:
        """Of the rows, by subtask."""
        even = (1 - self.hot) / self.parallelism
        return [even + self.hot, *[even] * (self.parallelism - 1)]

    @property
    def capacity(self) -> float:
        """Rows a second of all subtasks together."""
        return self.rate * min(1.0, self.most / self.parallelism) / max(self.shares)


class Workload:
    """A job that rows come to.

    Args:
        stages: the source first; each sends to the next.
        load: rows a second that come, by time.
        config: of the autoscaler.
        step: seconds between two readings.
        rescale_seconds: how long a rescale takes.
        tells_lag: whether the source says how many rows wait for it.
        room: for how many slots there is some, by time.

    Attributes:
        rescales: when, and to what.
        refused: when, and what there was no room for.
        lag: rows that wait.
        longest_lag: the longest time that a row had to wait, seconds.
        cpu_seconds: of slots.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        load: Callable[[float], float],
        config: AutoscalerConfig | None = None,
        step: float = 5.0,
        rescale_seconds: float = 2.0,
        tells_lag: bool = True,
        room: Callable[[float], int] = lambda at: 1000,
    ) -> None:
        self.stages = list(stages)
        self.load = load
        self.autoscaler = Autoscaler(config or AutoscalerConfig(enabled=True))
        self.now = 0.0
        self.lag = 0.0
        self.longest_lag = 0.0
        self.cpu_seconds = 0.0
        self.rescales: list[tuple[float, Mapping[str, int]]] = []
        self.refused: list[tuple[float, Mapping[str, int]]] = []
        self._step = step
        self._rescale_seconds = rescale_seconds
        self._tells_lag = tells_lag
        self._room = room
        self._attempt = 1
        self._last_rescale: float | None = None
        self._restart()

    def _restart(self) -> None:
        for stage in self.stages:
            stage.counters = [SubtaskCounters() for _ in range(stage.parallelism)]

    @property
    def parallelisms(self) -> list[int]:
        """Of the stages, upstream first."""
        return [stage.parallelism for stage in self.stages]

    def run(self, seconds: float) -> Workload:
        """Let time pass."""
        until = self.now + seconds
        while self.now < until:
            self._flow()
            wanted = self.autoscaler.observe(self.reading())
            if wanted is None:
                continue
            if max(wanted.values()) <= (room := self._room(self.now)):
                self._rescale(wanted)
            else:
                self.refused.append((self.now, dict(wanted)))
                self.autoscaler.on_no_room(room, f"there is room for {room} slots")
        return self

    def _rescale(self, wanted: Mapping[str, int]) -> None:
        self.rescales.append((self.now, dict(wanted)))
        for stage in self.stages:
            stage.parallelism = wanted.get(stage.name, stage.parallelism)
        self.lag += self.load(self.now) * self._rescale_seconds
        self.now += self._rescale_seconds
        self._attempt += 1
        self._last_rescale = self._rescale_seconds
        self._restart()
        self.autoscaler.on_rescaled(self._rescale_seconds)

    def _flow(self) -> None:
        self.now += self._step
        offered = self.lag / self._step + self.load(self.now)
        limits, ratio = [], 1.0
        for stage in self.stages:
            limits.append(stage.capacity / ratio)
            ratio *= stage.ratio
        flow = min(offered, *limits)
        slowest = limits.index(min(limits)) if flow < offered else len(self.stages)
        self.lag = max(0.0, (offered - flow) * self._step)
        self.longest_lag = max(self.longest_lag, self.lag / max(flow, 1.0))
        self.cpu_seconds += max(self.parallelisms) * self._step
        for number, stage in enumerate(self.stages):
            self._count(stage, flow, number < slowest < len(self.stages))
            flow *= stage.ratio

    def _count(self, stage: Stage, flow: float, waits: bool) -> None:
        for subtask, share in enumerate(stage.shares):
            before, rows = stage.counters[subtask], flow * share * self._step
            busy = rows / (stage.rate * min(1.0, stage.most / stage.parallelism)) * stage.seen
            rest = max(0.0, self._step - busy)
            stage.counters[subtask] = SubtaskCounters(
                before.rows_in + round(rows),
                before.rows_out + round(rows * stage.ratio),
                before.busy + busy,
                before.blocked + (rest if waits else 0.0),
                before.idle + (0.0 if waits else rest),
            )

    def reading(self) -> JobReading:
        """What the autoscaler sees."""
        tasks = tuple(
            TaskReading(
                number,
                stage.name,
                (stage.name,),
                (stage.name,),
                () if number == 1 else (number - 1,),
                (number,),
                128,
                0,
                tuple(stage.counters),
                self.lag if number == 1 and self._tells_lag else None,
            )
            for number, stage in enumerate(self.stages, start=1)
        )
        return JobReading(self.now, round(self.now * 1000), self._attempt, tasks, self._last_rescale)
