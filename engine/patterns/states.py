"""Makes the states of an automaton: numbers and names them, copies them, and keeps one that stops for each NOT stage.

The compiler holds one for a pattern.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.engine.errors import PatternError
from penstock.engine.patterns.automaton import Action, State, StateKind
from penstock.engine.patterns.stages import Forbidden

_LONGEST: Final = 10_000
"""States of an automaton: `times(1_000_000)` would take for ever to compile."""


class States:
    """The states so far, in the order of their numbers."""

    def __init__(self) -> None:
        self.made: list[State] = []
        self._names: set[str] = set()
        self._next_number: dict[str, int] = {}
        self._stops: dict[str, State] = {}

    def add(self, base: str, kind: StateKind = StateKind.NORMAL, variable: str | None = None) -> State:
        """A state whose name begins with `base`.

        Raises:
            PatternError: there are too many.
        """
        number, name = self._next_number.get(base, 0), base
        while name in self._names:
            name = f"{base}:{number}"
            number += 1
        self._next_number[base] = number
        if len(self.made) >= _LONGEST:
            raise PatternError(f"the pattern has more than {_LONGEST} states; repeat its stages fewer times")
        self._names.add(name)
        state = State(name, kind, base if variable is None else variable, len(self.made))
        self.made.append(state)
        return state

    def copy(self, state: State) -> State:
        """A state with the same ways out."""
        copied = self.add(state.variable, state.kind)
        for way in state.transitions:
            copied.add(way.action, copied if way.target is state else way.target, way.condition)
        return copied

    def stop_on(self, state: State, forbidden: Forbidden) -> None:
        """Let forbidden events end what is in a state."""
        stop = self._stops.get(forbidden.name)
        if stop is None:
            stop = self._stops[forbidden.name] = self.add(forbidden.name, StateKind.STOP)
            stop.add(Action.TAKE, stop, forbidden.condition)
        state.add(Action.PROCEED, stop, forbidden.condition)

    def without_stops(self, state: State, names: frozenset[str]) -> State:
        """A state as this one, and those behind it that look at the same event, without the stops of these names."""
        return self._without(state, names, {})

    def _without(self, state: State, names: frozenset[str], path: Mapping[State, State]) -> State:
        copied = self.add(state.name, state.kind, state.variable)
        # A group in a loop leads back to itself.
        path = {**path, state: copied}
        for way in state.transitions:
            target = way.target
            if way.action is not Action.PROCEED:
                target = copied if target is way.source else target
            elif target.kind is StateKind.STOP:
                if target.name in names:
                    continue
            else:
                target = path.get(target) or self._without(target, names, path)
            copied.add(way.action, target, way.condition)
        return copied
