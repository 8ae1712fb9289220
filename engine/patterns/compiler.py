"""Makes the automaton of a pattern: for each stage, last to first, the states that lead to what is behind it.

`KeyedStream.match` and `Pattern.explain` call `compile_pattern`. It guarantees Flink's matches, those that surprise too
(docs/patterns.md lists them), and refuses what Flink refuses, with the reason.

Source: the SASE+ automata of Agrawal et al., "Efficient Pattern Matching over Event Streams", SIGMOD 2008; which events
lead where is what Flink's CEP does in the cases that it has answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.engine.errors import PatternError
from penstock.engine.patterns.automaton import Action, CompiledPattern, State, StateKind
from penstock.engine.patterns.conditions import And, Condition, Leaf, Not
from penstock.engine.patterns.pattern import Contiguity, Pattern, Repeats
from penstock.engine.patterns.stages import Around, Forbidden, Stage, before_end, chain, name_of, stages_in
from penstock.engine.patterns.states import States

_END: Final = "$end$"


def compile_pattern(pattern: Pattern) -> CompiledPattern:
    """The automaton of a pattern.

    Raises:
        PatternError: a name that is used twice, or for a skip strategy and not at all; a NOT stage at the beginning, or
            at the end without a bound of time; bounds that contradict.
    """
    _check_names(pattern)
    wiring = _Wiring(pattern)
    start = wiring.chain(pattern, Around(), wiring.end)
    start.kind = StateKind.START
    within_ms = min((bound for bound in _bounds(pattern) if bound is not None), default=None)
    _check_bounds(pattern, wiring.gaps_ms, within_ms)
    states = wiring.states.made
    stages = [stage for stage in _all_stages(pattern) if stage.name is not None]
    return CompiledPattern(
        tuple(states),
        start.number,
        tuple(name_of(stage) for stage in reversed(stages)),
        within_ms or 0,
        tuple(max(wiring.gaps_ms.get(state.name, 0), 0) for state in states),
        pattern.skip,
        _tests(pattern, states),
    )


def _all_stages(pattern: Pattern) -> Iterator[Pattern]:
    """All stages, those of groups too, last to first."""
    for stage in chain(pattern):
        if stage.group is None:
            yield stage
        else:
            yield from _all_stages(stage.group)


def _bounds(pattern: Pattern) -> Iterator[int | None]:
    """The bounds on the whole match: of the last stage, and of all that are not the last ones of their chains."""
    yield pattern.within_ms
    yield from _inner_bounds(pattern)


def _inner_bounds(last: Pattern) -> Iterator[int | None]:
    for stage in chain(last):
        if stage is not last:
            yield stage.within_ms
        if stage.group is not None:
            yield from _inner_bounds(stage.group)


def _tests(pattern: Pattern, states: list[State]) -> tuple[Leaf, ...]:
    """All tests that transitions ask, in the order of the pattern."""
    asked = dict.fromkeys(leaf for s in states for way in s.transitions for leaf in way.condition.leaves())
    ordered = [leaf for stage in reversed(list(_all_stages(pattern))) for leaf in stage.condition.leaves()]
    return tuple(dict.fromkeys(leaf for leaf in ordered if leaf in asked) | asked)


class _Wiring:
    """Makes states for stages; each method gives the state in which the match is before the stage."""

    def __init__(self, pattern: Pattern) -> None:
        self.states: Final = States()
        self.end: Final = self.states.add(_END, StateKind.FINAL)
        self.gaps_ms: Final[dict[str, int]] = {}
        """Bounds since the event before, by the name of the state."""
        self._has_bound = bool(pattern.within_ms)
        """Whether a bound on the whole match is known so far, so that one may be known when its time is over."""
        self._free: dict[str, State] = {}
        """States before a greedy loop has narrowed them, by name: where its until condition leads."""

    def chain(self, last: Pattern, around: Around, behind: State) -> State:
        """All stages of a chain."""
        for stage in stages_in(last, around):
            if stage.given is not last and stage.given.within_ms:
                self._has_bound = True
            match stage.given.contiguity:
                case Contiguity.NOT_FOLLOWED:
                    behind = self._absent(stage, behind)
                case Contiguity.NOT_NEXT:
                    behind = self._absent_next(stage, behind)
                case _:
                    behind = self._present(stage, behind)
        return behind

    # Stages that must not come

    def _absent(self, stage: Stage, behind: State) -> State:
        """At the end, a state that waits for its time; before other stages, these look for it."""
        if behind.kind is not StateKind.FINAL or not (self._has_bound or stage.given.gap_ms is not None):
            return behind
        waiting = self._taking(stage, StateKind.PENDING)
        self.states.stop_on(waiting, Forbidden(stage.takes, stage.name))
        waiting.add(Action.IGNORE, waiting, Not(stage.takes))
        return waiting

    def _absent_next(self, stage: Stage, behind: State) -> State:
        looking = self._taking(stage)
        # At the end the next event shows it, and is none of the match.
        onward = Action.IGNORE if behind.kind is StateKind.FINAL else Action.PROCEED
        looking.add(onward, behind, Not(stage.takes))
        self.states.stop_on(looking, Forbidden(stage.takes, stage.name))
        return looking

    # Stages that must come

    def _present(self, stage: Stage, behind: State) -> State:
        quantifier = stage.quantifier
        if quantifier.repeats is Repeats.ONCE:
            past = behind if quantifier.is_optional else None
            state = self._one(stage, behind, past, stage.takes, stage.skips_before, is_first=True)
        else:
            again = behind
            if quantifier.repeats is Repeats.LOOP:
                again = self._endless(stage, self._unguarded(stage, behind))
            state = self._counted(stage, again, behind)
        for forbidden in stage.forbidden_before:
            self.states.stop_on(state, forbidden)
        return state

    def _counted(self, stage: Stage, again: State, past: State) -> State:
        """One state an event, up to the most; those beyond the least may be left out, and all where it is optional."""
        quantifier, until = stage.quantifier, stage.until
        takes = before_end(until, stage.takes)
        between = None if stage.skips_between is None else before_end(until, stage.skips_between)
        if quantifier.is_greedy and quantifier.least != quantifier.most:
            self._narrow(again, takes, keeps=until is not None)
        state = again
        for round_ in range(quantifier.most, 1, -1):
            may_end = round_ > quantifier.least
            state = self._one(stage, state, past if may_end else None, takes, between, is_first=False)
            self._stop_behind(stage, state)
        return self._one(
            stage, state, past if quantifier.is_optional else None, takes, stage.skips_before, is_first=True
        )

    def _one(
        self,
        stage: Stage,
        onward: State,
        past: State | None,
        takes: Condition,
        skips: Condition | None,
        *,
        is_first: bool,
    ) -> State:
        """A state for one event, or one round of a group, that leads onward; or past it, where it may be left out."""
        if stage.given.group is not None:
            state = self._round(stage, onward, is_first=is_first)
            if past is not None:
                state.add(Action.PROCEED, past, stage.always)
            return state
        state = self._taking(stage)
        target = self._unguarded(stage, onward)
        state.add(Action.TAKE, target, takes)
        if past is not None:
            self._leave_out(stage, state, past)
        if skips is not None:
            # Who has skipped an event must not leave the stage out any more.
            skipping = state
            if past is not None or stage.may_be_skipped_with_group:
                skipping = self.states.add(stage.name)
                skipping.add(Action.TAKE, target, takes)
                skipping.add(Action.IGNORE, skipping, skips)
                for forbidden in stage.forbidden_before:
                    self.states.stop_on(skipping, forbidden)
            state.add(Action.IGNORE, skipping, skips)
        return state

    def _round(self, stage: Stage, onward: State, *, is_first: bool) -> State:
        assert stage.given.group is not None, "groups have rounds"
        return self.chain(stage.given.group, Around(stage.given, is_first, stage.behind), onward)

    def _endless(self, stage: Stage, past: State) -> State:
        """A state that takes any number of events, or rounds of a group."""
        if stage.given.group is not None:
            again = self._taking(stage)
            first = self._round(stage, again, is_first=False)
            first.add(Action.PROCEED, past, stage.always)
            again.add(Action.PROCEED, first, stage.always)
            return first
        takes = before_end(stage.until, stage.takes)
        loop = self._taking(stage)
        if stage.quantifier.is_greedy and stage.until is not None:
            self._free[past.name] = self.states.copy(past)
        self._leave_out(stage, loop, past)
        if stage.quantifier.is_greedy:
            self._narrow(past, stage.takes, keeps=False)
        loop.add(Action.TAKE, loop, takes)
        self._stop_behind(stage, loop)
        if stage.skips_between is not None:
            skips = before_end(stage.until, stage.skips_between)
            skipping = self.states.add(stage.name)
            skipping.add(Action.TAKE, loop, takes)
            skipping.add(Action.IGNORE, skipping, skips)
            loop.add(Action.IGNORE, skipping, skips)
            self._stop_behind(stage, skipping)
        return loop

    # What states have in common

    def _taking(self, stage: Stage, kind: StateKind = StateKind.NORMAL) -> State:
        """A state for events of a stage, with the bound on the time since the event before."""
        state = self.states.add(stage.name, kind)
        gap_ms = stage.given.gap_ms
        if stage.quantifier.repeats is not Repeats.ONCE:
            # The bound between events of a stage is not that of the state with the stage's own name: as in Flink.
            gap_ms = stage.quantifier.gap_ms if ":" in state.name else None
        if gap_ms is not None:
            self.gaps_ms[state.name] = gap_ms
        return state

    def _leave_out(self, stage: Stage, state: State, past: State) -> None:
        """Lead past a stage; where the until condition of a greedy loop holds, to what is behind it as it was."""
        if not stage.quantifier.is_greedy or stage.until is None:
            state.add(Action.PROCEED, past, stage.always)
            return
        free = self._free.get(past.name)
        if free is not None:
            state.add(Action.PROCEED, free, And(stage.always, stage.until))
        state.add(Action.PROCEED, past, And(stage.always, Not(stage.until)))

    def _narrow(self, state: State, takes: Condition, *, keeps: bool) -> None:
        """Leave the events of a greedy loop to it."""
        if keeps:
            self._free[state.name] = self.states.copy(state)
        for way in state.transitions:
            way.condition = And(way.condition, Not(takes))

    def _unguarded(self, stage: Stage, state: State) -> State:
        """What is behind an optional stage that has come: NOT stages before it are over."""
        if not stage.quantifier.is_optional or not stage.forbidden_before:
            return state
        return self.states.without_stops(state, frozenset(name for _, name in stage.forbidden_before))

    def _stop_behind(self, stage: Stage, state: State) -> None:
        if stage.forbidden_behind is not None:
            self.states.stop_on(state, stage.forbidden_behind)


def _check_names(pattern: Pattern) -> None:
    seen: set[str | None] = {_END}
    for stage in _all_stages(pattern):
        if stage.name in seen:
            raise PatternError(f"two stages are called {stage.name!r}; give each a name of its own")
        seen.add(stage.name)
    variable = pattern.skip.variable
    if variable is not None and all(stage.name != variable for stage in chain(pattern)):
        where = "is in a group" if variable in seen else "does not exist"
        names = ", ".join(repr(stage.name) for stage in pattern.stages() if stage.name is not None)
        raise PatternError(
            f"the skip strategy {pattern.skip.describe()!r} names a stage that {where}; name one of the pattern's own: "
            f"{names or 'there is none'}"
        )


def _check_bounds(pattern: Pattern, gaps_ms: dict[str, int], within_ms: int | None) -> None:
    longest = max(gaps_ms.values(), default=0)
    if within_ms is not None and longest > within_ms:
        raise PatternError(
            f"a bound between two events ({longest} ms) is longer than that of the whole match ({within_ms} ms); make "
            "it shorter, or leave it out"
        )
    is_not = pattern.contiguity is Contiguity.NOT_FOLLOWED
    if is_not and not within_ms and gaps_ms.get(name_of(pattern), 0) <= 0:
        raise PatternError(
            f"not_followed_by({pattern.name!r}) as the last stage needs a bound of time, or the match would never be "
            "known: call within(...)"
        )
