"""The stimulus log of a job: every event that its brain has heard, with all else that it decided by; `replay` reads it.

A shell makes one with its brain and adds each event, which costs next to nothing; a `LogKeeper` makes bounded parts of
it that the shell puts beside the checkpoints. It is a diagnosis: whatever becomes of it, the job runs on.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

from penstock.engine.config import JobConfig
from penstock.engine.errors import PenstockError
from penstock.engine.graph.scale import ParallelismRequest, Scale
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.checkpoints import Storage
from penstock.engine.job.codec import Json, describe, encode
from penstock.engine.job.layout import Layout, Planner

FORMAT: Final = 2
PART_BYTES: Final = 1_000_000
"""Of JSON, from which on a part is full; compressed it is a tenth."""
FIRST_PARTS: Final = 24
"""How many parts from the beginning are kept: what comes behind can be replayed as long as nothing is missing."""
LAST_PARTS: Final = 8
"""How many of the newest are kept."""
MANY_WAITING: Final = 1_000
"""So many events are to be written soon, though nothing has happened but what always does."""
MOST_WAITING: Final = 100_000
"""So many events that nobody has written are too many: the storage does not answer, and the log ends."""
ROUTINE: Final = (ev.Ticked, ev.Acknowledged, ev.Stored, ev.Committed, ev.RowsCame)
"""Events that need not be written soon."""

Answered: TypeAlias = "Layout | Scale | PenstockError"
"""What a planner says."""
T = TypeVar("T", Layout, Scale)


@dataclass(frozen=True, slots=True)
class Stimulus:
    """One event, and what the brain made of it.

    Args:
        event, now: what, and when.
        said: the instructions that followed.
        asked: what the planner was asked and had not been before, and its answers.
        drawn: the random numbers that were used.
    """

    event: ev.Event
    now: ev.Moment
    said: Sequence[say.Instruction]
    asked: Sequence[tuple[str, Answered]]
    drawn: Sequence[float]


class StimulusLog:
    """What one brain hears.

    Args:
        name, config, planner, chosen, storage: as of `JobBrain`, which must be given this log's `planner` and `chosen`.

    Attributes:
        planner, chosen: ask those that were given, and note what they say.
        is_open: whether events are still noted.
        is_urgent: whether it is to be written soon: by an event that does not come all the time, or by many that do.
    """

    def __init__(
        self, name: str, config: JobConfig, planner: Planner, chosen: random.Random, storage: Storage | None
    ) -> None:
        self._asked: list[tuple[str, Answered]] = []
        self._drawn: list[float] = []
        self.planner: Planner = _NotingPlanner(planner, self._asked)
        self.chosen: random.Random = _NotingRandom(chosen, self._drawn)
        self.is_open = True
        self.is_urgent = False
        self._header = name, config, storage
        self._waiting: list[Stimulus] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, event: ev.Event, now: ev.Moment, said: Sequence[say.Instruction]) -> None:
        """The brain has heard an event at `now`, and has said this."""
        if not self.is_open:
            return
        self._waiting.append(Stimulus(event, now, said, tuple(self._asked), tuple(self._drawn)))
        self._asked.clear()
        self._drawn.clear()
        self.is_urgent |= len(self._waiting) >= MANY_WAITING or not isinstance(event, ROUTINE)
        if len(self._waiting) >= MOST_WAITING:
            self.close()

    def take(self) -> Sequence[Stimulus]:
        """What is to be written now."""
        taken, self._waiting = self._waiting, []
        self.is_urgent = False
        return taken

    def close(self) -> None:
        """Note nothing more, and forget what waits."""
        self.is_open = self.is_urgent = False
        self._waiting = []

    def header(self) -> str:
        """The first line: what the brain was made with, as far as it decides by it."""
        name, config, storage = self._header
        checkpoints = replace(config.checkpoints, storage=None, savepoint_storage=None, storage_overrides=())
        return _line(
            {
                "format": FORMAT,
                "penstock": importlib.metadata.version("penstock"),
                "job": name,
                "job_id": None if storage is None else storage.job_id,
                "start": None if storage is None else encode(storage.start),
                "max_parallelism": config.max_parallelism,
                "checkpoints": encode(checkpoints),
                "failover": encode(config.failover),
            }
        )

    def text(self) -> str:
        """All that waits to be written, as a whole log has it."""
        return self.header() + "".join(map(line, self._waiting))


class LogKeeper:
    """Cuts a log into parts, and says which are kept: the first, with which a replay begins, and the newest.

    Args:
        log: of which.
    """

    def __init__(self, log: StimulusLog) -> None:
        self._log = log
        self._part = 0
        self._lines: list[str] = []
        self._bytes = 0

    def write(self, taken: Sequence[Stimulus], put: Callable[[int, bytes], None], drop: Callable[[int], None]) -> None:
        """Write events, and what could not be written before.

        Args:
            taken: from the log.
            put: writes a part by its number, in place of what it held before.
            drop: removes one.

        Raises:
            CheckpointError: of `put` and `drop`; then nothing is lost, and the next call tries it again.
            CodecError: an event is none that the log can hold; nothing more can be written.
        """
        if not self._part and not self._lines:
            self._lines.append(self._log.header())
        for stimulus in taken:
            text = line(stimulus)
            self._lines.append(text)
            self._bytes += len(text)
        put(self._part, gzip.compress("".join(self._lines).encode(), 1))
        if self._bytes < PART_BYTES:
            return
        outdated = self._part - LAST_PARTS
        self._part += 1
        self._lines, self._bytes = [], 0
        if outdated >= FIRST_PARTS:
            drop(outdated)

    @property
    def is_overdue(self) -> bool:
        """Whether much more waits than a part holds: the storage does not take it."""
        return self._bytes > 8 * PART_BYTES


def line(stimulus: Stimulus) -> str:
    """An event as a line of the log."""
    content: dict[str, Json] = {
        "at": [stimulus.now.monotonic, stimulus.now.ms],
        "event": encode(stimulus.event),
        "said": [describe(one) for one in stimulus.said],
    }
    if stimulus.asked:
        content["asked"] = [[question, encode(answer)] for question, answer in stimulus.asked]
    if stimulus.drawn:
        content["drawn"] = list(stimulus.drawn)
    return _line(content)


def question(name: str, *arguments: object) -> str:
    """What a planner is asked, as a key."""
    return f"{name} {json.dumps([encode(one) for one in arguments], sort_keys=True)}"


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"


@dataclass(slots=True)
class _NotingPlanner:
    """Asks a planner, and notes each answer once."""

    planner: Planner
    asked: list[tuple[str, Answered]]
    _known: set[str] = field(default_factory=set)

    def plan(self, scale: Scale, split_parallelism: Mapping[str, int]) -> Layout:
        key = question("plan", scale, dict(sorted(split_parallelism.items())))
        return self._noted(key, lambda: self.planner.plan(scale, split_parallelism))

    def scale_for(self, wanted: ParallelismRequest, running: Scale) -> Scale:
        return self._noted(question("scale_for", wanted, running), lambda: self.planner.scale_for(wanted, running))

    def _noted(self, key: str, ask: Callable[[], T]) -> T:
        try:
            answer = ask()
        except PenstockError as error:
            self._note(key, error)
            raise
        self._note(key, answer)
        return answer

    def _note(self, key: str, answer: Answered) -> None:
        if key not in self._known:
            self._known.add(key)
            self.asked.append((key, answer))


class _NotingRandom(random.Random):
    """Draws from another source, and notes the numbers."""

    def __new__(cls, chosen: random.Random, drawn: list[float]) -> _NotingRandom:
        # Up to Python 3.10, the base takes one argument at the most.
        return super().__new__(cls)

    def __init__(self, chosen: random.Random, drawn: list[float]) -> None:
        super().__init__(0)
        self._chosen = chosen
        self._drawn = drawn

    def random(self) -> float:
        number = self._chosen.random()
        self._drawn.append(number)
        return number
