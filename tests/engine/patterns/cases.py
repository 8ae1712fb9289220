"""Cases answered by Flink's CEP (tests/data/cep-cases.json.gz), and the patterns that they describe.

A case is a dict: `steps` are events `["el", key, name, value, time]` and watermarks `["wm", time]`; `pattern` holds the
stages; `expect` what Flink found, or the class of its refusal.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any, Final

from penstock import AfterMatchSkipStrategy, Pattern, col, lit

Case = dict[str, Any]
_FILE: Final = Path(__file__).parents[2] / "data" / "cep-cases.json.gz"
_VERBS: Final = {
    "next": Pattern.next,
    "followedBy": Pattern.followed_by,
    "followedByAny": Pattern.followed_by_any,
    "notNext": Pattern.not_next,
    "notFollowedBy": Pattern.not_followed_by,
}


def cases() -> list[Case]:
    """All cases."""
    loaded: list[Case] = json.loads(gzip.decompress(_FILE.read_bytes()))
    return loaded


def case(number: int) -> Case:
    """The case with this id."""
    return next(one for one in cases() if one["id"] == number)


def pattern_of(given: Case) -> Pattern:
    """The pattern of a case; raises where it is refused."""
    pattern = _chain(given["pattern"]["stages"], skip_of(given["skip"]))
    bound = given["within_ms"]
    return pattern if bound is None else pattern.within(f"{bound}ms", given["within_type"])


def skip_of(given: dict[str, Any]) -> AfterMatchSkipStrategy:
    """The skip strategy of a case."""
    strategies: dict[str, Callable[[], AfterMatchSkipStrategy]] = {
        "no_skip": AfterMatchSkipStrategy.no_skip,
        "to_next": AfterMatchSkipStrategy.skip_to_next,
        "past_last": AfterMatchSkipStrategy.skip_past_last_event,
        "to_first": lambda: AfterMatchSkipStrategy.skip_to_first(given["variable"]),
        "to_last": lambda: AfterMatchSkipStrategy.skip_to_last(given["variable"]),
    }
    return strategies[given["kind"]]()


def _chain(stages: list[Case], skip: AfterMatchSkipStrategy) -> Pattern:
    chained: Pattern | None = None
    for stage in stages:
        inner = _chain(stage["group"], AfterMatchSkipStrategy.no_skip()) if "group" in stage else stage["name"]
        begun = Pattern.begin(inner, skip) if chained is None else _VERBS[stage["contiguity"]](chained, inner)
        chained = _with_options(begun, stage)
    assert chained is not None
    return chained


def _with_options(pattern: Pattern, stage: Case) -> Pattern:
    if "condition" in stage:
        pattern = pattern.where(condition_of(stage["condition"]))
    if "quantifier" in stage:
        pattern = _repeated(pattern, stage["quantifier"])
    if stage.get("consecutive"):
        pattern = pattern.consecutive()
    if stage.get("combinations"):
        pattern = pattern.allow_combinations()
    if stage.get("optional"):
        pattern = pattern.optional()
    if stage.get("greedy"):
        pattern = pattern.greedy()
    if "until" in stage:
        pattern = pattern.until(condition_of(stage["until"]))
    if stage.get("gap_ms") is not None:
        pattern = pattern.within(f"{stage['gap_ms']}ms", "previous_and_current")
    if stage.get("within_ms") is not None:
        pattern = pattern.within(f"{stage['within_ms']}ms")
    return pattern


def _repeated(pattern: Pattern, quantifier: Case) -> Pattern:
    gap = None if quantifier.get("gap_ms") is None else f"{quantifier['gap_ms']}ms"
    match quantifier["kind"]:
        case "times":
            return pattern.times(quantifier["n"], gap=gap)
        case "times_range":
            return pattern.times(quantifier["from"], quantifier["to"], gap)
        case "times_or_more":
            return pattern.times_or_more(quantifier["n"], gap)
        case _:
            return pattern.one_or_more(gap)


def condition_of(given: Case) -> Any:
    """An expression; a function where the condition looks at the match so far."""
    return _iterative(given) if _is_iterative(given) else _expression(given)


def _is_iterative(given: Case) -> bool:
    return given["op"] == "gt_last" or any(map(_is_iterative, given.get("of", ())))


def _expression(given: Case) -> Any:
    match given["op"]:
        case "true":
            return lit(True) | col("value").is_null()
        case "name":
            return col("name") == given["is"]
        case "gt":
            return col("value") > given["c"]
        case joined:
            return reduce(or_ if joined == "or" else and_, map(_expression, given["of"]))


def _iterative(given: Case) -> Callable[[Any, Any], bool]:
    def holds(row: Any, match: Any) -> bool:
        return fulfils(given, row, match.events)

    return holds


def fulfils(given: Case, row: Any, events: Callable[[str], list[Any]]) -> bool:
    """Whether a condition holds for a row, where `events` knows the match so far."""
    match given["op"]:
        case "true":
            return True
        case "name":
            return bool(row["name"] == given["is"])
        case "gt":
            return bool(row["value"] > given["c"])
        case "gt_last":
            before = events(given["var"])
            return not before or bool(row["value"] > before[-1]["value"])
        case joined:
            return (any if joined == "or" else all)(fulfils(one, row, events) for one in given["of"])
