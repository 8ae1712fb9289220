"""Random patterns over random rows: columns and objects, compiled or not, agree, and restore each other's state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock import Pattern, col
from penstock.engine.errors import PatternError, RecordError
from penstock.engine.operators.matching import column_finder, match_spec
from penstock.engine.operators.matching.column_finder import ColumnFinder
from penstock.engine.operators.matching.keyed_finder import KeyedFinder
from penstock.engine.operators.matching.match_spec import DROPPED
from penstock.engine.patterns import machine
from penstock.engine.patterns.compiler import compile_pattern
from penstock.engine.patterns.limits import NO_LIMITS, MatchLimits, Overflow
from tests.draws import drawn
from tests.engine.operators.matching.match_job import MatchJob, row
from tests.engine.patterns.cases import Case, pattern_of

_EXAMPLES = int(os.environ.get("PATTERNS", drawn(200)))
"""`PATTERNS=2000` tries more."""
_LETTERS = "ABC"


@st.composite
def _stages(draw: st.DrawFn, names: list[str], depth: int) -> list[Case]:
    stages: list[Case] = []
    for place in range(draw(st.integers(1, 3))):
        kinds = ["next", "followedBy", "followedByAny", "notNext", "notFollowedBy"]
        contiguity = draw(st.sampled_from(kinds)) if place else None
        stage: Case = {"contiguity": contiguity}
        if depth < 2 and contiguity not in kinds[3:] and draw(st.integers(0, 5)) == 0:
            stage["group"] = draw(_stages(names, depth + 1))
        else:
            names.append(f"v{len(names)}")
            letters = draw(st.sampled_from([*_LETTERS, "AB", "ABC"]))
            tests = [{"op": "name", "is": letter} for letter in letters]
            stage |= {"name": names[-1], "condition": {"op": "or", "of": tests}}
        stages.append(stage | draw(_options(contiguity in kinds[3:], "group" in stage)))
    return stages


@st.composite
def _options(draw: st.DrawFn, is_not: bool, is_group: bool) -> Case:
    if is_not or draw(st.booleans()):
        return {}
    quantifier: Any = draw(
        st.sampled_from(
            [
                {"kind": "one_or_more"},
                {"kind": "times", "n": 2},
                {"kind": "times_range", "from": 1, "to": 2},
                {"kind": "times_range", "from": 0, "to": 2},
                {"kind": "times_or_more", "n": 2},
                {"kind": "one_or_more", "gap_ms": 4},
            ]
        )
    )
    options: Case = {"quantifier": quantifier}
    inner = draw(st.sampled_from(["", "consecutive", "combinations"]))
    if inner:
        options[inner] = True
    if quantifier.get("from") != 0 and draw(st.integers(0, 3)) == 0:
        options["optional"] = True
    if inner != "combinations" and not is_group and draw(st.integers(0, 3)) == 0:
        options["greedy"] = True
    if quantifier["kind"] in ("one_or_more", "times_or_more") and draw(st.integers(0, 3)) == 0:
        options["until"] = {"op": "name", "is": "C"}
    return options


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    names: list[str] = []
    stages = draw(_stages(names, 0))
    tops = [stage["name"] for stage in stages if "name" in stage]
    kind = draw(
        st.sampled_from(["no_skip", "no_skip", "to_next", "past_last", *(["to_first", "to_last"] if tops else [])])
    )
    variable = draw(st.sampled_from(tops)) if kind in ("to_first", "to_last") else None
    within = draw(st.sampled_from([None, 8, 20]))
    steps: list[Any] = []
    at = watermark = draw(st.sampled_from([-3, 1_000]))
    for _ in range(draw(st.integers(1, 14))):
        at += draw(st.integers(0, 4))
        event = ("el", draw(st.sampled_from("jk")), draw(st.sampled_from(_LETTERS)), 1, at - draw(st.integers(0, 3)))
        steps.append(event)
        if draw(st.integers(0, 3)) == 0:
            watermark = max(watermark + 1, at - 2)
            steps.append(("wm", watermark))
    within_type = draw(st.sampled_from(["first_and_last", "previous_and_current"]))
    return {
        "pattern": {"stages": stages},
        "steps": steps,
        "skip": {"kind": kind, "variable": variable},
        "within_ms": within,
        "within_type": within_type,
    }


def _run(case: Case, finders: Sequence[type], by_clock: bool = False) -> Any:
    """What comes of a case: in order with one finder, else without, as the second takes over in the middle."""
    try:
        return _found(case, finders, by_clock)
    except RecordError:
        return "more than max_partial_matches"


def _found(case: Case, finders: Sequence[type], by_clock: bool) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        if finders[0] is KeyedFinder:
            patch.setattr(match_spec, "fits", lambda pattern: False)
        job = MatchJob(pattern_of(case), is_event_time=not by_clock, limits=case.get("limits", NO_LIMITS))
        for number, step in enumerate(case["steps"]):
            if len(finders) > 1 and number == len(case["steps"]) // 2:
                patch.undo()
                if finders[1] is KeyedFinder:
                    patch.setattr(match_spec, "fits", lambda pattern: False)
                job.restart(2)
                # Patterns of very many tests and states are for objects alone.
                kind = finders[1] if machine.fits(compile_pattern(pattern_of(case))) else KeyedFinder
                assert isinstance(job.operators[0].finder, kind)
            if by_clock:
                job.clock.advance(0.004 if step[0] == "wm" else number % 3 / 1000)
                job.tick()
            if step[0] != "wm":
                job.rows([row(number, *step[1:])])
            elif not by_clock:
                job.advance(step[1])
        if by_clock:
            job.clock.advance(1)
            job.tick()
        else:
            job.advance()
    found = job.matches()
    dropped = job.metrics.counter(DROPPED).value
    return found if len(finders) == 1 else sorted(found), sorted(job.timed_out()), sorted(job.late()), dropped


@settings(max_examples=_EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(_cases())
def test_columns_and_objects_find_the_same(case: Case) -> None:
    try:
        expected = _run(case, [KeyedFinder])
    except PatternError:
        return
    assert _run(case, [ColumnFinder]) == expected
    takes_over = [ColumnFinder, KeyedFinder] if len(case["steps"]) % 2 else [KeyedFinder, ColumnFinder]
    assert _run(case, takes_over) == _unordered(expected)


_LIMITS = st.one_of(
    st.builds(MatchLimits, st.integers(1, 3), st.sampled_from(Overflow), st.sampled_from([None, 5])),
    st.builds(MatchLimits, ttl_ms=st.sampled_from([2, 5, 9])),
)


def _once_or_more(contiguity: str | None, **stage: Any) -> Case:
    return {"contiguity": contiguity, **stage, "quantifier": {"kind": "one_or_more"}, "until": _named("C")}


def _named(letter: str) -> Case:
    return {"op": "name", "is": letter}


_NONE_OR_TWO: Case = {"quantifier": {"kind": "times_range", "from": 0, "to": 2}, "greedy": True}
_FORBIDDEN_FIRST: Case = {
    "pattern": {
        "stages": [
            _once_or_more(
                None,
                group=[
                    _once_or_more(
                        None, group=[{"contiguity": None, "name": "v0", "condition": _named("A"), **_NONE_OR_TWO}]
                    ),
                    {"contiguity": "notNext", "name": "v1", "condition": _named("B")},
                ],
                optional=True,
            ),
            _once_or_more("next", name="v2", condition=_named("A"), optional=True, greedy=True),
        ]
    },
    "steps": [("el", "j", "B", 1, -2), ("wm", -2), ("el", "j", "A", 1, -1), ("wm", -1)],
    "skip": {"kind": "no_skip", "variable": None},
    "within_ms": None,
    "within_type": "first_and_last",
}
"""What must not come comes before anything has begun."""


@settings(max_examples=_EXAMPLES // 4, suppress_health_check=[HealthCheck.too_slow])
@given(_cases(), _LIMITS)
@example(_FORBIDDEN_FIRST, MatchLimits(ttl_ms=2))
def test_limits_end_the_same_on_columns_and_objects(case: Case, limits: MatchLimits) -> None:
    limited = case | {"limits": limits}
    try:
        expected = _run(limited, [KeyedFinder])
    except PatternError:
        return
    assert _run(limited, [ColumnFinder]) == expected
    assert _run(limited, [ColumnFinder, ColumnFinder]) == _unordered(expected)


@settings(max_examples=_EXAMPLES // 4, suppress_health_check=[HealthCheck.too_slow])
@given(_cases(), st.one_of(st.just(NO_LIMITS), _LIMITS))
def test_by_the_clock_columns_and_objects_find_the_same(case: Case, limits: MatchLimits) -> None:
    limited = case | {"limits": limits}
    try:
        expected = _run(limited, [KeyedFinder], by_clock=True)
    except PatternError:
        return
    assert _run(limited, [ColumnFinder], by_clock=True) == expected
    assert _run(limited, [KeyedFinder, ColumnFinder], by_clock=True) == _unordered(expected)


def _unordered(found: Any) -> Any:
    return found if isinstance(found, str) else (sorted(found[0]), *found[1:])


@settings(max_examples=_EXAMPLES // 16)
@given(_cases(), st.one_of(st.just(NO_LIMITS), _LIMITS))
def test_compiled_rules_and_clean_ups_change_nothing(case: Case, limits: MatchLimits) -> None:
    limited = case | {"limits": limits}
    with pytest.MonkeyPatch.context() as patch:
        try:
            expected = _run(limited, [ColumnFinder])
        except PatternError:
            return
        patch.setattr(column_finder, "_MIN_GARBAGE", 1)
        assert _run(limited, [ColumnFinder]) == expected
        patch.setattr(machine, "_MANY_ROWS", 0)
        assert _run(limited, [ColumnFinder]) == expected


def test_nothing_is_left_of_keys_that_have_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_finder, "_MIN_GARBAGE", 1)
    job = MatchJob(Pattern.begin("a").where(col("name") == "A").next("b").within("9ms"))
    job.rows([row(n, f"k{n}", "A", 0, n + 1) for n in range(50)])
    job.advance(50)
    finder: Any = job.operators[0].finder
    assert 9 <= len(finder._rows) <= 20
    job.advance(60)
    assert len(job.timed_out()) == 50
    assert (len(finder._rows), len(finder._index), finder._memory.used.tolist()) == (0, 0, [0, 0, 0])


def test_room_is_made_for_what_an_event_does_and_not_for_all_that_others_may_do() -> None:
    pattern = Pattern.begin("a").where(col("name") == "A")
    for number in range(10):
        pattern = pattern.followed_by_any(f"b{number}").where(col("name") == "B").optional()
    job = MatchJob(pattern.followed_by("c").where(col("name") == "C"))
    job.rows([row(0, "j", "A", 0, 1), row(1, "j", "B", 0, 2), *(row(n, "k", "A", 0, n + 1) for n in range(2, 40))])
    job.advance(50)
    finder: Any = job.operators[0].finder
    assert finder._memory.used[1] == 1 + 10 + 38
    assert len(finder._memory.steps) < 2 * finder._memory.used[0]
