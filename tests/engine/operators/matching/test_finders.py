"""Random patterns over random rows: columns and objects, compiled or not, agree, and restore each other's state."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Pattern, col
from penstock.engine.errors import PatternError
from penstock.engine.operators.matching import column_finder
from penstock.engine.operators.matching.column_finder import ColumnFinder
from penstock.engine.operators.matching.keyed_finder import KeyedFinder
from penstock.engine.patterns import machine
from penstock.engine.patterns.limits import NO_LIMITS, MatchLimits
from tests.engine.operators.matching.match_job import MatchJob, row
from tests.engine.patterns.cases import Case, pattern_of
from tests.engine.patterns.definition import all_matches

_EXAMPLES = int(os.environ.get("PATTERNS", "200"))
"""`PATTERNS=2000` tries more."""
_NEVER_REACHED = MatchLimits(most=10**9)
"""Only objects know limits, so this chooses them, and changes nothing."""
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


def _run(case: Case, limits: MatchLimits, restarts: bool) -> tuple[Any, Any, Any]:
    job = MatchJob(pattern_of(case), limits=limits)
    kind = ColumnFinder if limits is NO_LIMITS else KeyedFinder
    assert isinstance(job.operators[0].finder, kind)
    for number, step in enumerate(case["steps"]):
        if restarts and number == len(case["steps"]) // 2:
            job.limit(_NEVER_REACHED if limits is NO_LIMITS else NO_LIMITS)
            job.restart(2)
        if step[0] == "wm":
            job.advance(step[1])
        else:
            job.rows([row(number, *step[1:])])
    job.advance()
    matches = job.matches()
    return (sorted(matches) if restarts else matches, sorted(job.timed_out()), sorted(job.late()))


@settings(
    max_examples=_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(_cases())
def test_columns_and_objects_find_the_same(case: Case) -> None:
    try:
        expected = _run(case, _NEVER_REACHED, restarts=False)
    except PatternError:
        return
    assert _run(case, NO_LIMITS, restarts=False) == expected
    expected[0].sort()
    begins_with = NO_LIMITS if len(case["steps"]) % 2 else _NEVER_REACHED
    assert _run(case, begins_with, restarts=True) == expected


@settings(max_examples=_EXAMPLES // 4, deadline=None)
@given(_cases())
def test_compiled_rules_and_clean_ups_change_nothing(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            expected = _run(case, NO_LIMITS, restarts=False)
        except PatternError:
            return
        patch.setattr(column_finder, "_MIN_GARBAGE", 1)
        assert _run(case, NO_LIMITS, restarts=False) == expected
        patch.setattr(machine, "_MANY_ROWS", 0)
        assert _run(case, NO_LIMITS, restarts=False) == expected


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


_STAGE = st.tuples(st.sampled_from(["next", "followed_by", "followed_by_any"]), st.sampled_from(["A", "B", "C", "AB"]))


@settings(max_examples=_EXAMPLES, deadline=None)
@given(
    st.lists(_STAGE, min_size=1, max_size=4), st.lists(st.sampled_from(_LETTERS), max_size=9), st.sampled_from([0, 4])
)
def test_sequences_find_what_the_definition_says(
    stages: list[tuple[str, str]], letters: list[str], within: int
) -> None:
    pattern: Pattern | None = None
    for number, (verb, fitting) in enumerate(stages):
        name = f"v{number}"
        begun = Pattern.begin(name) if pattern is None else getattr(pattern, verb)(name)
        pattern = begun.where(col("name").is_in(list(fitting)))
    assert pattern is not None
    job = MatchJob(pattern.within(f"{within}ms") if within else pattern)
    job.rows([row(number, "k", letter, 0, number + 1) for number, letter in enumerate(letters)])
    job.advance()
    found = [text.partition("|")[2] for text, _ in job.matches()]
    texts = [
        ";".join(f"v{n}={place}" for n, place in enumerate(match)) for match in all_matches(stages, letters, within)
    ]
    assert sorted(found) == sorted(texts)
