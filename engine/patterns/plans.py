"""What an event does in a state of an automaton: worked out once for the answers of the tests, looked up from then on.

The matcher and the machine ask a `Planner`. It guarantees that a function is asked only where the answers so far leave
it open, from the left, and at most once for an event and a partial match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from penstock.engine.patterns.automaton import Action, CompiledPattern, State, StateKind, Transition
from penstock.engine.patterns.conditions import Leaf

Ask: TypeAlias = Callable[[int], bool]
"""Gives the answer of a function, by the number of its leaf."""
_MOST_KEPT: Final = 100_000
"""Plans; tests of many expressions could make as many different ones as there are events."""


class Move(NamedTuple):
    """What one transition makes of a partial match.

    Args:
        variable: to which the event is added; None where it is ignored.
        target: the state of the partial match that continues; -1 for none.
        completions: how many matches there are.
    """

    variable: str | None
    target: int
    completions: int


class Plan(NamedTuple):
    """What an event makes of a partial match.

    Args:
        moves: in order; a start state keeps waiting beside them.
        takes: whether the event is taken.
    """

    moves: tuple[Move, ...]
    takes: bool


@dataclass(slots=True)
class _Question:
    """The function that is asked next, and what follows from its answers, as far as is known."""

    leaf: int
    yes: _Question | Plan | None = None
    no: _Question | Plan | None = None


class Planner:
    """Knows the plans of one pattern."""

    def __init__(self, pattern: CompiledPattern) -> None:
        self._states = pattern.states
        self._start = pattern.start
        self._numbers = {leaf: number for number, leaf in enumerate(pattern.leaves)}
        self._known: list[dict[int, _Question | Plan]] = [{} for _ in pattern.states]
        """By state and the answers of the expressions."""
        self._may_go_round = goes_round(pattern.states)
        self._kept = 0

    def plan(self, state: int, bits: int, ask: Ask) -> Plan:
        """What an event does.

        Args:
            state: where the partial match is.
            bits: the answers of the expressions.
            ask: gives those of functions.
        """
        known = self._known[state].get(bits)
        asked: list[tuple[int, bool]] = []
        while isinstance(known, _Question):
            answer = ask(known.leaf)
            asked.append((known.leaf, answer))
            known = known.yes if answer else known.no
        return self._worked_out(state, bits, asked, ask) if known is None else known

    def plan_of_bits(self, state: int, bits: int) -> Plan | None:
        """What an event does, or None where that hangs on functions."""
        try:
            return self.plan(state, bits, _refuse)
        except _AskedError:
            return None

    def _worked_out(self, state: int, bits: int, asked: list[tuple[int, bool]], ask: Ask) -> Plan:
        """The plan, where those answers have not come together before."""
        probe = _Probe(bits, dict(asked), ask, self._numbers)
        plan = self._made(state, probe)
        if self._kept < _MOST_KEPT:
            self._kept += 1
            self._keep(state, bits, list(probe.answers.items()), plan)
        return plan

    def _keep(self, state: int, bits: int, answers: list[tuple[int, bool]], plan: Plan) -> None:
        if not answers:
            self._known[state][bits] = plan
            return
        place = self._known[state].setdefault(bits, _Question(answers[0][0]))
        for number, (_, answer) in enumerate(answers):
            assert isinstance(place, _Question), "the same answers ask the same next question"
            following = place.yes if answer else place.no
            if following is None:
                is_last = number == len(answers) - 1
                following = plan if is_last else _Question(answers[number + 1][0])
                if answer:
                    place.yes = following
                else:
                    place.no = following
            place = following

    def _made(self, state: int, probe: _Probe) -> Plan:
        is_start = state == self._start
        moves: list[Move] = []
        stopped = False
        takes = False
        for edge in _edges(self._states[state], probe, self._may_go_round):
            target = edge.target
            if is_start and (edge.action is Action.IGNORE or target.kind is StateKind.STOP):
                # Nothing has begun that could go on without the event, or be ended by it.
                continue
            if edge.action is Action.IGNORE:
                variable, completions = None, 0
            else:
                takes = True
                variable, completions = edge.source.variable, int(_completes(target, probe, self._may_go_round))
            stopped = stopped or target.kind is StateKind.STOP
            is_final = target.kind is StateKind.FINAL
            moves.append(Move(variable, -1 if is_final else target.number, completions + is_final))
        if stopped:
            moves = [Move(move.variable, -1, move.completions) for move in moves if move.completions]
        return Plan(tuple(moves), takes)


def goes_round(states: Iterable[State]) -> bool:
    """Whether proceeding may lead back to where it began: a group in a loop may take no event."""
    done: set[int] = set()
    return any(_leads_back(state, done) for state in states)


def _leads_back(state: State, done: set[int]) -> bool:
    """Depth first, without recursion: patterns may have thousands of states in a row."""
    entered: list[tuple[State, Iterator[Transition]]] = [(state, iter(state.transitions))]
    on_path = {state.number}
    while entered:
        current, transitions = entered[-1]
        following = next((t.target for t in transitions if t.action is Action.PROCEED), None)
        if following is None:
            entered.pop()
            on_path.discard(current.number)
            done.add(current.number)
        elif following.number in on_path:
            return True
        elif following.number not in done:
            on_path.add(following.number)
            entered.append((following, iter(following.transitions)))
    return False


def _edges(state: State, probe: _Probe, may_go_round: bool) -> list[Transition]:
    """The transitions that take or ignore the event, also behind states that only look at it."""
    edges = []
    stack = [_Way(state)]
    while stack:
        way = stack.pop()
        for transition in way.state.transitions:
            if transition.condition.test(probe):
                if transition.action is not Action.PROCEED:
                    edges.append(transition)
                elif not (may_go_round and way.has(transition.target)):
                    stack.append(_Way(transition.target, way))
    return edges


def _completes(state: State, probe: _Probe, may_go_round: bool) -> bool:
    """Whether the end is reached without a further event."""
    stack = [_Way(state)]
    while stack:
        way = stack.pop()
        for transition in way.state.transitions:
            if transition.action is Action.PROCEED and transition.condition.test(probe):
                if transition.target.kind is StateKind.FINAL:
                    return True
                if not (may_go_round and way.has(transition.target)):
                    stack.append(_Way(transition.target, way))
    return False


class _Way:
    """A state that looks at the event, and those before it, none of which may be entered again without an event."""

    __slots__ = ("before", "state")

    def __init__(self, state: State, before: _Way | None = None) -> None:
        self.state = state
        self.before = before

    def has(self, state: State) -> bool:
        way: _Way | None = self
        while way is not None:
            if way.state is state:
                return True
            way = way.before
        return False


class _Probe:
    """Answers the tests for one event and one partial match, and remembers in which order functions were asked."""

    __slots__ = ("_ask", "_bits", "_numbers", "answers")

    def __init__(self, bits: int, answers: dict[int, bool], ask: Ask, numbers: dict[Leaf, int]) -> None:
        self._bits = bits
        self.answers = answers
        self._ask = ask
        self._numbers = numbers

    def holds(self, leaf: Leaf) -> bool:
        number = self._numbers[leaf]
        if leaf.is_columnar:
            return bool(self._bits >> number & 1)
        answer = self.answers.get(number)
        if answer is None:
            answer = self.answers[number] = self._ask(number)
        return answer


class _AskedError(Exception):
    """A function would have to be asked."""


def _refuse(leaf: int) -> bool:
    raise _AskedError
