"""Makes the automaton of a pattern, by the rules of Flink's compiler, from the last stage to the first.

`KeyedStream.match` and `Pattern.explain` call `compile_pattern`. It guarantees Flink's matches, those that surprise too
(docs/patterns.md lists them), and refuses what Flink refuses, with the reason.

Source: Flink's `NFACompiler` as a description of the rules; the SASE+ automata of Agrawal et al., "Efficient Pattern
Matching over Event Streams", SIGMOD 2008.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.engine.errors import PatternError
from penstock.engine.patterns.automaton import Action, CompiledPattern, State, StateKind, Transition
from penstock.engine.patterns.conditions import ALWAYS, And, Condition, Leaf, Not
from penstock.engine.patterns.pattern import Contiguity, Pattern, Repeats

_END: Final = "$end$"
_GROUP: Final = "GroupPattern"
_LONGEST: Final = 10_000
"""States of an automaton: `times(1_000_000)` would take for ever to compile."""


def compile_pattern(pattern: Pattern) -> CompiledPattern:
    """The automaton of a pattern.

    Raises:
        PatternError: a name that is used twice, or for a skip strategy and not at all; a NOT stage at the beginning, or
            at the end without a bound of time; bounds that contradict; a group in a loop that may take no event.
    """
    _check_names(pattern)
    compiler = _Compiler(pattern)
    compiler.compile()
    return compiler.result()


def chain(pattern: Pattern) -> Iterator[Pattern]:
    """The stages of a chain, last to first."""
    stage: Pattern | None = pattern
    while stage is not None:
        yield stage
        stage = stage.previous


def _stages(pattern: Pattern) -> Iterator[Pattern]:
    """All stages, those of groups too, last to first."""
    for stage in chain(pattern):
        if stage.group is None:
            yield stage
        else:
            yield from _stages(stage.group)


def _check_names(pattern: Pattern) -> None:
    seen: set[str | None] = {_END}
    for stage in _stages(pattern):
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


class _Compiler:
    """Makes states from the last stage to the first; each knows what comes behind it."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._current = pattern
        self._following: Pattern | None = None
        self._group: Pattern | None = None
        self._is_first_of_loop: dict[Pattern, bool] = {}
        self._stops: dict[str, State] = {}
        self._states: list[State] = []
        self._names: set[str] = set()
        self._next_number: dict[str, int] = {}
        self._gaps: dict[str, int] = {}
        self._within: int | None = None
        self._originals: dict[str, State] = {}

    # The chain

    def compile(self) -> None:
        """Make all states, and check what only now is known."""
        sink = self._state(_END, StateKind.FINAL, _END)
        self._within = self._pattern.within_ms
        sink = self._middle(sink)
        self._convert(sink).kind = StateKind.START
        if self._within is not None and any(gap > self._within for gap in self._gaps.values()):
            raise PatternError(
                f"a bound between two events ({max(self._gaps.values())} ms) is longer than that of the whole match "
                f"({self._within} ms); make it shorter, or leave it out"
            )
        last = self._pattern
        is_not = last.contiguity is Contiguity.NOT_FOLLOWED
        if is_not and not self._within and self._gaps.get(last.name or _GROUP, 0) <= 0:
            raise PatternError(
                f"not_followed_by({last.name!r}) as the last stage needs a bound of time, or the match would never be "
                "known: call within(...)"
            )
        self._check_cycles()

    def result(self) -> CompiledPattern:
        """What was made."""
        start = next(state.number for state in self._states if state.kind is StateKind.START)
        leaves: dict[Leaf, None] = {}
        for state in self._states:
            for transition in state.transitions:
                leaves.update(dict.fromkeys(transition.condition.leaves()))
        ordered = [leaf for stage in reversed(list(_stages(self._pattern))) for leaf in stage.condition.leaves()]
        known = dict.fromkeys(leaf for leaf in ordered if leaf in leaves) | leaves
        names = [stage.name for stage in _stages(self._pattern) if stage.name is not None]
        gaps = tuple(max(self._gaps.get(state.name, 0), 0) for state in self._states)
        return CompiledPattern(
            tuple(self._states),
            start,
            tuple(reversed(names)),
            self._within or 0,
            gaps,
            self._pattern.skip,
            tuple(known),
        )

    def _middle(self, sink: State) -> State:
        """The states of the chain but for its first stage; that is left as the current one."""
        while self._current.previous is not None:
            stage = self._current
            if stage.contiguity is Contiguity.NOT_FOLLOWED:
                sink = self._not_followed(sink)
            elif stage.contiguity is Contiguity.NOT_NEXT:
                sink = self._not_next(sink)
            else:
                sink = self._convert(sink)
            self._following = stage
            assert stage.previous is not None, "the loop ends at the first stage"
            self._current = stage.previous
            bound = self._current.within_ms
            if bound is not None and (self._within is None or bound < self._within):
                self._within = bound
        return sink

    def _not_followed(self, sink: State) -> State:
        """A NOT stage at the end waits for its time; one between others is a way out of their states."""
        has_bound = self._current.gap_ms is not None or bool(self._within)
        if not (has_bound and sink.kind is StateKind.FINAL):
            return sink
        waiting = self._taking_state(StateKind.PENDING)
        condition = self._take_condition(self._current)
        waiting.add(Action.PROCEED, self._stop(condition, self._name), condition)
        waiting.add(Action.IGNORE, waiting, Not(condition))
        return waiting

    def _not_next(self, sink: State) -> State:
        state = self._taking_state(StateKind.NORMAL)
        condition = self._take_condition(self._current)
        stop = self._stop(condition, self._name)
        onward = Action.IGNORE if sink.kind is StateKind.FINAL else Action.PROCEED
        state.add(onward, sink, Not(condition))
        state.add(Action.PROCEED, stop, condition)
        return state

    # States

    @property
    def _name(self) -> str:
        return self._current.name or _GROUP

    def _state(self, base: str, kind: StateKind, variable: str) -> State:
        number, name = self._next_number.get(base, 0), base
        while name in self._names:
            name = f"{base}:{number}"
            number += 1
        self._next_number[base] = number
        if len(self._states) >= _LONGEST:
            raise PatternError(f"the pattern has more than {_LONGEST} states; repeat its stages fewer times")
        self._names.add(name)
        state = State(name, kind, variable, len(self._states))
        self._states.append(state)
        return state

    def _plain_state(self) -> State:
        return self._state(self._name, StateKind.NORMAL, self._name)

    def _taking_state(self, kind: StateKind = StateKind.NORMAL) -> State:
        """A state that takes events of the current stage, with the bound since the event before."""
        state = self._state(self._name, kind, self._name)
        quantifier = self._current.quantifier
        if quantifier.repeats is Repeats.ONCE:
            bound = self._current.gap_ms
        else:
            # The first state of a stage that repeats has the plain name; by Flink's rule the gap is not its own.
            bound = quantifier.gap_ms if ":" in state.name else None
        if bound is not None:
            self._gaps[state.name] = bound
        return state

    def _stop(self, condition: Condition, name: str) -> State:
        stop = self._stops.get(name)
        if stop is None:
            stop = self._stops[name] = self._state(name, StateKind.STOP, name)
            stop.add(Action.TAKE, stop, condition)
        return stop

    def _copy(self, state: State) -> State:
        copied = self._state(state.variable, state.kind, state.variable)
        for transition in state.transitions:
            target = copied if transition.target is transition.source else transition.target
            copied.add(transition.action, target, transition.condition)
        return copied

    def _nots_before(self) -> list[tuple[Condition, str]]:
        """The NOT stages that stand before the current one, past stages that may be left out."""
        found = []
        stage = self._current
        while (before := stage.previous) is not None:
            is_not = before.contiguity is Contiguity.NOT_FOLLOWED
            if not (before.quantifier.is_optional or is_not):
                break
            stage = before
            if is_not:
                found.append((self._take_condition(stage), stage.name or _GROUP))
        return found

    def _without_nots(self, sink: State) -> State:
        """A sink that no NOT stage before the current, optional one guards any more."""
        nots = self._nots_before()
        if not nots or not self._current.quantifier.is_optional:
            return sink
        names = {name for _, name in nots}
        copied = self._state(sink.name, sink.kind, sink.variable)
        for transition in sink.transitions:
            target = transition.target
            if transition.action is Action.PROCEED:
                if target.kind is StateKind.STOP:
                    if target.name in names:
                        continue
                else:
                    target = self._without_nots(target)
            elif target is transition.source:
                target = copied
            copied.add(transition.action, target, transition.condition)
        return copied

    def _add_stops(self, state: State) -> None:
        for condition, name in self._nots_before():
            state.add(Action.PROCEED, self._stop(condition, name), condition)

    def _add_stop_to_loop(self, state: State) -> None:
        following = self._following
        if following is not None and following.contiguity is Contiguity.NOT_FOLLOWED:
            condition = self._take_condition(following)
            state.add(Action.PROCEED, self._stop(condition, following.name or _GROUP), condition)

    # Stages

    def _convert(self, sink: State) -> State:
        repeats = self._current.quantifier.repeats
        if repeats is Repeats.LOOP:
            self._mark_first_of_loop(False)
            looping = self._looping(self._without_nots(sink))
            self._mark_first_of_loop(True)
            state = self._times(looping, sink)
        elif repeats is Repeats.TIMES:
            state = self._times(sink, sink)
        else:
            state = self._once(
                sink,
                sink,
                self._take_condition(self._current),
                self._ignore_condition(self._current),
                self._current.quantifier.is_optional,
            )
        self._add_stops(state)
        return state

    def _mark_first_of_loop(self, is_first: bool) -> None:
        if self._current.group is not None:
            self._is_first_of_loop[self._current] = is_first

    @property
    def _group_is_first_of_loop(self) -> bool:
        return self._group is None or self._is_first_of_loop.get(self._group, True)

    def _is_head_of_group(self, stage: Pattern) -> bool:
        return self._group is not None and stage.previous is None

    def _is_head_of_optional_group(self) -> bool:
        if self._group is None or not self._is_head_of_group(self._current):
            return False
        return self._group_is_first_of_loop and self._group.quantifier.is_optional

    def _times(self, sink: State, proceed: State) -> State:
        """A state for each event up to the most, in a row; behind the least the match may go on without them."""
        stage = self._current
        quantifier, until = stage.quantifier, stage.until_condition
        self._mark_first_of_loop(False)
        ignore = _unless(until, self._inner_ignore_condition(stage))
        take = _take_unless(until, self._take_condition(stage))
        if quantifier.is_greedy and quantifier.least != quantifier.most:
            if until is not None:
                self._originals[sink.name] = self._copy(sink)
            _add_to_all(sink, Not(take))
        last = sink
        for _ in range(quantifier.least, quantifier.most):
            last = self._once(last, proceed, take, ignore, True)
            self._add_stop_to_loop(last)
        for _ in range(quantifier.least - 1):
            last = self._once(last, None, take, ignore, False)
            self._add_stop_to_loop(last)
        self._mark_first_of_loop(True)
        return self._once(last, proceed, take, self._ignore_condition(stage), quantifier.is_optional)

    def _once(
        self, sink: State, proceed: State | None, take: Condition, ignore: Condition | None, is_optional: bool
    ) -> State:
        """A state that takes one event (or one round of a group), and leads to `sink`; or, left out, to `proceed`."""
        if self._current.group is not None:
            return self._group_round(self._current, sink, proceed if is_optional else None)
        state = self._taking_state()
        onward = self._without_nots(sink)
        state.add(Action.TAKE, onward, take)
        if is_optional:
            assert proceed is not None, "what may be left out leads somewhere"
            self._add_proceeds(state, proceed)
        if ignore is not None:
            ignoring = state
            if is_optional or self._is_head_of_optional_group():
                ignoring = self._plain_state()
                ignoring.add(Action.TAKE, onward, take)
                ignoring.add(Action.IGNORE, ignoring, ignore)
                self._add_stops(ignoring)
            state.add(Action.IGNORE, ignoring, ignore)
        return state

    def _add_proceeds(self, state: State, proceed: State) -> None:
        always, until = self._always(), self._current.until_condition
        if not self._current.quantifier.is_greedy or until is None:
            state.add(Action.PROCEED, proceed, always)
            return
        original = self._originals.get(proceed.name)
        if original is not None:
            state.add(Action.PROCEED, original, And(always, until))
        state.add(Action.PROCEED, proceed, And(always, Not(until)))

    def _group_round(self, group: Pattern, sink: State, left_out: State | None) -> State:
        state = self._in_group(group, sink)
        if left_out is not None:
            state.add(Action.PROCEED, left_out, self._always())
        return state

    def _in_group(self, group: Pattern, sink: State) -> State:
        """The states of a group, before `sink`."""
        outer = self._current, self._following, self._group
        assert group.group is not None, "the stage is a group"
        self._group, self._current = group, group.group
        state = self._convert(self._middle(sink))
        self._current, self._following, self._group = outer
        return state

    def _looping_group(self, group: Pattern, sink: State) -> State:
        always = self._always()
        again = self._taking_state()
        state = self._in_group(group, again)
        state.add(Action.PROCEED, sink, always)
        again.add(Action.PROCEED, state, always)
        return state

    def _looping(self, sink: State) -> State:
        """A state that takes any number of events."""
        stage = self._current
        if stage.group is not None:
            return self._looping_group(stage, sink)
        until = stage.until_condition
        ignore = _unless(until, self._inner_ignore_condition(stage))
        take = _take_unless(until, self._take_condition(stage))
        always = self._always()
        looping = self._taking_state()
        if stage.quantifier.is_greedy and until is not None:
            original = self._copy(sink)
            looping.add(Action.PROCEED, original, And(always, until))
            self._originals[sink.name] = original
            looping.add(Action.PROCEED, sink, And(always, Not(until)))
        else:
            looping.add(Action.PROCEED, sink, always)
        if stage.quantifier.is_greedy:
            _add_to_all(sink, Not(self._take_condition(stage)))
        looping.add(Action.TAKE, looping, take)
        self._add_stop_to_loop(looping)
        if ignore is not None:
            ignoring = self._plain_state()
            ignoring.add(Action.TAKE, looping, take)
            ignoring.add(Action.IGNORE, ignoring, ignore)
            looping.add(Action.IGNORE, ignoring, ignore)
            self._add_stop_to_loop(ignoring)
        return looping

    # Conditions

    def _group_until(self) -> Condition | None:
        return None if self._group is None else self._group.until_condition

    def _take_condition(self, stage: Pattern) -> Condition:
        return _take_unless(self._group_until(), stage.condition)

    def _always(self) -> Condition:
        return _take_unless(self._group_until(), ALWAYS)

    def _ignore_condition(self, stage: Pattern) -> Condition | None:
        contiguity = stage.contiguity
        if self._group is not None and self._is_head_of_group(stage):
            is_first = self._group_is_first_of_loop
            contiguity = self._group.contiguity if is_first else self._group.quantifier.inner
        return _unless(self._group_until(), _ignored(contiguity, stage.condition))

    def _inner_ignore_condition(self, stage: Pattern) -> Condition | None:
        inner = stage.quantifier.inner
        if self._group is not None and self._is_head_of_group(stage):
            inner = self._group.quantifier.inner
        return _unless(self._group_until(), _ignored(inner, stage.condition))

    # Checks

    def _check_cycles(self) -> None:
        """Proceeding in a circle would never end."""
        done: set[int] = set()
        for state in self._states:
            _proceed_from(state, done)


def _proceed_from(state: State, done: set[int]) -> None:
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
            raise PatternError(
                f"the group with stage {following.variable!r} is in a loop, and all of its stages may be left out, so "
                "that it could go round without an event for ever; make a stage of it required"
            )
        elif following.number not in done:
            on_path.add(following.number)
            entered.append((following, iter(following.transitions)))


def _ignored(contiguity: Contiguity, condition: Condition) -> Condition | None:
    """Which events may lie before one of the stage; None for none."""
    if contiguity is Contiguity.RELAXED:
        return Not(condition)
    return ALWAYS if contiguity is Contiguity.RELAXED_ANY else None


def _unless(until: Condition | None, condition: Condition | None) -> Condition | None:
    if until is None or condition is None:
        return condition
    return And(Not(until), condition)


def _take_unless(until: Condition | None, condition: Condition) -> Condition:
    return condition if until is None else And(Not(until), condition)


def _add_to_all(state: State, condition: Condition) -> None:
    for transition in state.transitions:
        transition.condition = And(transition.condition, condition)
