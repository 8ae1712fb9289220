"""Feeds a stimulus log to a new brain, and compares what it says with what was said then.

`penstock job replay` and the simulation call it. It needs neither the user's program nor a cluster: what the brain
decided by stands in the log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.engine.config import DEFAULTS
from penstock.engine.errors import PenstockError
from penstock.engine.graph.scale import ParallelismRequest, Scale
from penstock.engine.job import events as ev
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.checkpoints import Storage
from penstock.engine.job.codec import CodecError, decode, describe
from penstock.engine.job.layout import Layout
from penstock.engine.job.log import FORMAT, Answered, question


class ReplayError(PenstockError):
    """A file that is no stimulus log, or one that this version cannot read."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a log.

    Args:
        number: of the event, from 1.
        at_s: seconds since the first.
        ms: civil time, ms UTC.
        event: in words.
        recorded: the instructions that followed then.
        now: those that follow now; None: a part of the log is missing before this, so nothing can be compared.
    """

    number: int
    at_s: float
    ms: int
    event: str
    recorded: Sequence[str]
    now: Sequence[str] | None

    @property
    def difference(self) -> str | None:
        """The first instruction that is not as it was, in words; None: there is none."""
        if self.now is None or list(self.now) == list(self.recorded):
            return None
        longest = max(len(self.now), len(self.recorded))
        pairs = [(_at(self.recorded, place), _at(self.now, place)) for place in range(longest)]
        then, now = next((then, now) for then, now in pairs if then != now)
        return f"event {self.number}, {self.event}: recorded {then}, now {now}"


def _at(said: Sequence[str], place: int) -> str:
    return said[place] if place < len(said) else "nothing"


def replay(parts: Iterable[tuple[int, Iterable[str]]]) -> Iterator[Step]:
    """The events of a log, one by one.

    Args:
        parts: the lines of each, by its number; behind a number that is missing nothing is compared.

    Raises:
        ReplayError: it is no stimulus log.
    """
    brain: _Brain | None = None
    due, number, began = 0, 0, 0.0
    for part, lines in parts:
        if part != due and brain is not None:
            brain.is_whole = False
        due = part + 1
        for text in lines:
            content = _content(text)
            if brain is None:
                brain = _Brain(content)
                continue
            number += 1
            monotonic, ms = content["at"]
            began = monotonic if number == 1 else began
            event, now = brain.handle(content)
            yield Step(number, monotonic - began, ms, event, content["said"], now)
    if brain is None:
        raise ReplayError("there is no event in this log")


def _content(text: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ReplayError(f"this is no stimulus log: {error}") from error
    if not isinstance(content, dict):
        raise ReplayError("this is no stimulus log: a line holds no JSON object")
    return content


class _Brain:
    """A brain as the header of a log describes it.

    Attributes:
        is_whole: whether it has heard all that the recorded one had.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        written = header.get("format")
        if written != FORMAT:
            raise ReplayError(
                f"this is no stimulus log of format {FORMAT}, but {written!r}: it must begin with its first part, and "
                "be read by the version of penstock that wrote it, or a later one"
            )
        config = replace(
            DEFAULTS,
            max_parallelism=header["max_parallelism"],
            checkpoints=decode(header["checkpoints"]),
            failover=decode(header["failover"]),
        )
        storage = None if header["job_id"] is None else Storage(header["job_id"], decode(header["start"]))
        self.is_whole = True
        self._planner = _KnownPlanner()
        self._drawn = _KnownRandom()
        self._brain = JobBrain(header["job"], config, self._planner, self._drawn, storage)

    def handle(self, content: Mapping[str, Any]) -> tuple[str, Sequence[str] | None]:
        """Tell it an event: in words, and what it says."""
        event: ev.Event = decode(content["event"])
        if not self.is_whole:
            return _event_text(event), None
        self._planner.answers.update((key, decode(answer)) for key, answer in content.get("asked", ()))
        self._drawn.numbers = list(content.get("drawn", ()))
        try:
            said = self._brain.handle(event, ev.Moment(*content["at"]))
        except Exception as error:
            # The brain that was recorded did not: this is a difference, and there is nothing left to compare.
            self.is_whole = False
            return _event_text(event), [f"{type(error).__name__}: {error}"]
        return _event_text(event), [describe(one) for one in said]


def _event_text(event: ev.Event) -> str:
    """An event in words, with those of its error."""
    error = getattr(event, "error", None)
    return describe(event) if error is None else f"{describe(event)} {error}"


@dataclass(slots=True)
class _KnownPlanner:
    """Gives the recorded answers of a planner."""

    answers: dict[str, Answered] = field(default_factory=dict)

    def plan(self, scale: Scale, split_parallelism: Mapping[str, int]) -> Layout:
        found = self._find(question("plan", scale, dict(sorted(split_parallelism.items()))))
        assert isinstance(found, Layout)
        return found

    def scale_for(self, wanted: ParallelismRequest, running: Scale) -> Scale:
        found = self._find(question("scale_for", wanted, running))
        assert isinstance(found, Scale)
        return found

    def _find(self, key: str) -> Answered:
        answer = self.answers.get(key)
        if answer is None:
            raise CodecError(f"the planner was not asked for this then: {key}")
        if isinstance(answer, PenstockError):
            raise answer
        return answer


class _KnownRandom(random.Random):
    """Draws the numbers that were drawn."""

    numbers: Sequence[float] = ()

    def random(self) -> float:
        if not self.numbers:
            raise CodecError("no random number was drawn here then")
        first, *self.numbers = self.numbers
        return first
