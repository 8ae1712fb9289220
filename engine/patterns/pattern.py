"""What users write: a chain of stages, each with a condition, a contiguity, a quantifier and bounds of time.

`Pattern.begin("a")` starts one; each verb returns a new pattern and leaves the old one as it is, so parts can be used
in several patterns. What makes no sense is refused by the verb, as in Flink; the rest by the compiler.

Source: Flink's documentation, "FlinkCEP - Complex event processing for Flink".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import PatternError
from penstock.engine.patterns.conditions import ALWAYS, Always, And, Condition, Given, Or, condition_of
from penstock.engine.patterns.skip import AfterMatchSkipStrategy

_OPTIONAL_NOT: Final = (
    "a stage that may be left out cannot stand before {verb}; make two patterns, one with that stage and one without"
)
_NO_SKIP: Final = AfterMatchSkipStrategy()


class Contiguity(enum.Enum):
    """What may lie between a stage's event and the one before it; or, for NOT stages, what may not."""

    STRICT = "next"
    RELAXED = "followed by"
    RELAXED_ANY = "followed by any"
    NOT_NEXT = "not next"
    NOT_FOLLOWED = "not followed by"

    @property
    def is_not(self) -> bool:
        """Whether the stage's event must not come."""
        return self in (Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOWED)


class Repeats(enum.Enum):
    """How often a stage's event comes."""

    ONCE = "once"
    TIMES = "times"
    LOOP = "or more"


