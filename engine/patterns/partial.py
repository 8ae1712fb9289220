"""The partial matches of one key: what has been matched so far, and where in the automaton each of them is.

The matcher changes them, the operator keeps them as state. Partial matches share what they have in common: each holds
the last step of its path, and each step the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Match: TypeAlias = dict[str, list[Any]]
"""The rows of a match by variable, in the order in which they were matched."""

LAST: Final = (2**63 - 1, 2**63 - 1)
"""The place in the queue of a partial match without an event."""


class Event:
    """A row that a partial match holds.

    Args:
        time: its time (int64 ms).
        number: tells apart the events of a key that have one time.
        row: a dict.
    """

    __slots__ = ("number", "row", "time")

    def __init__(self, time: int, number: int, row: Any) -> None:
        self.time = time
        self.number = number
        self.row = row


class Step:
    """An event that was taken for a variable, and the step before."""

    __slots__ = ("event", "previous", "variable")

    def __init__(self, previous: Step | None, variable: str, event: Event) -> None:
        self.previous = previous
        self.variable = variable
        self.event = event


class PartialMatch:
    """One way in which the pattern may come about.

    Args:
        state: the number of the state in which it is.
        step: the last step; None for the one that waits for a first event.
        first: the first event.
        start_time, previous_time: times of the first and the last event; -1 without.
    """

    __slots__ = ("first", "order", "previous_time", "start_time", "state", "step")

    def __init__(
        self, state: int, step: Step | None, first: Event | None, start_time: int = -1, previous_time: int = -1
    ) -> None:
        self.state = state
        self.step = step
        self.first = first
        self.start_time = start_time
        self.previous_time = previous_time
        self.order = LAST if first is None else (first.time, first.number)

    def __lt__(self, other: PartialMatch) -> bool:
        """By first event alone: those with one first event are equal in a queue."""
        return self.order < other.order


def rows_of(step: Step | None) -> Match:
    """The rows of a path by variable."""
    path = []
    while step is not None:
        path.append(step)
        step = step.previous
    match: Match = {}
    for taken in reversed(path):
        match.setdefault(taken.variable, []).append(taken.event.row)
    return match


def events_of(step: Step | None) -> dict[str, list[Event]]:
    """The events of a path by variable."""
    path = []
    while step is not None:
        path.append(step)
        step = step.previous
    found: dict[str, list[Event]] = {}
    for taken in reversed(path):
        found.setdefault(taken.variable, []).append(taken.event)
    return found


@dataclass(slots=True)
class KeyMatches:
    """All partial matches of a key, and the matches that are held back; both in the order of their queues."""

    partial: list[PartialMatch] = field(default_factory=list)
    complete: list[PartialMatch] = field(default_factory=list)
