"""Runs the automaton of a pattern over the events of one key, one after the other: the matcher for every pattern.

The operator of `KeyedStream.match` gives it events in order of time. It follows Flink's automaton step by step, also in
the order in which partial matches are looked at, so the matches and their order are Flink's.

Source: Flink's `NFA` and `CepOperator` as a description of the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from penstock.engine.errors import RecordError
from penstock.engine.patterns.automaton import Action, CompiledPattern, State, StateKind, Transition
from penstock.engine.patterns.conditions import Leaf
from penstock.engine.patterns.limits import NO_LIMITS, MatchLimits, Overflow
from penstock.engine.patterns.partial import Event, KeyMatches, Match, PartialMatch, Step, events_of, rows_of
from penstock.engine.patterns.queue import drop, offer, poll
from penstock.engine.patterns.skip import AfterMatchSkipStrategy, SkipKind

_WORD: Final = 1 << 64
_SIGN: Final = 1 << 63
_MANY_PLANS: Final = 100_000
"""Kept plans; tests of many expressions could make as many different ones as there are events."""


class EventTests(Protocol):
    """Answers the tests of a pattern for one event."""

    @property
    def bits(self) -> int:
        """The answers of the expressions: bit i is that of the i-th leaf."""
        ...

    def holds(self, leaf: int, partial: PartialMatch) -> bool:
        """The answer of a function, the i-th leaf, which may look at the partial match."""
        ...


class Timed(NamedTuple):
    """A match or a time-out, and the time that it carries."""

    match: Match
    time: int


class Move(NamedTuple):
    """What one transition makes of a partial match.

    Args:
        variable: to which the event is added; None where it is ignored.
        target: the state of the partial match that goes on; -1 for none.
        completions: how many matches there are.
    """

    variable: str | None
    target: int
    completions: int


class Plan(NamedTuple):
    """What an event makes of a partial match.

    Args:
        moves: in order.
        stays: whether a start state goes on waiting for a first event.
        takes: whether the event is taken.
    """

    moves: tuple[Move, ...]
    stays: bool
    takes: bool


class Matcher:
    """Runs one pattern; holds no state of any key.

    Args:
        pattern: the automaton.
        where: operator and subtask, for messages.
        limits: of each key.

    Attributes:
        dropped: how many partial matches the limits have ended so far.
    """

    def __init__(self, pattern: CompiledPattern, where: str, limits: MatchLimits = NO_LIMITS) -> None:
        self.pattern = pattern
        self.dropped = 0
        self._where = where
        self._limits = limits
        self._states = pattern.states
        self._leaf_numbers = {leaf: number for number, leaf in enumerate(pattern.leaves)}
        # By bits alone, for the states whose plan hangs on nothing else; None for the others.
        self._plans: list[dict[int, Plan] | None] = [
            {} if _is_decided_by_bits(state) else None for state in self._states
        ]
        self._kept = 0
        self._skips = pattern.skip.kind is not SkipKind.NO_SKIP

    def fresh(self) -> KeyMatches:
        """What a key begins with."""
        return KeyMatches([PartialMatch(self.pattern.start, None, None)])

    def is_fresh(self, key: KeyMatches) -> bool:
        """Whether there is nothing to be kept."""
        return len(key.partial) == 1 and not key.complete

    def starts(self, bits: int) -> bool:
        """Whether an event with these answers may do something for a key that has no partial match."""
        plans = self._plans[self.pattern.start]
        if plans is None:
            return True
        plan = plans.get(bits) or self._plan_of_bits(self.pattern.start, plans, bits)
        return bool(plan.moves) or not plan.stays

    def plan(self, state: int, bits: int) -> Plan:
        """What an event with these answers does in a state that is decided by them."""
        plans = self._plans[state]
        assert plans is not None, "no function is asked"
        return plans.get(bits) or self._plan_of_bits(state, plans, bits)

    # Events

    def process(self, key: KeyMatches, event: Event, tests: EventTests) -> tuple[list[Match], bool]:
        """Take an event; those before it have been taken, and time has been moved on to it.

        Returns:
            the matches that it completes, in order; and whether it began a partial match that can time out.
        """
        bits = tests.bits
        going: list[PartialMatch] = []
        complete: list[PartialMatch] = []
        has_begun = False
        for partial in key.partial:
            plans = self._plans[partial.state]
            if plans is None:
                plan = self._plan(partial.state, _Probe(bits, tests, partial, self._leaf_numbers).holds)
            else:
                plan = plans.get(bits) or self._plan_of_bits(partial.state, plans, bits)
            is_start = partial.state == self.pattern.start
            if is_start and plan.takes and event.time > 0:
                has_begun = True
            self._move(partial, plan, event, going, complete)
            if is_start and plan.stays:
                offer(going, partial)
        if self._limits.most is not None and len(going) > self._limits.most:
            self._bound(going, self._limits.most)
        return self._emit(key, going, complete), has_begun

    def _bound(self, going: list[PartialMatch], most: int) -> None:
        """End partial matches where there are more than there may be; the one that waits for a first event is none."""
        begun = sorted((partial for partial in going if partial.first is not None), key=lambda partial: partial.order)
        excess = len(begun) - most
        if excess <= 0:
            return
        if self._limits.overflow is Overflow.FAIL:
            raise RecordError(
                f"{self._where}: a key has {len(begun)} partial matches, and max_partial_matches is {most}; make the "
                "pattern stricter (within, consecutive, fewer followed_by_any), raise the limit, or say what goes: "
                "overflow='drop_oldest' or 'drop_newest'"
            )
        self.dropped += excess
        drop(going, begun[:excess] if self._limits.overflow is Overflow.DROP_OLDEST else begun[most:])

    def _move(
        self,
        partial: PartialMatch,
        plan: Plan,
        event: Event,
        going: list[PartialMatch],
        complete: list[PartialMatch],
    ) -> None:
        first = partial.first
        for variable, target, completions in plan.moves:
            if variable is None:
                step, start, start_time, previous_time = (
                    partial.step,
                    first,
                    partial.start_time,
                    partial.previous_time,
                )
            else:
                step = Step(partial.step, variable, event)
                is_first = partial.state == self.pattern.start
                start, start_time = (event, event.time) if is_first else (first, partial.start_time)
                previous_time = event.time
            if target >= 0:
                offer(going, PartialMatch(target, step, start, start_time, previous_time))
            for _ in range(completions):
                offer(complete, PartialMatch(-1, step, start, start_time, previous_time))

    # Time

    def advance(self, key: KeyMatches, time: int) -> tuple[list[Match], list[Timed]]:
        """Move time on: end what takes too long.

        Returns:
            the matches that wait for their time to be over, and the partial matches that have timed out.
        """
        pattern, ttl = self.pattern, self._limits.ttl_ms
        if not pattern.has_bounds and ttl is None:
            return [], []
        going: list[PartialMatch] = []
        complete: list[PartialMatch] = []
        timed_out: list[Timed] = []
        for partial in key.partial:
            gap = pattern.gaps_ms[partial.state]
            is_start = partial.state == pattern.start
            is_after_previous = not is_start and gap > 0 and _elapsed(time, partial.previous_time) >= gap
            within = pattern.within_ms
            if is_after_previous or (not is_start and within > 0 and _elapsed(time, partial.start_time) >= within):
                if self._states[partial.state].kind is StateKind.PENDING:
                    offer(complete, partial)
                    continue
                ended = partial.previous_time + gap if is_after_previous else partial.start_time + within
                timed_out.append(Timed(rows_of(partial.step), _wrapped(ended)))
            elif ttl is not None and not is_start and _elapsed(time, partial.previous_time) >= ttl:
                self.dropped += 1
            else:
                offer(going, partial)
        if len(going) == len(key.partial):
            return [], []
        return self._emit(key, going, complete), timed_out

    # Matches

    def _emit(self, key: KeyMatches, going: list[PartialMatch], complete: list[PartialMatch]) -> list[Match]:
        """Give the matches that nothing holds back, and drop what they skip."""
        held = key.complete
        for match in complete:
            offer(held, match)
        matches: list[Match] = []
        while held:
            earliest = held[0]
            if self._skips and going and earliest.order > going[0].order:
                break
            poll(held)
            if self._skips:
                self._skip(earliest, going, held)
            matches.append(rows_of(earliest.step))
        key.partial = going
        return matches

    def _skip(self, match: PartialMatch, going: list[PartialMatch], held: list[PartialMatch]) -> None:
        skip = self.pattern.skip
        bound = self._skip_bound(skip, events_of(match.step))
        if bound is None:
            return
        if skip.variable is None:
            bound = (bound[0], bound[1] + 1)
        for queue in (going, held):
            drop(queue, [other for other in queue if other.first is not None and other.order < bound])

    def _skip_bound(self, skip: AfterMatchSkipStrategy, events: dict[str, list[Event]]) -> tuple[int, int] | None:
        """The event before which (for strategies without a variable: up to which) partial matches go."""
        orders = {name: [(event.time, event.number) for event in taken] for name, taken in events.items()}
        if skip.kind is SkipKind.TO_NEXT:
            return min(taken[0] for taken in orders.values())
        if skip.kind is SkipKind.PAST_LAST:
            return max(taken[-1] for taken in orders.values())
        assert skip.variable is not None, "the others have one"
        taken = orders.get(skip.variable)
        bound = None if taken is None else taken[0 if skip.kind is SkipKind.TO_FIRST else -1]
        if skip.throws_on_miss:
            self._check_miss(skip, bound, min(min(one) for one in orders.values()))
        return bound

    def _check_miss(self, skip: AfterMatchSkipStrategy, bound: tuple[int, int] | None, start: tuple[int, int]) -> None:
        if bound is None or bound == start:
            reason = "has no event of it" if bound is None else "begins with it, and would be found again for ever"
            raise RecordError(
                f"{self._where}: {skip.describe()}: a match {reason}; leave out throw_exception_on_miss(), or choose "
                "another strategy"
            )

    # Plans

    def _plan_of_bits(self, state: int, plans: dict[int, Plan], bits: int) -> Plan:
        numbers = self._leaf_numbers
        plan = self._plan(state, lambda leaf: bool(bits >> numbers[leaf] & 1))
        if self._kept < _MANY_PLANS:
            plans[bits] = plan
            self._kept += 1
        return plan

    def _plan(self, state: int, holds: Callable[[Leaf], bool]) -> Plan:
        """What happens in a state, where `holds` gives the answers of the tests."""
        probe = _Answers(holds)
        is_start = state == self.pattern.start
        moves: list[Move] = []
        stopped = False
        takes = False
        for edge in self._edges(self._states[state], probe):
            target = edge.target
            if edge.action is Action.IGNORE:
                if is_start:
                    continue
                variable, completions = None, 0
            else:
                takes = True
                variable, completions = edge.source.variable, int(self._completes(target, probe))
            stopped = stopped or target.kind is StateKind.STOP
            is_final = target.kind is StateKind.FINAL
            moves.append(Move(variable, -1 if is_final else target.number, completions + is_final))
        if stopped:
            moves = [Move(move.variable, -1, move.completions) for move in moves if move.completions]
        return Plan(tuple(moves), is_start and not stopped, takes)

    def _edges(self, state: State, probe: _Answers) -> list[Transition]:
        """The transitions that take or ignore the event, also behind states that only look at it."""
        edges = []
        stack = [state]
        while stack:
            for transition in stack.pop().transitions:
                if transition.condition.test(probe):
                    if transition.action is Action.PROCEED:
                        stack.append(transition.target)
                    else:
                        edges.append(transition)
        return edges

    def _completes(self, state: State, probe: _Answers) -> bool:
        """Whether the end is reached without a further event."""
        stack = [state]
        while stack:
            for transition in stack.pop().transitions:
                if transition.action is Action.PROCEED and transition.condition.test(probe):
                    if transition.target.kind is StateKind.FINAL:
                        return True
                    stack.append(transition.target)
        return False


class _Answers:
    """A `Probe` over a function."""

    __slots__ = ("holds",)

    def __init__(self, holds: Callable[[Leaf], bool]) -> None:
        self.holds = holds


class _Probe:
    """Answers the tests for one event and one partial match, each function at most once."""

    __slots__ = ("_answers", "_bits", "_numbers", "_partial", "_tests")

    def __init__(self, bits: int, tests: EventTests, partial: PartialMatch, numbers: dict[Leaf, int]) -> None:
        self._bits = bits
        self._tests = tests
        self._partial = partial
        self._numbers = numbers
        self._answers: dict[Leaf, bool] = {}

    def holds(self, leaf: Leaf) -> bool:
        number = self._numbers[leaf]
        if leaf.is_expression:
            return bool(self._bits >> number & 1)
        answer = self._answers.get(leaf)
        if answer is None:
            answer = self._answers[leaf] = self._tests.holds(number, self._partial)
        return answer


def _is_decided_by_bits(state: State) -> bool:
    """Whether expressions alone say what happens in a state."""
    seen: set[tuple[int, bool]] = set()
    stack = [(state, False)]
    while stack:
        current, is_target = stack.pop()
        if (current.number, is_target) in seen:
            continue
        seen.add((current.number, is_target))
        for transition in current.transitions:
            # Behind an event that is taken, only the way to the end is looked at.
            if is_target and transition.action is not Action.PROCEED:
                continue
            if not all(leaf.is_expression for leaf in transition.condition.leaves()):
                return False
            if transition.action is not Action.IGNORE:
                stack.append((transition.target, is_target or transition.action is Action.TAKE))
    return True


def _elapsed(time: int, since: int) -> int:
    """`time - since` in 64 bits: at the end of time, what began before 1970 has negative age, as in Flink."""
    return _wrapped(time - since)


def _wrapped(value: int) -> int:
    return (value + _SIGN) % _WORD - _SIGN
