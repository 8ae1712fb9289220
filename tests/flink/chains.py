"""Random cases of patterns, in the form of `tests/engine/patterns/cases.py`, and what is found in them here.

Every contiguity, quantifier, group, `until`, bound of time and skip strategy takes part, as do iterative conditions,
several keys, rows of one time, and late ones.
"""

from __future__ import annotations

from random import Random
from typing import Any

from penstock.engine.errors import PatternError
from penstock.engine.patterns.compiler import compile_pattern
from penstock.engine.patterns.plans import goes_round
from tests.engine.operators.matching.match_job import MatchJob
from tests.engine.operators.matching.test_flink_cases import run
from tests.engine.patterns.cases import Case, pattern_of

_RELAXED = ("next", "followedBy", "followedByAny")
_NOT = ("notNext", "notFollowedBy")
_LETTERS = "ABC"
_SELDOM = (
    {"kind": "times", "n": 1},
    {"kind": "times", "n": 3},
    {"kind": "times_range", "from": 0, "to": 1},
    {"kind": "times_range", "from": 1, "to": 1},
    {"kind": "times_range", "from": 2, "to": 3},
    {"kind": "times_range", "from": 2, "to": 4},
    {"kind": "times_or_more", "n": 1},
    {"kind": "times_or_more", "n": 3},
)


def random_chain(seed: int) -> Case:
    """The case of a seed."""
    random = Random(seed)
    names: list[str] = []
    stages = _stages(random, names, 0)
    plain = [stage["name"] for stage in stages if "name" in stage and stage["contiguity"] not in _NOT]
    kind = random.choice(["no_skip", "to_next", "past_last", *(["to_first", "to_last"] if plain else [])])
    if random.random() < 0.03:
        # Refused: names in groups, of NOT stages, or of none.
        kind, plain = random.choice(["to_first", "to_last"]), [*names, "nobody"]
    ends_with_not = stages[-1]["contiguity"] == "notFollowedBy" and random.random() < 0.9
    return {
        "seed": seed,
        "pattern": {"stages": stages},
        "skip": {"kind": kind, "variable": random.choice(plain) if kind in ("to_first", "to_last") else None},
        "within_ms": random.choice([6, 12] if ends_with_not else [None, 6, 12, 25]),
        "within_type": random.choice(["first_and_last", "first_and_last", "previous_and_current"]),
        "late": True,
        "steps": _steps(random),
    }


def _steps(random: Random) -> list[list[Any]]:
    steps: list[list[Any]] = []
    at, watermark = random.choice([1_000, 1_000, 1_000, -5]), random.choice([0, -100])
    for _ in range(random.randint(4, 20)):
        at += random.choice([0, 0, 1, 1, 2, 5])
        steps.append(["el", random.choice("jkk"), random.choice(_LETTERS), random.randint(0, 4), at])
        if random.random() < 0.2:
            steps[-1][-1] -= random.randint(1, 4)
        if random.random() < 0.2 and at - 2 > watermark:
            watermark = at - 2
            steps.append(["wm", watermark])
    return steps


def _stages(random: Random, names: list[str], depth: int) -> list[Case]:
    stages: list[Case] = []
    count = random.randint(1, 2 if depth else 4)
    for place in range(count):
        contiguity = random.choice([*_RELAXED, *_RELAXED, *_NOT]) if place else None
        stage: Case = {"contiguity": contiguity}
        if depth < 2 and contiguity not in _NOT and random.random() < 0.2:
            stage["group"] = _stages(random, names, depth + 1)
        else:
            stage["condition"] = _condition(random, names)
            names.append(f"v{len(names)}")
            stage["name"] = names[-1]
        if contiguity not in _NOT:
            stage |= _options(random, "group" in stage)
            if "quantifier" not in stage and random.random() < 0.1:
                stage["gap_ms"] = random.choice([2, 6])
        if random.random() < 0.05:
            stage["within_ms"] = random.choice([8, 15])
        stages.append(stage)
    return stages


def _condition(random: Random, names: list[str]) -> Case:
    letters = random.choice([*_LETTERS, *_LETTERS, "AB", "BC", "ABC"])
    fits: Case = {"op": "or", "of": [{"op": "name", "is": letter} for letter in letters]}
    also = random.random()
    if also < 0.04:
        return {"op": "true"}
    if also < 0.08:
        return {"op": "or", "of": [{"op": "gt", "c": 2}, {"op": "name", "is": letters[0]}]}
    if also < 0.18:
        return {"op": "and", "of": [fits, {"op": "gt", "c": 1}]}
    if also < 0.3 and names:
        return {"op": "and", "of": [fits, {"op": "gt_last", "var": random.choice(names)}]}
    return fits


def _options(random: Random, is_group: bool) -> Case:
    if random.random() < 0.45:
        return {"optional": True} if random.random() < 0.2 else {}
    quantifier: Case = random.choice(
        [
            {"kind": "one_or_more"},
            {"kind": "times", "n": 2},
            {"kind": "times_range", "from": 1, "to": 3},
            {"kind": "times_range", "from": 0, "to": 2},
            {"kind": "times_or_more", "n": 2},
            random.choice(_SELDOM),
        ]
    )
    if random.random() < 0.15:
        quantifier = {**quantifier, "gap_ms": random.choice([2, 6])}
    options: Case = {"quantifier": quantifier}
    inner = random.choice(["", "consecutive", "combinations"])
    if inner:
        options[inner] = True
    # What has been optional is refused, and is asked now and then.
    if random.random() < (0.25 if quantifier.get("from") != 0 else 0.05):
        options["optional"] = True
    if inner != "combinations" and not is_group and random.random() < 0.3:
        options["greedy"] = True
    if quantifier["kind"] in ("one_or_more", "times_or_more") and random.random() < 0.3:
        ends: Case = {"op": "name", "is": random.choice(_LETTERS)}
        options["until"] = random.choice([ends, ends, {"op": "and", "of": [ends, {"op": "gt", "c": 1}]}])
    return options


def may_not_end(given: Case) -> bool:
    """Whether Flink's automaton may go round for ever: a group in a loop need not take an event."""
    try:
        return goes_round(compile_pattern(pattern_of(given)).states)
    except PatternError:
        return False


def found_here(given: Case, is_by_row: bool = False, restarts_at: int | None = None) -> list[str]:
    """What Flink's side gives for a case, in order of texts; raises where the pattern is refused."""
    found = run(given, MatchJob(pattern_of(given)), is_by_row, restarts_at)
    texts = [f"match {_in_order(text)}@{at}" for text, at in found["matches"]]
    for text in found["timeouts"]:
        path, _, at = text.rpartition("@")
        texts.append(f"timeout {_in_order(path)}@{at}")
    return sorted([*texts, *(f"late {number}" for number in found["late"])])


def _in_order(text: str) -> str:
    key, _, path = text.partition("|")
    return f"{key}|{';'.join(sorted(path.split(';')))}"
