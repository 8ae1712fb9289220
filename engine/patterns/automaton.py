"""The automaton of a pattern: states, transitions, and the bounds of time that belong to states.

The compiler makes it, the matchers and `explain` read it. Proceeding from state to state may lead back to where it
began, where a group in a loop may take no event: a plan (`plans.py`) follows no way round.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from penstock.engine.patterns.conditions import Condition, Leaf
from penstock.engine.patterns.skip import AfterMatchSkipStrategy


class StateKind(enum.Enum):
    """What it means to be in a state."""

    START = "start"
    NORMAL = "normal"
    FINAL = "final"
    PENDING = "pending"
    """A match once its time is over."""
    STOP = "stop"
    """What must not come has come."""


class Action(enum.Enum):
    """What a transition does with the event."""

    TAKE = "take"
    IGNORE = "ignore"
    PROCEED = "proceed"
    """Nothing: the next state looks at the same event."""


@dataclass(slots=True, eq=False)
class State:
    """A state while the automaton is being made.

    Args:
        name: unique; the variable's, with a number where several states take its events.
        kind: what it means to be in it.
        variable: to which the events belong that it takes.
        transitions: in the order in which they are looked at.
        number: of the state in the automaton.
    """

    name: str
    kind: StateKind
    variable: str
    number: int
    transitions: list[Transition] = field(default_factory=list)

    def add(self, action: Action, target: State, condition: Condition) -> None:
        """Add a transition behind the others."""
        self.transitions.append(Transition(self, action, target, condition))


@dataclass(slots=True, eq=False)
class Transition:
    """What leads from one state to another, or to the same."""

    source: State
    action: Action
    target: State
    condition: Condition


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPattern:
    """A pattern as the matchers run it.

    Args:
        states: by their numbers.
        start: the number of the state in which all matches begin.
        variables: in the order of the pattern, those of NOT stages too.
        within_ms: bound between the first and the last event; 0 for none.
        gaps_ms: bounds since the event before, by the number of the state; 0 for none.
        skip: what a match does to other partial matches.
        leaves: all different tests, in the order of the pattern.
    """

    states: tuple[State, ...]
    start: int
    variables: tuple[str, ...]
    within_ms: int
    gaps_ms: tuple[int, ...]
    skip: AfterMatchSkipStrategy
    leaves: tuple[Leaf, ...]

    @property
    def has_bounds(self) -> bool:
        """Whether partial matches can time out."""
        return self.within_ms > 0 or any(self.gaps_ms)

    @property
    def is_iterative(self) -> bool:
        """Whether a condition looks at the match so far."""
        return any(leaf.is_iterative for leaf in self.leaves)
