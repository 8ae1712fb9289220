"""Patterns that make no sense are refused with the reason, when they are written or when they are compiled."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import AfterMatchSkipStrategy as Skip
from penstock import Pattern, col
from penstock.engine.errors import ConfigurationError, GraphError
from penstock.engine.patterns.compiler import compile_pattern

A = Pattern.begin("a").where(col("x") > 1)
LOOP = A.one_or_more()
NOT = A.not_followed_by("n")
NOT_NEXT = A.not_next("n")
GROUP = Pattern.begin(A.next("b"))
OPTIONAL = A.optional()
GREEDY = LOOP.greedy()


def _with_default(row: Any, *, other: int) -> bool:
    return bool(row and other)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    # Names
    "no name": (lambda: Pattern.begin(""), "name of a stage"),
    "a number as a name": (lambda: Pattern.begin(3), "name of a stage"),  # type: ignore[arg-type]
    "no name in next": (lambda: A.next(None), "next: takes the name"),  # type: ignore[arg-type]
    "no name in followed_by": (lambda: A.followed_by(b"b"), "followed_by: takes"),  # type: ignore[arg-type]
    "one name twice": (lambda: compile_pattern(A.next("a")), "two stages are called 'a'"),
    "one name twice, far apart": (lambda: compile_pattern(A.next("b").next("a")), "two stages are called 'a'"),
    "one name in a group again": (lambda: compile_pattern(A.next(A)), "two stages are called 'a'"),
    "one name of a NOT stage again": (lambda: compile_pattern(A.not_next("a").next("b")), "two stages are called"),
    "the name of the end": (lambda: compile_pattern(A.next("$end$")), "two stages are called"),
    # Skip strategies
    "no strategy": (lambda: Pattern.begin("a", "next"), "skip is an AfterMatchSkipStrategy"),  # type: ignore[arg-type]
    "skip to first of nothing": (lambda: Skip.skip_to_first(""), "names a variable"),
    "skip to last of a number": (lambda: Skip.skip_to_last(1), "names a variable"),  # type: ignore[arg-type]
    "skip to an unknown stage": (
        lambda: compile_pattern(Pattern.begin("a", Skip.skip_to_first("z"))),
        "does not exist",
    ),
    "skip to the last of an unknown stage": (
        lambda: compile_pattern(Pattern.begin("a", Skip.skip_to_last("z")).next("b")),
        "does not exist",
    ),
    "skip into a group": (lambda: compile_pattern(Pattern.begin(A, Skip.skip_to_first("a"))), "is in a group"),
    "throwing without a variable": (lambda: Skip.skip_to_next().throw_exception_on_miss(), "has no variable"),
    "throwing without skipping": (lambda: Skip.no_skip().throw_exception_on_miss(), "has no variable"),
    # Conditions
    "no condition": (lambda: A.where(None), "where of stage 'a'"),  # type: ignore[arg-type]
    "a value as a condition": (lambda: A.where(True), "a condition is an expression"),  # type: ignore[arg-type]
    "a class as a condition": (lambda: A.where(dict), "a condition is an expression"),
    "a function without arguments": (lambda: A.where(lambda: True), "takes 0 arguments"),  # type: ignore[arg-type]
    "a function of three": (lambda: A.where(lambda a, b, c: True), "takes 3 arguments"),  # type: ignore[arg-type]
    "a function with another keyword": (lambda: A.or_(_with_default), "takes 2 arguments"),
    "an expression over rows": (lambda: A.where(col("x") > col("x").mean()), "where batches are cut"),
    "no until": (lambda: LOOP.until(7), "until of stage 'a'"),  # type: ignore[arg-type]
    "where of a group": (lambda: GROUP.where(col("x") > 1), "a group has no condition"),
    "or of a group": (lambda: GROUP.or_(col("x") > 1), "a group has no condition"),
    # Until
    "until of a single stage": (lambda: A.until(col("x") > 1), "is no loop"),
    "until of times": (lambda: A.times(2).until(col("x") > 1), "is no loop"),
    "until of a range": (lambda: A.times(1, 3).until(col("x") > 1), "is no loop"),
    "until of a single group": (lambda: GROUP.until(col("x") > 1), "the group is no loop"),
    "until of a group some times": (lambda: GROUP.times(2).until(col("x") > 1), "the group is no loop"),
    "until twice": (lambda: LOOP.until(col("x") > 1).until(col("x") > 2), "has an until condition already"),
    # Quantifiers
    "times 0": (lambda: A.times(0), "whole number of 1 or more"),
    "times a negative number": (lambda: A.times(-2), "whole number of 1 or more"),
    "times a text": (lambda: A.times("2"), "whole number"),  # type: ignore[arg-type]
    "times True": (lambda: A.times(True), "whole number"),
    "times from more to less": (lambda: A.times(3, 2), "the second number is at least the first"),
    "times from a negative number": (lambda: A.times(-1, 2), "whole number of 0 or more"),
    "times from 0 to 0": (lambda: A.times(0, 0), "whole number of 1 or more"),
    "0 times or more": (lambda: A.times_or_more(0), "whole number of 1 or more"),
    "times with a wrong gap": (lambda: A.times(2, gap="soon"), "gap"),
    "times twice": (lambda: A.times(2).times(3), "has a quantifier already: 2 times"),
    "a loop of times": (lambda: A.times(2).one_or_more(), "has a quantifier already"),
    "times of a loop": (lambda: LOOP.times_or_more(2), "has a quantifier already: 1 or more times"),
    "a loop behind optional": (lambda: OPTIONAL.one_or_more(), "call optional() behind the quantifier"),
    "times of a NOT stage": (lambda: NOT.times(2), "must not come"),
    "a loop of a NOT stage": (lambda: NOT_NEXT.one_or_more(), "must not come"),
    "times or more of a NOT stage": (lambda: NOT.times_or_more(2), "must not come"),
    "a pattern too long": (lambda: compile_pattern(A.times(20_000)), "more than 10000 states"),
    # Optional, greedy, contiguity in loops
    "optional twice": (lambda: OPTIONAL.optional(), "is optional already"),
    "optional from 0": (lambda: A.times(0, 2).optional(), "is optional already"),
    "an optional NOT stage": (lambda: NOT.optional(), "cannot be optional"),
    "optional behind greedy": (lambda: GREEDY.next("b").optional(), "behind the greedy stage 'a'"),
    "greedy once": (lambda: A.greedy(), "comes once"),
    "a greedy NOT stage": (lambda: NOT_NEXT.greedy(), "must not come"),
    "a greedy group": (lambda: GROUP.one_or_more().greedy(), "a group cannot be greedy"),
    "greedy with combinations": (lambda: LOOP.allow_combinations().greedy(), "allows combinations"),
    "consecutive once": (lambda: A.consecutive(), "comes once"),
    "consecutive twice": (lambda: LOOP.consecutive().consecutive(), "has that already"),
    "combinations once": (lambda: A.allow_combinations(), "comes once"),
    "combinations twice": (lambda: LOOP.allow_combinations().allow_combinations(), "has that already"),
    "combinations, consecutive": (lambda: LOOP.allow_combinations().consecutive(), "not both"),
    "consecutive, combinations": (lambda: LOOP.consecutive().allow_combinations(), "not both"),
    # NOT
    "not next behind optional": (lambda: OPTIONAL.not_next("n"), "may be left out"),
    "not followed by behind optional": (lambda: OPTIONAL.not_followed_by("n"), "may be left out"),
    "not next behind 0 times or more": (lambda: A.times(0, 2).not_next("n"), "may be left out"),
    "a NOT group": (lambda: A.not_next(GROUP), "a group cannot be negated"),  # type: ignore[arg-type]
    "not followed by at the end": (lambda: compile_pattern(NOT), "needs a bound of time"),
    "not followed by behind a loop at the end": (
        lambda: compile_pattern(LOOP.not_followed_by("n")),
        "needs a bound of time",
    ),
    # Time
    "within a word": (lambda: A.within("soon"), "within"),
    "an unknown kind of within": (lambda: A.within("1s", "last"), "'first_and_last' or 'previous_and_current'"),
    "a longer bound between two": (
        lambda: compile_pattern(A.next("b").within("5s", "previous_and_current").within("1s")),
        "longer than that of the whole match",
    ),
    "a gap longer than the match": (
        lambda: compile_pattern(A.times(3, gap="5s").next("b").within("1s")),
        "longer than that of the whole match",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_pattern_without_sense_is_refused_with_the_reason(name: str) -> None:
    make, reason = REFUSED[name]
    with pytest.raises((ConfigurationError, GraphError), match=re.escape(reason)):
        make()
