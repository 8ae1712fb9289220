"""Runs the automaton of a pattern over the events of one key, one after the other: the matcher for every pattern.

The operator of `KeyedStream.match` gives it events in order of time. It follows Flink's automaton step by step, also in
the order in which partial matches are looked at, so the matches and their order are Flink's.

Source: Flink's `NFA` and `CepOperator` as a description of the rules.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from penstock.engine.errors import RecordError
from penstock.engine.patterns.automaton import CompiledPattern, StateKind
from penstock.engine.patterns.limits import NO_LIMITS, MatchLimits, Overflow
from penstock.engine.patterns.partial import Event, KeyMatches, Match, PartialMatch, Step, events_of, rows_of
from penstock.engine.patterns.plans import Ask, Plan, Planner
from penstock.engine.patterns.queue import drop, offer, poll
from penstock.engine.patterns.skip import AfterMatchSkipStrategy, SkipKind

_WORD: Final = 1 << 64
_SIGN: Final = 1 << 63


class EventTests(Protocol):
    """Answers the tests of a pattern for one event."""

    @property
    def bits(self) -> int:
        """The answers of the expressions: bit i is that of the i-th leaf."""
        ...

    def of(self, partial: PartialMatch) -> Ask:
        """Gives the answers of functions, which may look at the partial match."""
        ...


class Timed(NamedTuple):
    """A match or a time-out, and the time that it carries."""

    match: Match
    time: int


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
        self._planner = Planner(pattern)
        self._skips = pattern.skip.kind is not SkipKind.NO_SKIP
        self._goes_by_time = pattern.has_bounds or limits.ttl_ms is not None

    def fresh(self) -> KeyMatches:
        """What a key begins with."""
        return KeyMatches([PartialMatch(self.pattern.start, None, None)])

    def is_fresh(self, key: KeyMatches) -> bool:
        """Whether there is nothing to be kept."""
        return len(key.partial) == 1 and not key.complete

    def starts(self, bits: int) -> bool:
        """Whether an event with these answers may do something for a key that has no partial match."""
        plan = self._planner.plan_of_bits(self.pattern.start, bits)
        return plan is None or bool(plan.moves)

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
            plan = self._planner.plan(partial.state, bits, tests.of(partial))
            is_start = partial.state == self.pattern.start
            if is_start and plan.takes and event.time > 0:
                has_begun = True
            self._move(partial, plan, event, going, complete)
            if is_start:
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
            raise self._limits.exceeded(len(begun), self._where)
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
        is_kept = False
        for variable, target, completions in plan.moves:
            if variable is None and target == partial.state and not completions and not is_kept:
                # By far the most frequent: nothing changes, and no further object is made.
                offer(going, partial)
                is_kept = True
                continue
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
        if not self._goes_by_time or not self._has_old(key.partial, time):
            return [], []
        pattern, ttl = self.pattern, self._limits.ttl_ms
        going: list[PartialMatch] = []
        complete: list[PartialMatch] = []
        timed_out: list[Timed] = []
        for partial in key.partial:
            gap = pattern.gaps_ms[partial.state]
            is_start = partial.state == pattern.start
            is_after_previous = not is_start and gap > 0 and _elapsed(time, partial.previous_time) >= gap
            within = pattern.within_ms
            if is_after_previous or (not is_start and within > 0 and _elapsed(time, partial.start_time) >= within):
                if self.pattern.states[partial.state].kind is StateKind.PENDING:
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

    def _has_old(self, partial: list[PartialMatch], time: int) -> bool:
        """Whether time ends any of them; mostly it does not, and nothing needs to be made anew."""
        start, within = self.pattern.start, self.pattern.within_ms
        gaps, ttl = self.pattern.gaps_ms, self._limits.ttl_ms
        for one in partial:
            if one.state == start:
                continue
            gap = gaps[one.state]
            if (
                (within > 0 and _elapsed(time, one.start_time) >= within)
                or (gap > 0 and _elapsed(time, one.previous_time) >= gap)
                or (ttl is not None and _elapsed(time, one.previous_time) >= ttl)
            ):
                return True
        return False

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


def _elapsed(time: int, since: int) -> int:
    """`time - since` in 64 bits: at the end of time, what began before 1970 has negative age, as in Flink."""
    return _wrapped(time - since)


def _wrapped(value: int) -> int:
    return (value + _SIGN) % _WORD - _SIGN
