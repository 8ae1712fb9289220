"""Random patterns find what their definition says: each contiguity and quantifier, groups, NOT stages, and strategies.

Left out is where Flink does otherwise than one would say: docs/patterns.md has it, under "What may surprise", and
`tests/flink/surprises.py` its cases. So are stages that may be left out in groups that repeat, `until` of groups, and
bounds between the events of a loop or behind it, which are held to Flink's answers alone.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.operators.matching import match_spec
from tests.draws import drawn
from tests.engine.operators.matching.match_job import MatchJob, row
from tests.engine.patterns.cases import Case, pattern_of
from tests.engine.patterns.definition import Definition, Way

_EXAMPLES: Final = int(os.environ.get("PATTERNS", drawn(200)))
"""`PATTERNS=2000` tries more."""
_LETTERS: Final = "ABC"
_WITHIN: Final = 12
_NOT: Final = ("notNext", "notFollowedBy")
_LOOPS: Final = ("one_or_more", "times_or_more")


@st.composite
def _chain(draw: st.DrawFn, names: list[str], depth: int, is_plain: bool) -> list[Case]:
    """Stages, the first of which has no contiguity; in a group that repeats (`is_plain`) none may be left out."""
    stages: list[Case] = []
    count = draw(st.integers(1, 4 - depth))
    while len(stages) < count:
        is_last, before = len(stages) == count - 1, stages[-1] if stages else None
        if before is not None and draw(st.integers(0, 3)) == 0 and _may_precede_not(before, is_last, depth):
            stages.append(_absent(draw, names, before))
            # What comes behind is there for sure, and is not of the NOT stage.
            forbidden = stages[-1]["condition"]["of"]
            free = [letter for letter in _LETTERS if {"op": "name", "is": letter} not in forbidden]
            if stages[-1]["contiguity"] == "notNext" or not is_last:
                count = max(count, len(stages) + 1)
                stages.append(_single(draw, names, draw(_contiguities), free))
            continue
        contiguity = draw(_contiguities) if stages else None
        is_group = depth < 2 and bool(stages or not depth) and draw(st.integers(0, 4)) == 0
        if is_group:
            stages.append(_group(draw, names, depth, contiguity, is_plain, is_last and depth == 0))
        else:
            stages.append(_single(draw, names, contiguity, list(_LETTERS)))
            is_behind_one = before is not None and before["contiguity"] not in _NOT and _is_single(before)
            if is_behind_one and draw(st.integers(0, 9)) == 0:
                stages[-1]["gap_ms"] = draw(st.sampled_from([2, 6]))
            # The first stage of a group repeats as the group does.
            if (stages[1:] or not depth) and draw(st.booleans()):
                stages[-1] |= _repeated(draw, is_plain, not depth and not is_last)
        if stages[-1].get("greedy"):
            count = max(count, len(stages) + 1)
            stages.append(_single(draw, names, draw(_contiguities), list(_LETTERS)))
    return stages


_contiguities = st.sampled_from(["next", "followedBy", "followedByAny"])


def _may_precede_not(before: Case, is_last: bool, depth: int) -> bool:
    is_required = not before.get("optional") and before.get("quantifier", {}).get("from") != 0
    return is_required and _is_single(before) and before["contiguity"] not in _NOT and not (is_last and depth)


def _is_single(stage: Case) -> bool:
    return "group" not in stage and "quantifier" not in stage


def _absent(draw: st.DrawFn, names: list[str], before: Case) -> Case:
    return _single(draw, names, draw(st.sampled_from(_NOT)), list(_LETTERS))


def _single(draw: st.DrawFn, names: list[str], contiguity: str | None, letters: list[str]) -> Case:
    chosen = draw(st.lists(st.sampled_from(letters), min_size=1, max_size=2, unique=True))
    condition: Case = {"op": "or", "of": [{"op": "name", "is": letter} for letter in chosen]}
    if contiguity not in _NOT:
        more = draw(st.integers(0, 7))
        if more == 0:
            condition = {"op": "and", "of": [condition, {"op": "gt", "c": 1}]}
        elif more == 1 and names:
            condition = {"op": "and", "of": [condition, {"op": "gt_last", "var": draw(st.sampled_from(names))}]}
    names.append(f"v{len(names)}")
    return {"contiguity": contiguity, "name": names[-1], "condition": condition}


def _repeated(draw: st.DrawFn, is_plain: bool, may_be_greedy: bool) -> Case:
    options: Case = {"gap_ms": None, "quantifier": draw(_quantifiers)}
    if is_plain and options["quantifier"].get("from") == 0:
        options["quantifier"] = {"kind": "times", "n": 3}
    inner = draw(st.sampled_from(["", "consecutive", "combinations"]))
    if inner:
        options[inner] = True
    if not is_plain and options["quantifier"].get("from") != 0 and draw(st.integers(0, 3)) == 0:
        options["optional"] = True
    if may_be_greedy and inner != "combinations" and draw(st.integers(0, 3)) == 0:
        options["greedy"] = True
    elif options["quantifier"]["kind"] in _LOOPS and draw(st.integers(0, 2)) == 0:
        options["until"] = {"op": "name", "is": draw(st.sampled_from(_LETTERS))}
    return options


_quantifiers = st.sampled_from(
    [
        {"kind": "one_or_more"},
        {"kind": "times", "n": 2},
        {"kind": "times_range", "from": 1, "to": 3},
        {"kind": "times_range", "from": 0, "to": 2},
        {"kind": "times_or_more", "n": 2},
    ]
)


def _group(draw: st.DrawFn, names: list[str], depth: int, contiguity: str | None, is_plain: bool, ends: bool) -> Case:
    options: Case = {}
    if draw(st.booleans()):
        options = _repeated(draw, is_plain, False)
        options.pop("until", None)
        if options["quantifier"]["kind"] != "times" and not ends:
            # What may lie between two rounds may lie before what comes behind them, too.
            options = {**options, "consecutive": True}
            options.pop("combinations", None)
    return {"contiguity": contiguity, "group": draw(_chain(names, depth + 1, is_plain or bool(options))), **options}


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    names: list[str] = []
    stages = draw(_chain(names, 0, False))
    tops = [stage["name"] for stage in stages if "name" in stage and stage["contiguity"] not in _NOT]
    kinds = ["no_skip", "no_skip", "to_next", "past_last", *(["to_first", "to_last"] if tops else [])]
    kind = draw(st.sampled_from(kinds))
    variable = draw(st.sampled_from(tops)) if kind in ("to_first", "to_last") else None
    # Without a bound, matches may be held back for ever by a strategy.
    is_bounded = kind != "no_skip" or stages[-1]["contiguity"] == "notFollowedBy" or draw(st.booleans())
    at, events = 1_000, []
    for number in range(draw(st.integers(1, 10))):
        at += draw(st.integers(0, 4))
        events.append(row(number, "k", draw(st.sampled_from(_LETTERS)), draw(st.integers(0, 3)), at))
    return {
        "pattern": {"stages": stages},
        "events": events,
        "skip": {"kind": kind, "variable": variable},
        "within_ms": _WITHIN if is_bounded else None,
        "within_type": "first_and_last",
    }


def _ways(job: MatchJob) -> list[Way]:
    """What was found, as the definition writes it."""
    ways = []
    for text, _ in job.matches():
        parts = (part.partition("=") for part in text.partition("|")[2].split(";"))
        ways.append(_in_order((name, int(place)) for name, _, places in parts for place in places.split(",")))
    return ways


def _in_order(steps: Any) -> Way:
    return tuple(sorted(steps, key=lambda step: step[1]))


def _found(case: Case, on_columns: bool) -> list[Way]:
    with pytest.MonkeyPatch.context() as patch:
        if not on_columns:
            patch.setattr(match_spec, "fits", lambda pattern: False)
        job = MatchJob(pattern_of(case))
    job.rows(case["events"])
    job.advance()
    return _ways(job)


@settings(
    max_examples=_EXAMPLES,
    derandomize="PATTERNS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(_cases())
def test_what_is_found_is_what_the_definition_says(case: Case) -> None:
    definition = Definition(case, case["events"])
    for on_columns in (True, False):
        found = _found(case, on_columns)
        if case["skip"]["kind"] == "no_skip":
            assert Counter(found) == Counter(definition.matches)
        else:
            assert definition.is_given(found)


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "event by event with restarts"])
@pytest.mark.parametrize("on_columns", [True, False], ids=["columns", "objects"])
@pytest.mark.parametrize("forbidden", ["B", "AB"])
@pytest.mark.parametrize("contiguity", _NOT)
def test_what_must_not_come_ends_nothing_before_it_begins(
    contiguity: str, forbidden: str, on_columns: bool, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = {"pattern": {"stages": _behind_what_may_be_empty(contiguity, forbidden)}, "within_ms": None}
    case["skip"] = {"kind": "no_skip", "variable": None}
    keys = ["".join(letters) for letters in product("ABC", repeat=4)]
    events = [row(4 * k + at, key, key[at], 0, 1_000 + at) for k, key in enumerate(keys) for at in range(4)]
    if not on_columns:
        monkeypatch.setattr(match_spec, "fits", lambda pattern: False)
    job = MatchJob(pattern_of(case))
    for at in () if at_once else range(4):
        job.rows(events[at::4])
        job.advance(1_000 + at)
        job.restart(parallelism=1)
    if at_once:
        job.rows(events)
    job.advance()
    found: dict[str, list[Way]] = {key: [] for key in keys}
    for way in _ways(job):
        found[keys[way[0][1] // 4]].append(tuple((name, number % 4) for name, number in way))
    for key, ways in found.items():
        of_key = [event for event in events if event["key"] == key]
        assert Counter(ways) == Counter(Definition(case, of_key).matches), key


def _behind_what_may_be_empty(contiguity: str, forbidden: str) -> list[Case]:
    """A group that may be left out, something that must not come, and something that must."""

    def stage(contiguity: str | None, name: str, letters: str) -> Case:
        tests = [{"op": "name", "is": letter} for letter in letters]
        return {"contiguity": contiguity, "name": name, "condition": {"op": "or", "of": tests}}

    group = [{**stage(None, "a", "A"), "optional": True}]
    return [{"contiguity": None, "group": group}, stage(contiguity, "n", forbidden), stage("followedBy", "c", "C")]
