"""The partial matches of keys as keyed state: readable columns, one list of rows a key in each of three states.

The operator of `KeyedStream.match` loads a key's partial matches, lets the matcher work on them, and saves them. What
partial matches share is kept once: events by number, and the steps of paths that lead to each other.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from penstock.engine.errors import StateError
from penstock.engine.operators.saved_aggregates import ANOTHER_UID
from penstock.engine.patterns.automaton import CompiledPattern, StateKind
from penstock.engine.patterns.partial import Event, KeyMatches, PartialMatch, Step
from penstock.engine.state.backend import Key, KeyedStateBackend
from penstock.engine.state.descriptors import ListStateDescriptor
from penstock.engine.state.state_tables import instant

MATCHES: Final = "partial-matches"
STEPS: Final = "match-steps"
EVENTS: Final = "match-events"
_MOST_AT_HAND: Final = 32_768
"""Keys; with more, objects would take more memory than state that is kept by RocksDB should."""
_INT: Final = pa.int64()
_MATCH_TYPE: Final = pa.struct(
    [
        ("state", pa.string()),
        ("step", _INT),
        ("first_event", _INT),
        ("start_time", _INT),
        ("previous_time", _INT),
        ("is_complete", pa.bool_()),
    ]
)
_STEP_TYPE: Final = pa.struct([("previous", _INT), ("variable", pa.string()), ("event", _INT)])


class MatchState:
    """The partial matches of all keys. Those of keys that are worked on stay at hand as objects until `flush`.

    Args:
        backend: holds the state.
        pattern: the automaton.
        rows: the type of a row, a struct.
        where: operator and subtask, for messages.
    """

    def __init__(self, backend: KeyedStateBackend, pattern: CompiledPattern, rows: pa.DataType, where: str) -> None:
        event_type = pa.struct([("time", _INT), ("number", _INT), ("row", rows)])
        self._matches = backend.list_state(ListStateDescriptor(MATCHES, _MATCH_TYPE))
        self._steps = backend.list_state(ListStateDescriptor(STEPS, _STEP_TYPE))
        self._events = backend.list_state(ListStateDescriptor(EVENTS, event_type))
        self._names = [state.name for state in pattern.states]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._final = next(state.number for state in pattern.states if state.kind is StateKind.FINAL)
        self._where = where
        self._backend = backend
        self._at_hand: dict[Key, tuple[Key, KeyMatches | None]] = {}
        self._without: set[Key] = set()
        """Keys of which the backend holds none, so that it is not asked again for each row of theirs."""

    def load(self, key: Key) -> KeyMatches | None:
        """Those of a key, or None where it has none."""
        held = instant(key)
        at_hand = self._at_hand.get(held)
        if at_hand is not None:
            return at_hand[1]
        if held in self._without:
            return None
        found = self._read(key)
        if found is None and len(self._without) < _MOST_AT_HAND:
            self._without.add(held)
        return found

    def save(self, key: Key, matches: KeyMatches | None) -> None:
        """Keep those of a key; None for none."""
        held = instant(key)
        self._without.discard(held)
        self._at_hand[held] = key, matches
        if len(self._at_hand) > _MOST_AT_HAND:
            self.flush()

    def flush(self) -> None:
        """Make the backend hold everything."""
        at_hand, self._at_hand = self._at_hand, {}
        self._without.clear()
        for key, matches in at_hand.values():
            self._backend.set_current_key(key)
            if matches is None:
                self._clear()
            else:
                self._write(matches)

    def _read(self, key: Key) -> KeyMatches | None:
        self._backend.set_current_key(key)
        held = self._matches.get()
        if not held:
            return None
        events = [Event(kept["time"], kept["number"], kept["row"]) for kept in self._events.get()]
        steps: list[Step] = []
        for kept in self._steps.get():
            previous = None if kept["previous"] is None else steps[kept["previous"]]
            steps.append(Step(previous, kept["variable"], events[kept["event"]]))
        found = KeyMatches()
        for kept in held:
            queue = found.complete if kept["is_complete"] else found.partial
            queue.append(self._loaded(kept, steps, events))
        return found

    def _loaded(self, kept: dict[str, Any], steps: list[Step], events: list[Event]) -> PartialMatch:
        number = self._numbers.get(kept["state"])
        if number is None:
            raise StateError(unknown_state(self._where, kept["state"]))
        step = None if kept["step"] is None else steps[kept["step"]]
        first = None if kept["first_event"] is None else events[kept["first_event"]]
        return PartialMatch(number, step, first, kept["start_time"], kept["previous_time"])

    def _clear(self) -> None:
        self._matches.clear()
        self._steps.clear()
        self._events.clear()

    def _write(self, kept: KeyMatches) -> None:
        saved = _Saved()
        matches = [self._saved(match, False, saved) for match in kept.partial]
        matches += [self._saved(match, True, saved) for match in kept.complete]
        self._matches.update(matches)
        self._steps.update(saved.steps)
        self._events.update(saved.events)

    def _saved(self, match: PartialMatch, is_complete: bool, saved: _Saved) -> dict[str, Any]:
        return {
            "state": self._names[match.state if match.state >= 0 else self._final],
            "step": saved.step(match.step),
            "first_event": None if match.first is None else saved.event(match.first),
            "start_time": match.start_time,
            "previous_time": match.previous_time,
            "is_complete": is_complete,
        }


class _Saved:
    """Steps and events by number, each once; a step stands behind the one before it."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._step_numbers: dict[int, int] = {}
        self._event_numbers: dict[int, int] = {}

    def step(self, last: Step | None) -> int | None:
        """The number of a step, which is kept with all before it."""
        path = []
        step = last
        while step is not None and id(step) not in self._step_numbers:
            path.append(step)
            step = step.previous
        for new in reversed(path):
            previous = None if new.previous is None else self._step_numbers[id(new.previous)]
            self._step_numbers[id(new)] = len(self.steps)
            self.steps.append({"previous": previous, "variable": new.variable, "event": self.event(new.event)})
        return None if last is None else self._step_numbers[id(last)]

    def event(self, event: Event) -> int:
        """The number of an event."""
        number = self._event_numbers.get(id(event))
        if number is None:
            number = self._event_numbers[id(event)] = len(self.events)
            self.events.append({"time": event.time, "number": event.number, "row": event.row})
        return number


def state_names(pattern: CompiledPattern) -> list[str]:
    """The names of the states by number; behind them that of the end, once more, for matches that are held back."""
    return [
        *(state.name for state in pattern.states),
        next(s.name for s in pattern.states if s.kind is StateKind.FINAL),
    ]


def unknown_state(where: str, name: str) -> str:
    """What to say of a partial match in a state that the pattern has not."""
    return (
        f"{where}: the saved state has a partial match in the state {name!r}, which the pattern has not: it was saved "
        f"for another pattern; {ANOTHER_UID}"
    )