@dataclass(frozen=True, slots=True)
class Quantifier:
    """How often a stage's event comes, and what may lie between.

    Args:
        repeats: whether there are bounds.
        least, most: bounds; `most` is `least` in loops, which have none.
        inner: what may lie between the events of the stage.
        is_optional: whether it may be left out.
        is_greedy: whether it takes as many events as it can.
        gap_ms: the longest time between two of its events; None for any.
    """

    repeats: Repeats = Repeats.ONCE
    least: int = 1
    most: int = 1
    inner: Contiguity = Contiguity.RELAXED
    is_optional: bool = False
    is_greedy: bool = False
    gap_ms: int | None = None

    def describe(self) -> str:
        """For messages and `explain()`."""
        counts = {
            Repeats.ONCE: "once",
            Repeats.TIMES: f"{self.least} times" if self.least == self.most else f"{self.least} to {self.most} times",
            Repeats.LOOP: f"{self.least} or more times",
        }
        parts = [counts[self.repeats]]
        if self.repeats is not Repeats.ONCE and self.inner is not Contiguity.RELAXED:
            parts.append("consecutive" if self.inner is Contiguity.STRICT else "combinations")
        parts += [word for word, is_so in (("optional", self.is_optional), ("greedy", self.is_greedy)) if is_so]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A pattern, or the beginning of one: its last stage, and what comes before it.

    Made by `Pattern.begin`, never by hand.

    Args:
        name: of the last stage; None for a group.
        previous: what comes before the last stage.
        contiguity: what may lie between.
        skip: what a match does to other partial matches.
        condition: of the last stage's events.
        quantifier: how often they come.
        until_condition: ends a loop.
        within_ms: bound between the first and the last event of a match.
        gap_ms: bound between this stage's event and the one before.
        group: the pattern that the last stage repeats, or None.

    Example:
        >>> from penstock import col
        >>> p = Pattern.begin("small").where(col("amount") < 1).next("large").where(col("amount") > 500).within("1m")
        >>> [stage.name for stage in p.stages()]
        ['small', 'large']
    """

    name: str | None
    previous: Pattern | None
    contiguity: Contiguity
    skip: AfterMatchSkipStrategy
    condition: Condition = ALWAYS
    quantifier: Quantifier = Quantifier()
    until_condition: Condition | None = None
    within_ms: int | None = None
    gap_ms: int | None = None
    group: Pattern | None = None

    # Stages

    @classmethod
    def begin(cls, first: str | Pattern, skip: AfterMatchSkipStrategy = _NO_SKIP) -> Pattern:
        """Start a pattern.

        Args:
            first: the name of its first stage, or a pattern as a group.
            skip: what a match does to other partial matches.

        Raises:
            PatternError: no name and no pattern, or no strategy.
        """
        if not isinstance(skip, AfterMatchSkipStrategy):
            raise PatternError(
                f"begin: skip is an AfterMatchSkipStrategy, such as AfterMatchSkipStrategy.skip_to_next(), not {skip!r}"
            )
        return _stage("begin", first, None, Contiguity.STRICT, skip)

    def next(self, stage: str | Pattern) -> Pattern:
        """The next event must be one of this stage: strict contiguity."""
        return _stage("next", stage, self, Contiguity.STRICT, self.skip)

    def followed_by(self, stage: str | Pattern) -> Pattern:
        """Events that are not of this stage may lie between: relaxed contiguity."""
        return _stage("followed_by", stage, self, Contiguity.RELAXED, self.skip)

    def followed_by_any(self, stage: str | Pattern) -> Pattern:
        """Any events may lie between, those of this stage too: non-deterministic relaxed contiguity."""
        return _stage("followed_by_any", stage, self, Contiguity.RELAXED_ANY, self.skip)

    def not_next(self, name: str) -> Pattern:
        """The next event must not be one of this stage.

        Raises:
            PatternError: the stage before may be left out.
        """
        return self._not("not_next", name, Contiguity.NOT_NEXT)

    def not_followed_by(self, name: str) -> Pattern:
        """No event of this stage may come before one of the next stage; as the last stage, within the bound of time.

        Raises:
            PatternError: the stage before may be left out.
        """
        return self._not("not_followed_by", name, Contiguity.NOT_FOLLOWED)

    def _not(self, verb: str, name: str, contiguity: Contiguity) -> Pattern:
        if isinstance(name, Pattern):
            raise PatternError(f"{verb}: takes the name of a stage; a group cannot be negated")
        if self.quantifier.is_optional:
            raise PatternError(f"{verb}({name!r}): {_OPTIONAL_NOT.format(verb=verb)}")
        return _stage(verb, name, self, contiguity, self.skip)

    # Conditions

    def where(self, condition: Given) -> Pattern:
        """The stage's events fulfil this; several are joined by and.

        Args:
            condition: an expression (`col("price") > 3`), a function of the row (a dict), or of the row and a
                `MatchContext`, which knows the events of the match so far.

        Raises:
            PatternError: the stage is a group, or the condition is none.
        """
        given = self._condition("where", condition)
        joined = given if isinstance(self.condition, Always) else And(self.condition, given)
        return replace(self, condition=joined)

    def or_(self, condition: Given) -> Pattern:
        """The stage's events fulfil the conditions so far, or this one; the first one is as `where`."""
        given = self._condition("or_", condition)
        joined = given if isinstance(self.condition, Always) else Or(self.condition, given)
        return replace(self, condition=joined)

    def _condition(self, verb: str, given: Given) -> Condition:
        if self.group is not None:
            raise PatternError(f"{verb}: a group has no condition of its own; give one to a stage in it")
        return condition_of(f"{verb} of stage {self.name!r}", given)

    def until(self, condition: Given) -> Pattern:
        """End a loop before the event that fulfils this, which is not part of it.

        Raises:
            PatternError: the stage is no loop (`one_or_more`, `times_or_more`), or has such a condition already.
        """
        if self.until_condition is not None:
            raise PatternError(f"until: {self._shown} has an until condition already; join both in one")
        if self.quantifier.repeats is not Repeats.LOOP:
            raise PatternError(
                f"until: {self._shown} is no loop, so there is nothing to end; call one_or_more() or "
                "times_or_more(n) before"
            )
        return replace(self, until_condition=condition_of(f"until of {self._shown}", condition))

    # How often

    def times(self, least: int, most: int | None = None, gap: Duration | None = None) -> Pattern:
        """So many events, or between `least` and `most`; `times(0, n)` makes the stage optional.

        Args:
            least, most: numbers of events.
            gap: longest time between two of them. As in Flink it bounds all but the last of them.

        Raises:
            PatternError: wrong numbers, a NOT stage, or a stage that has a quantifier.
        """
        is_range = most is not None
        self._check_quantifier("times")
        least = _count("times", least, 0 if is_range else 1)
        top = least if most is None else _count("times", most, 1)
        if top < least:
            raise PatternError(f"times({least}, {most}): the second number is at least the first")
        return self._repeated(Quantifier(Repeats.TIMES, max(least, 1), top, is_optional=is_range and not least), gap)

    def times_or_more(self, least: int, gap: Duration | None = None) -> Pattern:
        """So many events or more; `gap` as in `times`.

        Raises:
            PatternError: a wrong number, a NOT stage, or a stage that has a quantifier.
        """
        self._check_quantifier("times_or_more")
        least = _count("times_or_more", least, 1)
        return self._repeated(Quantifier(Repeats.LOOP, least, least), gap)

    def one_or_more(self, gap: Duration | None = None) -> Pattern:
        """One event or more; `gap` as in `times`.

        Raises:
            PatternError: a NOT stage, or a stage that has a quantifier.
        """
        self._check_quantifier("one_or_more")
        return self._repeated(Quantifier(Repeats.LOOP), gap)

    def _check_quantifier(self, verb: str) -> None:
        if self.contiguity.is_not:
            raise PatternError(f"{verb}: {self._shown} must not come, so it cannot come several times")
        if self.quantifier.repeats is not Repeats.ONCE:
            raise PatternError(f"{verb}: {self._shown} has a quantifier already: {self.quantifier.describe()}")
        if self.quantifier.is_optional:
            raise PatternError(f"{verb}: {self._shown} is optional already; call optional() behind the quantifier")

    def _repeated(self, quantifier: Quantifier, gap: Duration | None) -> Pattern:
        gap_ms = None if gap is None else parse_duration(gap, "gap")
        return replace(self, quantifier=replace(quantifier, gap_ms=gap_ms))

    def optional(self) -> Pattern:
        """The stage may be left out.

        Raises:
            PatternError: a NOT stage, one that is optional already, or one behind a greedy loop.
        """
        if self.previous is not None and self.previous.quantifier.is_greedy:
            raise PatternError(
                f"optional: {self._shown} stands behind the greedy {self.previous._shown}, which is not possible"
            )
        if self.quantifier.is_optional:
            raise PatternError(f"optional: {self._shown} is optional already")
        if self.contiguity.is_not:
            raise PatternError(f"optional: {self._shown} must not come, so it cannot be optional")
        return replace(self, quantifier=replace(self.quantifier, is_optional=True))

    def greedy(self) -> Pattern:
        """The loop takes as many events as it can: one that fits both it and the next stage is the loop's.

        Raises:
            PatternError: a NOT stage, a group, no loop, or one with combinations.
        """
        if self.contiguity.is_not:
            raise PatternError(f"greedy: {self._shown} must not come, so it cannot be greedy")
        if self.group is not None:
            raise PatternError("greedy: a group cannot be greedy; make a loop in it so")
        if self.quantifier.inner is Contiguity.RELAXED_ANY:
            raise PatternError(f"greedy: {self._shown} allows combinations; a loop is one or the other")
        if self.quantifier.repeats is Repeats.ONCE:
            raise PatternError(f"greedy: {self._shown} comes once; call one_or_more(), times(...) before")
        return replace(self, quantifier=replace(self.quantifier, is_greedy=True))

    def consecutive(self) -> Pattern:
        """Nothing may lie between the events of the loop.

        Raises:
            PatternError: no loop, or one that has this or `allow_combinations` already.
        """
        return self._inner("consecutive", Contiguity.STRICT)

    def allow_combinations(self) -> Pattern:
        """Any events may lie between the events of the loop, those of the stage too.

        Raises:
            PatternError: no loop, or one that has this or `consecutive` already.
        """
        return self._inner("allow_combinations", Contiguity.RELAXED_ANY)

    def _inner(self, verb: str, inner: Contiguity) -> Pattern:
        quantifier = self.quantifier
        if quantifier.repeats is Repeats.ONCE:
            raise PatternError(f"{verb}: {self._shown} comes once; call one_or_more(), times(...) before")
        if quantifier.inner is inner:
            raise PatternError(f"{verb}: {self._shown} has that already")
        if quantifier.inner is not Contiguity.RELAXED:
            raise PatternError(f"{verb}: {self._shown} is consecutive or allows combinations, not both")
        return replace(self, quantifier=replace(quantifier, inner=inner))

    # Time

    def within(self, duration: Duration, kind: str = "first_and_last") -> Pattern:
        """Bound the time of a match; the bound itself is outside.

        Args:
            duration: `"10s"`, `"5m"`.
            kind: `"first_and_last"` bounds the whole match, from wherever in the chain it is called (the smallest
                counts); `"previous_and_current"` bounds the time between this stage's event and the one before, and
                says nothing of stages with a quantifier, whose bound is `gap`.

        Raises:
            PatternError: an unknown kind.
            ConfigurationError: no duration.
        """
        bound = parse_duration(duration, "within")
        if kind == "first_and_last":
            return replace(self, within_ms=bound)
        if kind == "previous_and_current":
            return replace(self, gap_ms=bound)
        raise PatternError(f"within: kind is 'first_and_last' or 'previous_and_current', not {kind!r}")

    # What it is

    def stages(self) -> list[Pattern]:
        """The stages of the chain, first to last; not those in groups."""
        chain: list[Pattern] = []
        stage: Pattern | None = self
        while stage is not None:
            chain.append(stage)
            stage = stage.previous
        return chain[::-1]

    @property
    def _shown(self) -> str:
        return "the group" if self.name is None else f"stage {self.name!r}"

    def explain(self) -> str:
        """The automaton of the pattern as a text: its states, what leads from one to the next, and how it is run.

        Raises:
            PatternError: the pattern cannot be compiled.
        """
        from penstock.engine.patterns.compiler import compile_pattern
        from penstock.engine.patterns.explain import explained

        return explained(compile_pattern(self))

    def diagram(self) -> str:
        """The automaton of the pattern as a picture, in Mermaid's notation: GitHub and notebooks draw it from markdown.

        Raises:
            PatternError: the pattern cannot be compiled.
        """
        from penstock.engine.patterns.compiler import compile_pattern
        from penstock.engine.patterns.explain import diagram

        return diagram(compile_pattern(self))


def _stage(
    verb: str, stage: object, previous: Pattern | None, contiguity: Contiguity, skip: AfterMatchSkipStrategy
) -> Pattern:
    if isinstance(stage, Pattern):
        return Pattern(None, previous, contiguity, skip, group=stage)
    if not isinstance(stage, str) or not stage:
        raise PatternError(f"{verb}: takes the name of a stage (a text) or a pattern as a group, not {stage!r:.200}")
    return Pattern(stage, previous, contiguity, skip)


def _count(verb: str, given: object, least: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise PatternError(f"{verb}: takes a whole number of {least} or more, not {given!r:.200}")
    return given
