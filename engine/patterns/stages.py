"""What a stage of a pattern is where it stands: its conditions with those of its group, and the NOT stages near it.

The compiler asks for the stages of a chain, and makes states of each without looking at others. A group asks anew for
each of its rounds, as what may lie before its first stage is another in the first round than in later ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.engine.patterns.conditions import ALWAYS, And, Condition, Not
from penstock.engine.patterns.pattern import Contiguity, Pattern, Quantifier

GROUP: Final = "GroupPattern"
"""The name of states that belong to a group as a whole."""


class Forbidden(NamedTuple):
    """Events that must not come, and the NOT stage that says so."""

    condition: Condition
    name: str


@dataclass(frozen=True, slots=True)
class Around:
    """Where a chain stands.

    Args:
        group: the stage that repeats it; None for the pattern itself.
        is_first_round: whether no round comes before.
        behind: the stage behind the chain, or None.
    """

    group: Pattern | None = None
    is_first_round: bool = True
    behind: Pattern | None = None

    @property
    def until(self) -> Condition | None:
        """What ends the rounds."""
        return None if self.group is None else self.group.until_condition


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One stage where it stands.

    Args:
        given: as the user has written it.
        name: of its states.
        takes: the condition of its events.
        skips_before: the condition of events that may lie before its first event; None for none.
        skips_between: the same between its events.
        always: true unless the group around it has ended.
        forbidden_before: what must not come before its first event.
        forbidden_behind: what must not come behind its last event, or None.
        may_be_skipped_with_group: whether it begins a group that may be left out.
        behind: the stage behind it, or None.
    """

    given: Pattern
    name: str
    takes: Condition
    skips_before: Condition | None
    skips_between: Condition | None
    always: Condition
    forbidden_before: tuple[Forbidden, ...]
    forbidden_behind: Forbidden | None
    may_be_skipped_with_group: bool
    behind: Pattern | None

    @property
    def quantifier(self) -> Quantifier:
        """How often it comes."""
        return self.given.quantifier

    @property
    def until(self) -> Condition | None:
        """What ends its loop."""
        return self.given.until_condition


def chain(pattern: Pattern) -> Iterator[Pattern]:
    """The stages of a chain, last to first."""
    stage: Pattern | None = pattern
    while stage is not None:
        yield stage
        stage = stage.previous


def name_of(pattern: Pattern) -> str:
    """The name of a stage's states."""
    return pattern.name or GROUP


def stages_in(last: Pattern, around: Around) -> list[Stage]:
    """The stages of the chain that ends with `last`, last to first."""
    found: list[Stage] = []
    behind = around.behind
    for given in chain(last):
        found.append(_stage(given, behind, around))
        behind = given
    return found


def _stage(given: Pattern, behind: Pattern | None, around: Around) -> Stage:
    until, group = around.until, around.group
    before, between = given.contiguity, given.quantifier.inner
    begins_group = group is not None and given.previous is None
    if group is not None and begins_group:
        # What lies before a group lies before its first stage; what lies between two rounds, too.
        between = group.quantifier.inner
        before = group.contiguity if around.is_first_round else between
    forbids = behind is not None and behind.contiguity is Contiguity.NOT_FOLLOWED
    return Stage(
        given,
        name_of(given),
        before_end(until, given.condition),
        _before_end_or_none(until, _skipped(before, given.condition)),
        _before_end_or_none(until, _skipped(between, given.condition)),
        before_end(until, ALWAYS),
        tuple(_forbidden_before(given, until)),
        _forbidden(behind, until) if behind is not None and forbids else None,
        group is not None and begins_group and around.is_first_round and group.quantifier.is_optional,
        behind,
    )


def _forbidden_before(stage: Pattern, until: Condition | None) -> Iterator[Forbidden]:
    """The NOT stages before a stage, past stages that may be left out."""
    for before in chain(stage):
        if before is stage:
            continue
        is_not = before.contiguity is Contiguity.NOT_FOLLOWED
        if is_not:
            yield _forbidden(before, until)
        elif not before.quantifier.is_optional:
            return


def _forbidden(stage: Pattern, until: Condition | None) -> Forbidden:
    return Forbidden(before_end(until, stage.condition), name_of(stage))


def _skipped(contiguity: Contiguity, condition: Condition) -> Condition | None:
    if contiguity is Contiguity.RELAXED:
        return Not(condition)
    return ALWAYS if contiguity is Contiguity.RELAXED_ANY else None


def before_end(until: Condition | None, condition: Condition) -> Condition:
    """The condition, for events before the one that ends a loop."""
    return condition if until is None else And(Not(until), condition)


def _before_end_or_none(until: Condition | None, condition: Condition | None) -> Condition | None:
    return None if condition is None else before_end(until, condition)
